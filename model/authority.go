package model

import (
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

const (
	resource = lastword.Resource("doc/a")
	class    = lastword.ClassWrite
)

// root is of the one piece of work that clients do, otherRoot of one that they name by
// mistake.
var root, otherRoot = lastword.DigestOf([]byte("work")), lastword.DigestOf([]byte("other work"))

// served is what a process makes of one message.
type served struct {
	done   bool // its conditions held
	store  uint16
	proc   uint16
	reply  uint16
	effect effect
	bad    kind
}

// effect is what an accepted step means to the observer.
type effect uint8

const (
	noEffect effect = iota
	grants
	extends
	ends
	cancels
)

// decision is what the rules say to one message, and what the write that it asks for
// is conditional on.
type decision struct {
	change core.Change
	answer core.Answer
	state  lastword.State // of a status question
	next   lastword.Token
	told   toldStatus
	onTick bool
	effect effect
}

// decide lets the rules decide on what a process has read.
func (m *machine) decide(st *storeState, p procState, q message, era uint8) (d decision) {
	w := m.wiring
	clock := core.Clock{Tick: st.h.Tick, Watched: p.watched}
	req := w.Known(st.request(q.client, q.attempt))
	ref := lastword.TenureRef{
		Resource: resource, Owner: clientNames[q.client], RequestID: requestID(q.client, q.attempt),
		LeaseID: q.lease, Fence: q.fence,
	}
	switch q.kind {
	case askAcquire:
		work := root
		if q.otherRoot {
			work = otherRoot
		}
		d.change, d.answer = w.Acquire(st.rec, req, st.h, clock, core.AcquireInput{
			Owner: ref.Owner, RequestID: ref.RequestID, TTL: m.ttl, Ticks: w.Ticks(m.ttl, tick),
			Root: work, Class: class, LeaseID: leaseName(p, st, era),
			KeyID: "key", PolicyGeneration: m.w.generation(st.h.Epoch), LockDelay: m.w.delay, LockDelayTicks: m.w.delayTicks(),
		})
		if d.answer.Code == "" && !d.answer.Repeated {
			d.onTick, d.effect = true, grants
		}
	case askRenew:
		if d.change, d.answer = w.Renew(st.rec, st.h, clock, ref); d.answer.Code == "" {
			d.onTick, d.effect = true, extends
		} else if m.w.keeper { // NOT_HOLDER says how it ended
			d.told.asked, _ = core.Asked(d.settled(st.rec), req, q.lease)
		}
	case askRelease:
		if d.change, d.answer = w.Release(st.rec, req, st.h, clock, ref); d.answer.Code == "" && !d.answer.Repeated {
			d.effect = ends
		}
	case askComplete:
		d.change, d.answer = w.Complete(st.rec, req, st.h, clock, ref, q.result())
	case askCancel:
		if d.change, d.answer = w.Cancel(st.rec, req, st.h, clock, ref.Owner, ref.RequestID); d.change.Write {
			d.effect = cancels
		}
	case askRevoke:
		if d.change, d.answer = w.Revoke(st.rec, st.h, clock, q.fence); d.answer.Code == "" {
			d.effect = cancels
		}
	case askNumber: // only a broken system has it
		if d.answer.Lease = st.rec.Lease; w.Peeks {
			break
		}
		next := st.rec
		next.Revision++
		next.Counter++
		d.change = core.Change{Write: true, Record: next}
	default:
		d.change, d.answer = w.Look(st.rec, st.h, clock)
		after := *st
		if d.change.Write {
			after.rec = d.change.Record
		}
		if q.kind == askStatus {
			d.told = m.statusTold(&after, p, q)
		}
		d.state, d.next = w.Status(after.rec, after.req[:], q.lease, q.fence), after.rec.NextFence(st.h)
	}
	return d
}

// settled is the record after the decision.
func (d decision) settled(before core.Record) core.Record {
	if d.change.Write {
		return d.change.Record
	}
	return before
}

// leaseName stands for the random text of production: unlike every other one.
func leaseName(p procState, st *storeState, era uint8) string {
	return fmt.Sprintf("L%d.%d.%d.%d", p.id, st.h.Epoch, st.rec.Revision, era)
}

// look lets the time since the last look count, at most one tick of it (R8).
func (m *machine) look(p procState, st *storeState) procState {
	if p.aged {
		gone := core.Pace(tick, tick)
		p.aged = false
		p.watched = min(p.watched+gone, m.ttl+m.w.delay)
		p.stood = p.stood || p.tick == st.h.Tick || m.wiring.Restless
	}
	p.watched = m.wiring.Watch(p.revision, p.watched, st.rec)
	p.revision = st.rec.Revision
	if p.tick != st.h.Tick {
		p.tick, p.stood = st.h.Tick, p.stood && m.wiring.Restless
	}
	return m.forgetful(p, st)
}

// forgetful makes processes alike that differ in what is of no use. While no tenure
// is open nothing is watched; and a counter that was seen to stand for a tick, and
// need not move, is as one that will be seen so at the next look.
func (m *machine) forgetful(p procState, st *storeState) procState {
	if open(st.rec.Lease) || m.w.delay > 0 && st.rec.Lease.State == lastword.StateExpired {
		return p
	}
	p.revision, p.watched, p.wrote, p.age = 0, 0, 0, 0
	if st.h.Tick >= st.h.HoldUntil && p.stood {
		p.stood, p.aged = false, true
	}
	return p
}

func open(l core.Lease) bool {
	return l.State == lastword.StateHeld || l.State == lastword.StatePending
}

// serve decides on what was read and commits it against what is there now.
func (m *machine) serve(read, now *storeState, p procState, q message, era uint8) served {
	d := m.decide(read, p, q, era)
	decider := p
	out := served{done: true}
	after := *now
	if d.change.Write {
		c := Conditions{Epoch: read.h.Epoch, OnTick: d.onTick, Tick: read.h.Tick, Revision: d.change.Record.Revision - 1}
		p = m.returned(p, now)
		if !m.wiring.Holds(now.h, now.rec.Revision, c) {
			p.revision, p.watched = 0, 0
			return served{proc: m.procs.name(p)}
		}
		m.commit(&after, d)
		p.revision, p.watched = after.rec.Revision, 0
		if m.w.keeper && (d.effect == grants || d.effect == extends) {
			p.wrote, p.age = after.rec.Revision, 0
		}
		out.bad = tenures(now, &after, q)
		out.effect = d.effect
	}
	m.answeredWith(now, &after, q, d)
	out.store, out.proc = m.stores.name(&after), m.procs.name(m.forgetful(p, &after))
	if out.bad == "" && !m.truthful(read, decider, q, d) {
		out.bad = wrongAnswer
	}
	if a := &d.answer; m.w.keeper && a.Code == "" && a.Repeated {
		d.told.left = m.remaining(p, &after)
	}
	out.reply = m.reply(q, d)
	return out
}

// returned is a process whose commit has been answered: what it watches from here on
// begins now, however long the commit took (R8).
func (m *machine) returned(p procState, st *storeState) procState {
	p.read, p.message, p.waited = 0, 0, 0
	if p.aged && !m.wiring.Hasty {
		p.aged = false
		p.stood = p.stood || p.tick == st.h.Tick
	}
	return p
}

func (m *machine) commit(st *storeState, d decision) {
	before := st.rec
	st.rec = m.wiring.Committed(before, d.change.Record)
	for _, r := range d.change.Requests {
		for i := range st.req {
			if r.ID == requestID(uint8(i/maxAttempts), uint8(i%maxAttempts+1)) {
				st.req[i] = r
			}
		}
	}
}

// reply is the message that goes back, 0 for none: nobody waits for the answers to a
// release, a cancellation or a revocation.
func (m *machine) reply(q message, d decision) uint16 {
	a := d.answer
	r := message{client: q.client, attempt: q.attempt, sent: q.sent, code: string(a.Code)}
	switch q.kind {
	case askAcquire:
		r.kind = reAcquire
		if a.Code == "" {
			r.fence, r.lease, r.whole = a.Lease.Fence, a.Lease.ID, m.wiring.Remaining(a)
			r.found, r.left = a.Lease.Completed, d.told.left
		}
	case askRenew:
		r.kind, r.lease = reRenew, q.lease
		r.fence, r.told.asked = a.Lease.Fence, d.told.asked
	case askStatus:
		r.kind, r.lease, r.told = reStatus, q.lease, d.told
	case askComplete:
		r.kind, r.lease = reComplete, q.lease
	case askNumber:
		fence := a.Lease.Fence
		if d.change.Write {
			fence, _ = lastword.MakeToken(d.change.Record.Epoch, d.change.Record.Counter)
		}
		r.kind, r.fence = reNumber, fence
	case doWrite, doAdvance:
		r = q
		r.asked = true
		r.heard = core.Heard{Mode: core.Query, State: d.state, NextFence: d.next, AfterLook: q.look}
		if q.jump {
			r.heard = core.Heard{Mode: core.FenceOnly, NextFence: d.next}
		}
	default:
		return 0
	}
	return m.msgs.name(r)
}

// granted is what a step of the authority means to the observer.
type granted struct {
	ghost uint16
	bad   kind
}

func (m *machine) observe(s *state, before, after uint16, q uint16, e effect) granted {
	if e == noEffect {
		return granted{ghost: s.ghost}
	}
	a := uint64(s.ghost)<<48 | uint64(before)<<32 | uint64(after)<<16 | uint64(s.now)<<8 | uint64(e)
	if v, ok := m.granting.get(a, uint64(q)); ok {
		return *v
	}
	return *m.granting.put(a, uint64(q), m.see(*m.ghosts.at(s.ghost), m.stores.at(before), m.stores.at(after), *m.msgs.at(q), e, s.now))
}

func (m *machine) see(g ghost, before, after *storeState, q message, e effect, now uint8) granted {
	l := &after.rec.Lease
	var bad kind
	switch e {
	case grants:
		bad = g.grants(issue{fence: l.Fence, lease: l.ID, client: q.client, attempt: q.attempt}, now, &m.w)
	case extends:
		g.since = now + 1
	case ends, cancels:
		if open(before.rec.Lease) && !open(*l) && l.State != lastword.StateExpired {
			g.since = 0
			if e == cancels {
				g.excused |= 1 << g.find(before.rec.Lease.Fence, before.rec.Lease.ID)
			}
		}
		if q.kind == askCancel {
			g.cancelled |= 1 << slot(q.client, q.attempt)
		}
	case noEffect:
	}
	return granted{ghost: m.ghosts.name(g), bad: bad}
}

// able reports whether process p can serve: it runs, has nothing under way, and the
// store is the one that it started on, in the epoch that it holds.
func (m *machine) able(s *state, p uint8) bool {
	proc := m.procs.at(s.proc[p])
	if !proc.up || proc.read != 0 {
		return false
	}
	h := &m.stores.at(s.store[proc.at]).h
	return h.Epoch == proc.held && h.Identity == proc.ident
}

// handle lets process p take message i of the net.
func (m *machine) handle(s *state, p uint8, i int, again bool) {
	msg, proc := s.net[i], s.proc[p]
	at := m.procs.at(proc).at
	era := m.ghosts.at(s.ghost).era
	a := uint64(s.store[at])<<48 | uint64(proc)<<32 | uint64(msg)<<16 | uint64(era)
	v, ok := m.serving.get(a, 0)
	if !ok {
		v = m.serving.put(a, 0, m.receive(s.store[at], proc, msg, era))
	}
	out := *v
	next := *s
	next.proc[p] = out.proc
	ev := event{kind: evServe, who: process1 + actor(p), a: msg, b: out.reply}
	if !out.done { // read, to be committed later
		m.answer(&next, out.reply)
		m.emit(s, next, ev, "")
		return
	}
	if again {
		ev.kind = evServeTwice
		next.left[dupBudget]--
	} else {
		next.take(i)
	}
	m.finish(s, next, at, msg, out, ev)
}

// receive is one message at one process: its look, and its decision; in a world of
// split steps the commit comes later.
func (m *machine) receive(store, proc, msg uint16, era uint8) served {
	st, p, q := m.stores.at(store), m.look(*m.procs.at(proc), m.stores.at(store)), *m.msgs.at(msg)
	if m.w.split && m.decide(st, p, q, era).change.Write {
		p.read, p.message, p.waited = store, msg, p.watched
		out := served{proc: m.procs.name(p)}
		if m.wiring.Early {
			out.reply = m.reply(q, m.decide(st, p, q, era))
		}
		return out
	}
	return m.serve(st, st, p, q, era)
}

// finish makes a committed step visible.
func (m *machine) finish(s *state, next state, at uint8, msg uint16, out served, ev event) {
	seen := m.observe(s, s.store[at], out.store, msg, out.effect)
	next.store[at], next.ghost = out.store, seen.ghost
	bad := out.bad
	if (bad == "" || bad == wrongAnswer) && seen.bad != "" { // what was done is worse than what was said
		bad = seen.bad
	}
	if m.wiring.Forgetful && out.effect == ends {
		place := *m.places.at(s.place)
		place.rec, place.receipts = core.FenceRecord{}, [maxIntents * 2]receipt{}
		next.place = m.places.name(place)
	}
	m.answer(&next, out.reply)
	m.emit(s, next, ev, bad)
}

// commitLater is the second half of a split step.
func (m *machine) commitLater(s *state, p uint8) {
	proc := s.proc[p]
	pr := m.procs.at(proc)
	at, msg := pr.at, pr.message
	era := m.ghosts.at(s.ghost).era
	a := uint64(s.store[at])<<48 | uint64(proc)<<32 | uint64(era)
	v, ok := m.serving.get(a, 1)
	if !ok {
		decided := *pr
		decided.watched = decided.waited
		v = m.serving.put(a, 1, m.serve(m.stores.at(pr.read), m.stores.at(s.store[at]), decided, *m.msgs.at(msg), era))
	}
	out := *v
	next := *s
	next.proc[p] = out.proc
	ev := event{kind: evCommit, who: process1 + actor(p), a: msg, b: out.reply}
	if !out.done {
		ev.kind = evCommitFailed
		m.emit(s, next, ev, "")
		return
	}
	for i := range next.net {
		if next.net[i] == msg {
			next.take(i)
			break
		}
	}
	m.finish(s, next, at, msg, out, ev)
}
