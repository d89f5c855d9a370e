package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// process generates what authority process p does by itself.
func (m *machine) process(s *state, p uint8) {
	proc := *m.procs.at(s.proc[p])
	who := process1 + actor(p)
	st := m.stores.at(s.store[proc.at])
	switch {
	case !proc.up:
		m.start(s, p, proc)
	case proc.read != 0:
		m.commitLater(s, p)
	case st.h.Epoch != proc.held || st.h.Identity != proc.ident:
		m.meet(s, p, proc, st)
	default:
		if mark := m.marks.at(s.witness); m.w.clone && mark.exists && m.wiring.guard(proc.held, mark.w) {
			next := *s
			next.proc[p] = m.procs.name(procState{id: p, at: proc.at})
			m.emit(s, next, event{kind: evStopped, who: who}, "")
		}
		m.round(s, p, proc, st)
	}
	if s.left[crashBudget] > 0 && s.calm == 0 && (proc.up || proc.step != 0) {
		next := *s
		next.left[crashBudget]--
		next.proc[p] = m.procs.name(procState{id: p, at: proc.at})
		if m.wiring.rollback && s.backup != 0 {
			next.store[0] = s.backup
		}
		m.emit(s, next, event{kind: evCrash, who: who}, "")
	}
}

// round is a look without a message: the counter is advanced by a tick if it has
// been seen to stand for one (R8), conditional on its being what was read.
func (m *machine) round(s *state, p uint8, proc procState, st *storeState) {
	looked := m.look(proc, st)
	next := *s
	l := &st.rec.Lease
	needed := open(*l) && st.h.Tick < l.Deadline || st.h.Tick < st.h.HoldUntil ||
		m.w.delay > 0 && st.h.Tick < max(l.Deadline, l.EndedTick)+m.w.delayTicks()
	if looked.stood && needed {
		after := *st
		after.h.Tick = m.wiring.step(st, looked.tick)
		looked.tick, looked.stood = after.h.Tick, false
		next.store[proc.at] = m.stores.name(&after)
	}
	next.proc[p] = m.procs.name(looked)
	m.emit(s, next, event{kind: evRound, who: process1 + actor(p)}, "")
}

// meet is a process that finds another epoch, or another store, than it started on.
func (m *machine) meet(s *state, p uint8, proc procState, st *storeState) {
	next := *s
	mark := *m.marks.at(s.witness)
	ev := event{kind: evStopped, who: process1 + actor(p)}
	switch {
	case m.wiring.blind:
		proc.held, proc.ident = st.h.Epoch, st.h.Identity
		proc.read, proc.message, proc.waited = 0, 0, 0
		ev.kind = evMoved
		next.proc[p] = m.procs.name(proc)
	case st.h.Identity == proc.ident && m.wiring.compare(proc.held, st.h, mark.mark()) == core.Moved:
		mark.w = mark.w.At(st.h.Epoch)
		next.witness = m.marks.name(mark)
		proc.held = st.h.Epoch
		proc.read, proc.message, proc.waited = 0, 0, 0
		next.proc[p] = m.procs.name(proc)
		ev.kind = evMoved
	default:
		next.proc[p] = m.procs.name(procState{id: p, at: proc.at})
	}
	m.emit(s, next, ev, "")
}

// start brings a process up: three durable steps (R10), in one unless the world takes
// them apart.
func (m *machine) start(s *state, p uint8, proc procState) {
	st, mark := m.stores.at(s.store[proc.at]), *m.marks.at(s.witness)
	who := process1 + actor(p)
	switch proc.step {
	case 1:
		m.startStore(s, p, proc, st)
		return
	case 2:
		m.startSettle(s, p, proc, st)
		return
	}
	if s.left[startBudget] == 0 && s.calm == 0 {
		return
	}
	plan := m.wiring.planStart(st.h, mark.mark())
	next := *s
	next.spendStart()
	if plan.Code == lastword.CodeFenceRegression {
		m.advanceEpoch(s, p, st, mark)
		return
	}
	if plan.Code != "" {
		return
	}
	planned := witnessState{exists: true, w: plan.Witness}
	if m.w.steps {
		next.witness = m.marks.name(planned)
		proc.step, proc.plan, proc.planEpoch, proc.found = 1, next.witness, plan.Epoch, st.h.Epoch
		next.proc[p] = m.procs.name(proc)
		m.emit(s, next, event{kind: evStartStep, who: who, extra: 1}, "")
		return
	}
	after := *st
	after.h.Epoch, after.h.Identity = plan.Epoch, plan.Witness.Store
	after.h = m.wiring.started(after.h)
	planned.w = planned.w.Settled()
	next.store[proc.at], next.witness = m.stores.name(&after), m.marks.name(planned)
	next.proc[p] = m.procs.name(procState{id: p, up: true, at: proc.at, held: plan.Epoch, ident: after.h.Identity, tick: after.h.Tick})
	m.emit(s, next, event{kind: evStart, who: who}, "")
}

// startStore sets the epoch in the store, on the condition of the one that was read.
func (m *machine) startStore(s *state, p uint8, proc procState, st *storeState) {
	next := *s
	ev := event{kind: evStartStep, who: process1 + actor(p), extra: 2}
	if st.h.Epoch != proc.found {
		ev.kind = evStartFailed
		proc = procState{id: p, at: proc.at}
	} else {
		after := *st
		after.h.Epoch = proc.planEpoch
		next.store[proc.at] = m.stores.name(&after)
		proc.step = 2
	}
	next.proc[p] = m.procs.name(proc)
	m.emit(s, next, ev, "")
}

// startSettle makes the epoch the witness's current one; then the process runs.
func (m *machine) startSettle(s *state, p uint8, proc procState, st *storeState) {
	next := *s
	ev := event{kind: evStart, who: process1 + actor(p)}
	mark := *m.marks.at(s.witness)
	if mark.w == m.marks.at(proc.plan).w { // compare and set
		mark.w = mark.w.Settled()
		next.witness = m.marks.name(mark)
	}
	if mark.w.Current < proc.planEpoch {
		ev.kind = evStartFailed
		next.proc[p] = m.procs.name(procState{id: p, at: proc.at})
	} else {
		next.proc[p] = m.procs.name(procState{id: p, up: true, at: proc.at, held: proc.planEpoch, ident: st.h.Identity, tick: st.h.Tick})
	}
	m.emit(s, next, ev, "")
}

// advanceEpoch is the operator's way out of a regression; process p runs after it.
func (m *machine) advanceEpoch(s *state, p uint8, st *storeState, mark witnessState) {
	plan, h := m.wiring.planAdvance(st.h, mark.mark())
	if plan.Code != "" {
		return
	}
	next, after := *s, *st
	next.spendStart()
	after.h = h
	at := m.procs.at(s.proc[p]).at
	next.store[at] = m.stores.name(&after)
	next.witness = m.marks.name(witnessState{exists: true, w: plan.Witness.Settled()})
	next.proc[p] = m.procs.name(procState{id: p, up: true, at: at, held: plan.Epoch, ident: h.Identity, tick: h.Tick})
	m.emit(s, next, event{kind: evAdvanceEpoch, who: process1 + actor(p)}, "")
}

func (s *state) spendStart() {
	if s.left[startBudget] > 0 {
		s.left[startBudget]--
	}
}
