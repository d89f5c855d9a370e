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
	lost       bool // was so once
	spoiled    bool // a mistake after that has taken the place of a receipt
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
	for l.low < shared && l.done[l.low] {
		l.low++
	}
	return l.low
}

// left is what an earlier tenure has left unknown, of what o has to settle before it
// works: the next intent of the row; at the end, everything.
func (l *lane) left(o *owner) (intent int16, is bool) {
	if o.calm {
		for i := range l.touched {
			if l.touched[i] && !l.done[i] {
				return int16(i), true
			}
		}
		return 0, false
	}
	if o.own {
		return 0, false
	}
	first := l.first()
	return first, l.touched[first]
}

// next is the intent that o works on next.
func (l *lane) nextOf(o *owner) int16 {
	if o.own {
		return shared + o.round/lanes*ownWrites + int16(o.made)
	}
	return l.first()
}

// prior is the intent that has to be done before another one.
func prior(intent int16) (before int16, is bool) {
	switch {
	case intent < shared:
		return intent - 1, intent > 0
	default:
		return intent - 1, (intent-shared)%ownWrites > 0
	}
}

// doneBy: an owner has heard that an intent is done. What was said before a restore of
// the resource is for people to reconcile.
func (l *lane) doneBy(w *world, o *owner, intent int16, era int32) {
	if era != w.place.era {
		return
	}
	l.done[intent] = true
	l.touched[intent] = false
	if w.place.lane[o.lane].effects[intent] == 0 && !l.undeclared && !l.spoiled && w.wiring.Skips == 0 {
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
