package model

import (
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
		m.watchWitness(s, p, proc, st)
		m.round(s, p, proc, st)
	}
	if s.left[crashBudget] > 0 && s.calm == 0 && (proc.up || proc.step != 0) {
		next := *s
		next.left[crashBudget]--
		next.proc[p] = m.procs.name(procState{id: p, at: proc.at})
		if m.wiring.Rollback && s.backup != 0 {
			next.store[0] = s.backup
		}
		m.emit(s, next, event{kind: evCrash, who: who}, "")
	}
}

// watchWitness stops a process whose witness does not belong to this run any more
// (R10).
func (m *machine) watchWitness(s *state, p uint8, proc procState, st *storeState) {
	mark := m.marks.at(s.witness).mark()
	drift := m.wiring.Compare(proc.held, st.h, mark)
	bad := startUnless(m.wiring.Blind || driftTruthful(proc.held, st.h, mark, drift))
	if drift != core.Regressed && bad == "" {
		return
	}
	next := *s
	next.proc[p] = m.procs.name(procState{id: p, at: proc.at})
	m.emit(s, next, event{kind: evStopped, who: process1 + actor(p)}, bad)
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
		after.h.Tick = m.wiring.Step(looked.tick)
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
	drift := m.wiring.Compare(proc.held, st.h, mark.mark())
	right := m.wiring.Blind || driftTruthful(proc.held, st.h, mark.mark(), drift)
	switch {
	case m.wiring.Blind:
		proc.held, proc.ident = st.h.Epoch, st.h.Identity
		proc.read, proc.message, proc.waited = 0, 0, 0
		ev.kind = evMoved
		next.proc[p] = m.procs.name(proc)
	case st.h.Identity == proc.ident && drift == core.Moved:
		mark.w = mark.w.At(st.h.Epoch)
		// A start that is under way must not be forgotten: its epoch would be a loss.
		right = right && mark.w.Starting == (mark.w.Current < mark.w.Pending)
		next.witness = m.marks.name(mark)
		proc.held = st.h.Epoch
		proc.read, proc.message, proc.waited = 0, 0, 0
		next.proc[p] = m.procs.name(proc)
		ev.kind = evMoved
	default:
		next.proc[p] = m.procs.name(procState{id: p, at: proc.at})
	}
	m.emit(s, next, ev, startUnless(right))
}
