package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// revoke is an operator that has looked at the present tenure and names its fence; the
// command may come late.
func (w *world) revoke(o *owner, f *fault) {
	p := w.anyProc()
	if p == nil {
		return
	}
	l := &w.store[p.at].lane[o.lane].rec.Lease
	if !open(l) {
		return
	}
	m := w.new(askRevoke, o)
	m.fence, m.to = l.Fence, p.id
	at := w.now + int64(f.arg>>8%uint64(2*ms))
	if f.arg&1 == 1 {
		at += int64(f.arg >> 16 % uint64(ttl))
	}
	w.effect(f)
	w.later(m, at)
}

func (w *world) anyProc() *proc {
	for i := range w.procs {
		if w.procs[i].up {
			return &w.procs[i]
		}
	}
	return nil
}

// restoreStore puts the authority's backup back; if there is none yet, one is made and
// put back later.
func (w *world) restoreStore(f *fault) {
	p := w.anyProc()
	if p == nil || w.twoStores {
		return
	}
	st := &w.store[p.at]
	if !w.backupSet {
		w.backup, w.backupSet = *st, true
		w.active[f.kind] = f
		again := *f
		again.fired, again.left, again.at = false, 0, point(reWrite)
		w.note(noteBackup, actorOperator, -1, uint64(st.h.Epoch), "")
		w.laterFault(f)
		return
	}
	changed := w.backup.h != st.h
	for l := range st.lane {
		changed = changed || w.backup.lane[l].rec.Revision != st.lane[l].rec.Revision
	}
	identity := st.h.Identity
	*st = w.backup
	st.undo.set = false
	if (st.h.Epoch == w.witness.Current || w.runsUnder(st.h.Epoch)) && !w.wiring.Blind { // with the restore command, which says so
		st.h.Identity = identity
		st.h = st.h.Copied()
	}
	w.backupSet = false
	w.era++
	if changed {
		w.effect(f)
	}
	for i := range w.procs {
		pr := &w.procs[i]
		pr.watch = [lanes]watch{}
		if pr.busy && pr.pending.m != nil {
			w.lost(pr.pending.m, "")
			pr.busy, pr.pending = false, decided{}
			pr.life++ // its commit is gone with the connection
		}
	}
	w.disturbed(4 * ttl)
	w.note(noteRestored, actorOperator, -1, uint64(st.h.Epoch), "")
}

// runsUnder reports whether a process still grants under an epoch. A raw copy from within
// its run is what no epoch shows it (R10, "not covered"), and that run may be older than
// the witness's current epoch: it has not looked since another process started.
func (w *world) runsUnder(epoch uint32) bool {
	for i := range w.procs {
		if p := &w.procs[i]; p.up && p.held == epoch {
			return true
		}
	}
	return false
}

// laterFault has a fault strike once more, some while after it has struck.
func (w *world) laterFault(f *fault) {
	w.q.push(task{at: w.now + w.soon(f), kind: doOperator, who: f.round, arg: 100 + uint32(f.kind)})
}

// soon is how long after its first strike a fault strikes again.
func (w *world) soon(f *fault) int64 { return 20*ms + int64(f.arg>>20%uint64(ttl)) }

// restorePlace puts the resource's backup back.
func (w *world) restorePlace(f *fault, declared bool) {
	if w.place.shut || w.place.down {
		return
	}
	if !w.placeSet {
		w.placeKept, w.placeSet = w.place, true
		if w.gate != nil {
			w.gate.backup()
		}
		w.note(noteBackup, actorResource, -1, 0, "")
		if f.kind != restoreBoth {
			w.laterFault(f)
		}
		return
	}
	only := -1
	if !declared { // one resource of it, that asks the authority
		only = int(w.owners[f.round].lane)
	}
	for l := range w.place.lane {
		if only >= 0 && l != only {
			continue
		}
		now, back := &w.place.lane[l], &w.placeKept.lane[l]
		if now.changes != back.changes {
			w.effect(f)
		}
		back.top, back.topFence = now.top, now.topFence
		if !declared { // what an operator has closed is open again, for whoever is the newest
			back.top = min(back.top, len(w.ghost[l].issues))
			back.topFence = min(back.topFence, w.ghost[l].last)
		}
		w.lanes[l].undeclared = w.lanes[l].undeclared || !declared
		w.lanes[l].lost = w.lanes[l].lost || !declared
		*now = *back
	}
	w.place.memory = [lanes]remembered{}
	w.place.life++
	w.place.era++
	w.placeSet = false
	if w.gate != nil {
		w.gate.restore(only)
	}
	w.disturbed(4 * ttl)
	w.note(noteRestored, actorResource, -1, 0, [2]string{"nobody says so", "declared"}[flag(declared)])
	if !declared {
		return
	}
	if w.wiring.Unshut {
		return
	}
	w.place.shut = true
	w.q.push(task{at: w.now + 30*ms, kind: doOperator, arg: operatorDeclare})
}

// declare raises and closes each record of a restored resource (R20), once for each
// restore: of two operators that are on their way, the later one finds it open and goes.
// Else it would open the window anew, for whoever works there by then.
func (w *world) declare() {
	if !w.place.shut {
		return
	}
	p := w.anyProc()
	if p == nil {
		w.q.push(task{at: w.now + 30*ms, kind: doOperator, arg: operatorDeclare})
		return
	}
	if p.until > w.now {
		w.q.push(task{at: p.until + ms, kind: doOperator, arg: operatorDeclare})
		return
	}
	w.look(p)
	if !w.current(p) {
		w.q.push(task{at: w.now + 30*ms, kind: doOperator, arg: operatorDeclare})
		return
	}
	st := &w.store[p.at]
	for l := range w.place.lane {
		ls := &w.place.lane[l]
		was := ls.rec
		next := st.lane[l].rec.NextFence(st.h)
		ls.rec = w.wiring.Shut(ls.rec, next)
		ls.rec.Restored = max(ls.rec.Restored, 1)
		w.check(ls.rec.Fence >= was.Fence && ls.rec.LeaseID == "", wrongRecord, -1, "a restored record is not closed, or was lowered")
		ls.top = len(w.ghost[l].issues) + 1
		ls.topFence = max(ls.topFence, ls.rec.Fence+1)
		ls.frozen = false
		w.lanes[l].mistaken = true // numbers begin anew
	}
	if w.gate != nil {
		w.gate.crash(w)
		w.gate.declare(st)
	}
	w.place.shut = false
	w.note(noteDeclared, actorOperator, -1, 0, "")
	w.q.push(task{at: w.now + 40*ms, kind: doOperator, arg: operatorClose})
}

// closeWindow is a person who has reconciled what was lost: it is to be done again.
func (w *world) closeWindow() {
	if w.place.shut {
		return
	}
	for l := range w.place.lane {
		ln, ls := &w.lanes[l], &w.place.lane[l]
		ls.rec = core.CloseWindow(ls.rec)
		ln.low, ln.undeclared, ln.reconciled = 0, false, len(w.ghost[l].issues)
		for i := range ln.done {
			ln.done[i] = ls.effects[i] == 1
			ln.absent[i] = 0 // what was begun since may still come, and is asked for
		}
		w.reconcile(ls)
	}
	if w.gate != nil {
		w.gate.reopen()
	}
	w.note(noteReopened, actorOperator, -1, 0, "")
}

// reconcile mends by hand what a restore that nobody had declared has left: an intent
// that was done twice, or out of turn.
func (w *world) reconcile(ls *laneState) {
	for i := range ls.effects {
		ls.effects[i] = min(ls.effects[i], 1)
	}
}

// clone copies the store; both processes start at once, each on its own.
func (w *world) clone(f *fault) {
	if w.twoStores || w.backupSet && w.wiring.Rollback {
		return
	}
	a, b := &w.procs[0], &w.procs[1]
	if a.at != b.at || !a.up || !b.up {
		return
	}
	other := 1 - a.at
	w.store[other] = w.store[a.at]
	w.twoStores, w.overlap = true, true
	w.effect(f)
	w.note(noteCloned, actorFault, -1, 0, "")
	for _, p := range []*proc{a, b} {
		w.down(p)
		p.slow = true
		w.q.push(task{at: w.now + 10*ms + int64(draw(f.arg, uint64(p.id), 2, 0)>>8)%(10*ms), kind: doStart, who: int16(p.id), arg: p.life})
	}
	b.at = other
}

// strikeWitness takes the witness away, or puts another one in its place.
func (w *world) strikeWitness(f *fault) {
	if w.twoStores {
		return
	}
	if f.arg&1 == 0 {
		w.marked = false
	} else {
		w.witness.Store = "another"
	}
	w.effect(f)
	w.disturbed(4 * ttl)
	w.note(noteWitness, actorFault, -1, 0, "")
	if f.arg&2 == 2 { // and the processes start anew
		for i := range w.procs {
			if p := &w.procs[i]; p.up {
				w.crashProc(p, true, 20*ms)
			}
		}
	}
}

// loseRecord takes a record away while its receipts stay (R19).
func (w *world) loseRecord(o *owner, f *fault) {
	ls := &w.place.lane[o.lane]
	if !ls.rec.Exists || ls.kept == 0 || w.place.shut {
		return
	}
	ls.rec = core.FenceRecord{}
	if w.gate != nil {
		w.gate.lose(o.lane)
	}
	w.effect(f)
	w.lanes[o.lane].mistaken = true
	w.note(noteLostRecord, actorFault, o.round, 0, "")
	w.disturbed(2 * ttl)
	w.q.push(task{at: w.now + 25*ms, kind: doOperator, who: int16(o.lane), arg: operatorRelease})
}

// operate is a task of the operator.
func (w *world) operate(t *task) {
	switch {
	case t.arg >= 100:
		if o := &w.owners[t.who]; !w.calm {
			for i := range o.faults {
				if f := &o.faults[i]; f.kind == faultKind(t.arg-100) && f.fired {
					w.befall(o, f)
					return
				}
			}
		}
	case t.arg == operatorRelease:
		w.openRecord(uint8(t.who))
	case t.arg == operatorDeclare:
		w.declare()
	case t.arg == operatorClose:
		w.closeWindow()
	case t.arg == operatorReopen:
		w.place.down = false
		w.note(noteStarted, actorResource, -1, 0, "")
	case t.arg == operatorEnd:
		if w.left > 0 {
			w.violate(waitingClientStarves, -1, "the faults have stopped, and somebody waits for ever")
		}
		for i := range w.owners {
			if o := &w.owners[i]; o.phase == asking || o.phase == holding {
				w.violate(waitingClientStarves, o.round, "a round does not come to an end")
			}
		}
		w.ending = true
	default:
	}
}

// openRecord releases a frozen or lost record (R19): a lost one from the authority's
// next number on.
func (w *world) openRecord(l uint8) {
	ls := &w.place.lane[l]
	lost := !ls.rec.Exists && ls.kept > 0
	if !ls.rec.Frozen && !lost || w.place.shut {
		return
	}
	var above lastword.Token
	if lost {
		p := w.anyProc()
		if p == nil || !w.current(p) {
			w.q.push(task{at: w.now + 30*ms, kind: doOperator, who: int16(l), arg: operatorRelease})
			return
		}
		st := &w.store[p.at]
		above = st.lane[l].rec.NextFence(st.h)
	}
	was := ls.rec
	ls.rec = w.wiring.Shut(ls.rec, above)
	w.check(ls.rec.Fence >= was.Fence && (above == 0 || ls.rec.Fence+1 >= above), wrongRecord, -1, "an operator's release lowers a record")
	if w.gate != nil {
		w.gate.release(l, above)
	}
	if lost {
		ls.top = len(w.ghost[l].issues) + 1
		ls.topFence = max(ls.topFence, above)
	}
	w.lanes[l].mistaken = true
	w.note(noteOpened, actorOperator, -1, uint64(ls.rec.Fence), "")
}
