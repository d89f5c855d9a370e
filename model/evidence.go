package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// What the observer makes of a keeper: which answers it has heard, what they allow, and
// what it did in spite of them.

// evidence is an answer to a message sent at a moment: the tenure is held, and so much
// of it was left when the authority had processed the message (R25). One that leaves
// nothing to trust is none.
func (m *machine) evidence(c clientState, sent uint8, left core.Span, now uint8) (clientState, bool) {
	sure := span(sent) + int64(min(left, m.ttl)) - m.margin()
	if !m.keeps(c.id) || c.kept.dead || c.kept.end != 0 || left <= 0 || sure <= span(now) {
		return c, false
	}
	c.kept.sure, c.kept.known = max(c.kept.sure, sure), max(c.kept.known, sent+1)
	return c, true
}

// margin is how much of a TTL a keeper must not trust, whichever of the two makes it;
// callTime is how long one of its renewals may take (R25, protocol §7).
func (m *machine) margin() int64 { return int64(tick) }
func (m *machine) callTime() int64 {
	if sixth := m.ttl / 6; m.w.call == 0 || m.w.call > sixth {
		return int64(sixth)
	}
	return int64(m.w.call)
}

// renewalOver is a renewal call that has come to its end. After the end of trust it
// counts only if its time-out had come before.
func (m *machine) renewalOver(k kept, unanswered bool) kept {
	if k.end == 0 && unanswered || k.late(m.callTime()) {
		k.doubt = max(k.doubt, k.renewing)
	}
	k.renewing = 0
	return k
}

// late: the renewal under way timed out before trust ended.
func (k kept) late(callTime int64) bool {
	return k.renewing != 0 && k.end != 0 && span(k.renewing-1)+callTime < span(k.end-1)
}

// firstHeld notes the moment from which the longest hold counts.
func (m *machine) firstHeld(k kept, now uint8) kept {
	k.held = true
	if m.w.maxHold > 0 {
		k.limitTo(span(now) + int64(m.w.maxHold))
	}
	return k
}

func (k *kept) limitTo(at int64) {
	if k.limit == 0 || at < k.limit {
		k.limit = at
	}
}

// refused notes that the authority said that the tenure is over.
func (k kept) refused(how lastword.State) kept {
	if !k.dead {
		k.dead, k.how = true, how
	}
	return k
}

// passed lets the observer's time act: what was over once stays so.
func (k kept) passed(now uint8) kept {
	if k.held && span(now) >= k.sure || k.limit != 0 && span(now) >= k.limit {
		k.dead = true
	}
	return k
}

// unsure reports whether a renewal has had no answer for as long as one may take, and
// nothing was heard to a message that was sent later (R26).
func (m *machine) unsure(c clientState, now uint8) bool {
	k := c.kept
	over := k.renewing > k.known && span(now) >= span(k.renewing-1)+m.callTime()
	return k.doubt > k.known || over
}

// noted notes what a keeper has come to.
func (m *machine) noted(c clientState, now uint8) clientState {
	if c.trust.Final() && c.kept.end == 0 {
		c.kept.end, c.kept.ending = now+1, c.trust.End
	}
	t := &c.trust
	for _, reached := range []struct {
		when bool
		what outcome
	}{
		{t.State == lastword.HolderUnknown, outUnknown},
		{t.State == lastword.HolderHeld && now >= uint8(m.ttl/tick), outLongHeld},
		{t.End == core.TrustMaxHold, outMaxHold},
		{t.End == core.TrustOverrun, outOverrun},
		{t.End == core.TrustLapsed || t.End == core.TrustUnknown, outExpired},
		{t.State == lastword.HolderReleased && c.kept.stopped, outDrained},
	} {
		if reached.when {
			m.came(reached.what)
		}
	}
	return c
}

// distrust says what is wrong about a keeper that admits new effects at a moment, ""
// if nothing is.
func (m *machine) distrust(c *clientState, now int64) kind {
	if !m.keeps(c.id) || c.phase != holding || !m.wiring.Admits(c.trust, now) {
		return ""
	}
	switch k := &c.kept; {
	case k.end != 0:
		return finalRevived
	case now >= k.sure:
		return trustBeyondEvidence
	case k.limit != 0 && now >= k.limit:
		return heldTooLong
	case k.dead:
		return finalRevived
	}
	return ""
}

// toldWrongEnd reports whether a lease says of its end what is not so.
func (m *machine) toldWrongEnd(c *clientState) bool {
	k := &c.kept
	switch {
	case !m.keeps(c.id) || c.phase != holding:
		return false
	case !c.trust.Final(): // a definite answer ends it at once (R26)
		return k.how != ""
	case k.end != 0 && c.trust.End != k.ending:
		return true
	}
	switch c.trust.End {
	case core.TrustReleased:
		return !k.released
	case core.TrustRevoked:
		return k.how != lastword.StateRevoked
	case core.TrustCanceled:
		return k.how != lastword.StateCanceled
	case core.TrustRefused:
		return k.how != lastword.StateReleased && k.how != lastword.StateFree
	case core.TrustOverrun:
		return !k.stopped
	case core.TrustMaxHold:
		return m.w.maxHold == 0
	case core.TrustLapsed:
		return k.released || k.how != lastword.StateExpired && (k.how != "" || k.doubt > k.known || k.renewing > k.known && k.late(m.callTime()))
	case core.TrustUnknown:
		return k.released || k.how != "" || k.doubt < k.known && (k.renewing < k.known || !k.late(m.callTime())) || k.doubt+k.renewing == 0
	case core.TrustGoesOn:
		return true
	}
	return true
}

// punctual reports whether a lease says when it has to be looked at: not later than
// something is due or changes by itself, not earlier, and not waiting for nothing.
func (m *machine) punctual(c *clientState) bool {
	t := c.trust
	if t.Open && c.kept.renewing == 0 || t.Asking && c.kept.questioned == 0 {
		return false // it waits for a call that is over
	}
	changes := func(at int64) bool { return t.At(at) != t }
	due := func(at int64) bool { return changes(at) || t.RenewalDue(at) || t.QueryDue(at) }
	exact := func(at int64, is bool, what func(int64) bool) bool {
		if !is {
			return !what(span(maxTime))
		}
		return what(at) && (at == 0 || !what(at-1))
	}
	wake, wakes := t.Wake()
	next, nexts := m.wiring.Next(t)
	return exact(wake, wakes, changes) && exact(next, nexts, due)
}
