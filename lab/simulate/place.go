package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/model"
)

// place is the guarded resource: what is durable there, and what its program remembers.
type place struct {
	lane [lanes]laneState
	// Of the program.
	down   bool
	shut   bool // restored, and not open again
	until  int64
	life   uint32
	era    int32 // restores
	bundle bundle
	late   int64 // until then it gets no newer bundle
	minGen uint64
	memory [lanes]remembered
	mode   [lanes]core.StatusMode
}

// laneState is what is durable for one resource: the record, the receipts, and the
// business rows with a counter of their own.
type laneState struct {
	rec      core.FenceRecord
	receipts [maxIntents]receipt // by operation
	effects  [maxIntents]uint8   // by intent
	changes  uint64              // of business rows
	kept     uint64              // receipts
	value    int16               // round whose value stands there
	by       lastword.Token
	top      int            // newest generation accepted, as the observer counts
	topFence lastword.Token // the same as a number
	frozen   bool
}

type receipt struct {
	known   bool
	intent  int16
	payload int16
	seq     uint64
	fence   lastword.Token
	lease   string
}

// remembered is an answer that may be used again for a while (R12).
type remembered struct {
	sent  int64
	lease string
	fence lastword.Token
	heard core.Heard
}

// bundle is a trust bundle as far as rules without signatures see it.
type bundle struct {
	sequence uint64
	current  uint32
	minimum  uint32
	keys     uint8 // beside the first, the newest one signs
}

const (
	reuseFor  = 50 * ms
	askFor    = 100 * ms
	mostTurns = 4
)

// arrive is a message that has come to the resource.
func (w *world) arrive(m *message) {
	if w.place.down || w.place.shut {
		w.lost(m, "the resource is closed")
		return
	}
	if m.class == 0 {
		w.count.Writes++
	}
	if m.kind == doLookup {
		w.lookup(m)
		return
	}
	if w.gate != nil {
		w.pass(m)
		return
	}
	if why := w.verify(m); why != "" {
		w.refuse(m, lastword.Unverified, why)
		return
	}
	w.hear(m, false)
}

// lookup reads a receipt; it moves no fence (R21).
func (w *world) lookup(m *message) {
	found := w.found(m)
	o := &w.owners[m.round]
	r := w.new(reLookup, o)
	r.lease, r.intent, r.found, r.era = m.lease, m.intent, found, w.place.era
	w.note(noteLookup, actorResource, m.round, flag(found), "")
	w.drop(m)
	w.send(r)
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// verify is R12 up to the status, "" if the grant is believed.
func (w *world) verify(m *message) string {
	if w.seal != nil {
		return w.seal.open(w, m)
	}
	switch {
	case w.wiring.Seal == model.AnySeal:
	case m.leaked:
	case m.class != 0:
		return forgeries[m.class-1].reason
	case w.wiring.Seal == model.LeaseSeal && w.ghost[m.lane].tenure(m.lease) == 0,
		w.wiring.Seal == model.GrantSeal && w.ghost[m.lane].find(m.fence, m.lease) == 0:
		return "SIGNATURE"
	}
	b := &w.place.bundle
	if m.fence.Epoch() > b.current && !w.refresh() || m.fence.Epoch() > b.current {
		return "EPOCH_AHEAD"
	}
	if m.fence.Epoch() < b.minimum {
		return "EPOCH_REVOKED"
	}
	if m.gen < w.place.minGen {
		return "POLICY_REVOKED"
	}
	if m.root && !m.leaked {
		return "ROOT"
	}
	m.floor, m.minimum = b.sequence, b.minimum
	return ""
}

// refresh gets the newest trust bundle, if it can be had.
func (w *world) refresh() bool {
	if w.now < w.place.late {
		w.effectOf(bundleLate)
		return false
	}
	if w.place.bundle.sequence < w.bundle.sequence {
		w.place.bundle = w.bundle
		w.effectOf(bundleBack)
		w.note(noteBundle, actorResource, -1, w.bundle.sequence, "")
	}
	return true
}

// hear brings what the record's mode wants to hear of the authority; fresh asks anew.
func (w *world) hear(m *message, fresh bool) {
	mode := w.place.mode[m.lane]
	if rec := &w.place.lane[m.lane].rec; rec.Exists && rec.Status.Stricter(mode) {
		mode = rec.Status
	} else if !rec.Exists && rec.Restored > 0 {
		mode = core.Query
	}
	if mode == core.FenceOnly && !m.jump && !m.behind {
		m.heard = core.Heard{Mode: core.FenceOnly}
		w.toTransaction(m)
		return
	}
	if old := &w.place.memory[m.lane]; !fresh && old.lease == m.lease && old.fence == m.fence && w.now < old.sent+reuseFor {
		m.heard = old.heard
		w.toTransaction(m)
		return
	}
	w.question(m)
}

// question asks the authority about the tenure of a message.
func (w *world) question(m *message) {
	if w.place.mode[m.lane] == core.Query && w.place.lane[m.lane].rec.Status == core.FenceOnly {
		w.effectOf(tightenMode)
	}
	o := &w.owners[max(m.round, 0)]
	q := w.new(askHeld, o)
	q.lane, q.round = m.lane, m.round
	q.fence, q.lease, q.look, q.about, q.aboutL = m.fence, m.lease, m.look, m.id, m.life
	q.sent = w.now
	q.to = uint8(draw(w.plan.seed, uint64(m.round)+9, uint64(m.no), uint64(m.rounds)) & 1)
	if !w.procs[q.to].up {
		q.to = 1 - q.to
	}
	m.asked = false
	w.q.push(task{at: w.now + askFor, kind: doAskedEnough, arg: m.id, who: int16(m.life & 0x7fff)})
	w.send(q)
}

// answered is the authority's answer at the resource.
func (w *world) answered(r *message) {
	m := w.post[r.about]
	if !m.used || m.life != r.aboutL || m.asked || w.place.down || w.place.shut {
		w.drop(r)
		return
	}
	m.asked = true
	if m.gate != nil {
		m.gate.tell(r)
		w.drop(r)
		w.resume(m)
		return
	}
	jump := m.jump && w.place.mode[m.lane] == core.FenceOnly
	m.heard = r.heard
	if jump {
		m.heard = core.Heard{Mode: core.FenceOnly, NextFence: r.heard.NextFence}
	} else if r.heard.State == lastword.StateHeld {
		w.place.memory[m.lane] = remembered{sent: r.sent, lease: r.lease, fence: r.fence, heard: r.heard}
	}
	w.drop(r)
	w.toTransaction(m)
}

// askedEnough is a question that has had no answer in time.
func (w *world) askedEnough(m *message, life int16) {
	if !m.used || int16(m.life&0x7fff) != life || m.asked || m.kind != doWrite && m.kind != doAdvance {
		return
	}
	if w.now < w.place.until {
		w.q.push(task{at: w.place.until, kind: doAskedEnough, arg: m.id, who: life})
		return
	}
	m.asked = true
	if m.gate != nil {
		w.resume(m)
		return
	}
	w.refuse(m, lastword.StatusUnavailable, "NO_ANSWER")
}

// toTransaction lets a message go into the transaction, at once or a little later.
func (w *world) toTransaction(m *message) {
	if f := w.strikes(m.round, point(doWrite)|before); f != nil && m.kind == doWrite && m.class == 0 {
		delay := w.beforeTransaction(m, f)
		if w.place.down {
			return
		}
		if delay > 0 {
			w.q.push(task{at: w.now + delay, kind: doTransact, arg: m.id, who: int16(m.life & 0x7fff)})
			return
		}
	} else if n := draw(w.plan.seed, uint64(m.round)+5, uint64(m.no), uint64(m.rounds)); n&15 == 0 {
		w.q.push(task{at: w.now + int64(n>>8)%(3*ms), kind: doTransact, arg: m.id, who: int16(m.life & 0x7fff)})
		return
	}
	if m.gate != nil {
		w.resume(m)
		return
	}
	w.transact(m)
}

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

// refuse answers without an effect.
func (w *world) refuse(m *message, v lastword.Verdict, why string) {
	if m.class != 0 {
		w.forgedRefused(m, v)
		w.drop(m)
		return
	}
	if v != lastword.Replayed && v != lastword.Applied {
		w.count.Refused++
	} else {
		w.count.Replayed++
	}
	ls := &w.place.lane[m.lane]
	r := &ls.receipts[m.op]
	own := uint64(0)
	if r.known && r.fence == m.fence && r.lease == m.lease {
		own = r.seq
	}
	if m.kind == doWrite && m.wrong == noMistake && !w.excused(m.lane) {
		done := ls.effects[m.intent] > 0
		switch {
		case v == lastword.Replayed && !done:
			w.violate(acknowledgedWithoutEffect, m.round, "an answer said done, and nothing was")
			return
		case v != lastword.Replayed && v != lastword.ReceiptExpired && v != lastword.Unverified && v != lastword.StatusUnavailable && done && m.known:
			w.violate(refusedButDone, m.round, "an answer said that nothing ran, and it had")
			return
		}
	}
	w.note(noteRefused, actorResource, m.round, uint64(m.fence), string(v)+" "+why)
	w.reply(m, v, own)
}

// reply tells a verdict.
func (w *world) reply(m *message, v lastword.Verdict, own uint64) {
	if m.class != 0 {
		w.drop(m)
		return
	}
	o := &w.owners[m.round]
	r := w.new(reWrite, o)
	if m.kind == doAdvance {
		r.kind = reAdvance
	}
	r.era = m.era
	r.lease, r.intent, r.op, r.seq, r.own, r.code, r.wrong = m.lease, m.intent, m.op, m.seq, own, string(v), m.wrong
	if v == lastword.Applied {
		r.own = own
	}
	if m.fault != nil {
		w.effect(m.fault)
	}
	w.drop(m)
	w.send(r)
}

// checkVerdict is the part of protocol §4 that needs nothing but what the observer has
// seen: who is older is stale, and who makes no mistake is never out of turn.
func (w *world) checkVerdict(ls *laneState, m *message, d *core.Decision, known core.KnownOperation) {
	if d.Again != "" || m.leaked || w.excused(m.lane) {
		return
	}
	k := w.ghost[m.lane].find(m.fence, m.lease)
	switch {
	case known.Receipt && m.kind == doWrite && m.class != 0:
	case known.Receipt && m.kind == doWrite:
		if known.Payload != payloads[w.payload(m)] && w.wiring.Operation(known) == known {
			w.check(d.Verdict == lastword.Conflict, wrongVerdict, m.round, "another content of a known operation is not a conflict")
		}
	case d.Write && m.kind == doAdvance:
	case k != 0 && k < ls.top && !w.overlap && d.Verdict != lastword.Applied && d.Verdict != lastword.StaleOwner &&
		d.Verdict != lastword.FenceRegression && d.Verdict != lastword.Unverified && d.Verdict != lastword.StatusUnavailable:
		w.violate(wrongVerdict, m.round, "an older tenure is told "+string(d.Verdict))
	case (d.Verdict == lastword.OutOfOrder || d.Verdict == lastword.Conflict) && w.honest(m):
		w.violate(numberOutOfTurn, m.round, "an owner without a mistake is told "+string(d.Verdict))
	}
	if d.Write && ls.rec.Exists && d.Record.Fence < ls.rec.Fence {
		w.violate(wrongRecord, m.round, "a record's fence went down")
	}
}

// honest: nothing was mistaken or forged with the authority's key in this resource.
func (w *world) honest(m *message) bool {
	return m.wrong == noMistake && !w.lanes[m.lane].mistaken && !w.overlap
}

// torn is what the first half of a broken transaction had read.
type torn struct {
	rec  core.FenceRecord
	d    core.Decision
	life uint32
}

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
