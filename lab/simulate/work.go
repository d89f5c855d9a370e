package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/model"
)

// think has o go on with its work a little later.
func (w *world) think(o *owner, in int64) {
	n := draw(w.plan.seed, uint64(o.round), uint64(o.made), 11)
	in += ms/10 + int64(n>>8)%ms
	if o.slow && o.made > 0 {
		in += 2 * ttl / 5
	}
	o.thinking = true
	w.q.push(task{at: w.now + in, kind: doThink, who: o.round})
}

// work is the next thing that a holder does.
func (w *world) work(o *owner) {
	o.thinking = false
	if o.phase != holding || o.open {
		return
	}
	now := o.clock.read(w.now)
	if w.wiring.Draws && o.until > 0 && o.drawn == 0 {
		if !o.wished {
			o.wished = true
			m := w.new(askNumber, o)
			m.lease, m.fence, m.to = o.lease, o.fence, o.process
			w.send(m)
		}
		return
	}
	if !w.wiring.Admits(o.trust, now) {
		o.trust = o.trust.At(now)
		w.keep(o, now)
		return
	}
	switch {
	case o.stage == settling:
		var is bool
		if o.intent, is = w.lanes[o.lane].left(o); !is {
			o.stage = writing
			w.work(o)
			return
		}
		if o.submit {
			o.stage = writing
			w.work(o)
			return
		}
		o.stage = registering
		if !w.wiring.Settles {
			o.stage = lookingUp
			w.sendLookup(o, now)
			return
		}
		w.sendAdvance(o, now)
	case o.stage != writing:
	case o.stopped && o.made > 0:
		w.stopWork(o, now)
	case o.made >= w.plan.writesOf(o):
		w.endWork(o, now)
	default:
		w.startWrite(o, now)
	}
}

func (w *world) sendAdvance(o *owner, now int64) {
	m := w.new(doAdvance, o)
	m.sent, m.lease, m.fence, m.grant, m.gen, m.intent, m.op = now, o.lease, o.fence, o.grant, o.gen, o.intent, o.intent
	o.callAt = now
	w.note(noteAdvance, actorOwner(o), o.round, uint64(o.fence), "")
	w.send(m)
	w.wake(o, now+writeTime)
}

func (w *world) sendLookup(o *owner, now int64) {
	m := w.new(doLookup, o)
	m.sent, m.lease, m.fence, m.intent, m.op = now, o.lease, o.fence, o.intent, w.operationOf(o, o.intent)
	o.callAt = now
	w.send(m)
	w.wake(o, now+writeTime)
}

func (w *world) hearLookup(o *owner, m *message, now int64) {
	if m.fault != nil {
		w.effect(m.fault)
	}
	l := &w.lanes[o.lane]
	if m.found {
		w.count.UnknownSettled++
		l.doneBy(w, o, o.intent, m.era)
	} else {
		k := w.ghost[o.lane].find(o.fence, o.lease)
		l.absent[o.intent] = max(l.absent[o.intent], k)
		l.touched[o.intent] = false
	}
	w.note(noteLookedUp, actorOwner(o), o.round, uint64(o.fence), [2]string{"not done", "done"}[flag(m.found)])
	o.stage = writing
	if _, is := l.left(o); is && o.calm {
		o.stage = settling
	}
	w.think(o, 0)
}

// operationOf is the id that o gives an intent.
func (w *world) operationOf(o *owner, intent int16) int16 {
	switch w.wiring.Names {
	case model.ByNumber:
		return int16(o.seq.Last) % maxIntents
	case model.ByLife:
		if w.lanes[o.lane].crashed {
			return (intent + 2*shared) % (maxIntents - 2)
		}
	case model.ByIntent:
	}
	return intent
}

// startWrite begins the next intent: no new effect unless the tenure is trusted (R26).
func (w *world) startWrite(o *owner, now int64) {
	if s := o.trust.At(now).State; !s.Admits() {
		w.violate(effectWithoutTrust, o.round, "a holder starts a write in "+string(s))
		return
	}
	l := &w.lanes[o.lane]
	o.intent = l.nextOf(o)
	if o.intent == shared && !o.own {
		w.endWork(o, now)
		return
	}
	op := w.operationOf(o, o.intent)
	seq, n, ok := w.wiring.Take(o.seq, operations[op])
	if !ok {
		w.giveUpWork(o, now)
		return
	}
	o.seq, o.open, o.tries, o.number, o.op, o.wrong = seq, true, 0, n, op, noMistake
	w.submitWrite(o, now)
	if o.stopped && o.open && w.wiring.Hurries {
		w.release(o, now)
	}
}

func (w *world) submitWrite(o *owner, now int64) {
	m := w.new(doWrite, o)
	m.sent, m.lease, m.fence, m.grant, m.gen = now, o.lease, o.fence, o.grant, o.gen
	m.intent, m.op, m.seq = o.intent, o.op, o.number
	if o.drawn != 0 {
		m.fence = o.drawn
	}
	o.writeAt = now
	if o.era == w.place.era {
		w.lanes[o.lane].touched[o.intent] = true
	}
	w.note(noteWrite, actorOwner(o), o.round, uint64(m.fence), "")
	if o.forged != 0 && !o.sent1 && !w.calm && !w.plan.smaller(o) {
		o.sent1 = true
		w.forge(o, m)
	}
	w.send(m)
	if o.phase == holding {
		w.wake(o, now+writeTime)
	}
}

// due is when a call under way has had no answer for too long.
func (o *owner) due() (int64, bool) {
	switch {
	case o.open:
		return o.writeAt + writeTime, true
	case o.stage == registering || o.stage == lookingUp || o.stage == completing || o.stage == releasing:
		return o.callAt + writeTime, true
	}
	return 0, false
}

// retryWork repeats what has had no answer.
func (w *world) retryWork(o *owner, now int64) {
	at, is := o.due()
	if !is || now < at {
		return
	}
	w.markRetry(o)
	switch {
	case o.open:
		w.writeUnanswered(o, now)
	case o.stage == registering:
		if o.tries++; o.tries > most {
			w.giveUpWork(o, now)
			return
		}
		w.sendAdvance(o, now)
	case o.stage == lookingUp:
		if o.tries++; o.tries > most {
			w.giveUpWork(o, now)
			return
		}
		w.sendLookup(o, now)
	case o.stage == completing:
		if o.tries++; o.tries > 2 {
			w.release(o, now)
			return
		}
		w.sendComplete(o, now)
	case o.stage == releasing:
		w.finish(o) // it lapses
	}
}

// writeUnanswered settles an unknown outcome with the same operation and number (R22).
func (w *world) writeUnanswered(o *owner, now int64) {
	if w.wiring.Skips != model.SkipsNothing {
		w.lanes[o.lane].done[o.intent] = true
		o.open, o.seq.Open = false, ""
		if w.wiring.Skips == model.SkipsCounting {
			o.seq.Last++
		}
		o.made++
		w.think(o, 0)
		o.writeAt = now
		return
	}
	if o.tries++; o.tries > most || !w.wiring.Admits(o.trust, now) {
		o.writeAt = now // later, if trust comes back
		if o.tries > most {
			w.giveUpWork(o, now)
		}
		return
	}
	seq, n, ok := w.wiring.Take(o.seq, operations[o.op])
	if !ok {
		w.giveUpWork(o, now)
		return
	}
	o.seq, o.number = seq, n
	w.submitWrite(o, now)
}

func (w *world) hearWrite(o *owner, m *message, now int64) {
	v := lastword.Verdict(m.code)
	if o.phase != holding || m.lease != o.lease || !o.open || m.intent != o.intent || m.wrong != o.wrong {
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	o.seq = w.wiring.Settle(o.seq, o.number, m.own, v)
	o.open = false
	l := &w.lanes[o.lane]
	if m.wrong != noMistake { // the intent itself has not been tried
		w.effectOf(mistakenOwner)
		o.seq.Open = ""
		o.wrong = noMistake
		w.think(o, 0)
		return
	}
	w.note(noteVerdict, actorOwner(o), o.round, uint64(o.fence), m.code)
	switch v { //nolint:exhaustive // the others are none of its
	case lastword.Applied, lastword.Replayed:
		if o.tries > 0 {
			w.count.UnknownSettled++
		}
		l.doneBy(w, o, o.intent, m.era)
		o.made++
		w.think(o, 0)
	case lastword.StatusUnavailable, lastword.Unverified:
		if o.tries++; o.tries <= most && v == lastword.StatusUnavailable && w.wiring.Admits(o.trust, now) {
			o.open = true
			seq, n, ok := w.wiring.Take(o.seq, operations[o.op])
			if ok {
				o.seq, o.number = seq, n
			}
			o.writeAt = now - writeTime/2
			w.wake(o, now+writeTime/2)
			return
		}
		w.giveUpWork(o, now)
	default:
		w.giveUpWork(o, now)
	}
}

// stopWork is a holder that was told to stop (R28): it releases when nothing is under
// way, and leaves the tenure to lapse if something is for too long.
func (w *world) stopWork(o *owner, now int64) { w.endWork(o, now) }

// giveUpWork ends the work of a tenure that gets no further.
func (w *world) giveUpWork(o *owner, now int64) {
	l := &w.lanes[o.lane]
	l.unknown(w, o)
	o.open = false
	w.release(o, now)
}

// endWork completes and releases.
func (w *world) endWork(o *owner, now int64) {
	if o.complete && o.made > 0 && o.stage == writing && !w.plan.smaller(o) {
		o.tries = 0
		w.sendComplete(o, now)
		return
	}
	w.release(o, now)
}

func (w *world) sendComplete(o *owner, now int64) {
	if o.trust.At(now).Final() {
		return
	}
	o.stage, o.callAt = completing, now
	m := w.new(askComplete, o)
	m.sent, m.lease, m.fence, m.to = now, o.lease, o.fence, o.process
	o.process = 1 - o.process
	w.note(noteComplete, actorOwner(o), o.round, uint64(o.fence), "")
	w.send(m)
	if o.phase == holding {
		w.wake(o, now+writeTime)
	}
}

// release gives the tenure up.
func (w *world) release(o *owner, now int64) {
	if o.leave {
		w.note(noteLeaves, actorOwner(o), o.round, uint64(o.fence), "")
		w.lanes[o.lane].crashedAt(w, o)
		o.dead = true
		w.finish(o)
		return
	}
	if o.open {
		w.violate(releasedAtWork, o.round, "a lease is released while its work is under way")
		return
	}
	o.trust = w.wiring.Released(o.trust, now)
	if o.trust.State != lastword.HolderReleased {
		w.trustOver(o, now)
		return
	}
	o.stage, o.callAt = releasing, now
	o.seen.final = true
	m := w.new(askRelease, o)
	m.sent, m.lease, m.fence, m.to = now, o.lease, o.fence, o.process
	w.note(noteRelease, actorOwner(o), o.round, uint64(o.fence), "")
	w.lanes[o.lane].releasedAt(w, o)
	w.send(m)
	if o.phase == holding {
		w.finishLater(o, now)
	}
}

// finishLater: whoever has released waits for nothing.
func (w *world) finishLater(o *owner, now int64) {
	if w.wiring.RenewalDue(o.trust, o.trust.Due) { // of a broken system: it would go on renewing
		w.q.push(task{at: o.clock.when(w.now, o.trust.Due), kind: doOwner, who: o.round, arg: o.wakes})
	}
	w.finish(o)
}
