package model

import (
	"cmp"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// gate is one way into the place, as one program is configured: several programs write
// to one record, and not all of them know the same.
type gate struct {
	status core.StatusMode
	policy core.Policy
	// proof is what a message brings without asking, in the mode that it satisfies.
	proof core.StatusMode
	// What the trust bundle says that it verifies with.
	sequence      uint64
	minEpoch      uint32
	minGeneration uint64
}

// gate is the one that q goes through.
func (m *machine) gate(q message) gate {
	if q.gate > 0 {
		return m.w.gates[q.gate-1]
	}
	return gate{status: m.w.status, policy: m.w.policy, sequence: 1}
}

// generation is the policy generation of a grant: a new one with each issuer epoch, in
// worlds where gates differ.
func (w *world) generation(epoch uint32) uint64 {
	if len(w.gates) == 0 {
		return 1
	}
	return 1 + uint64(epoch)
}

// through lets message i go through each gate, unless it is in one already.
func (m *machine) through(s *state, i int) {
	q := *m.msgs.at(s.net[i])
	if len(m.w.gates) == 0 || q.gate > 0 {
		m.transact(s, i, s.net[i], false)
		return
	}
	for g := range m.w.gates {
		q.gate = uint8(g) + 1
		m.transact(s, i, m.msgs.name(q), false)
	}
}

// verified reports whether the gate's bundle lets q in: issuer epoch and policy
// generation are not below its minimums (R12).
func (g gate) verified(w *world, q message) bool {
	return q.fence.Epoch() >= g.minEpoch && w.generation(q.fence.Epoch()) >= g.minGeneration
}

// seen is what verifications at a record were made with, as the observer keeps it.
type seen struct {
	sequence      uint64
	minEpoch      uint32
	minGeneration uint64
}

func (s seen) and(g gate) seen {
	return seen{max(s.sequence, g.sequence), max(s.minEpoch, g.minEpoch), max(s.minGeneration, g.minGeneration)}
}

// begun says what must be done anew before there is a ruling: the record has seen a
// newer bundle than the gate, or it wants to hear more of the authority.
func (m *machine) begun(p *placeState, q message) core.Again {
	g, heard := m.gate(q), core.FenceOnly
	switch {
	case q.asked:
		heard = q.heard.Mode
	case g.proof != "":
		heard = g.proof
	}
	switch {
	case g.sequence < p.seen.sequence, q.fence.Epoch() < p.seen.minEpoch, m.w.generation(q.fence.Epoch()) < p.seen.minGeneration:
		return core.AgainVerify
	case strictness(heard) < strictness(m.mode(p, g)):
		return core.AgainAsk
	}
	return ""
}

func strictness(m core.StatusMode) int {
	switch m {
	case core.FenceOnly:
		return 1
	case core.Proof:
		return 2
	case core.Query:
		return 3
	}
	return 0
}

// mode is the strictest status mode of record and gate: it is only tightened (R12).
func (m *machine) mode(p *placeState, g gate) core.StatusMode {
	stored := cmp.Or(p.rec.Status, g.status, core.Query)
	if g.status != "" && strictness(g.status) > strictness(stored) {
		return g.status
	}
	return stored
}

// policy is the one in force for q: it changes only with a larger fence.
func (m *machine) policy(p *placeState, q message) core.Policy {
	g := m.gate(q)
	if !p.rec.Exists || q.fence > p.rec.Fence {
		return cmp.Or(g.policy, p.rec.Policy, core.Ordered)
	}
	return cmp.Or(p.rec.Policy, core.Ordered)
}

// recorded reports whether the record after an accepted step is what that step makes
// of it (protocol §4).
func (m *machine) recorded(before *placeState, q message, d core.Decision) bool {
	a, want := m.attemptOf(q), before.rec
	newer := !want.Exists || q.fence > want.Fence
	want.Policy, want.Status = m.policy(before, q), m.mode(before, m.gate(q))
	if newer {
		want.Fence, want.LeaseID, want.GrantDigest, want.Root = a.Fence, a.LeaseID, a.GrantDigest, a.Root
		want.LastSeq, want.Frozen, want.Lost = 0, false, false
	}
	want.Exists = true
	now := before.seen.and(m.gate(q))
	want.BundleSequence, want.MinEpoch, want.MinPolicyGeneration = now.sequence, now.minEpoch, now.minGeneration
	if q.kind == doAdvance {
		want.LastSeq, want.LastOperation, want.LastPayload = 0, "", lastword.Digest{}
		return d.Record == want
	}
	seq := uint64(q.seq)
	if seq == 0 {
		seq = want.LastSeq + 1
	}
	want.LastSeq, want.LastOperation, want.LastPayload = seq, a.Operation, a.Payload
	return d.Record == want && d.Seq == seq
}

// closed reports whether a record was closed as it must be: raised to just below the
// authority's next number, never lowered, and without a tenure (R20).
func closed(before, after core.FenceRecord, next lastword.Token) bool {
	want := before
	if next > want.Fence+1 {
		want.Fence = next - 1
	}
	want.Exists, want.Lost, want.Frozen = true, false, false
	want.LeaseID, want.GrantDigest, want.Root = "", lastword.Digest{}, lastword.Digest{}
	want.LastSeq, want.LastOperation, want.LastPayload = 0, "", lastword.Digest{}
	return after == want
}
