package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// awaits reports whether c still listens to the reply q.
func (m *machine) awaits(c *clientState, q *message) bool {
	switch q.kind {
	case reAcquire:
		return c.phase == asking && c.attempt == q.attempt && (!c.refused || q.code != string(lastword.CodeHeld))
	case reStatus:
		return c.phase == holding && c.lease == q.lease && c.kept.questioned == q.sent+1
	case reRenew:
		if c.kept.renewing != 0 {
			return c.lease == q.lease && c.kept.renewing == q.sent+1
		}
		return c.phase == holding && c.lease == q.lease && c.trust.Open && c.trust.Sent == span(q.sent)
	case reComplete:
		return c.phase == holding && c.lease == q.lease && c.stage == completing
	case reNumber:
		return c.phase == holding && c.drawn == 0
	case reWrite:
		return c.phase == holding && c.lease == q.lease && c.open && m.intent(*c) == q.intent
	case reAdvance:
		return c.phase == holding && c.lease == q.lease && c.stage == advancing
	case reLookup:
		return c.phase == holding && c.lease == q.lease && c.stage == looking
	default:
		return false
	}
}

// hear delivers reply number i of the net.
func (m *machine) hear(s *state, i int) {
	q := m.msgs.at(s.net[i])
	c := q.client
	if s.paused>>c&1 == 1 {
		return
	}
	out := m.act(s.client[c], evHear, s.net[i], s.now, func(c clientState, now uint8) acted { return m.listen(c, *q, now) })
	next := *s
	next.take(i)
	if out.absent {
		g := *m.ghosts.at(s.ghost)
		g.absent = g.find(m.clients.at(s.client[c]).fence, m.clients.at(s.client[c]).lease)
		next.ghost = m.ghosts.name(g)
	}
	m.setClient(&next, c, out.client)
	m.emit(s, next, event{kind: evHear, who: actor(c), a: s.net[i]}, out.bad)
}

func (m *machine) listen(c clientState, q message, now uint8) (out acted) {
	code := lastword.Code(q.code)
	switch q.kind {
	case reAcquire:
		c = m.granted(c, q, now)
	case reStatus:
		c = m.hearStatus(c, q, now)
	case reRenew:
		if m.keeps(c.id) {
			c = m.hearRenewal(c, q, now)
			break
		}
		if code == "" {
			c.trust = m.wiring.Renewed(c.trust, int64(m.ttl), int64(m.ttl), span(now))
			if m.wiring.Reread {
				c.fence = q.fence
			}
		} else if c.trust = c.trust.Refused(span(now)); !c.checked {
			c = m.over(c)
		}
	case reComplete:
		if c.stage = completed; code != "" {
			c = m.over(c)
		}
	case reNumber:
		c.drawn = q.fence
	case reWrite:
		c = m.answered(c, q)
	case reAdvance:
		if c.stage = advanced; lastword.Verdict(q.code) != lastword.Applied {
			c = m.over(c)
		}
	case reLookup:
		if !q.found {
			out.absent = true
		}
		c = m.over(c)
	default:
	}
	out.client = m.clients.name(c)
	return out
}

// granted is an asking client that hears of its attempt.
func (m *machine) granted(c clientState, q message, now uint8) clientState {
	switch lastword.Code(q.code) {
	case "":
		c.phase, c.lease, c.fence = holding, q.lease, q.fence
		g := core.TrustGrant{Base: m.wiring.Base(span(q.sent), span(now)), TTL: int64(m.ttl), Bound: m.bound(), Remaining: int64(q.left)}
		if m.keeps(c.id) {
			g.MaxHold, g.Call = int64(m.w.maxHold), int64(m.w.call)
		}
		if q.whole {
			g.Remaining = int64(m.ttl)
		}
		c.trust = m.wiring.NewTrust(g, span(now))
		if c, _ = m.evidence(c, q.sent, core.Span(g.Remaining), now); m.keeps(c.id) && c.trust.State == lastword.HolderHeld {
			c.kept = m.firstHeld(c.kept, now)
		}
		c.sent, c.resent, c.refused = 0, 0, false
	case lastword.CodeHeld:
		c.refused = true
	default:
		c = m.over(c)
	}
	return c
}

// answered is a holder that hears the verdict on its write.
func (m *machine) answered(c clientState, q message) clientState {
	v := lastword.Verdict(q.code)
	c.seq = m.wiring.Settle(c.seq, uint64(q.seq), uint64(q.own), v)
	c.open, c.tries = false, 0
	if v == lastword.Applied || v == lastword.Replayed {
		c.next++
		return c
	}
	if m.keeps(c.id) { // the work is over; what becomes of the tenure is another matter
		c.next = uint8(m.w.writes)
		return c
	}
	return m.over(c)
}
