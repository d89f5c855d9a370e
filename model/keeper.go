package model

import (
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// A keeper is a holder with all that a runtime does for its tenure (protocol §7):
// renewals and, while ownership is not known, questions, each a call that may end
// without an answer; a longest hold; work that is told to stop and may not stop in
// time. What it decides are the functions of core; what is told to whom, and what the
// observer makes of it, is here.

// kept is the part of a client that a keeper has.
type kept struct {
	renewing   uint8 // when the renewal under way was sent, from 1; 0 if there is none
	questioned uint8 // the same of the question
	asked      uint8 // questions so far
	held       bool  // it was HELD once
	stopped    bool  // its work was told to stop

	// What the observer keeps: evidence, and doubt.
	sure     int64 // the latest end of trust that the answers heard so far allow
	known    uint8 // when the newest message with such an answer was sent, from 1
	doubt    uint8 // when the newest renewal that had no answer was sent, from 1
	limit    int64 // the end of the longest hold and of the drain, 0 for none
	dead     bool  // trust was over once
	end      uint8 // when the lease itself said so, from 1
	how      lastword.State
	released bool
}

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

// keeps reports whether client id is a keeper.
func (m *machine) keeps(id uint8) bool { return m.w.keeper && id == 0 }

func (m *machine) bound() core.TrustBound {
	switch {
	case m.w.keeper && m.w.byRate:
		return core.TrustBound{RatePPM: 166_667, Floor: 1}
	case m.w.keeper:
		return core.TrustBound{RatePPM: 10_000, Floor: int64(tick)}
	}
	return bound
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

// keeperSteps generates what a keeper does beside its writes.
func (m *machine) keeperSteps(s *state, c uint8, client *clientState) {
	k := &client.kept
	m.step(s, c, evRenew, m.keepRenewing)
	if k.renewing != 0 {
		m.step(s, c, evNoRenewal, m.noRenewal)
	}
	if !k.held { // nobody has the lease yet
		return
	}
	m.step(s, c, evAsk, m.question)
	if k.questioned != 0 {
		m.step(s, c, evNoStatus, m.noStatus)
	}
	if m.w.drain > 0 && !k.stopped && !k.dead {
		m.step(s, c, evStop, m.stop)
	}
	if k.stopped && client.open {
		m.step(s, c, evOverrun, m.overrun)
	}
	switch {
	case client.open && client.tries < m.w.resubmits:
		m.step(s, c, evResubmit, m.resubmit)
	case !client.open && int(client.next) < m.w.writes:
		m.step(s, c, evWrite, m.write)
	}
	if m.w.release && (!client.open || m.wiring.hurries) {
		m.step(s, c, evRelease, m.giveUp)
	}
}

// keepRenewing sends the next renewal when it is due.
func (m *machine) keepRenewing(c clientState, now uint8) (out acted) {
	t := c.trust.At(span(now))
	if !m.wiring.renewalDue(t, span(now)) || c.renewed >= m.w.renewals {
		return acted{}
	}
	if c.kept.dead {
		out.bad = askedAfterTheEnd
	}
	c.trust = t.Ask(span(now))
	c.renewed++
	c.kept.renewing = now + 1
	out.client = m.clients.name(c)
	out.msg = m.msgs.name(message{kind: askRenew, client: c.id, attempt: c.attempt, sent: now, lease: c.lease, fence: c.fence})
	return out
}

// question asks what is known of the tenure, when that is due (R26).
func (m *machine) question(c clientState, now uint8) (out acted) {
	t := c.trust.At(span(now))
	if !t.QueryDue(span(now)) || c.kept.asked >= m.w.questions {
		return acted{}
	}
	if c.kept.dead {
		out.bad = askedAfterTheEnd
	}
	c.trust = t.Question(span(now))
	c.kept.asked++
	c.kept.questioned = now + 1
	out.client = m.clients.name(c)
	out.msg = m.msgs.name(message{kind: askStatus, client: c.id, attempt: c.attempt, sent: now, lease: c.lease, fence: c.fence})
	return out
}

// noRenewal is a renewal that ends without a clear answer: its time-out, or an error.
func (m *machine) noRenewal(c clientState, now uint8) acted {
	c.kept = m.renewalOver(c.kept, true)
	c.trust = c.trust.Unclear(core.TrustRetry(int64(m.ttl)), span(now))
	return acted{client: m.clients.name(m.noted(c, now))}
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

func (m *machine) noStatus(c clientState, now uint8) acted {
	c.kept.questioned = 0
	c.trust = c.trust.Untold(core.TrustRetry(int64(m.ttl)), span(now))
	return acted{client: m.clients.name(m.noted(c, now))}
}

// stop tells the work to stop; the lease is kept while it does (R28).
func (m *machine) stop(c clientState, now uint8) acted {
	c.kept.stopped = true
	c.trust = c.trust.Stop(int64(m.w.drain), span(now))
	c.kept.limitTo(span(now) + int64(m.w.drain))
	return acted{client: m.clients.name(m.noted(c, now))}
}

// overrun is work that does not stop: the tenure is left to lapse, and not released.
func (m *machine) overrun(c clientState, now uint8) acted {
	c.trust = c.trust.Overrun(span(now))
	c.kept.dead = true
	return acted{client: m.clients.name(m.noted(c, now))}
}

// giveUp releases, once no work is under way. What has expired is not released.
func (m *machine) giveUp(c clientState, now uint8) (out acted) {
	t := m.wiring.released(c.trust, span(now))
	if c.kept.released || t.State != lastword.HolderReleased {
		return acted{}
	}
	switch {
	case c.open:
		out.bad = releasedAtWork
	case c.kept.dead:
		out.bad = askedAfterTheEnd
	}
	c.trust, c.kept.released, c.kept.dead = t, true, true
	out.client = m.clients.name(m.noted(c, now))
	out.msg = m.msgs.name(message{kind: askRelease, client: c.id, attempt: c.attempt, lease: c.lease, fence: c.fence})
	return out
}

// hearRenewal takes the answer to the renewal under way.
func (m *machine) hearRenewal(c clientState, q message, now uint8) clientState {
	if c.kept.dead {
		m.came(outLateAnswer)
	}
	if q.code != "" {
		c.kept = m.renewalOver(c.kept, false)
		c.trust = m.wiring.ended(c.trust, q.told.asked, span(now))
		c.kept = c.kept.refused(q.told.asked)
		return m.noted(c, now)
	}
	was := c.trust.At(span(now)).State
	c, counts := m.evidence(c, q.sent, m.ttl, now)
	c.kept = m.renewalOver(c.kept, !counts)
	c.trust = m.wiring.renewed(c.trust, int64(m.ttl), int64(m.ttl), span(now))
	if c.trust.State == lastword.HolderHeld {
		if was == lastword.HolderUnknown {
			m.came(outRenewedUnknown)
		}
		if was == lastword.HolderRequested {
			m.came(outConfirmed)
			c.kept = m.firstHeld(c.kept, now)
		}
	}
	return m.noted(c, now)
}

// hearStatus takes the answer to the question under way.
func (m *machine) hearStatus(c clientState, q message, now uint8) clientState {
	c.kept.questioned = 0
	if c.kept.dead {
		m.came(outLateAnswer)
	}
	ref := lastword.TenureRef{
		Resource: resource, Owner: clientNames[c.id], RequestID: requestID(c.id, c.attempt), LeaseID: c.lease, Fence: c.fence,
	}
	switch {
	case q.told.asked != lastword.StateHeld:
		// Older than what is known: the tenure may have been renewed since. It was
		// not, if it is over; but nobody has to believe that.
		if q.sent+1 >= c.kept.known {
			c.kept = c.kept.refused(q.told.asked)
			m.came(outAskedOver)
		}
	case q.told.left > 0:
		c, _ = m.evidence(c, q.sent, q.told.left, now)
	}
	was := c.trust.At(span(now)).State
	c.trust = m.wiring.told(c.trust, ref, q.told.status(), core.TrustRetry(int64(m.ttl)), span(now))
	if was == lastword.HolderUnknown && c.trust.State == lastword.HolderHeld {
		m.came(outAskedHeld)
	}
	return m.noted(c, now)
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
		c.kept.end = now + 1
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
	if !m.keeps(c.id) || c.phase != holding || !m.wiring.admits(c.trust, now) {
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
	if !m.keeps(c.id) || c.phase != holding || !c.trust.Final() {
		return false
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

// toldStatus is a status answer, as far as a holder reads it.
type toldStatus struct {
	state, asked lastword.State
	lease        string // of the current tenure
	fence        lastword.Token
	left         core.Span
}

func (t toldStatus) status() lastword.Status {
	return lastword.Status{
		Resource: resource, State: t.state, Asked: t.asked,
		Holder:    lastword.TenureRef{Resource: resource, LeaseID: t.lease, Fence: t.fence},
		Remaining: time.Duration(t.left),
	}
}

// statusTold is what a process answers to a question about one tenure.
func (m *machine) statusTold(st *storeState, p procState, q message) (t toldStatus) {
	l := &st.rec.Lease
	t.state = lastword.StateFree
	if l.ID != "" {
		t.state = l.State
	}
	if t.state == lastword.StateCanceled {
		t.state = lastword.StateReleased
	}
	if open(*l) {
		t.lease, t.fence, t.left = l.ID, l.Fence, m.remaining(p, st)
	}
	t.asked, _ = core.Asked(st.rec, st.request(q.client, q.attempt), q.lease)
	return t
}

// remaining is what is left of the present tenure as far as process p knows: it has
// granted or renewed it, and has watched the time since; else nothing (R25).
func (m *machine) remaining(p procState, st *storeState) core.Span {
	if p.wrote != st.rec.Revision || p.wrote == 0 {
		return 0
	}
	return max(0, m.ttl-core.Span(p.age)*tick)
}
