package model

import (
	"strconv"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

func operationName(op uint8) string { return "op-" + strconv.Itoa(int(op)) }

var payloads [maxIntents + 1]lastword.Digest

func init() {
	for i := range payloads {
		payloads[i] = lastword.DigestOf([]byte{'p', byte(i)})
	}
}

// applied is what the place makes of one message.
type applied struct {
	place uint16
	reply uint16
	again uint16 // the message goes on as this one
	bad   kind
}

// transact lets the place carry out message i of the net, as msg.
func (m *machine) transact(s *state, i int, msg uint16, again bool) {
	a := uint64(s.place)<<48 | uint64(msg)<<32 | uint64(s.ghost)<<16
	v, ok := m.applying.get(a, 0)
	if !ok {
		v = m.applying.put(a, 0, m.carryOut(*m.places.at(s.place), s.place, *m.msgs.at(msg), m.ghosts.at(s.ghost)))
	}
	out := *v
	next := *s
	next.place = out.place
	ev := event{kind: evTransact, who: thePlace, a: msg, b: out.reply}
	if again {
		ev.kind = evTransactTwice
		next.left[dupBudget]--
	} else {
		next.take(i)
	}
	if out.again != 0 {
		m.send(&next, out.again)
	}
	if m.msgs.at(msg).read != 0 {
		ev.kind = evSecondStep
	}
	m.answer(&next, out.reply)
	m.emit(s, next, ev, out.bad)
}

func (m *machine) carryOut(p placeState, id uint16, q message, g *ghost) applied {
	switch {
	case q.kind == doLookup:
		found := p.receipts[0].known || p.tombs&1 == 1
		m.came(choose(found, outFound, outNotFound))
		return applied{place: id, reply: m.msgs.name(message{kind: reLookup, client: q.client, lease: q.lease, found: found})}
	case !m.verified(g, q) || !m.gate(q).verified(&m.w, q):
		m.ruled(q, lastword.Unverified)
		return applied{place: id, reply: m.verdict(q, lastword.Unverified, 0)}
	case q.read != 0:
		return m.secondStep(p, q, g)
	}
	d := m.ruling(&p, q)
	if q.behind && d.Verdict == lastword.StaleOwner && core.Behind(p.rec, q.heard.NextFence) {
		d = core.Decision{Verdict: lastword.FenceRegression, Freeze: true}
	}
	m.ruled(q, d.Verdict)
	out := m.follow(p, id, q, d, g)
	switch {
	case out.bad != "":
	case !m.told(&p, q, d, g):
		out.bad = wrongVerdict
	case d.Write && !m.recorded(&p, q, d):
		out.bad = wrongRecord
	case (d.Verdict == lastword.OutOfOrder || d.Verdict == lastword.Conflict) && m.honest():
		out.bad = numberOutOfTurn
	}
	return out
}

// verified reports whether the grant in q is believed.
func (m *machine) verified(g *ghost, q message) bool {
	switch m.wiring.Seal {
	case AnySeal:
		return true
	case LeaseSeal:
		return !q.forged && g.tenure(q.lease) != 0
	case GrantSeal:
	}
	return q.leaked || !q.forged && g.find(q.fence, q.lease) != 0
}

// ruling is what the rules say to a verified message.
func (m *machine) ruling(p *placeState, q message) core.Decision {
	a := m.wiring.Attempt(m.attemptOf(q))
	rec := p.rec
	rec.Lost = !rec.Exists && (p.receipts != [maxIntents * 2]receipt{} || p.tombs != 0)
	if q.kind == doAdvance {
		return m.wiring.Advance(rec, a)
	}
	return m.wiring.Admit(rec, m.wiring.Operation(p.operation(q.op)), a)
}

// follow does what a ruling asks for.
func (m *machine) follow(p placeState, id uint16, q message, d core.Decision, g *ghost) applied {
	switch {
	case d.Again == core.AgainVerify: // with the newest bundle
		m.came(outVerifyAgain)
		q.gate = uint8(len(m.w.gates))
		return applied{place: id, again: m.msgs.name(q)}
	case d.Again != "": // asked again, after the look
		q.ask, q.asked, q.heard, q.look = m.w.status == core.FenceOnly, false, core.Heard{}, !p.rec.Exists
		return applied{place: id, again: m.msgs.name(q)}
	case d.Verdict == lastword.FenceJump && m.w.status == core.FenceOnly && !q.jump: // asked for the next fence (R14a)
		q.jump = true
		return applied{place: id, again: m.msgs.name(q)}
	case d.Verdict == lastword.StaleOwner && m.w.raw && q.asked && !q.behind: // asked after the record was read: did the authority go back?
		q.asked, q.heard, q.behind = false, core.Heard{}, true
		return applied{place: id, again: m.msgs.name(q)}
	case d.Verdict != lastword.Applied || !d.Write:
		return m.unchanged(p, id, q, d)
	case q.kind == doAdvance:
		p.rec, p.frozen, p.seen = d.Record, false, p.seen.and(m.gate(q))
		p.top = max(p.top, g.find(q.fence, q.lease))
		return applied{place: m.places.name(p), reply: m.verdict(q, d.Verdict, 0)}
	case m.wiring.Torn != Whole:
		return m.firstStep(p, id, q, d, g)
	}
	if gen := g.find(q.fence, q.lease); gen != 0 && gen < g.n && gen >= p.top {
		m.came(outEarly)
	}
	m.store(&p, q, d)
	p.seen = p.seen.and(m.gate(q))
	bad := p.effect(q, g, &m.w)
	if bad == "" {
		bad = p.agrees()
	}
	return applied{place: m.places.name(p), reply: m.verdict(q, d.Verdict, d.Seq), bad: bad}
}

// unchanged answers without an effect; a frozen record is the one trace.
func (m *machine) unchanged(p placeState, id uint16, q message, d core.Decision) (out applied) {
	out.place = id
	if d.Freeze {
		p.rec = core.Freeze(p.rec)
		p.frozen = true
		out.place = m.places.name(p)
	}
	r := p.receipts[q.op]
	own := uint64(0)
	if r.known && r.fence == q.fence && r.lease == q.lease {
		own = uint64(r.seq)
	}
	out.reply = m.verdict(q, d.Verdict, own)
	if q.kind != doWrite || q.leaked || q.otherPayload || m.w.alike {
		return out
	}
	done := p.effects[q.intent] > 0
	switch {
	case d.Verdict == lastword.Replayed && !done:
		out.bad = acknowledgedWithoutEffect
	case d.Verdict != lastword.Replayed && d.Verdict != lastword.ReceiptExpired && done:
		out.bad = refusedButDone
	}
	return out
}

func (m *machine) attemptOf(q message) core.Attempt {
	g := m.gate(q)
	a := core.Attempt{
		Fence: q.fence, LeaseID: q.lease, GrantDigest: lastword.DigestOf([]byte(q.lease + q.fence.String())),
		Root: root, Seq: uint64(q.seq), Operation: operationName(q.op), Payload: payloads[m.payload(q)],
		Policy: g.policy, Status: g.status, BundleSequence: g.sequence, MinEpoch: g.minEpoch,
		PolicyGeneration: m.w.generation(q.fence.Epoch()), MinPolicyGeneration: g.minGeneration,
		Heard: core.Heard{Mode: core.FenceOnly},
	}
	if q.otherRoot {
		a.Root = otherRoot
	}
	switch {
	case q.asked:
		a.Heard = q.heard
	case g.proof != "":
		a.Heard = core.Heard{Mode: g.proof, State: lastword.StateHeld}
	}
	return a
}

// payload is the number of the content that q brings.
func (m *machine) payload(q message) uint8 {
	switch {
	case q.otherPayload:
		return maxIntents
	case m.w.alike:
		return 0
	}
	if m.wiring.Names == ByNumber {
		return 0
	}
	return q.intent
}

func (m *machine) verdict(q message, v lastword.Verdict, own uint64) uint16 {
	if q.forged {
		return 0
	}
	r := message{kind: reWrite, client: q.client, lease: q.lease, intent: q.intent, op: q.op, seq: q.seq, own: uint8(own), code: string(v)}
	if q.kind == doAdvance {
		r = message{kind: reAdvance, client: q.client, lease: q.lease, code: string(v)}
	}
	return m.msgs.name(r)
}

// stored is the number of the content that a receipt keeps: what came, whatever name
// a broken client gives it.
func (m *machine) stored(q message) uint8 {
	switch {
	case q.otherPayload:
		return maxIntents
	case m.w.alike:
		return 0
	}
	return q.intent
}

func (p *placeState) operation(op uint8) core.KnownOperation {
	r := p.receipts[op]
	return core.KnownOperation{Receipt: r.known, Payload: payloadOf(r), Tombstone: !r.known && p.tombs>>op&1 == 1}
}

func payloadOf(r receipt) lastword.Digest {
	if !r.known {
		return lastword.Digest{}
	}
	return payloads[r.payload]
}

// store keeps record and receipt.
func (m *machine) store(p *placeState, q message, d core.Decision) {
	p.rec = d.Record
	m.receiveWrite(p, q, d)
}

func (m *machine) receiveWrite(p *placeState, q message, d core.Decision) {
	p.receipts[q.op] = receipt{known: true, intent: q.intent, seq: uint8(d.Seq), fence: q.fence, lease: q.lease, payload: m.stored(q)}
}

// effect changes the business value, and checks what only the observer can.
func (p *placeState) effect(q message, g *ghost, w *world) kind {
	gen := g.find(q.fence, q.lease)
	older := gen < p.top
	if w.overlap { // two copies grant: their numbers alone tell which grant is newer
		older = q.fence < p.by
	}
	p.value, p.by = int8(q.client)+1, q.fence
	p.effects[q.intent]++
	p.top = max(p.top, gen)
	p.frozen = false
	switch {
	case q.leaked: // signed by the authority's own key: what it may do is what told and the numbers leave
		return ""
	case gen == 0 || q.forged:
		return unauthorizedAccept
	case older:
		return revokedGenerationOverwrite
	case p.effects[q.intent] > 1:
		return twoEffects
	case q.intent == 0 && gen < g.absent:
		return absenceDisproved
	case w.policy == core.Ordered && w.writes > 1 && int(q.intent)%w.writes > 0 && p.effects[q.intent-1] == 0:
		return segmentJump
	}
	return ""
}

// agrees checks receipts against effects.
func (p *placeState) agrees() kind {
	var receipts [maxIntents]uint8
	for _, r := range p.receipts {
		if r.known {
			receipts[r.intent]++
		}
	}
	if receipts != p.effects && p.tombs == 0 {
		return receiptDisagrees
	}
	return ""
}

// firstStep is the first half of a transaction that is not one.
func (m *machine) firstStep(p placeState, id uint16, q message, d core.Decision, g *ghost) applied {
	var bad kind
	q.read = id + 1
	switch m.wiring.Torn {
	case EffectFirst:
		bad = p.effect(q, g, &m.w)
	case ReceiptFirst:
		m.store(&p, q, d)
	case ReceiptMissed:
		p.rec = d.Record
		if bad = p.effect(q, g, &m.w); bad == "" {
			bad = p.agrees()
		}
	case CheckThenSet, LockLost, Whole:
	}
	return applied{place: m.places.name(p), again: m.msgs.name(q), bad: bad}
}

// secondStep is the other half: it acts on what the first one had read.
func (m *machine) secondStep(p placeState, q message, g *ghost) applied {
	read := m.places.at(q.read - 1)
	d := m.wiring.Admit(read.rec, m.wiring.Operation(read.operation(q.op)), m.wiring.Attempt(m.attemptOf(q)))
	var bad kind
	switch m.wiring.Torn {
	case CheckThenSet:
		m.store(&p, q, d)
		bad = p.effect(q, g, &m.w)
	case LockLost: // the conditional write of the record meets no row, and nobody looks
		if p.rec == read.rec {
			p.rec = d.Record
		}
		m.receiveWrite(&p, q, d)
		bad = p.effect(q, g, &m.w)
	case EffectFirst:
		m.store(&p, q, d)
	case ReceiptFirst:
		bad = p.effect(q, g, &m.w)
	case ReceiptMissed:
		m.receiveWrite(&p, q, d)
	case Whole:
	}
	return applied{place: m.places.name(p), reply: m.verdict(q, d.Verdict, d.Seq), bad: bad}
}
