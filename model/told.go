package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// told reports whether the place's ruling is the protocol's. The table of §4 is gone
// through in its order, on what the observer has seen: which grants there were, what
// the place has accepted, what it was told.
func (m *machine) told(p *placeState, q message, d core.Decision, g *ghost) bool {
	if !q.fence.Valid() || q.lease == "" {
		return d.Verdict == lastword.Unverified
	}
	if again := m.begun(p, q); again != "" {
		return d.Again == again
	}
	want, freezes := m.verdictFor(p, q, g)
	if want == "" {
		return d.Again == core.AgainAsk
	}
	if want == lastword.Applied { // registered before: nothing changes (R16a)
		before := q.kind == doAdvance && p.rec.Exists && q.fence == p.rec.Fence
		if d.Write == before {
			return false
		}
	}
	return d.Again == "" && d.Verdict == want && d.Freeze == freezes && d.Quarantine == (want == lastword.Conflict)
}

// verdictFor is what the protocol says, and whether the record is to be frozen; "" is
// to ask the authority after the look (R19).
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
		if q.behind && q.heard.NextFence != 0 && q.heard.NextFence <= rec.Fence {
			return lastword.FenceRegression, true
		}
		return lastword.StaleOwner, false
	case q.asked && q.heard.Mode == core.Query && q.heard.State != lastword.StateHeld && !least:
		return lastword.Unverified, false
	case q.kind == doWrite && p.tombs>>q.op&1 == 1:
		return lastword.ReceiptExpired, false
	case !rec.Exists && p.receipts != [maxIntents * 2]receipt{}:
		return lastword.FenceRegression, false
	case p.frozen && q.fence.Epoch() <= rec.Fence.Epoch():
		return lastword.FenceRegression, false
	case equal && q.lease != rec.LeaseID:
		return lastword.FenceRegression, true
	case equal && q.otherRoot != (rec.Root != root):
		return lastword.RootMismatch, false
	case !rec.Exists && m.mode(p, m.gate(q)) == core.Query && !q.heard.AfterLook:
		return "", false
	case m.jumps(rec, q.fence) && q.heard.NextFence <= q.fence:
		return lastword.FenceJump, false
	case strange(m.policy(p, q)):
		return lastword.OutOfOrder, false
	case q.kind == doAdvance:
		return lastword.Applied, false
	case equal:
		return m.inside(p, q), false
	case m.policy(p, q) == core.Ordered && q.seq > 1:
		return lastword.OutOfOrder, false
	}
	return lastword.Applied, false
}

// strange is an order rule that nobody knows: it admits nothing.
func strange(p core.Policy) bool { return p != core.Ordered && p != core.Latest && p != core.Once }

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
func (m *machine) inside(p *placeState, q message) lastword.Verdict {
	rec, policy := &p.rec, m.policy(p, q)
	seq, last := uint64(q.seq), rec.LastSeq
	if seq == 0 {
		seq = last + 1
	}
	switch {
	case policy == core.Once && last > 0 && rec.LastPayload == payloads[m.payload(q)]:
		return lastword.Replayed
	case policy == core.Once && last > 0:
		return lastword.Conflict
	case policy == core.Once, seq == last+1, policy == core.Latest && seq > last:
		return lastword.Applied
	case seq == last, policy == core.Ordered && seq < last:
		return lastword.Conflict
	}
	return lastword.OutOfOrder
}

// honest reports whether no client of the world makes a mistake and nobody lies: then
// none is ever told that its number is out of turn (protocol §1, seq).
func (m *machine) honest() bool {
	w := &m.w
	return w.mistakes == 0 && w.forgeries == 0 && w.policy != core.Once && !strange(w.policy) && !w.overlap && !w.undeclared
}
