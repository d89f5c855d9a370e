package model

import (
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

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
	plan := m.wiring.PlanStart(st.h, mark.mark())
	bad := startUnless(planTruthful(st.h, mark.mark(), plan))
	next := *s
	next.spendStart()
	switch {
	case plan.Code == lastword.CodeFenceRegression:
		m.advanceEpoch(s, p, st, mark, bad)
		return
	case plan.Code != "":
		m.came(outNoEpoch)
		m.emit(s, next, event{kind: evStopped, who: who}, bad)
		return
	}
	if plan.Adopted {
		m.came(outAdopted)
	}
	if !st.h.Exists {
		m.came(outFirstStart)
	}
	planned := witnessState{exists: true, w: plan.Witness}
	if m.w.steps {
		next.witness = m.marks.name(planned)
		proc.step, proc.plan, proc.planEpoch, proc.found, proc.empty = 1, next.witness, plan.Epoch, st.h.Epoch, !st.h.Exists
		next.proc[p] = m.procs.name(proc)
		m.emit(s, next, event{kind: evStartStep, who: who, extra: 1}, bad)
		return
	}
	after := *st
	after.h.Exists, after.h.Epoch, after.h.Identity = true, plan.Epoch, plan.Witness.Store
	after.h = m.wiring.Started(after.h)
	planned.w = planned.w.Settled()
	next.store[proc.at], next.witness = m.stores.name(&after), m.marks.name(planned)
	next.proc[p] = m.procs.name(procState{id: p, up: true, at: proc.at, held: plan.Epoch, ident: after.h.Identity, tick: after.h.Tick})
	m.emit(s, next, event{kind: evStart, who: who}, bad)
}

// startStore sets the epoch in the store, on the condition of the one that was read.
func (m *machine) startStore(s *state, p uint8, proc procState, st *storeState) {
	next := *s
	ev := event{kind: evStartStep, who: process1 + actor(p), extra: 2}
	if st.h.Epoch != proc.found || st.h.Exists == proc.empty {
		ev.kind = evStartFailed
		proc = procState{id: p, at: proc.at}
	} else {
		after := *st
		after.h.Exists, after.h.Epoch, after.h.Identity = true, proc.planEpoch, m.marks.at(proc.plan).w.Store
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
	if mark.exists && mark.w == m.marks.at(proc.plan).w { // compare and set
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
func (m *machine) advanceEpoch(s *state, p uint8, st *storeState, mark witnessState, bad kind) {
	found := []uint32{st.rec.Epoch, m.places.at(s.place).rec.Fence.Epoch()}
	plan, h := m.wiring.PlanAdvance(st.h, mark.mark(), found...)
	if bad == "" {
		bad = startUnless(advanceTruthful(st.h, mark.mark(), found, plan, h))
	}
	next, after := *s, *st
	if plan.Code != "" {
		m.came(outNoEpoch)
		next.spendStart()
		m.emit(s, next, event{kind: evStopped, who: process1 + actor(p)}, bad)
		return
	}
	next.spendStart()
	after.h = h
	at := m.procs.at(s.proc[p]).at
	next.store[at] = m.stores.name(&after)
	next.witness = m.marks.name(witnessState{exists: true, w: plan.Witness.Settled()})
	next.proc[p] = m.procs.name(procState{id: p, up: true, at: at, held: plan.Epoch, ident: h.Identity, tick: h.Tick})
	m.emit(s, next, event{kind: evAdvanceEpoch, who: process1 + actor(p)}, bad)
}

func (s *state) spendStart() {
	if s.left[startBudget] > 0 {
		s.left[startBudget]--
	}
}

func startUnless(right bool) kind {
	if right {
		return ""
	}
	return wrongStart
}

// heardOf reports whether an epoch is one that the witness has heard of: the current
// one, or one that a start has announced and not finished (R10).
func heardOf(w *core.Witness, epoch uint32) bool {
	return epoch == w.Current || w.Starting && w.Current < epoch && epoch <= w.Pending
}

// planTruthful reports whether a start plans what R10 says: it stops if the store is
// not the witness's, and else takes a number above every one that was ever planned.
func planTruthful(h core.Header, w *core.Witness, plan core.Start) bool {
	var lost bool
	highest := h.Epoch
	if w != nil {
		highest = max(highest, w.Current, w.Pending)
	}
	switch {
	case !h.Exists && w == nil: // the very first start
		return plan.Code == "" && plan.Epoch == 0 && plan.Witness.Starting && plan.Witness.First && plan.Witness.Store == h.Identity
	case !h.Exists:
		lost = !w.Starting || !w.First
	case w == nil:
		lost = h.Witnessed
	default:
		lost = w.Store != h.Identity || !heardOf(w, h.Epoch)
	}
	switch {
	case lost:
		return plan.Code == lastword.CodeFenceRegression
	case highest >= lastword.MaxEpoch:
		return plan.Code == lastword.CodeExhausted
	}
	found := h.Epoch
	if !h.Exists {
		found = w.Current
	}
	next := plan.Witness
	return plan.Code == "" && plan.Epoch == highest+1 && next.Pending == plan.Epoch && next.Current == found && next.Starting &&
		plan.Adopted == (w == nil) && (w != nil || next.Longest == core.LongestTTL) && next.First == !h.Exists
}

// advanceTruthful reports whether an operator's advance outranks all that was found,
// ends the tenures found, and waits for the lost ones (R10).
func advanceTruthful(h core.Header, w *core.Witness, found []uint32, plan core.Start, next core.Header) bool {
	highest, longest := slices.Max(append(found, h.Epoch)), core.LongestTTL
	if w != nil {
		highest, longest = max(highest, w.Current, w.Pending), w.Longest
	}
	if highest >= lastword.MaxEpoch {
		return plan.Code == lastword.CodeExhausted && next == h
	}
	wait := h.Tick + core.Ticks(longest, h.TickSpan)
	return plan.Code == "" && plan.Epoch == highest+1 && next.Epoch == plan.Epoch && next.Floor == plan.Epoch &&
		next.HoldUntil == max(h.HoldUntil, wait) && plan.Witness.Longest == longest
}

// driftTruthful reports whether a running process makes of store and witness what R10
// says.
func driftTruthful(held uint32, h core.Header, w *core.Witness, drift core.Drift) bool {
	right := core.Regressed
	switch {
	case !h.Exists, w == nil && (h.Witnessed || h.Epoch != held), w != nil && (w.Store != h.Identity || !heardOf(w, h.Epoch)), h.Epoch < held:
	case h.Epoch == held:
		right = core.Steady
	default:
		right = core.Moved
	}
	return drift == right
}
