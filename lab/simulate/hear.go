package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// heard is an answer that reaches an owner.
func (w *world) heard(o *owner, m *message) {
	now := o.clock.read(w.now)
	if o.phase == done && m.kind != reStatus && m.kind != reRenew || o.dead {
		w.drop(m)
		return
	}
	switch m.kind { //nolint:exhaustive // the others are none of its
	case reAcquire:
		if o.phase == asking {
			w.hearAcquire(o, m, now)
		}
	case reRenew:
		w.hearRenewal(o, m, now)
	case reStatus:
		w.hearStatus(o, m, now)
	case reNumber:
		if o.phase == holding && o.drawn == 0 {
			o.drawn = m.fence
			w.think(o, ms)
		}
	case reWrite:
		w.hearWrite(o, m, now)
	case reAdvance:
		if o.phase == holding && o.stage == registering && m.lease == o.lease {
			if m.code == string(lastword.Applied) {
				o.stage = lookingUp
				w.sendLookup(o, now)
			} else {
				w.giveUpWork(o, now)
			}
		}
	case reLookup:
		if o.phase == holding && o.stage == lookingUp && m.lease == o.lease && m.intent == o.intent {
			w.hearLookup(o, m, now)
		}
	case reComplete:
		if o.phase == holding && o.stage == completing && m.lease == o.lease {
			w.release(o, now)
		}
	case reRelease:
		if o.phase == holding && o.stage == releasing {
			w.finish(o)
		}
	default:
	}
	w.drop(m)
}

func (w *world) hearAcquire(o *owner, m *message, now int64) {
	switch lastword.Code(m.code) {
	case "":
	case lastword.CodeHeld, lastword.CodeFenceRegression:
		o.askAt = now + 20*ms
		o.wakeAt = 0
		w.wake(o, o.askAt)
		return
	default:
		w.note(noteNotGranted, actorOwner(o), o.round, 0, m.code)
		w.finish(o)
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	if m.waited && !o.repeated && draw(w.plan.seed, uint64(o.round), 17, 0)&1 == 0 {
		o.repeated = true // the answer names that repetition (R25); if it does not tell, a renewal does
		w.sendAcquire(o, now)
		return
	}
	if o.giveUp { // cancelled although it is granted (R6a)
		o.phase, o.tries = givingUp, 0
		w.effectOf(cancelAttempt)
		w.sendCancel(o, now)
		return
	}
	o.phase, o.lease, o.fence, o.grant, o.gen = holding, m.lease, m.fence, m.grant, m.gen
	o.era = w.place.era
	g := core.TrustGrant{
		Base: w.wiring.Base(m.sent, now), TTL: ttl, Remaining: m.remaining, Waited: m.waited, Bound: bound,
	}
	if o.maxHold {
		g.MaxHold = 3 * ttl / 2
	}
	o.trust = w.wiring.NewTrust(g, now)
	w.evidence(o, m.sent, m.remaining)
	if m.waited { // counted from before it was sent, it would be worth nothing (R25)
		o.seen.sure = 0
	}
	w.note(noteHears, actorOwner(o), o.round, uint64(o.fence), string(o.trust.State))
	w.lanes[o.lane].grantedTo(w, o)
	w.isHeld(o, now)
	w.keep(o, now)
}

func (w *world) hearRenewal(o *owner, m *message, now int64) {
	if m.lease != o.lease || o.lease == "" {
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	if !o.trust.Open || o.trust.Sent != m.sent {
		if o.trust.Final() || o.phase == done { // too late: nothing may change
			t := w.wiring.Renewed(o.trust, ttl, ttl, now)
			w.check(t.Final() || !w.wiring.Admits(t, now), finalRevived, o.round, "the answer to a renewal revives a lease that has ended")
		}
		return
	}
	if m.code == "" {
		w.evidence(o, m.sent, m.remaining)
		o.trust = w.wiring.Renewed(o.trust, m.ttl, m.remaining, now)
		if w.wiring.Reread {
			o.fence = m.fence
		}
		w.note(noteRenewedHeard, actorOwner(o), o.round, uint64(o.fence), string(o.trust.State))
		if w.watchTrust(o, now) {
			return
		}
		w.isHeld(o, now)
	} else {
		if m.how == lastword.StateRevoked && !o.trust.At(now).Final() {
			o.seen.how = m.how
		}
		o.trust = w.wiring.Ended(o.trust, m.how, now)
	}
	if o.phase == holding {
		w.keep(o, now)
	}
}

func (w *world) hearStatus(o *owner, m *message, now int64) {
	if m.lease != o.lease || o.lease == "" {
		return
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	ref := lastword.TenureRef{Resource: laneNames[o.lane], LeaseID: o.lease, Fence: o.fence, Owner: o.name}
	st := lastword.Status{Resource: laneNames[o.lane], State: m.state, Asked: m.how}
	if m.found {
		st.Holder = lastword.TenureRef{Resource: laneNames[o.lane], LeaseID: m.lease, Fence: m.fence}
		st.Remaining = duration(m.remaining)
		if o.trust.Asking && o.trust.Queried == m.sent {
			w.evidence(o, m.sent, m.remaining)
		}
	} else if open(&core.Lease{State: m.state}) {
		st.Holder = lastword.TenureRef{LeaseID: "another", Fence: m.fence}
	}
	was := o.trust
	if was.At(now).Final() {
		t := w.wiring.Told(was, ref, st, core.TrustRetry(ttl), now)
		w.check(!w.wiring.Admits(t, now), finalRevived, o.round, "a status answer revives a lease that has ended")
		return
	}
	if !was.Asking || was.Queried != m.sent {
		return
	}
	if m.how == lastword.StateRevoked {
		o.seen.how = m.how
	}
	o.trust = w.wiring.Told(was, ref, st, core.TrustRetry(ttl), now)
	if o.phase == holding {
		w.keep(o, now)
	}
}

// isHeld looks whether o is HELD for the first time.
func (w *world) isHeld(o *owner, now int64) {
	if o.seen.held || o.trust.State != lastword.HolderHeld {
		return
	}
	o.seen.held, o.began = true, w.now
	if o.maxHold {
		o.seen.limit = now + 3*ttl/2
	}
	w.checkTrust(o)
	w.lanes[o.lane].heldBy(w, o)
	o.stage = writing
	if _, is := w.lanes[o.lane].left(o); is {
		o.stage = settling
	}
	if o.stop {
		o.stopped = true
		o.trust = o.trust.Stop(ttl/4, now)
	}
	w.think(o, 0)
}

// evidence is an answer to a message sent at a moment: held, and so much was left when
// the authority had processed it (R25).
func (w *world) evidence(o *owner, sent, left int64) {
	if sure := sent + min(left, ttl) - bound.Margin(ttl); left > 0 && !o.seen.dead {
		o.seen.sure = max(o.seen.sure, sure)
	}
}
