package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// acted is what a client does in one step of its own, or on hearing a message.
type acted struct {
	client uint16
	msg    uint16 // that it sends
	bad    kind
	absent bool // it settled A's first intent as not done
}

// bound is how much of a TTL a holder does not trust.
var bound = core.TrustBound{RatePPM: 10_000}

func span(t uint8) int64 { return int64(t) * int64(tick) }

// act asks what client id does in an action at a moment, and keeps the answer.
func (m *machine) act(id uint16, kind eventKind, msg uint16, now uint8, do func(c clientState, now uint8) acted) acted {
	a := uint64(id)<<48 | uint64(kind)<<40 | uint64(msg)<<16 | uint64(now)
	if v, ok := m.acting.get(a, 0); ok {
		return *v
	}
	return *m.acting.put(a, 0, do(*m.clients.at(id), now))
}

// clientSteps generates what client c does by itself.
func (m *machine) clientSteps(s *state, c uint8) {
	if s.paused>>c&1 == 1 {
		if s.calm == 0 || m.w.pause {
			next := *s
			next.paused &^= 1 << c
			woken := *m.clients.at(s.client[c])
			woken.woken = true
			next.client[c] = m.clients.name(woken)
			m.emit(s, next, event{kind: evResume, who: actor(c)}, "")
		}
		return
	}
	client := m.clients.at(s.client[c])
	switch client.phase {
	case idle, ended:
		if early := m.w.keeper && c > 0 && core.Span(s.now)*tick < m.ttl; !early && int(client.attempt) < m.w.tries(c) {
			m.step(s, c, evAcquire, m.acquire)
		}
	case asking:
		eager := c == 0 || !m.w.plain
		if s.now > client.sent && (client.refused || eager && client.resent < m.w.resends || s.calm != 0) {
			m.step(s, c, evRepeat, m.repeat)
		}
		if s.left[cancelBudget] > 0 && s.calm == 0 && eager {
			m.spend(s, c, cancelBudget, evCancel, m.cancel)
		}
	case holding:
		if m.keeps(c) {
			m.keeperSteps(s, c, client)
		} else {
			m.holderSteps(s, c, client)
		}
	case finished:
	}
	if s.left[mistakeBudget] > 0 && s.calm == 0 {
		m.mistakes(s, c, client)
	}
	if s.left[clientCrashBudget] > 0 && s.calm == 0 && client.phase != idle && client.phase != finished {
		m.spend(s, c, clientCrashBudget, evClientCrash, m.crash)
	}
}

func (m *machine) holderSteps(s *state, c uint8, client *clientState) {
	if m.w.pause && c == 0 && s.calm == 0 && client.checked && !client.woken {
		next := *s
		next.paused |= 1 << c
		m.emit(s, next, event{kind: evPause, who: actor(c)}, "")
	}
	if m.wiring.Draws && client.woken && !client.wished && !client.open {
		m.step(s, c, evDraw, func(cl clientState, _ uint8) acted {
			cl.wished = true
			return acted{client: m.clients.name(cl), msg: m.msgs.name(message{kind: askNumber, client: cl.id, lease: cl.lease, fence: cl.fence})}
		})
	}
	m.step(s, c, evRenew, m.renew)
	if m.w.registers && client.stage == working {
		m.step(s, c, evRegister, m.register)
	}
	switch {
	case m.w.settler && c == 1:
		m.step(s, c, evRegister, m.register)
		m.step(s, c, evLookup, m.lookup)
	case m.w.keeper: // it only acquires
	case int(client.next) < m.w.writes:
		switch {
		case m.w.pause && !client.checked && !client.open:
			m.step(s, c, evCheck, m.check)
		case !client.open:
			m.step(s, c, evWrite, m.write)
		case m.wiring.Skips != SkipsNothing:
			m.step(s, c, evResubmit, m.skip)
		case client.tries < m.w.resubmits || s.calm != 0:
			m.step(s, c, evResubmit, m.resubmit)
		}
		return
	case m.w.complete && client.stage < completed:
		m.step(s, c, evComplete, m.complete)
		return
	}
	if m.w.release && (!m.w.settler || c != 1) && !m.w.keeper {
		m.step(s, c, evRelease, m.release)
	}
}

// step lets client c do one thing.
func (m *machine) step(s *state, c uint8, kind eventKind, do func(clientState, uint8) acted) {
	if m.enough() {
		return
	}
	m.move(s, *s, c, kind, do)
}

func (m *machine) spend(s *state, c uint8, b budget, kind eventKind, do func(clientState, uint8) acted) {
	next := *s
	next.left[b]--
	m.move(s, next, c, kind, do)
}

func (m *machine) move(s *state, next state, c uint8, kind eventKind, do func(clientState, uint8) acted) {
	out := m.act(s.client[c], kind, 0, s.now, do)
	if out.client == 0 {
		return // not now
	}
	m.setClient(&next, c, out.client)
	m.send(&next, out.msg)
	m.emit(s, next, event{kind: kind, who: actor(c), a: out.msg}, out.bad)
}

func (m *machine) acquire(c clientState, now uint8) acted {
	c = clientState{id: c.id, attempt: c.attempt + 1, phase: asking, sent: now, next: c.next, born: c.born}
	return acted{m.clients.name(c), m.ask(c), "", false}
}

func (m *machine) ask(c clientState) uint16 {
	return m.msgs.name(message{kind: askAcquire, client: c.id, attempt: c.attempt, sent: c.sent})
}

func (m *machine) repeat(c clientState, now uint8) acted {
	if !c.refused && c.resent < m.w.resends {
		c.resent++
	}
	c.sent, c.refused = now, false
	return acted{m.clients.name(c), m.ask(c), "", false}
}

// cancel gives up an attempt whose outcome the client does not know (R6a, R27).
func (m *machine) cancel(c clientState, _ uint8) acted {
	c.phase = ended
	return acted{m.clients.name(m.over(c)), m.msgs.name(message{kind: askCancel, client: c.id, attempt: c.attempt}), "", false}
}

// crash forgets everything but what a restarted program reads from its own disk: how
// many attempts it has made.
func (m *machine) crash(c clientState, _ uint8) acted {
	return acted{client: m.clients.name(clientState{id: c.id, attempt: c.attempt, phase: m.after(c), born: c.born + 1})}
}

func (m *machine) after(c clientState) phase {
	if int(c.attempt) < m.w.tries(c.id) {
		return ended
	}
	return finished
}

// over is a client whose tenure has ended for it. What it has not finished stays to
// be done in its next one.
func (m *machine) over(c clientState) clientState {
	return clientState{id: c.id, attempt: c.attempt, phase: m.after(c), next: c.next, born: c.born}
}

func (m *machine) renew(c clientState, now uint8) acted {
	t := c.trust.At(span(now))
	if t.Final() || c.renewed >= m.w.renewals && t.State != lastword.HolderRequested || t.Due > span(now) {
		return acted{}
	}
	if t.Open {
		if t.Sent+t.Call > span(now) {
			return acted{}
		}
		t = t.Unclear(0, span(now))
	}
	c.trust = t.Ask(span(now))
	c.renewed++
	return acted{m.clients.name(c), m.msgs.name(message{
		kind: askRenew, client: c.id, attempt: c.attempt, sent: now, lease: c.lease, fence: c.fence,
	}), "", false}
}

// check is the look at the own tenure before a write; a stop may come after it.
func (m *machine) check(c clientState, now uint8) acted {
	if !m.wiring.Admits(c.trust, span(now)) {
		return acted{}
	}
	c.checked = true
	return acted{client: m.clients.name(c)}
}

// write starts the next intent: no new effect unless the tenure is trusted (R26).
func (m *machine) write(c clientState, now uint8) (out acted) {
	if !c.checked {
		if !m.wiring.Admits(c.trust, span(now)) {
			return acted{}
		}
		if !c.trust.At(span(now)).State.Admits() || m.keeps(c.id) && (c.kept.dead || m.unsure(c, now)) {
			out.bad = effectWithoutTrust
		}
	}
	intent := m.intent(c)
	op := m.operation(c, intent)
	seq, n, ok := m.wiring.Take(c.seq, operationName(op))
	if !ok {
		return acted{}
	}
	c.seq, c.open, c.tries, c.checked = seq, true, 0, false
	out.client, out.msg = m.clients.name(c), m.submission(c, op, intent, n)
	return out
}

func (m *machine) intent(c clientState) uint8 {
	if m.w.shared {
		return c.next
	}
	return c.id*uint8(m.w.writes) + c.next
}

func (m *machine) submission(c clientState, op, intent uint8, n uint64) uint16 {
	if m.w.seqZero {
		n = 0
	}
	q := message{
		kind: doWrite, client: c.id, attempt: c.attempt, op: op, intent: intent, seq: uint8(n),
		fence: c.fence, lease: c.lease,
	}
	if c.drawn != 0 {
		q.fence = c.drawn
	}
	return m.msgs.name(q)
}

// operation is the id that c gives an intent.
func (m *machine) operation(c clientState, intent uint8) uint8 {
	switch m.wiring.Names {
	case ByNumber:
		return uint8(c.seq.Last)
	case ByLife:
		return intent + maxIntents*min(c.born, 1)
	case ByIntent:
	}
	return intent
}

// resubmit settles an unknown outcome with the same operation and number (R22).
func (m *machine) resubmit(c clientState, now uint8) acted {
	if !m.wiring.Admits(c.trust, span(now)) {
		return acted{}
	}
	intent := m.intent(c)
	op := m.operation(c, intent)
	if c.tries < m.w.resubmits {
		c.tries++
	}
	seq, n, ok := m.wiring.Take(c.seq, operationName(op))
	if !ok {
		return acted{}
	}
	c.seq = seq
	return acted{m.clients.name(c), m.submission(c, op, intent, n), "", false}
}

// skip is what a holder must not do: go on although an outcome is open.
func (m *machine) skip(c clientState, _ uint8) acted {
	c.next++
	c.open, c.seq.Open = false, ""
	if m.wiring.Skips == SkipsCounting {
		c.seq.Last++
	}
	return acted{client: m.clients.name(c)}
}

func (m *machine) complete(c clientState, now uint8) acted {
	if c.trust.At(span(now)).Final() || c.stage == completing && c.tries >= m.w.resubmits {
		return acted{}
	}
	if c.stage == completing {
		c.tries++
	}
	c.stage = completing
	return acted{m.clients.name(c), m.msgs.name(message{kind: askComplete, client: c.id, attempt: c.attempt, lease: c.lease, fence: c.fence}), "", false}
}

// release is sent once; if it is lost the tenure lapses.
func (m *machine) release(c clientState, now uint8) acted {
	if c.trust.Released(span(now)).State != lastword.HolderReleased {
		return acted{}
	}
	msg := m.msgs.name(message{kind: askRelease, client: c.id, attempt: c.attempt, lease: c.lease, fence: c.fence})
	c = m.over(c)
	if int(c.next) >= m.w.writes {
		c.next = 0
	}
	return acted{m.clients.name(c), msg, "", false}
}

// register and lookup are how a newer tenure settles what an older one left open
// (R22): first the fence, then a look for the receipt.
func (m *machine) register(c clientState, now uint8) acted {
	if c.stage >= advancing || !m.wiring.Settles || !m.wiring.Admits(c.trust, span(now)) {
		return acted{}
	}
	c.stage = advancing
	return acted{m.clients.name(c), m.msgs.name(message{kind: doAdvance, client: c.id, attempt: c.attempt, lease: c.lease, fence: c.fence}), "", false}
}

func (m *machine) lookup(c clientState, now uint8) acted {
	if c.stage == looking || c.stage < advanced && m.wiring.Settles || !m.wiring.Admits(c.trust, span(now)) {
		return acted{}
	}
	c.stage = looking
	return acted{m.clients.name(c), m.msgs.name(message{kind: doLookup, client: c.id, attempt: c.attempt, lease: c.lease, fence: c.fence}), "", false}
}

// lapse lets time act on what a client trusts.
func (m *machine) lapse(s *state, c uint8, now uint8) uint16 {
	return m.act(s.client[c], evTick, 0, now, func(c clientState, now uint8) acted {
		if c.phase == holding && m.keeps(c.id) {
			c.trust, c.kept = c.trust.At(span(now)), c.kept.passed(now)
			return acted{client: m.clients.name(m.noted(c, now))}
		}
		if c.phase == holding && !c.checked {
			if c.trust = c.trust.At(span(now)); c.trust.Final() {
				c = m.over(c)
			}
		}
		return acted{client: m.clients.name(c)}
	}).client
}
