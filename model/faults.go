package model

import (
	"cmp"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// deliver generates what can become of message i of the net: one that is never
// delivered is lost, one that is delivered later is late.
func (m *machine) deliver(s *state, i int) {
	q := m.msgs.at(s.net[i])
	switch {
	case q.kind >= reAcquire:
		m.hear(s, i)
	case q.kind == doLookup:
		m.transact(s, i, s.net[i], false)
	case q.kind >= doWrite && (m.w.status == core.FenceOnly && !q.jump && !q.ask || q.asked || q.read != 0):
		if p := m.places.at(s.place); p.shut {
			return
		}
		m.through(s, i)
		if s.left[dupBudget] > 0 && s.calm == 0 && q.read == 0 && !q.forged {
			m.transact(s, i, s.net[i], true)
		}
	default:
		m.reach(s, i, q)
	}
}

// reach brings a message to each authority process that can take it.
func (m *machine) reach(s *state, i int, q *message) {
	for p := range uint8(m.w.processes) {
		if !m.able(s, p) {
			continue
		}
		m.handle(s, p, i, false)
		if m.enough() {
			return
		}
		if s.left[dupBudget] > 0 && s.calm == 0 && q.kind < doWrite && !m.w.split {
			m.handle(s, p, i, true)
		}
	}
}

// operator generates what people do: release a frozen record, declare a restored
// resource.
func (m *machine) operator(s *state) {
	place := m.places.at(s.place)
	if s.left[openBudget] > 0 && (place.rec.Frozen || lost(place)) {
		m.open(s, place)
	}
	if !place.shut {
		return
	}
	for p := range uint8(m.w.processes) {
		if !m.able(s, p) {
			continue
		}
		st := m.stores.at(s.store[m.procs.at(s.proc[p]).at])
		declared := *place
		declared.rec = m.wiring.Shut(place.rec, st.rec.NextFence(st.h))
		declared.shut = false
		declared.top = m.ghosts.at(s.ghost).n + 1
		for op, r := range declared.receipts {
			if !r.known && m.issued(s, uint8(op)) {
				declared.tombs |= 1 << op
			}
		}
		next := *s
		next.place = m.places.name(declared)
		m.emit(s, next, event{kind: evDeclare, who: world0, a: uint16(p)}, wrongUnless(closed(place.rec, declared.rec, st.rec.NextFence(st.h))))
		return
	}
}

// open is an operator that releases a record: a frozen one as it is, one that was
// lost from the authority's next number on (R19, R20).
func (m *machine) open(s *state, place *placeState) {
	var above lastword.Token
	if st := m.stores.at(s.store[0]); !place.rec.Exists || m.w.raw {
		above = st.rec.NextFence(st.h)
	}
	opened := *place
	opened.rec, opened.frozen = m.wiring.Shut(place.rec, above), false
	if above > 0 {
		opened.top = m.ghosts.at(s.ghost).n + 1
	}
	next := *s
	next.left[openBudget]--
	next.place = m.places.name(opened)
	m.emit(s, next, event{kind: evOpen, who: world0}, wrongUnless(closed(place.rec, opened.rec, above)))
}

func wrongUnless(right bool) kind {
	if right {
		return ""
	}
	return wrongRecord
}

// lost: the record is gone and its receipts are there (R19).
func lost(p *placeState) bool { return !p.rec.Exists && p.receipts != [maxIntents * 2]receipt{} }

// issued reports whether an operation id was in use before now.
func (m *machine) issued(s *state, op uint8) bool {
	for c := range m.w.clients {
		if client := m.clients.at(s.client[c]); client.phase != idle &&
			(m.intent(*client) > op || m.intent(*client) == op && client.open) {
			return true
		}
	}
	for _, msg := range s.net {
		if q := m.msgs.at(msg); q.kind == doWrite && q.op == op {
			return true
		}
	}
	return false
}

// faults generates what may go wrong beside crashes and messages.
func (m *machine) faults(s *state) {
	if m.w.calm != 0 {
		next := *s
		next.calm = 1
		next.left = [budgets]uint8{}
		m.emit(s, next, event{kind: evCalm, who: world0}, "")
	}
	if s.left[revokeBudget] > 0 {
		m.revoke(s)
	}
	if s.left[backupBudget] > 0 {
		next := *s
		next.left[backupBudget]--
		next.backup = s.store[0]
		m.emit(s, next, event{kind: evBackup, who: world0}, "")
	}
	if s.left[restoreBudget] > 0 && s.backup != 0 && !m.w.script {
		m.restore(s)
	}
	if s.left[placeBackupBudget] > 0 {
		next := *s
		next.left[placeBackupBudget]--
		next.kept = s.place
		m.emit(s, next, event{kind: evPlaceBackup, who: world0}, "")
	}
	if s.left[placeRestoreBudget] > 0 && s.left[placeBackupBudget] == 0 {
		m.restorePlace(s)
	}
	if s.left[cloneBudget] > 0 && s.store[1] == 0 && !m.procs.at(s.proc[1]).up && m.procs.at(s.proc[1]).step == 0 {
		next := *s
		next.left[cloneBudget]--
		next.store[1] = s.store[0]
		next.proc[1] = m.procs.name(procState{id: 1, at: 1})
		m.emit(s, next, event{kind: evClone, who: world0}, "")
	}
	if s.left[forgeBudget] > 0 {
		m.forge(s)
	}
	if s.left[strikeBudget] > 0 {
		m.strike(s)
	}
	if place := m.places.at(s.place); s.left[loseBudget] > 0 && place.rec.Exists {
		gone := *place
		gone.rec = core.FenceRecord{Step: m.w.step}
		next := *s
		next.left[loseBudget]--
		next.place = m.places.name(gone)
		m.emit(s, next, event{kind: evLose, who: world0}, "")
	}
}

// revoke is an operator that has looked at the present tenure and names its fence;
// the command may arrive later.
func (m *machine) revoke(s *state) {
	l := &m.stores.at(s.store[0]).rec.Lease
	if !open(*l) {
		return
	}
	next := *s
	next.left[revokeBudget]--
	m.send(&next, m.msgs.name(message{kind: askRevoke, client: maxClients - 1, fence: l.Fence}))
	m.emit(s, next, event{kind: evRevoke, who: world0}, "")
}

// restore puts the authority's backup back. One of the present epoch is restored
// through the command, which gives the store another identity; an older one may be a
// raw copy. What was under way at the store is lost with its connection.
func (m *machine) restore(s *state) {
	next := *s
	next.left[restoreBudget]--
	st := *m.stores.at(s.backup)
	if mark := m.marks.at(s.witness); st.h.Epoch == mark.w.Current && !m.wiring.Blind && !m.w.raw {
		st.h.Identity = "restored"
	}
	next.store[0] = m.stores.name(&st)
	for p := range m.w.processes {
		proc := *m.procs.at(s.proc[p])
		proc.read, proc.message, proc.waited, proc.revision, proc.watched = 0, 0, 0, 0, 0
		proc.stood = false
		if proc.step != 0 {
			proc = procState{id: proc.id, at: proc.at}
		}
		next.proc[p] = m.procs.name(proc)
	}
	g := *m.ghosts.at(s.ghost)
	g.era++
	next.ghost = m.ghosts.name(g)
	m.emit(s, next, event{kind: evRestore, who: world0}, "")
}

// restorePlace puts the resource's backup back. Transactions that were under way are
// gone; they ask again.
func (m *machine) restorePlace(s *state) {
	next := *s
	next.left[placeRestoreBudget]--
	now, back := m.places.at(s.place), *m.places.at(s.kept)
	back.top = now.top
	back.shut = !m.w.undeclared && !m.wiring.Unshut
	next.place = m.places.name(back)
	if next.place == s.place {
		return
	}
	net := s.net
	next.net = [maxNet]uint16{}
	for _, msg := range net {
		if msg == 0 {
			break
		}
		q := *m.msgs.at(msg)
		if q.asked || q.read != 0 {
			q.ask, q.asked, q.heard, q.look, q.read = false, false, core.Heard{}, false, 0
			msg = m.msgs.name(q)
		}
		m.send(&next, msg)
	}
	m.emit(s, next, event{kind: evPlaceRestore, who: world0}, "")
}

// strike takes witness or store away, or puts another one in its place.
func (m *machine) strike(s *state) {
	mark, st := *m.marks.at(s.witness), *m.stores.at(s.store[0])
	hit := func(kind eventKind, witness witnessState, st storeState) {
		next := *s
		next.left[strikeBudget]--
		next.witness, next.store[0] = m.marks.name(witness), m.stores.name(&st)
		m.emit(s, next, event{kind: kind, who: world0}, "")
	}
	empty := storeState{h: core.Header{Identity: "another", TickSpan: tick}}
	empty.rec.Resource = resource
	foreign := mark
	foreign.w.Store = "another"
	if mark.exists {
		hit(evLoseWitness, witnessState{}, st)
		hit(evOtherWitness, foreign, st)
	}
	if st.h.Exists {
		hit(evLoseStore, mark, empty)
		empty.h.Identity = st.h.Identity
		hit(evLoseStore, mark, empty)
	}
}

// forge sends a grant that the authority never made. With a leaked key it verifies:
// under the number of the newest tenure, or far above it (R14a, FENCE_REGRESSION).
func (m *machine) forge(s *state) {
	next := *s
	next.left[forgeBudget]--
	far, _ := lastword.MakeToken(m.w.epoch, m.w.counter+cmp.Or(m.w.far, 50))
	q := message{kind: doWrite, client: maxClients - 1, op: maxIntents - 1, intent: maxIntents - 1, seq: 1, fence: far, lease: "forged", forged: true}
	if !m.w.leaked {
		m.throw(s, next, q)
		return
	}
	q.leaked, q.op = true, 2*maxIntents-1
	m.throw(s, next, q)
	q.fence, _ = lastword.MakeToken(m.w.epoch, m.w.counter+1)
	m.throw(s, next, q)
	q.fence = 0
	m.throw(s, next, q)
	q.kind = doAdvance
	m.throw(s, next, q)
	q.kind = doWrite
	q.fence, q.lease = far, ""
	m.throw(s, next, q)
	q.lease = "forged"
	if l := m.stores.at(s.store[0]).rec.Lease; l.Fence != 0 {
		q.fence, q.op = l.Fence, 2*maxIntents-2
		m.throw(s, next, q)
		q.kind, q.op, q.intent, q.seq = doAdvance, 0, 0, 0
		m.throw(s, next, q)
	}
}

func (m *machine) throw(s *state, next state, q message) {
	m.send(&next, m.msgs.name(q))
	m.emit(s, next, event{kind: evForge, who: world0}, "")
}

// time lets one unit go by.
func (m *machine) time(s *state) {
	end := m.w.horizon
	if s.calm != 0 {
		end = m.w.calm
	}
	if s.now >= end {
		return
	}
	next := *s
	next.now++
	for p := range m.w.processes {
		proc := *m.procs.at(s.proc[p])
		if proc.wrote != 0 {
			proc.age = min(proc.age+1, uint8(m.ttl/tick))
		}
		if proc.up {
			proc.aged = true
			next.proc[p] = m.procs.name(proc)
		}
	}
	for c := range uint8(m.w.clients) {
		m.setClient(&next, c, m.lapse(s, c, next.now))
	}
	m.emit(s, next, event{kind: evTick, who: world0}, "")
}

// atRest: the faults have stopped and nothing more can happen. Whoever still asks
// was never granted.
func (m *machine) atRest(s *state) {
	for c := range m.w.clients {
		if m.clients.at(s.client[c]).phase == asking {
			m.out = append(m.out, successor{*s, event{kind: evCalm, who: world0, extra: 1}, waitingClientStarves})
			return
		}
	}
}
