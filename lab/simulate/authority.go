package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/model"
)

// store is what is durable at the authority.
type store struct {
	h    core.Header
	lane [lanes]storedLane
	// undo is what the disk does not have yet: the newest release may run ahead of it
	// (R6). Whatever is committed after it makes it durable, too.
	undo undo
}

type storedLane struct {
	rec core.Record
	req [maxRounds]core.Request // by round; ID "" is none
}

type undo struct {
	set  bool
	lane uint8
	rec  core.Record
	slot int16
	req  core.Request
	was  since
}

// proc is one authority process.
type proc struct {
	id     uint8
	up     bool
	born   uint32 // its first life in this world
	life   uint32 // tasks of an earlier life are void
	at     uint8  // the store that it is connected to
	held   uint32 // issuer epoch
	ident  string // of the store that it started on
	clock  clock
	until  int64 // it is stopped until then
	looks  uint32
	nextAt int64 // when it looks next

	// What it has watched (package authority's pace and watches).
	last, seen, sure, gaps int64
	back                   bool // time has gone back and not caught up yet
	watch                  [lanes]watch
	tick                   core.Tick
	tickSince              int64

	// What it has read and decided, and not yet committed.
	busy    bool
	pending decided
	inbox   []*message
	waiting [lanes][]*message

	// A start under way.
	step  uint8
	plan  core.Start
	found core.Header
	slow  bool
	tries uint32 // starts that lost against another
	crash *fault // that ends the start between two steps
}

// watch is what a process has seen of one record.
type watch struct {
	revision uint64
	since    int64
	wrote    uint64 // the revision at which it granted or renewed
	sent     int64  // when
	refused  uint64 // the revision at which who waits was refused last
	atTick   core.Tick
}

// decided is what the rules said to one message, and on what.
type decided struct {
	m        *message
	change   core.Change
	answer   core.Answer
	onTick   bool
	effect   effect
	epoch    uint32
	tick     core.Tick
	revision uint64
	seen     int64
	state    lastword.State
	ending   lastword.State
	known    bool // there was a request record
}

type effect uint8

const (
	noEffect effect = iota
	grants
	extends
	ends
	cancels
)

// lookForWaiters is how long it takes a process at most to notice that another one has
// freed what somebody waits for.
const lookForWaiters = 15 * ms

const (
	class = lastword.ClassWrite
	keyID = "key"
)

var work, otherWork = lastword.DigestOf([]byte("work")), lastword.DigestOf([]byte("other work"))

func open(l *core.Lease) bool {
	return l.State == lastword.StateHeld || l.State == lastword.StatePending
}

// serve takes a message at a process.
func (w *world) serve(p *proc, m *message) {
	switch {
	case !p.up:
		w.lost(m, "nobody listens")
		return
	case p.busy:
		p.inbox = append(p.inbox, m)
		return
	}
	w.look(p)
	if !w.current(p) {
		w.lost(m, "the process has stopped")
		return
	}
	w.decideAndCommit(p, m)
}

func (w *world) decideAndCommit(p *proc, m *message) {
	st := &w.store[p.at]
	d := w.decide(st, p, m)
	if w.stopped {
		return
	}
	if m.kind == askAcquire && d.answer.Code == lastword.CodeHeld {
		if !d.change.Write {
			w.park(p, m)
			pw := &p.watch[m.lane]
			pw.refused, pw.atTick = d.revision, st.h.Tick
			return
		}
	}
	if !d.change.Write {
		w.answer(p, m, &d)
		return
	}
	f := w.strikes(m.round, point(m.kind)|before)
	delay := int64(0)
	if f != nil {
		delay = w.beforeStep(p, m, f)
		if !p.up {
			return
		}
	} else if n := draw(w.plan.seed, uint64(m.round), uint64(m.no), 77); n&7 == 0 {
		delay = int64(n>>8) % (2 * ms)
	}
	if delay == 0 {
		w.commit(p, &d)
		return
	}
	p.busy, p.pending = true, d
	if w.wiring.Early {
		w.answer(p, m, &d)
		p.pending.m = w.copy(m)
		w.drop(m)
	}
	w.q.push(task{at: w.now + delay, kind: doCommit, who: int16(p.id), arg: p.life})
}

// decide lets the rules decide on what the store has.
func (w *world) decide(st *store, p *proc, m *message) (d decided) {
	x := w.wiring
	sl := &st.lane[m.lane]
	clock := core.Clock{Tick: st.h.Tick, Watched: w.watched(p, m.lane)}
	var req *core.Request
	if m.round >= 0 {
		if r := &sl.req[m.round]; r.ID != "" {
			req = r
		}
	}
	d = decided{m: m, epoch: st.h.Epoch, tick: st.h.Tick, revision: sl.rec.Revision, seen: p.seen, known: req != nil}
	shown := x.Known(req)
	o := &w.owners[max(m.round, 0)]
	ref := lastword.TenureRef{Resource: laneNames[m.lane], Owner: o.name, RequestID: o.request, LeaseID: m.lease, Fence: m.fence}
	switch m.kind { //nolint:exhaustive // the others are none of its
	case askAcquire:
		root := work
		if m.root {
			root = otherWork
		}
		d.change, d.answer = x.Acquire(sl.rec, shown, st.h, clock, core.AcquireInput{
			Owner: o.name, RequestID: o.request, TTL: core.Span(ttl), Ticks: x.Ticks(core.Span(ttl), core.Span(tick)),
			Root: root, Class: class, LeaseID: w.nextLease(p, m), KeyID: w.signing(), PolicyGeneration: w.generation, IssuedAt: 1,
		})
		if d.answer.Code == "" && !d.answer.Repeated && d.change.Write {
			d.effect = grants
		}
		w.checkAcquire(st, p, m, req, &d, clock)
	case askRenew:
		if d.change, d.answer = x.Renew(sl.rec, st.h, clock, ref); d.answer.Code == "" {
			d.effect = extends
		} else {
			d.ending, _ = core.Asked(d.settled(&sl.rec), req, m.lease)
		}
	case askRelease:
		if d.change, d.answer = x.Release(sl.rec, shown, st.h, clock, ref); d.answer.Code == "" && !d.answer.Repeated {
			d.effect = ends
		}
	case askComplete:
		d.change, d.answer = x.Complete(sl.rec, shown, st.h, clock, ref, []byte("done"))
	case askCancel:
		if d.change, d.answer = x.Cancel(sl.rec, shown, st.h, clock, o.name, o.request); d.change.Write {
			d.effect = cancels
		}
	case askRevoke:
		if d.change, d.answer = x.Revoke(sl.rec, st.h, clock, m.fence); d.answer.Code == "" {
			d.effect = cancels
		}
	case askNumber:
		if d.answer.Lease = sl.rec.Lease; x.Peeks {
			break
		}
		next := sl.rec
		next.Revision++
		next.Counter++
		d.change = core.Change{Write: true, Record: next}
	default: // askHeld, askStatus
		d.change, d.answer = x.Look(sl.rec, st.h, clock)
		after := d.settled(&sl.rec)
		if m.kind == askStatus {
			d.state = after.Lease.State
			d.ending, _ = core.Asked(after, req, m.lease)
			break
		}
		d.state = x.Status(after, sl.req[:], m.lease, m.fence)
		d.ending, _ = core.Asked(after, req, m.lease)
	}
	d.onTick = d.change.Write // as package authority has it: whatever was decided, was so at this tick
	return d
}

// settled is the record after the decision.
func (d *decided) settled(was *core.Record) core.Record {
	if d.change.Write {
		return d.change.Record
	}
	return *was
}

// commit makes a decision durable, if its conditions still hold, and answers.
func (w *world) commit(p *proc, d *decided) {
	st := &w.store[p.at]
	m := d.m
	sl := &st.lane[m.lane]
	if !w.wiring.Holds(st.h, sl.rec.Revision, model.Conditions{Epoch: d.epoch, OnTick: d.onTick, Tick: d.tick, Revision: d.change.Record.Revision - 1}) || st.h.Identity != p.ident && !w.wiring.Blind {
		w.note(noteAgain, actorProcess(p), m.round, uint64(m.kind), "")
		w.look(p)
		if !w.current(p) {
			w.lost(m, "the process has stopped")
			return
		}
		w.decideAndCommit(p, m)
		return
	}
	was := sl.rec
	w.observeStep(st, p, d)
	unsynced := m.kind == askRelease && d.effect == ends && draw(w.plan.seed, uint64(m.round), 31, 0)&3 == 0
	st.undo.set = false
	if unsynced {
		st.undo = undo{set: true, lane: m.lane, rec: was, slot: m.round, req: sl.req[m.round], was: w.ghost[m.lane].since}
	}
	sl.rec = w.wiring.Committed(was, d.change.Record)
	for i := range d.change.Requests {
		r := &d.change.Requests[i]
		if k := w.slot(r.ID); k >= 0 {
			sl.req[k] = *r
		}
	}
	pw := &p.watch[m.lane]
	if !w.wiring.Hasty {
		w.look(p)
		d.seen = p.seen
	}
	if open(&sl.rec.Lease) {
		pw.revision, pw.since = sl.rec.Revision, d.seen
		if d.effect == grants || d.effect == extends {
			pw.wrote, pw.sent = sl.rec.Revision, p.last
		}
	} else {
		pw.revision = 0
	}
	w.observe(st, d, &was)
	if w.stopped {
		return
	}
	if f := w.strikes(m.round, point(m.kind)|after); f != nil {
		w.afterStep(p, m, f)
		if !p.up {
			return
		}
	}
	lane := m.lane
	if w.wiring.Early && p.busy { // it has been answered
		w.drop(m)
	} else {
		w.answer(p, m, d)
	}
	if open(&sl.rec.Lease) {
		w.nextLook(p, w.rest(p))
		return
	}
	if other := &w.procs[1-p.id]; other.up && len(other.waiting[lane]) > 0 { // it finds out at its next look
		w.nextLook(other, int64(draw(w.plan.seed, uint64(w.now), uint64(lane), 13)>>8)%lookForWaiters)
	}
	w.promote(p, lane)
}

// answer sends what was decided to whoever asked.
func (w *world) answer(p *proc, m *message, d *decided) {
	a := &d.answer
	o := &w.owners[max(m.round, 0)]
	var r *message
	switch m.kind { //nolint:exhaustive // the others are none of its
	case askAcquire:
		if a.Code == lastword.CodeHeld { // it expired somebody, and a delay runs
			w.park(p, m)
			return
		}
		r = w.new(reAcquire, o)
		if r.code = string(a.Code); a.Code == "" {
			r.fence, r.lease, r.ttl, r.waited, r.again = a.Lease.Fence, a.Lease.ID, ttl, m.waited, a.Repeated
			r.grant = w.sign(m.lane, &a.Lease)
			r.gen = a.Lease.PolicyGeneration
			switch {
			case w.wiring.Remaining(*a):
				r.remaining = ttl
			default:
				r.remaining = w.remaining(p, m.lane)
			}
		}
	case askRenew:
		r = w.new(reRenew, o)
		r.code, r.lease, r.fence, r.ttl, r.remaining, r.how = string(a.Code), m.lease, a.Lease.Fence, ttl, ttl, d.ending
	case askRelease:
		r = w.new(reRelease, o)
		r.code, r.lease = string(a.Code), m.lease
	case askComplete:
		r = w.new(reComplete, o)
		r.code, r.lease = string(a.Code), m.lease
	case askStatus:
		r = w.new(reStatus, o)
		l := &w.store[p.at].lane[m.lane].rec.Lease
		r.lease, r.how, r.state, r.fence = m.lease, d.ending, l.State, l.Fence
		if l.ID == m.lease && open(l) {
			r.remaining = w.remaining(p, m.lane)
			r.found = true
		}
	case askNumber:
		r = w.new(reNumber, o)
		r.fence = a.Lease.Fence
		if d.change.Write {
			r.fence, _ = lastword.MakeToken(d.change.Record.Epoch, d.change.Record.Counter)
		}
	case askHeld:
		st := &w.store[p.at]
		r = w.new(reHeld, o)
		r.about, r.aboutL = m.about, m.aboutL
		r.heard = core.Heard{
			Mode: core.Query, State: d.state, NextFence: st.lane[m.lane].rec.NextFence(st.h), AfterLook: m.look,
			Mark: core.Mark{Epoch: st.h.Epoch, Revision: st.lane[m.lane].rec.Revision},
		}
		r.fence, r.lease, r.how = m.fence, m.lease, d.ending
		if l := &st.lane[m.lane].rec.Lease; l.ID != "" {
			r.state, r.holder, r.holderFence = l.State, l.ID, l.Fence
			if w.seal != nil {
				r.digest = w.seal.made[l.ID].digest
			}
		}
	default:
		w.drop(m)
		return
	}
	r.sent = m.sent
	r.to = p.id
	w.drop(m)
	w.send(r)
}

// remaining is what is left of the present tenure as far as p knows (R25).
func (w *world) remaining(p *proc, lane uint8) int64 {
	rec := &w.store[p.at].lane[lane].rec
	pw := &p.watch[lane]
	if pw.wrote != rec.Revision || pw.wrote == 0 {
		return 0
	}
	return max(0, ttl-(p.last-pw.sent))
}
