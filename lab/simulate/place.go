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
