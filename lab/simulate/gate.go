package simulate

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

// gateway lets writes go through the real gate of package fence, over memfence. A call
// of it is a coroutine that stops where a real one waits: for the authority's answer, and
// before its transaction. So everything else can happen in between, in an order that
// the seed decides.
type gateway struct {
	w       *world
	places  [lanes]*memfence.Place
	kept    [lanes]*memfence.Place
	gates   [ownerNames + 1][2]*fence.Gate // by caller and mode; the last one is the thief's
	running *passing
	live    []*passing
}

// passing is one call on its way.
type passing struct {
	m       *message
	next    func() (wish, bool)
	stop    func()
	yield   func(wish) bool
	status  lastword.Status
	told    bool
	known   core.KnownOperation // when it was decided
	receipt lastword.Receipt
	rec     fence.Record
	err     error
}

// wish is what a call waits for.
type wish uint8

const (
	wishAnswer wish = iota
	wishTransaction
)

var (
	errGone   = errors.New("the program was killed")
	errClosed = &lastword.Error{Code: lastword.CodeUnavailable, Message: "the resource is closed"}
	rows      [maxIntents]string
	act       = fence.Act{Operator: "operator", Reason: "simulated", At: time.Unix(1, 0)}
)

func init() {
	for i := range rows {
		rows[i] = "row-" + strconv.Itoa(i)
	}
}

func newGateway(w *world) *gateway { return &gateway{w: w} }

func (g *gateway) again(w *world) *gateway { return newGateway(w) }

func (g *gateway) reset(*world) {
	g.crash(g.w)
	for l := range g.places {
		g.places[l] = memfence.New(string(laneNames[l]))
		g.kept[l] = nil
	}
	g.forget()
}

// forget is a program that starts anew: its gates have heard and opened nothing.
func (g *gateway) forget() { g.gates = [ownerNames + 1][2]*fence.Gate{} }

// crash ends all calls that are under way, wherever they are.
func (g *gateway) crash(*world) {
	for _, p := range g.live {
		p.stop()
	}
	g.live = g.live[:0]
	g.forget()
}

func (g *gateway) backup() {
	for l := range g.places {
		g.kept[l] = g.places[l].Copy("backup")
	}
}

// restore puts the backup back. The program starts anew: what it had heard, it would
// believe for a while.
func (g *gateway) restore(lane int) {
	g.crash(g.w)
	for l := range g.places {
		if lane >= 0 && l != lane || g.kept[l] == nil {
			continue
		}
		g.places[l] = g.kept[l].Copy(string(laneNames[l]))
	}
}

func key(lane uint8) fence.Key { return fence.Key{Domain: domain, Resource: laneNames[lane]} }

// record is what the place keeps.
func (g *gateway) record(lane uint8) core.FenceRecord {
	i, err := g.places[lane].Inspect(context.Background(), key(lane))
	if err != nil {
		panic(err) // its context never ends
	}
	rec := i.Record
	rec.Lost, rec.Unraised = false, false
	return rec
}

// operated does what an operator does, and has the observer see what comes of it.
func (g *gateway) operated(lane uint8, err error) {
	if err != nil {
		g.w.violate(wrongRecord, -1, "an operator cannot go on: "+err.Error())
	}
	g.w.place.lane[lane].rec = g.record(lane)
}

func (g *gateway) declare(st *store) {
	for l := range uint8(lanes) {
		g.raise(l, st.lane[l].rec.NextFence(st.h))
	}
}

// raise declares one resource restored.
func (g *gateway) raise(lane uint8, next lastword.Token) {
	_, err := fence.DeclareRestored(context.Background(), g.places[lane], fence.Restore{
		Domain: domain, Resource: laneNames[lane], Until: time.Unix(1, 0), Act: act,
		NextFence: func(context.Context, lastword.Resource) (lastword.Token, error) { return next, nil },
	})
	g.operated(lane, err)
}

func (g *gateway) reopen() {
	for l := range uint8(lanes) {
		_, err := fence.Reopen(context.Background(), g.places[l], domain, laneNames[l], act)
		g.operated(l, err)
	}
}

func (g *gateway) lose(lane uint8) {
	g.operated(lane, g.places[lane].Lose(context.Background(), key(lane)))
}

// release opens a frozen record; one that was lost is declared restored, and nothing of
// it had been lost but the record.
func (g *gateway) release(lane uint8, above lastword.Token) {
	if above > 0 {
		g.raise(lane, above)
		_, err := fence.Reopen(context.Background(), g.places[lane], domain, laneNames[lane], act)
		g.operated(lane, err)
		return
	}
	_, err := fence.Release(context.Background(), g.places[lane], key(lane), above, act)
	g.operated(lane, err)
}

// gate is the one of a caller, in a mode.
func (g *gateway) gate(m *message) *fence.Gate {
	caller, mode := ownerNames, 0
	if m.class == 0 || m.leaked || !forgeries[m.class-1].stolen {
		caller = int(g.w.owners[m.round].plannedRound.name)
	}
	if g.w.place.mode[m.lane] == core.Query {
		mode = 1
	}
	if f := g.gates[caller][mode]; f != nil {
		return f
	}
	f, err := fence.NewGate(fence.Config{
		Domain: domain, Verifier: g.w.seal.verifier, Status: g, Mode: g.w.place.mode[m.lane], Policy: core.Ordered,
		Caller: g.w.caller(m), MinPolicyGeneration: g.w.place.minGen, StatusReuse: duration(reuseFor),
		AskTimeout: time.Hour, // of the system's time, in which nothing happens here
		Elapsed:    func() time.Duration { return duration(g.w.now) },
		Now:        func() time.Time { return time.Unix(0, g.w.now) },
	})
	if err != nil {
		panic(err) // its configuration is a constant
	}
	g.gates[caller][mode] = f
	return f
}

// pass begins the call for a message.
func (w *world) pass(m *message) {
	g := w.gate
	p := &passing{m: m}
	m.gate = p
	gate, lane := g.gate(m), m.lane
	p.next, p.stop = iter.Pull(func(yield func(wish) bool) {
		p.yield = yield
		c := fence.Call{Resource: laneNames[lane], Mutation: lastword.Mutation{Grant: m.grant}}
		ctx := context.Background()
		if m.kind == doAdvance {
			p.rec, p.err = fence.Advance(ctx, gate, guarded{g, lane}, c)
			return
		}
		row := rows[m.intent]
		c.Mutation.Seq, c.Mutation.Operation, c.Mutation.Payload = m.seq, operations[m.op], payloads[w.payload(m)]
		p.receipt, p.err = fence.Apply(ctx, gate, guarded{g, lane}, c, func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
			before, _ := tx.Get(row)
			n, _ := strconv.Atoi(before)
			tx.Set(row, strconv.Itoa(n+1))
			return nil, nil
		})
	})
	g.live = append(g.live, p)
	w.resume(m)
}

// resume lets a call go on until it waits again or is over.
func (w *world) resume(m *message) {
	p, g := m.gate, w.gate
	g.running = p
	what, more := p.next()
	g.running = nil
	switch {
	case !more:
		if i := slices.Index(g.live, p); i >= 0 {
			g.live = slices.Delete(g.live, i, i+1)
		}
		w.passed(m, p)
	case what == wishAnswer:
		m.rounds++
		w.question(m)
	default:
		w.toTransaction(m)
	}
}

// Status implements [fence.StatusSource]: it waits for the authority's answer.
func (g *gateway) Status(context.Context, lastword.StatusQuery) (lastword.Status, error) {
	p := g.running
	p.told = false
	if !p.yield(wishAnswer) {
		return lastword.Status{}, errGone
	}
	if !p.told {
		return lastword.Status{}, errors.New("no answer in time")
	}
	return p.status, nil
}

// tell gives a call the authority's answer.
func (p *passing) tell(r *message) {
	p.told = true
	p.status = lastword.Status{
		Resource: laneNames[r.lane], State: r.state, NextFence: r.heard.NextFence, Revision: r.heard.Mark.Revision, Asked: r.how,
		Holder: lastword.TenureRef{Resource: laneNames[r.lane], LeaseID: r.holder, Fence: r.holderFence}, Digest: r.digest,
	}
}

// guarded is the place as the gate sees it: a transaction may have to wait, and the
// place may be closed when its turn comes.
type guarded struct {
	g    *gateway
	lane uint8
}

var _ fence.Place[*memfence.Tx] = guarded{}

// Name implements [fence.Place].
func (p guarded) Name() string { return p.g.places[p.lane].Name() }

// Transact implements [fence.Place].
func (p guarded) Transact(ctx context.Context, k fence.Key, fn func(ctx context.Context, tx *memfence.Tx) error) error {
	if !p.g.running.yield(wishTransaction) {
		return errGone
	}
	if p.g.w.place.down || p.g.w.place.shut {
		return errClosed
	}
	run := p.g.running
	run.known = p.g.w.place.lane[p.lane].operation(run.m.op)
	run.m.known = run.known.Receipt
	return p.g.places[p.lane].Transact(ctx, k, fn)
}

// Note implements [fence.Place].
func (p guarded) Note(ctx context.Context, k fence.Key, e fence.Evidence) error {
	return p.g.places[p.lane].Note(ctx, k, e)
}

// Find implements [fence.Place].
func (p guarded) Find(ctx context.Context, k fence.Key, operation string) (lastword.Receipt, bool, error) {
	return p.g.places[p.lane].Find(ctx, k, operation)
}

// Inspect implements [fence.Place].
func (p guarded) Inspect(ctx context.Context, k fence.Key) (fence.Inspection, error) {
	return p.g.places[p.lane].Inspect(ctx, k)
}

// Records implements [fence.Place].
func (p guarded) Records(ctx context.Context, d string, after lastword.Resource, limit int) ([]lastword.Resource, error) {
	return p.g.places[p.lane].Records(ctx, d, after, limit)
}

// Bundle implements [fence.Place]. Here every record is a place of its own.
func (p guarded) Bundle(context.Context, string) (fence.BundleFloor, error) {
	return fence.BundleFloor{}, nil
}

// RaiseBundle implements [fence.Place].
func (p guarded) RaiseBundle(context.Context, string, fence.BundleFloor) error { return nil }

// passed is a call that is over: what it says, and what it did.
func (w *world) passed(m *message, p *passing) {
	ls := &w.place.lane[m.lane]
	was := ls.rec
	known := p.known
	if m.kind == doAdvance {
		known = core.KnownOperation{}
	}
	ls.rec = w.gate.record(m.lane)
	m.era = w.place.era
	v, why := lastword.Applied, ""
	if m.kind == doWrite && p.err == nil {
		v = p.receipt.Verdict
	}
	if p.err != nil {
		var e *lastword.Error
		if !errors.As(p.err, &e) || e.Code == lastword.CodeUnavailable || e.Code == lastword.CodeInternal || e.Code == lastword.CodeInvalid {
			if e == nil || e.Code != lastword.CodeUnavailable {
				w.violate(wrongVerdict, m.round, "the gate fails: "+p.err.Error())
				return
			}
			w.lost(m, "the resource is closed")
			return
		}
		v, why = lastword.Verdict(e.Code), string(grant.ReasonOf(p.err))
	}
	d := core.Decision{Verdict: v, Write: v == lastword.Applied && ls.rec != was, Record: ls.rec}
	if v != lastword.Applied {
		thawed := ls.rec
		thawed.Frozen = was.Frozen
		if thawed != was {
			w.violate(highwaterPolluted, m.round, "a write that was refused with "+string(v)+" has changed the record")
			return
		}
		d.Record = was
	}
	before := *ls
	before.rec = was
	w.checkVerdict(&before, m, &d, known)
	switch {
	case w.stopped:
	case v == lastword.Applied && m.kind == doWrite:
		m.fence, m.lease = p.receipt.Fence, p.receipt.LeaseID
		ls.receive(m, p.receipt.Seq, w.payload(m))
		w.apply(ls, m)
		if w.stopped {
			return
		}
		w.agree(ls, m)
		w.committed(m, p.receipt.Seq)
	case v == lastword.Applied:
		w.registered(ls, m)
		w.reply(m, v, 0)
	default:
		if ls.rec.Frozen && !was.Frozen {
			ls.frozen = true
			w.note(noteFrozen, actorResource, m.round, uint64(ls.rec.Fence), "")
			w.q.push(task{at: w.now + 15*ms, kind: doOperator, who: int16(m.lane), arg: operatorRelease})
		}
		w.refuse(m, v, why)
	}
}

// found looks for a receipt.
func (w *world) found(m *message) bool {
	if w.gate == nil {
		return w.place.lane[m.lane].receipts[m.op].known
	}
	_, found, err := w.gate.places[m.lane].Find(context.Background(), key(m.lane), operations[m.op])
	return err == nil && found
}

// verify compares what memfence has with what the observer has seen.
func (g *gateway) verify(w *world, lane uint8) {
	ls := &w.place.lane[lane]
	var changes, kept uint64
	for i := range ls.effects {
		text, _ := g.places[lane].Get(rows[i])
		n, _ := strconv.ParseUint(text, 10, 64)
		changes += n
		w.check(n >= uint64(ls.effects[i]), receiptDisagrees, -1, "at the end a business row is not what was seen")
		_, found, err := g.places[lane].Find(context.Background(), key(lane), operations[i])
		if found {
			kept++
		}
		w.check(err == nil && found == ls.receipts[i].known, receiptDisagrees, -1, "at the end a receipt is not what was seen")
	}
	w.check(changes == ls.changes && kept == ls.kept, receiptDisagrees, -1, "at the end rows and receipts are not what was seen")
	w.check(g.record(lane) == ls.rec, wrongRecord, -1, "at the end the record is not what was seen")
}
