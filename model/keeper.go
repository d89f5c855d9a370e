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
	sure     int64         // the latest end of trust that the answers heard so far allow
	known    uint8         // when the newest message with such an answer was sent, from 1
	doubt    uint8         // when the newest renewal that had no answer was sent, from 1
	limit    int64         // the end of the longest hold and of the drain, 0 for none
	dead     bool          // trust was over once
	end      uint8         // when the lease itself said so, from 1
	ending   core.TrustEnd // what it said then
	how      lastword.State
	released bool
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
	if m.w.release && (!client.open || m.wiring.Hurries) {
		m.step(s, c, evRelease, m.giveUp)
	}
}

// keepRenewing sends the next renewal when it is due.
func (m *machine) keepRenewing(c clientState, now uint8) (out acted) {
	t := c.trust.At(span(now))
	if !m.wiring.RenewalDue(t, span(now)) || c.renewed >= m.w.renewals {
		return acted{}
	}
	if c.kept.dead || c.kept.renewing != 0 {
		out.bad = askedOutOfTurn
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
	if c.kept.dead || c.kept.questioned != 0 {
		out.bad = askedOutOfTurn
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
	t := m.wiring.Released(c.trust, span(now))
	if c.kept.released || t.State != lastword.HolderReleased {
		return acted{}
	}
	switch {
	case c.open:
		out.bad = releasedAtWork
	case c.kept.dead:
		out.bad = askedOutOfTurn
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
		c.trust = m.wiring.Ended(c.trust, q.told.asked, span(now))
		c.kept = c.kept.refused(q.told.asked)
		return m.noted(c, now)
	}
	was := c.trust.At(span(now)).State
	c, counts := m.evidence(c, q.sent, m.ttl, now)
	c.kept = m.renewalOver(c.kept, !counts)
	c.trust = m.wiring.Renewed(c.trust, int64(m.ttl), int64(m.ttl), span(now))
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
	c.trust = m.wiring.Told(c.trust, ref, q.told.status(), core.TrustRetry(int64(m.ttl)), span(now))
	if was == lastword.HolderUnknown && c.trust.State == lastword.HolderHeld {
		m.came(outAskedHeld)
	}
	return m.noted(c, now)
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
