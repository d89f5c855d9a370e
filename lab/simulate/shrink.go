package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rerun runs the world of a plan again, apart from the run's figures.
func (r *run) rerun(n int, items []item, less []int, recording bool) *world {
	w := r.spare()
	r.p2.make(r.o.Seed, n, &r.room2)
	if items != nil {
		r.p2.keep(items)
	}
	for _, i := range less {
		r.p2.less[i] = true
	}
	w.recording = recording
	w.reset(r.p2, r.w.wiring)
	w.run()
	return w
}

// spare is a world beside the run's own.
func (r *run) spare() *world {
	if r.second == nil {
		r.second = &world{wiring: r.w.wiring, hand: &handovers{}, lenient: r.lenient, only: r.only}
		r.p2, r.room2 = &plan{}, nil
		if r.w.seal != nil {
			r.second.seal = r.w.seal.again()
		}
		if r.w.gate != nil {
			r.second.gate = r.w.gate.again(r.second)
		}
	}
	return r.second
}

// shrink makes a failure small: rounds and faults are left out as long as the same
// violation shows (delta debugging), then rounds are made smaller.
func (r *run) shrink(n int) *Failure {
	kind := r.w.violation.kind
	items := r.p.items()
	var less []int
	fails := func(items []item, less []int) bool {
		w := r.rerun(n, items, less, false)
		return w.stopped && w.violation.kind == kind
	}
	if last := r.w.violation.at; last >= 0 && fails(items, nil) {
		items = reduce(items, func(some []item) bool { return fails(some, nil) })
	}
	for _, it := range slices.Clone(items) {
		if int(it) < planned && fails(items, append(slices.Clone(less), int(it))) {
			less = append(less, int(it))
		}
	}
	items = reduce(items, func(some []item) bool { return fails(some, less) })
	return r.failure(n, items, less)
}

// failure is the report of a plan that fails.
func (r *run) failure(n int, items []item, less []int) *Failure {
	w := r.rerun(n, items, less, true)
	f := &Failure{
		Kind: w.violation.kind, Detail: w.violation.detail, World: n, Plan: r.p2.describe(),
		Replay: replayName(n, items, less),
	}
	f.Events = w.story(int(w.violation.round), storyLines)
	f.Command = r.command(f.Replay)
	return f
}

func (r *run) command(replay string) string {
	c := fmt.Sprintf("lastword lab soak --seed %d --replay %s", r.o.Seed, replay)
	if r.o.Unsigned {
		c += " --unsigned"
	}
	if r.o.Variant != "" {
		c += " --variant " + r.o.Variant
	}
	return c
}

// reduce is ddmin: it leaves out parts, larger ones first, as long as some still fails.
func reduce(items []item, fails func([]item) bool) []item {
	for parts := 2; len(items) > 1; {
		size := (len(items) + parts - 1) / parts
		smaller := false
		for from := 0; from < len(items); from += size {
			rest := slices.Concat(items[:from], items[min(from+size, len(items)):])
			if fails(rest) {
				items, smaller = rest, true
				parts = max(parts-1, 2)
				break
			}
		}
		if smaller {
			continue
		}
		if parts >= len(items) {
			break
		}
		parts = min(2*parts, len(items))
	}
	if len(items) == 1 && fails([]item{}) {
		return []item{}
	}
	return items
}

// replayName names a plan: its world, what is kept, which rounds are made smaller.
func replayName(n int, items []item, less []int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", n)
	for i, it := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, int(it))
	}
	for i, l := range less {
		b.WriteByte([]byte{':', ','}[min(i, 1)])
		fmt.Fprint(&b, l)
	}
	return b.String()
}

func parseReplay(text string) (n int, items []item, less []int, err error) {
	parts := strings.Split(text, ":")
	if n, err = strconv.Atoi(parts[0]); err != nil || n < 0 || len(parts) > 3 {
		return 0, nil, nil, invalid(fmt.Sprintf("replay %q", text), "want what a failure has printed")
	}
	numbers := func(i, most int) (all []int) {
		if len(parts) <= i || parts[i] == "" {
			return nil
		}
		for s := range strings.SplitSeq(parts[i], ",") {
			k, bad := strconv.Atoi(s)
			if bad != nil || k < 0 || k >= most {
				err = invalid(fmt.Sprintf("replay %q", text), "want what a failure has printed")
				return nil
			}
			all = append(all, k)
		}
		return all
	}
	if len(parts) > 1 && parts[1] != "all" {
		for _, k := range numbers(1, planned*(1+maxFaults)) {
			items = append(items, item(k))
		}
	}
	switch {
	case len(parts) == 1 || parts[1] == "all":
		items, err = nil, nil
	case items == nil:
		items = []item{}
	}
	return n, items, numbers(2, planned), err
}

// replay runs one plan again.
func (r *run) replay() error {
	n, items, less, err := parseReplay(r.o.Replay)
	if err != nil {
		return err
	}
	if items == nil {
		r.p.make(r.o.Seed, n, &r.room)
		items = r.p.items()
	}
	w := r.rerun(n, items, less, false)
	r.trace = mix(w.trace)
	r.w.count, r.w.tally, r.w.forgedBy = w.count, w.tally, w.forgedBy
	for _, it := range items {
		if int(it) < planned {
			r.report.Counters.Rounds++
		}
	}
	if w.stopped {
		r.report.Counters.Violations[w.violation.kind]++
		r.gateOf(w.violation.kind)
		r.report.Failure = r.failure(n, items, less)
	}
	return nil
}

// story is the time line of a world, at most so many lines: those of the resource in
// which it ended, the ones that matter most.
func (w *world) story(round, most int) (events []Event) {
	lane := -1
	if round >= 0 {
		lane = int(w.owners[round].lane)
	}
	rank := func(n note) int {
		switch n { //nolint:exhaustive // the others are none of its
		case noteViolation:
			return 0
		case noteGranted, noteApplied, noteFault:
			return 1
		case noteRefused, noteEnded, noteRegistered, noteRestored, noteDeclared, noteAdvanced, noteCloned, noteOpened, noteFrozen, noteForged, noteLookedUp, noteUnsynced:
			return 2
		case noteStops, noteResumes, noteKilled, noteCrash, noteRelease, noteRenewed, noteLost, noteComplete, noteStarted, noteStopped, noteLostRecord, noteWitness:
			return 3
		case noteWrite, noteHears, noteCancel, noteAdvance, noteLeaves, noteBackup:
			return 4
		default:
			return 5
		}
	}
	var kept []rawEvent
	for _, e := range w.events {
		if _, ok := shown[e.what]; !ok || lane >= 0 && e.round >= 0 && int(w.owners[e.round].lane) != lane {
			continue
		}
		kept = append(kept, e)
	}
	for worst := 5; len(kept) > most && worst > 1; worst-- {
		for i := 0; i < len(kept) && len(kept) > most; {
			if rank(kept[i].what) == worst {
				kept = slices.Delete(kept, i, i+1)
				continue
			}
			i++
		}
	}
	if len(kept) > most {
		kept = kept[len(kept)-most:]
	}
	for i := range kept {
		if e, ok := w.event(&kept[i]); ok {
			events = append(events, e)
		}
	}
	return events
}

// timeline is a round to be shown, with what befell its resource around it.
func (r *run) timeline(e example) Timeline {
	w := r.rerun(e.world, nil, nil, true)
	o := &w.owners[e.round]
	t := Timeline{World: e.world, Round: e.round, Resource: string(laneNames[o.lane])}
	for i := range o.faults {
		if f := &o.faults[i]; f.fired {
			t.Faults = append(t.Faults, catalogue[f.kind].name)
		}
	}
	from, to := int64(-1), int64(0)
	for _, ev := range w.events {
		if int(ev.round) == e.round {
			if from < 0 {
				from = ev.at
			}
			to = ev.at
		}
	}
	from, to = from-50*ms, to+60*ms
	var open *Tenure
	for i := range w.events {
		ev := &w.events[i]
		if ev.round >= 0 && w.owners[ev.round].lane != o.lane {
			continue
		}
		switch ev.what { //nolint:exhaustive // the others are none of its
		case noteGranted:
			if open != nil {
				open.To, open.End = time.Duration(ev.at), "EXPIRED"
			}
			t.Tenures = append(t.Tenures, Tenure{Owner: w.actorName(actor(ev.round)), Fence: ev.fence, From: time.Duration(ev.at), To: time.Duration(to), End: "HELD"})
			open = &t.Tenures[len(t.Tenures)-1]
		case noteEnded:
			if open != nil && open.Fence == ev.fence {
				open.To, open.End = time.Duration(ev.at), ev.text
				open = nil
			}
		default:
		}
		if ev.at < from || ev.at > to {
			continue
		}
		if line, ok := w.event(ev); ok {
			t.Events = append(t.Events, line)
		}
	}
	t.Tenures = slices.DeleteFunc(t.Tenures, func(x Tenure) bool { return int64(x.To) < from || int64(x.From) > to })
	return t
}

// storyLines is how many events of a failure are shown at most.
var storyLines = 20
