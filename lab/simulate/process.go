package simulate

import (
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// witnessOf is the witness, nil if it is missing.
func (w *world) witnessOf() *core.Witness {
	if !w.marked {
		return nil
	}
	return &w.witness
}

// current reports whether the store is the one, and in the epoch, that p runs with. If
// it is not, p goes on with a later one or stops (R10).
func (w *world) current(p *proc) bool {
	st := &w.store[p.at]
	if st.h.Epoch == p.held && st.h.Identity == p.ident {
		return true
	}
	if w.wiring.Blind {
		p.held, p.ident = st.h.Epoch, st.h.Identity
		p.watch = [lanes]watch{}
		return true
	}
	if drift := w.wiring.Compare(p.held, st.h, w.witnessOf()); drift == core.Moved && st.h.Identity == p.ident {
		w.witness = w.witness.At(st.h.Epoch)
		p.held = st.h.Epoch
		w.publish(p.held)
		w.note(noteMoved, actorProcess(p), -1, uint64(p.held), "")
		return true
	}
	w.stopProc(p, "it does not find its own store and epoch")
	return false
}

// down ends the life of a process: nothing that it remembered is left.
func (w *world) down(p *proc) {
	if p.busy && p.pending.m != nil {
		w.lost(p.pending.m, "")
	}
	for _, m := range p.inbox {
		w.lost(m, "")
	}
	for l := range p.waiting {
		for _, m := range p.waiting[l] {
			w.lost(m, "")
		}
		p.waiting[l] = p.waiting[l][:0]
	}
	p.inbox = p.inbox[:0]
	p.up, p.busy, p.step, p.until, p.pending = false, false, 0, 0, decided{}
	p.life++
	p.nextAt = 0
	p.looks++
	w.disturbed(2 * ttl)
}

// stopProc is a process that finds a regression: it grants nothing until an operator
// has confirmed (R10).
func (w *world) stopProc(p *proc, why string) {
	w.note(noteStopped, actorProcess(p), -1, uint64(p.held), why)
	w.down(p)
	w.q.push(task{at: w.now + 20*ms, kind: doStart, who: int16(p.id), arg: p.life})
}

// crashProc kills a process; it comes back after a while.
func (w *world) crashProc(p *proc, power bool, back int64) {
	w.note(noteCrash, actorProcess(p), -1, uint64(p.held), "")
	st := &w.store[p.at]
	if power && st.undo.set { // what the disk did not have is gone
		u := &st.undo
		st.lane[u.lane].rec = u.rec
		st.lane[u.lane].req[u.slot] = u.req
		w.ghost[u.lane].since = u.was
		w.note(noteUnsynced, actorFault, u.slot, 0, "")
		st.undo.set = false
	}
	w.down(p)
	if w.wiring.Rollback && w.backupSet {
		*st = w.backup
		for i := range w.procs {
			w.procs[i].watch = [lanes]watch{}
		}
	}
	w.q.push(task{at: w.now + back, kind: doStart, who: int16(p.id), arg: p.life})
}

// startTask takes the next step of a start: plan at the witness, epoch in the store,
// witness settled (R10). Whoever runs already says which store is the right one.
func (w *world) startTask(p *proc) {
	if p.up {
		return
	}
	if w.now < p.until {
		w.q.push(task{at: p.until, kind: doStart, who: int16(p.id), arg: p.life})
		return
	}
	st := &w.store[p.at]
	switch p.step {
	case 1:
		if st.h.Epoch != p.found.Epoch || st.h.Exists != p.found.Exists || st.h.Identity != p.found.Identity {
			w.again(p)
			return
		}
		st.h.Exists, st.h.Epoch, st.h.Identity = true, p.plan.Epoch, p.plan.Witness.Store
		st.h = w.wiring.Started(st.h)
		st.undo.set = false
		p.step = 2
		if p.crash != nil && p.crash.arg&1 == 0 {
			w.crashed(p)
			return
		}
	case 2:
		if w.marked && w.witness == p.plan.Witness { // compare and set
			w.witness = w.witness.Settled()
		}
		if !w.marked || w.witness.Current < p.plan.Epoch || st.h.Epoch != p.plan.Epoch {
			w.again(p)
			return
		}
		w.running(p, p.plan.Epoch)
		return
	default:
		if other := &w.procs[1-p.id]; other.up && p.at != other.at && !w.twoStores {
			p.at = other.at
			st = &w.store[p.at]
		}
		plan := w.wiring.PlanStart(st.h, w.witnessOf())
		w.checkStart(st, &plan)
		if w.stopped {
			return
		}
		if plan.Code == lastword.CodeFenceRegression {
			w.advanceEpoch(p)
			return
		}
		if plan.Code != "" {
			w.again(p)
			return
		}
		if plan.Adopted {
			plan.Witness.Longest = core.Span(ttl)
		}
		p.plan, p.found = plan, st.h
		w.witness, w.marked = plan.Witness, true
		p.step = 1
		if p.crash != nil && p.crash.arg&1 == 1 {
			w.crashed(p)
			return
		}
	}
	delay := ms / 2
	if p.slow {
		delay = int64(draw(w.plan.seed, uint64(p.id), uint64(p.life-p.born), uint64(p.step))>>2) % (30 * ms)
	}
	w.q.push(task{at: w.now + delay, kind: doStart, who: int16(p.id), arg: p.life})
}

// crashed ends a start between two of its steps.
func (w *world) crashed(p *proc) {
	w.effect(p.crash)
	p.crash = nil
	p.step = 0
	p.life++
	w.note(noteCrash, actorProcess(p), -1, uint64(p.plan.Epoch), "between two steps of its start")
	w.q.push(task{at: w.now + 30*ms, kind: doStart, who: int16(p.id), arg: p.life})
}

// again begins a start anew.
func (w *world) again(p *proc) {
	p.step = 0
	p.tries++
	wait := 5*ms + int64(draw(w.plan.seed, uint64(p.id), uint64(p.tries), 41)>>8)%(20*ms) // or two that start at once would for ever
	w.q.push(task{at: w.now + wait, kind: doStart, who: int16(p.id), arg: p.life})
}

func (w *world) running(p *proc, epoch uint32) {
	st := &w.store[p.at]
	p.up, p.step, p.held, p.ident, p.busy = true, 0, epoch, st.h.Identity, false
	p.last, p.seen, p.sure, p.gaps, p.back = p.clock.read(w.now), 0, 0, 0, false
	p.watch, p.tick, p.tickSince = [lanes]watch{}, st.h.Tick, 0
	w.publish(epoch)
	w.note(noteStarted, actorProcess(p), -1, uint64(epoch), "")
	w.nextLook(p, ms)
}

// advanceEpoch is the operator's way out of a regression (R10).
func (w *world) advanceEpoch(p *proc) {
	st := &w.store[p.at]
	if other := &w.procs[1-p.id]; w.twoStores && other.up { // the other store is the right one
		w.twoStores = false
		p.at = other.at
		w.again(p)
		return
	}
	w.twoStores = false
	found := make([]uint32, 0, 2*lanes+1)
	for l := range st.lane {
		found = append(found, st.lane[l].rec.Epoch, w.place.lane[l].rec.Fence.Epoch())
	}
	found = append(found, w.bundle.current)
	mark := w.witnessOf()
	if mark == nil { // the operator knows the longest TTL that was ever granted
		mark = &core.Witness{Longest: core.Span(ttl)}
	}
	plan, h := w.wiring.PlanAdvance(st.h, mark, found...)
	if plan.Code != "" {
		w.violate(wrongStart, -1, "an operator cannot advance the epoch: "+string(plan.Code))
		return
	}
	w.check(plan.Epoch > slices.Max(found) && plan.Epoch > st.h.Epoch, wrongStart, -1, "an epoch advance does not outrank what was found")
	if _, copied := h.Original(); copied {
		h.Identity, _ = h.Original()
		h.Identity += "'"
		plan.Witness.Store = h.Identity
	}
	st.h = h
	st.undo.set = false
	w.witness, w.marked = plan.Witness.Settled(), true
	w.note(noteAdvanced, actorOperator, -1, uint64(plan.Epoch), "")
	for i := range w.procs {
		if other := &w.procs[i]; other != p && !other.up {
			other.at = p.at
		}
	}
	w.running(p, plan.Epoch)
}
