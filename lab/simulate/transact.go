package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/model"
)

func (w *world) attempt(m *message) core.Attempt {
	a := core.Attempt{
		Fence: m.fence, LeaseID: m.lease, GrantDigest: w.digest(m), Root: work,
		Seq: m.seq, Operation: operations[m.op], Payload: payloads[w.payload(m)],
		Policy: core.Ordered, Status: w.place.mode[m.lane],
		BundleSequence: m.floor, MinEpoch: m.minimum, PolicyGeneration: m.gen, MinPolicyGeneration: w.place.minGen,
		Heard: m.heard,
	}
	if m.root {
		a.Root = otherWork
	}
	return w.wiring.Attempt(a)
}

// payload is the number of the content that m brings.
func (w *world) payload(m *message) int16 {
	switch {
	case m.wrong == otherContent:
		return maxIntents
	case w.wiring.Names == model.ByNumber:
		return 0
	}
	return m.intent
}

// transact is the transaction: look, decide, effect, record and receipt, commit.
func (w *world) transact(m *message) {
	if w.place.down || w.place.shut {
		w.lost(m, "the resource is closed")
		return
	}
	ls := &w.place.lane[m.lane]
	m.era = w.place.era
	rec := ls.rec
	rec.Lost = !rec.Exists && ls.kept > 0
	a := w.attempt(m)
	var d core.Decision
	known := ls.operation(m.op)
	m.known = known.Receipt
	if m.kind == doAdvance {
		d = w.wiring.Advance(rec, a)
	} else {
		d = w.wiring.Admit(rec, w.wiring.Operation(known), a)
	}
	if m.behind && d.Verdict == lastword.StaleOwner && core.Behind(rec, m.heard.NextFence) {
		d = core.Decision{Verdict: lastword.FenceRegression, Why: "BEHIND", Freeze: true}
	}
	w.checkVerdict(ls, m, &d, known)
	if w.stopped {
		return
	}
	if d.Again != "" || d.Verdict == lastword.FenceJump && m.heard.Mode != core.Query && !m.jump ||
		d.Verdict == lastword.StaleOwner && m.heard.Mode == core.Query && !m.behind && m.class == 0 {
		w.turn(m, &d, rec.Exists)
		return
	}
	if d.Verdict != lastword.Applied || !d.Write {
		if d.Freeze {
			ls.rec, ls.frozen = core.Freeze(ls.rec), true
			w.note(noteFrozen, actorResource, m.round, uint64(ls.rec.Fence), "")
			w.q.push(task{at: w.now + 15*ms, kind: doOperator, who: int16(m.lane), arg: operatorRelease})
		}
		w.refuse(m, d.Verdict, d.Why)
		return
	}
	if m.kind == doAdvance {
		ls.store(m, &d, false)
		w.registered(ls, m)
		w.reply(m, d.Verdict, 0)
		return
	}
	if w.wiring.Torn != model.Whole && m.torn == nil {
		w.tear(ls, m, &d)
		return
	}
	ls.store(m, &d, true)
	ls.receive(m, d.Seq, w.payload(m))
	w.apply(ls, m)
	if w.stopped {
		return
	}
	w.agree(ls, m)
	w.committed(m, d.Seq)
}

// committed answers a write that is durable.
func (w *world) committed(m *message, seq uint64) {
	if w.stopped {
		return
	}
	w.note(noteApplied, actorResource, m.round, uint64(m.fence), "")
	if f := w.strikes(m.round, point(doWrite)|after); f != nil && m.class == 0 {
		w.afterTransaction(m, f)
		if w.place.down {
			w.lost(m, "")
			return
		}
	}
	w.reply(m, lastword.Applied, seq)
}

// turn begins again: verified with the newest bundle, or asked again.
func (w *world) turn(m *message, d *core.Decision, exists bool) {
	if m.rounds++; m.rounds > mostTurns {
		w.refuse(m, lastword.StatusUnavailable, "OUTRUN")
		return
	}
	switch {
	case d.Again == core.AgainVerify:
		w.effectOf(bundleBack)
		if !w.refresh() {
			w.refuse(m, lastword.Unverified, "OUTDATED")
			return
		}
		if why := w.verify(m); why != "" {
			w.refuse(m, lastword.Unverified, why)
			return
		}
		w.transact(m)
		return
	case d.Again == core.AgainAsk:
		m.look = !exists
		w.effectOf(tightenMode)
	case d.Verdict == lastword.FenceJump:
		m.jump = true
	default:
		m.behind = true
	}
	w.hear(m, true)
}

func (ls *laneState) operation(op int16) core.KnownOperation {
	r := &ls.receipts[op]
	if !r.known {
		return core.KnownOperation{}
	}
	return core.KnownOperation{Receipt: true, Payload: payloads[r.payload]}
}

// store keeps the record.
func (ls *laneState) store(m *message, d *core.Decision, _ bool) {
	ls.rec = d.Record
	if d.Record.Fence >= ls.topFence {
		ls.frozen = false
	}
}

// receive keeps the receipt.
func (ls *laneState) receive(m *message, seq uint64, payload int16) {
	if !ls.receipts[m.op].known {
		ls.kept++
	}
	ls.receipts[m.op] = receipt{known: true, intent: m.intent, payload: payload, seq: seq, fence: m.fence, lease: m.lease}
}

// registered notes what the place has durably accepted.
func (w *world) registered(ls *laneState, m *message) {
	ls.top = max(ls.top, w.ghost[m.lane].find(m.fence, m.lease))
	ls.topFence = max(ls.topFence, m.fence)
	w.note(noteRegistered, actorResource, m.round, uint64(m.fence), "")
}

// apply changes the business rows, and looks at what only the observer can.
func (w *world) apply(ls *laneState, m *message) {
	g := &w.ghost[m.lane]
	k := g.find(m.fence, m.lease)
	older := k < ls.top
	if w.overlap {
		older = m.fence < ls.topFence
	}
	ls.value, ls.by = m.round, m.fence
	ls.effects[m.intent]++
	ls.changes++
	ls.top = max(ls.top, k)
	ls.topFence = max(ls.topFence, m.fence)
	switch {
	case m.leaked: // signed by the authority's own key
	case m.class != 0:
		w.violate(unauthorizedAccept, m.round, "a forged grant was accepted: "+forgeries[m.class-1].name)
	case k == 0:
		w.violate(unauthorizedAccept, m.round, "a write was accepted under a number that no grant carries")
	case older:
		w.violate(revokedGenerationOverwrite, m.round, "an older tenure changed the resource after a newer one was accepted")
	case m.wrong != noMistake:
		l := &w.lanes[m.lane]
		l.mistaken = true // it has used a number
		if m.wrong == otherContent && m.op < junk-1 {
			// Its receipt is gone with a restore that nobody declared: who asks for it now is
			// told of the wrong content.
			w.check(l.lost, twoEffects, m.round, "a known operation was executed with another content")
			l.spoiled = true
		}
		if m.seq > 1 && w.seqOf(ls, m) {
			w.violate(segmentJump, m.round, "a number was left out")
		}
	case w.excused(m.lane):
	case ls.effects[m.intent] > 1:
		w.violate(twoEffects, m.round, "one intent had two effects")
	case w.lanes[m.lane].absent[m.intent] > k:
		w.violate(absenceDisproved, m.round, "what was settled as not done happened after that")
	case ls.gap(m.intent) && k > w.lanes[m.lane].reconciled:
		w.violate(segmentJump, m.round, "a later segment took effect without the one before it")
	}
}

// gap reports whether the intent before has not been done.
func (ls *laneState) gap(intent int16) bool {
	before, is := prior(intent)
	return is && ls.effects[before] == 0
}

// seqOf reports whether a write that was accepted leaves out a number of its tenure: no
// receipt of the tenure has the number before.
func (w *world) seqOf(ls *laneState, m *message) bool {
	for i := range ls.receipts {
		if r := &ls.receipts[i]; r.known && r.fence == m.fence && r.lease == m.lease && r.seq == m.seq-1 {
			return false
		}
	}
	return true
}

// agree compares receipts with effects.
func (w *world) agree(ls *laneState, m *message) {
	if ls.kept != ls.changes && !w.excused(m.lane) {
		w.violate(receiptDisagrees, m.round, "receipts and effects differ")
	}
}

// excused: of a resource that was restored and nobody said so, only the fence counts.
func (w *world) excused(lane uint8) bool { return w.lanes[lane].undeclared || w.lanes[lane].spoiled }

// tear is the first half of a transaction that is not one.
func (w *world) tear(ls *laneState, m *message, d *core.Decision) {
	m.torn = &torn{rec: ls.rec, d: *d, life: w.place.life}
	switch w.wiring.Torn {
	case model.EffectFirst:
		w.apply(ls, m)
	case model.ReceiptFirst:
		ls.store(m, d, true)
		ls.receive(m, d.Seq, w.payload(m))
	case model.ReceiptMissed:
		ls.store(m, d, true)
		w.apply(ls, m)
		w.agree(ls, m)
	case model.CheckThenSet, model.LockLost, model.Whole:
	}
	if w.stopped {
		return
	}
	if f := w.strikes(m.round, point(doWrite)|after); f != nil {
		w.afterTransaction(m, f)
		if w.place.down {
			w.lost(m, "")
			return
		}
	}
	w.q.push(task{at: w.now + ms + int64(draw(w.plan.seed, uint64(m.round), uint64(m.no), 8)>>8)%(3*ms), kind: doSecond, arg: m.id, who: int16(m.life & 0x7fff)})
}

// second is the other half: it acts on what the first one had read.
func (w *world) second(m *message) {
	if w.place.down || w.place.shut || m.torn.life != w.place.life {
		w.lost(m, "")
		return
	}
	ls, t := &w.place.lane[m.lane], m.torn
	switch w.wiring.Torn {
	case model.CheckThenSet:
		ls.store(m, &t.d, true)
		ls.receive(m, t.d.Seq, w.payload(m))
		w.apply(ls, m)
	case model.LockLost: // the conditional write of the record meets no row, and nobody looks
		if ls.rec == t.rec {
			ls.rec = t.d.Record
		}
		ls.receive(m, t.d.Seq, w.payload(m))
		w.apply(ls, m)
	case model.EffectFirst:
		ls.store(m, &t.d, true)
		ls.receive(m, t.d.Seq, w.payload(m))
	case model.ReceiptFirst:
		w.apply(ls, m)
	case model.ReceiptMissed:
		ls.receive(m, t.d.Seq, w.payload(m))
	case model.Whole:
	}
	w.committed(m, t.d.Seq)
}
