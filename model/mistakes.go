package model

// mistake is what a client may get wrong about one write.
type mistake int

const (
	otherWork    mistake = iota // the root of another piece of work
	otherContent                // an operation that has been done, with other content
	numberAhead                 // a number is left out
	numberTaken                 // the first number is used again
)

const mistakes = 4

// mistakes lets client c make each of them.
func (m *machine) mistakes(s *state, c uint8, client *clientState) {
	switch {
	case client.phase == asking:
		m.err(s, c, message{kind: askAcquire, client: c, attempt: client.attempt, sent: client.sent, otherRoot: true})
	case client.phase != holding:
		m.meddle(s, c)
	case client.stage == completed:
		m.err(s, c, message{kind: askComplete, client: c, attempt: client.attempt, lease: client.lease, fence: client.fence, otherPayload: true})
	case !client.open && m.w.writes > 0:
		for what := range mistake(mistakes) {
			out := m.act(s.client[c], evMistake, uint16(what), s.now, func(c clientState, now uint8) acted { return m.mistaken(c, now, what) })
			if out.client == 0 {
				continue
			}
			next := *s
			next.left[mistakeBudget]--
			m.setClient(&next, c, out.client)
			m.send(&next, out.msg)
			m.emit(s, next, event{kind: evMistake, who: actor(c), a: out.msg}, out.bad)
		}
	default:
		for _, kind := range []messageKind{askRenew, askRelease, askComplete} {
			m.err(s, c, message{kind: kind, client: c, attempt: client.attempt, lease: client.lease, fence: client.fence + 1})
			m.err(s, c, message{kind: kind, client: c, attempt: client.attempt, lease: "other", fence: client.fence})
		}
	}
}

// meddle is a client that takes the present tenure for its own: it names lease and
// fence as they are, and itself as the owner.
func (m *machine) meddle(s *state, c uint8) {
	l := &m.stores.at(s.store[0]).rec.Lease
	if !open(*l) || l.Owner == clientNames[c] {
		return
	}
	for _, kind := range []messageKind{askRenew, askRelease, askComplete} {
		m.err(s, c, message{kind: kind, client: c, attempt: 1, lease: l.ID, fence: l.Fence})
	}
}

// err sends a message that its client should not send, and does not listen for what
// comes of it.
func (m *machine) err(s *state, c uint8, q message) {
	next := *s
	next.left[mistakeBudget]--
	name := m.msgs.name(q)
	m.send(&next, name)
	m.emit(s, next, event{kind: evMistake, who: actor(c), a: name}, "")
}

// mistaken is a write of the next intent in which something is wrong. Its answer is
// heard as that of the intent.
func (m *machine) mistaken(c clientState, now uint8, what mistake) acted {
	if int(c.next) >= m.w.writes || !m.wiring.Admits(c.trust, span(now)) || (what == otherContent || what == numberTaken) && c.next == 0 {
		return acted{}
	}
	intent := m.intent(c)
	seq, n, ok := m.wiring.Take(c.seq, operationName(intent))
	if !ok {
		return acted{}
	}
	q := *m.msgs.at(m.submission(c, intent, intent, n))
	switch what {
	case otherWork:
		q.otherRoot = true
	case otherContent:
		q.op, q.otherPayload = intent-1, true
	case numberAhead:
		q.seq++
	case numberTaken:
		q.seq = 1
	}
	c.seq, c.open, c.tries, c.checked = seq, true, m.w.resubmits, false
	return acted{client: m.clients.name(c), msg: m.msgs.name(q)}
}
