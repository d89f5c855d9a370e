package core_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

var update = flag.Bool("update", false, "write the answers of the scripts anew")

// The scripts in testdata/scripts are stories: a command a line, the answers of the
// rules below it, indented. "#" begins a remark. The commands are the cases of
// [world.run]; ticks are the only unit of time.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(raw))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(raw) {
				t.Fatalf("%s tells another story; look at the difference, and use -update only if the protocol says so:\n%s", file, got)
			}
		})
	}
}

func play(t *testing.T, script string) string {
	t.Helper()
	w := newWorld()
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "    ") {
			continue // an answer
		}
		out.WriteString(line + "\n")
		command, _, _ := strings.Cut(line, "#")
		if words := strings.Fields(command); len(words) > 0 {
			if !w.run(words) {
				t.Fatalf("cannot read %q", line)
			}
			for _, answer := range w.answers {
				out.WriteString("    " + answer + "\n")
			}
			w.answers = nil
		}
	}
	return out.String()
}

type requestKey struct{ owner, id string }

// durable is what a backup of the authority's store holds.
type durable struct {
	header   core.Header
	rec      core.Record
	requests map[requestKey]core.Request
}

func (d durable) clone() durable {
	d.requests = maps.Clone(d.requests)
	return d
}

type world struct {
	durable
	witness   *core.Witness
	running   bool
	held      uint32 // epoch of the authority process
	backup    durable
	watched   core.Span
	lockDelay core.Tick
	leases    map[string]core.Lease // the newest of each owner, and of each fence
	place     *place
	saved     place
	policy    core.Policy
	mode      core.StatusMode
	effects   int
	value     string
	answers   []string
}

func newWorld() *world {
	return &world{
		durable: durable{
			header:   core.Header{Exists: true, Identity: "s1", TickSpan: 1},
			rec:      core.Record{Resource: "doc"},
			requests: map[requestKey]core.Request{},
		},
		running: true,
		leases:  map[string]core.Lease{},
		place:   newPlace(),
		policy:  core.Ordered,
		mode:    core.FenceOnly,
	}
}

func (w *world) say(format string, args ...any) {
	w.answers = append(w.answers, fmt.Sprintf(format, args...))
}

// rest reads "name value" pairs; values may be quoted without a space in them.
type rest map[string]string

func options(words []string) rest {
	r := rest{}
	for i := 0; i+1 < len(words); i += 2 {
		r[words[i]] = strings.Trim(words[i+1], `"`)
	}
	return r
}

func (r rest) number(name string) uint64 {
	n, _ := strconv.ParseUint(r[name], 10, 64)
	return n
}

func (w *world) run(words []string) bool {
	who, verb, o := words[0], "", rest{}
	if len(words) > 1 {
		verb, o = words[1], options(words[2:])
	}
	switch who {
	case "at":
		n, err := strconv.ParseUint(verb, 10, 64)
		w.header.Tick = core.Tick(n)
		return err == nil
	case "watched": // by this authority process, for the next command only
		n, err := strconv.ParseInt(verb, 10, 64)
		w.watched = core.Span(n)
		return err == nil
	case "lock-delay":
		n, err := strconv.ParseUint(verb, 10, 64)
		w.lockDelay = core.Tick(n)
		return err == nil
	case "seed": // seed epoch 0 counter 40
		o = options(words[1:])
		w.rec.Epoch, w.rec.Counter = uint32(o.number("epoch")), o.number("counter")
		w.header.Epoch = w.rec.Epoch
		w.held = w.header.Epoch
		return true
	case "place": // place policy latest mode query
		o = options(words[1:])
		w.policy, w.mode = core.Policy(o["policy"]), core.StatusMode(o["mode"])
		return true
	case "place-backup":
		w.saved = place{rec: w.place.rec, receipts: maps.Clone(w.place.receipts)}
		return true
	case "place-restored":
		w.place.rec, w.place.receipts = w.saved.rec, maps.Clone(w.saved.receipts)
		if verb != "silently" {
			w.place.rec = core.Close(w.place.rec, w.rec.NextFence(w.header))
		}
		w.sayRecord()
		return true
	case "effects":
		w.say("%d effects, value %q", w.effects, w.value)
		return true
	case "authority", "operator":
		return w.process(who, words[1:])
	}
	return w.client(who, verb, words, o)
}

func (w *world) client(who, verb string, words []string, o rest) bool {
	switch verb {
	case "acquires", "renews", "releases", "completes", "cancels", "looks":
		if !w.running || w.held != w.header.Epoch {
			w.say("no answer: the authority grants nothing")
			return true
		}
		clock := core.Clock{Tick: w.header.Tick, Watched: w.watched}
		w.watched = 0
		w.commit(w.step(who, verb, words, o, clock))
		return true
	case "writes", "advances":
		w.write(who, verb, o)
		return true
	}
	return false
}

func (w *world) step(who, verb string, words []string, o rest, clock core.Clock) (string, core.Change, core.Answer) {
	lease := w.leases[who]
	if of := o["of"]; of != "" {
		lease = w.leases[of]
	}
	ref := lastword.TenureRef{Resource: "doc", Owner: lease.Owner, LeaseID: lease.ID, Fence: lease.Fence}
	req := w.request(requestKey{lease.Owner, lease.RequestID})
	var change core.Change
	var answer core.Answer
	switch verb {
	case "acquires":
		owner := who
		if as := o["as"]; as != "" {
			owner = as // two processes with one name
		}
		id := o["request"]
		in := core.AcquireInput{
			Owner: owner, RequestID: id, TTL: core.Span(o.number("ttl")), Ticks: core.Tick(o.number("ttl")),
			Root: lastword.DigestOf([]byte(o["root"])), Class: lastword.ClassWrite,
			LeaseID:   fmt.Sprintf("%s-%s", owner, id),
			LockDelay: core.Span(w.lockDelay), LockDelayTicks: w.lockDelay,
		}
		change, answer = core.Acquire(w.rec, w.request(requestKey{owner, id}), w.header, clock, in)
		if answer.Code == "" {
			w.leases[who], w.leases[answer.Lease.Fence.String()] = answer.Lease, answer.Lease
		}
	case "renews":
		change, answer = core.Renew(w.rec, w.header, clock, ref)
	case "releases":
		change, answer = core.Release(w.rec, req, w.header, clock, ref)
	case "completes":
		change, answer = core.Complete(w.rec, req, w.header, clock, ref, []byte(o["with"]))
	case "cancels":
		id := o["request"]
		change, answer = core.Cancel(w.rec, w.request(requestKey{who, id}), w.header, clock, who, id)
	case "looks":
		change, answer = core.Look(w.rec, w.header, clock)
	}
	return verb, change, answer
}

func (w *world) request(k requestKey) *core.Request {
	if r, ok := w.requests[k]; ok {
		return &r
	}
	return nil
}

func (w *world) commit(verb string, change core.Change, answer core.Answer) {
	written := "nothing written"
	if change.Write {
		w.rec = change.Record
		for _, r := range change.Requests {
			w.requests[requestKey{r.Owner, r.ID}] = r
		}
		written = fmt.Sprintf("revision %d", w.rec.Revision)
	}
	w.say("%s; %s", w.tell(verb, answer), written)
}

func (w *world) tell(verb string, a core.Answer) string {
	repeated := ""
	if a.Repeated {
		repeated = " (repeated)"
	}
	switch {
	case a.Code == lastword.CodeTenureEnded:
		return fmt.Sprintf("%s: fence %s was %s", a.Code, a.Ended.Fence.Text(), ended(a.Ended))
	case a.Code == lastword.CodeHeld && a.Blocked:
		return "HELD: by nobody, not yet"
	case a.Code == lastword.CodeHeld:
		return fmt.Sprintf("HELD: by %s, fence %s, until %d", a.Lease.Owner, a.Lease.Fence.Text(), a.Lease.Deadline)
	case a.Code != "":
		return string(a.Code)
	case verb == "acquires":
		before := "none before"
		if a.Previous.LeaseID != "" {
			before = fmt.Sprintf("before it fence %s was %s", a.Previous.Fence.Text(), ended(a.Previous))
		}
		return fmt.Sprintf("granted%s: fence %s until %d; %s", repeated, a.Lease.Fence.Text(), a.Lease.Deadline, before)
	case verb == "renews":
		return fmt.Sprintf("renewed: fence %s until %d", a.Lease.Fence.Text(), a.Lease.Deadline)
	case verb == "looks":
		if a.Lease.ID == "" {
			return "FREE"
		}
		return fmt.Sprintf("%s: fence %s, next %s", a.Lease.State, a.Lease.Fence.Text(), w.rec.NextFence(w.header).Text())
	}
	return "done" + repeated
}

func ended(e lastword.Ending) string {
	if e.Completed {
		return fmt.Sprintf("%s after completing with %q", e.State, e.Result)
	}
	return string(e.State)
}

// write is a write or a registration at the place, under the newest tenure of who.
func (w *world) write(who, verb string, o rest) {
	lease := w.leases[who]
	if of := o["under"]; of != "" {
		lease = w.leases[of]
	}
	a := core.Attempt{
		Fence: lease.Fence, LeaseID: lease.ID, GrantDigest: lastword.DigestOf([]byte(lease.ID)), Root: lease.Root,
		Seq: o.number("seq"), Operation: o["op"], Payload: lastword.DigestOf([]byte(o["value"])),
		Policy: w.policy, Status: w.mode, Heard: core.Heard{Mode: core.FenceOnly},
	}
	if w.mode == core.Query && o["heard"] == "" {
		state, _ := core.Asked(w.rec, nil, lease.ID)
		a.Heard = core.Heard{Mode: core.Query, State: state, NextFence: w.rec.NextFence(w.header), AfterLook: true}
	} else if w.mode == core.Query {
		a.Heard = core.Heard{Mode: core.Query, State: lastword.State(o["heard"]), AfterLook: true}
	}
	var d core.Decision
	if verb == "advances" {
		d = w.place.advance(a)
	} else {
		d = w.place.write(a)
		if d.Write {
			w.effects++
			w.value = o["value"]
		}
	}
	if d.Freeze {
		w.place.rec = core.Freeze(w.place.rec)
	}
	w.say("%s", strings.TrimSpace(string(d.Verdict)+" "+d.Why))
	w.sayRecord()
}

func (w *world) sayRecord() {
	r := w.place.rec
	tenure := r.LeaseID
	if tenure == "" {
		tenure = "closed"
	}
	if !r.Exists {
		w.say("record: none; value %q", w.value)
		return
	}
	frozen := ""
	if r.Frozen {
		frozen = ", frozen"
	}
	w.say("record: fence %s, %s, seq %d%s; value %q", r.Fence.Text(), tenure, r.LastSeq, frozen, w.value)
}

// process is the life of the authority's process and what an operator does.
func (w *world) process(who string, words []string) bool {
	line := strings.Join(words, " ")
	switch line {
	case "begins with an empty store":
		w.durable = durable{header: core.Header{Identity: "s1", TickSpan: 1}, rec: core.Record{Resource: "doc"}, requests: map[requestKey]core.Request{}}
		w.witness, w.running = nil, false
	case "crashes":
		w.running = false
	case "starts", "starts and crashes after the witness", "starts and crashes after the store":
		w.start(core.PlanStart(w.header, w.witness), nil, line)
	case "advances the epoch", "advances the epoch and crashes after the witness", "advances the epoch and crashes after the store":
		plan, header := core.PlanAdvance(w.header, w.witness, w.place.rec.Fence.Epoch())
		w.start(plan, &header, line)
	case "backs up":
		w.backup = w.clone()
	case "restores":
		w.durable = w.backup.clone() // the store's own counter goes back with it
		w.running = false
	case "loses the store":
		w.header, w.rec, w.running = core.Header{Identity: "s2", TickSpan: 1}, core.Record{Resource: "doc"}, false
	case "compares":
		switch core.Compare(w.held, w.header, w.witness) {
		case core.Steady:
			w.say("steady in epoch %d", w.held)
		case core.Moved:
			*w.witness = w.witness.At(w.header.Epoch)
			w.held = w.header.Epoch
			w.say("moved to epoch %d", w.held)
		case core.Regressed:
			w.running = false
			w.say("regressed: stops granting")
		}
	default:
		if len(words) == 2 && words[0] == "revokes" && who == "operator" {
			n, err := lastword.ParseToken(words[1])
			change, answer := core.Revoke(w.rec, w.header, core.Clock{Tick: w.header.Tick}, n)
			w.commit("revokes", change, answer)
			return err == nil
		}
		if len(words) == 3 && words[0] == "longest" && words[1] == "ttl" { // before a grant with a longer TTL
			n, err := strconv.ParseInt(words[2], 10, 64)
			w.witness.Longest = core.Span(n)
			return err == nil
		}
		return false
	}
	return true
}

func (w *world) start(plan core.Start, header *core.Header, line string) {
	if plan.Code != "" {
		w.say("%s: %s", plan.Code, plan.Why)
		return
	}
	w.witness = &plan.Witness
	if strings.HasSuffix(line, "the witness") {
		w.running = false
		w.say("the witness expects epoch %d, the store does not know", plan.Epoch)
		return
	}
	if header != nil {
		w.header = *header
	}
	w.header.Exists, w.header.Witnessed, w.header.Epoch = true, true, plan.Epoch
	if strings.HasSuffix(line, "the store") {
		w.running = false
		w.say("the store is in epoch %d, the witness does not know", plan.Epoch)
		return
	}
	settled := plan.Witness.Settled()
	w.witness, w.held, w.running = &settled, plan.Epoch, true
	w.say("grants in epoch %d", plan.Epoch)
}
