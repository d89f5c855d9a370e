package simulate

// lane is one resource, as its owners and people know it: which rounds come next, and
// what of the work is done.
type lane struct {
	rounds []int16
	next   int
	active int // rounds under way

	done    [maxIntents]bool // known to be done
	touched [maxIntents]bool // may have been done by a tenure that is over
	absent  [maxIntents]int  // generation that settled it as not done
	low     int16

	undeclared bool // restored, and nobody has said so
	mistaken   bool
	reconciled int  // newest generation when people had reconciled what a restore has lost
	crashed    bool // an owner was killed here

	// Of the hand-over under way.
	freedAt, deadAt int64
	wasHit          bool
	from            int16 // round
}

// first is the first intent that is not known to be done.
func (l *lane) first() int16 {
	for int(l.low) < maxIntents-1 && l.done[l.low] {
		l.low++
	}
	return l.low
}

// left reports whether an earlier tenure has left the first intent unknown.
func (l *lane) left(*owner) bool { return l.touched[l.first()] }

// doneBy: an owner has heard that an intent is done. What was said before a restore of
// the resource is for people to reconcile.
func (l *lane) doneBy(w *world, o *owner, intent int16, era int32) {
	if era != w.place.era {
		return
	}
	l.done[intent] = true
	l.touched[intent] = false
	if w.place.lane[o.lane].effects[intent] == 0 && !l.undeclared && w.wiring.Skips == 0 {
		w.violate(acknowledgedWithoutEffect, o.round, "an intent counts as done, and nothing was done")
	}
}

// unknown: a tenure is over and may have left something. What was begun before a restore
// of the resource is for people to reconcile.
func (l *lane) unknown(w *world, o *owner) {
	if o.era != w.place.era {
		return
	}
	if !l.done[o.intent] && (o.open || l.touched[o.intent]) {
		l.touched[o.intent] = true
	}
}

// startNext begins the next round of a lane, after a while.
func (w *world) startNext(lane uint8, after int64) {
	l := &w.lanes[lane]
	if l.next >= len(l.rounds) {
		return
	}
	r := l.rounds[l.next]
	l.next++
	l.active++
	w.q.push(task{at: w.now + after, kind: doBegin, who: r})
}

// grantedTo: the next round comes and waits while this one works.
func (l *lane) grantedTo(w *world, o *owner) {
	if l.next < len(l.rounds) && !o.calm {
		w.startNext(o.lane, w.owners[l.rounds[l.next]].gap)
	}
}

// releasedAt and crashedAt begin a hand-over, heldBy ends it.
func (l *lane) releasedAt(w *world, o *owner) {
	l.freedAt, l.deadAt = w.now, 0
	l.wasHit, l.from = o.hit, o.round
}

func (l *lane) crashedAt(w *world, o *owner) {
	l.deadAt, l.freedAt = w.now, 0
	l.wasHit, l.from = false, o.round
}

func (l *lane) heldBy(w *world, o *owner) {
	from := max(l.freedAt, l.deadAt)
	clean := !l.wasHit && (l.deadAt > 0 || !w.owners[l.from].hit) && !o.hit && w.now >= w.quietFrom && o.came < from-2*ms // it was waiting then
	if l.freedAt > 0 && clean && l.freedAt >= w.quietFrom {
		w.handover(w.now-l.freedAt, false)
	}
	if l.deadAt > 0 && clean && l.deadAt >= w.quietFrom {
		w.handover(w.now-l.deadAt-ttl, true)
	}
	l.freedAt, l.deadAt = 0, 0
}

// unsettled reports whether the outcome of anything is unknown.
func (l *lane) unsettled() bool {
	for i := range l.touched {
		if l.touched[i] && !l.done[i] {
			return true
		}
	}
	return false
}
