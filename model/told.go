package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// told reports whether the place's ruling is the protocol's. The table of §4 is gone
// through in its order, on what the observer has seen: which grants there were, what
// the place has accepted, what it was told.
func (m *machine) told(p *placeState, q message, d core.Decision, g *ghost) bool {
	if d.Again != "" {
		return m.w.status == core.Query && (!q.asked || !p.rec.Exists && !q.heard.AfterLook)
	}
	want, freezes := m.verdictFor(p, q, g)
	return d.Verdict == want && d.Freeze == freezes && d.Quarantine == (want == lastword.Conflict)
}

// verdictFor is what the protocol says, and whether the record is to be frozen.
func (m *machine) verdictFor(p *placeState, q message, g *ghost) (want lastword.Verdict, freezes bool) {
	rec, gen := &p.rec, g.find(q.fence, q.lease)
	if r := p.receipts[q.op]; r.known && q.kind == doWrite {
		if r.payload == m.payload(q) {
			return lastword.Replayed, false
		}
		return lastword.Conflict, false
	}
	closed := rec.Exists && rec.LeaseID == ""
	succeeded := gen != 0 && gen < p.top && !m.w.overlap && !m.w.undeclared
	least := q.kind == doAdvance && q.heard.State == lastword.StatePending
	switch equal := rec.Exists && q.fence == rec.Fence; {
	case succeeded, q.fence < rec.Fence, equal && closed:
		return lastword.StaleOwner, false
	case m.w.status == core.Query && q.heard.State != lastword.StateHeld && !least:
		return lastword.Unverified, false
	case q.kind == doWrite && p.tombs>>q.op&1 == 1:
		return lastword.ReceiptExpired, false
	case p.frozen && q.fence.Epoch() <= rec.Fence.Epoch():
		return lastword.FenceRegression, false
	case equal && q.lease != rec.LeaseID:
		return lastword.FenceRegression, true
	case equal && q.otherRoot != (rec.Root != root):
		return lastword.RootMismatch, false
	case m.jumps(rec, q.fence) && q.heard.NextFence <= q.fence:
		return lastword.FenceJump, false
	case q.kind == doAdvance:
		return lastword.Applied, false
	case equal:
		return m.inside(rec, q), false
	case m.w.policy == core.Ordered && q.seq > 1:
		return lastword.OutOfOrder, false
	}
	return lastword.Applied, false
}

// jumps reports whether fence is more than the allowed step above what the record
// has, or above the beginning of an epoch that it has not seen (R14a).
func (m *machine) jumps(rec *core.FenceRecord, fence lastword.Token) bool {
	from, step := uint64(0), m.w.step
	if rec.Exists && fence.Epoch() == rec.Fence.Epoch() {
		from = rec.Fence.Counter()
	}
	if step == 0 {
		step = core.DefaultStep
	}
	return fence.Counter() > from+step
}

// inside is the order rule within the stored tenure.
func (m *machine) inside(rec *core.FenceRecord, q message) lastword.Verdict {
	seq, last := uint64(q.seq), rec.LastSeq
	if seq == 0 {
		seq = last + 1
	}
	switch {
	case m.w.policy == core.Once && last > 0 && rec.LastPayload == payloads[m.payload(q)]:
		return lastword.Replayed
	case m.w.policy == core.Once && last > 0:
		return lastword.Conflict
	case m.w.policy == core.Once, seq == last+1, m.w.policy == core.Latest && seq > last:
		return lastword.Applied
	case seq == last, m.w.policy == core.Ordered && seq < last:
		return lastword.Conflict
	}
	return lastword.OutOfOrder
}
