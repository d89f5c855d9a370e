package model

import (
	"cmp"

	"github.com/lastword/lastword"
)

// kind is a property as the name of its violation.
type kind = string

// The properties. Each is violated by a variant at least.
const (
	// An older generation changed the resource after a newer one was accepted (P1).
	revokedGenerationOverwrite kind = "revoked_generation_overwrite"
	// A write was admitted under a number that no grant of its holder carries (P2, P3).
	unauthorizedAccept kind = "unauthorized_accept"
	// One number was issued twice (P2).
	numberIssuedTwice kind = "number_issued_twice"
	// A later grant carries a lower number than an earlier one (P2).
	fenceNotLarger kind = "fence_not_larger"
	// One business intent had two effects (P4).
	twoEffects kind = "two_effects"
	// Two tenures are HELD at the authority (R3).
	twoTenuresHeld kind = "two_tenures_held"
	// A holder trusts a tenure that has a successor, or that was never durable (R1, R25).
	holderPastTrust kind = "holder_past_trust"
	// A tenure was succeeded before its TTL was over (R8).
	leaseShortened kind = "lease_shortened"
	// A tenure was renewed, completed or asked for at or past its deadline (R4, R5).
	renewedAfterDeadline kind = "renewed_after_deadline"
	// A tenure was ended or extended by who had named another one (R5, R6, R7).
	foreignTenureChanged kind = "foreign_tenure_changed"
	// A result was stored for a tenure that was over (R6b).
	lateCompletion kind = "late_completion"
	// One request id was granted two tenures (R2).
	requestGrantedTwice kind = "request_granted_twice"
	// A request id was granted after its cancellation was durable (R6a).
	grantedAfterCancel kind = "granted_after_cancel"
	// Receipts and effects differ (protocol §4).
	receiptDisagrees kind = "receipt_disagrees"
	// An answer said done, and nothing was (P4).
	acknowledgedWithoutEffect kind = "acknowledged_without_effect"
	// An answer said that nothing ran, and it had (P5).
	refusedButDone kind = "refused_but_done"
	// What was settled as not done happened after that (R22).
	absenceDisproved kind = "absence_disproved"
	// A later segment took effect without the one before it (ordered).
	segmentJump kind = "segment_jump"
	// A holder that makes no mistake was told that its number is out of turn (protocol
	// §1, seq).
	numberOutOfTurn kind = "number_out_of_turn"
	// A holder started a write without trusting its tenure (R26).
	effectWithoutTrust kind = "effect_without_trust"
	// A lease admitted again after its end: EXPIRED and RELEASED are final (R26).
	finalRevived kind = "final_state_left"
	// A holder trusts for longer than any answer that it has heard allows (R25).
	trustBeyondEvidence kind = "trust_beyond_evidence"
	// A lease is held for longer than the longest hold, or than its drain (R28).
	heldTooLong kind = "held_too_long"
	// Something was sent for a lease that was over, or beside a call of its kind (R26).
	askedOutOfTurn kind = "asked_out_of_turn"
	// A lease was released while its work was under way (R28).
	releasedAtWork kind = "released_at_work"
	// A lease tells an end that is not its own (R28).
	wrongEnd kind = "wrong_end"
	// A lease says another moment than the one at which something is due (R26, R28).
	overslept kind = "overslept"
	// The place told a verdict that is not the protocol's for what it has and what came
	// (protocol §4).
	wrongVerdict kind = "wrong_verdict"
	// A record is not what the accepted step makes of it (protocol §4, R20).
	wrongRecord kind = "wrong_record"
	// A process started, went on or stopped where R10 says otherwise.
	wrongStart kind = "wrong_start"
	// The authority told what is not so (R2 to R7).
	wrongAnswer kind = "wrong_answer"
	// The faults stopped, and a waiting client was never granted.
	waitingClientStarves kind = "waiting_client_starves"
)

// Properties are the names of all properties, as violations name them.
func Properties() []string {
	return []string{
		revokedGenerationOverwrite, unauthorizedAccept, numberIssuedTwice, fenceNotLarger, twoEffects,
		twoTenuresHeld, holderPastTrust, leaseShortened, renewedAfterDeadline, foreignTenureChanged,
		lateCompletion, requestGrantedTwice, grantedAfterCancel, receiptDisagrees,
		acknowledgedWithoutEffect, refusedButDone, absenceDisproved, segmentJump, numberOutOfTurn,
		effectWithoutTrust, finalRevived, trustBeyondEvidence, heldTooLong, askedOutOfTurn, releasedAtWork, wrongEnd, overslept,
		wrongVerdict, wrongRecord, wrongAnswer, wrongStart, waitingClientStarves,
	}
}

// checkTrust looks for a holder that trusts a tenure which has a successor.
func (m *machine) checkTrust(s *state) kind {
	if m.w.overlap {
		return ""
	}
	if m.w.keeper {
		keeper := m.clients.at(s.client[0])
		if bad := m.distrust(keeper, span(s.now)); bad != "" {
			return bad
		}
		if m.toldWrongEnd(keeper) {
			return wrongEnd
		}
	}
	for c := range m.w.clients {
		id := s.client[c]
		for int(id) >= len(m.believed) {
			m.believed, m.beliefs, m.oversleeps = append(m.believed, false), append(m.beliefs, 0), append(m.oversleeps, false)
		}
		if !m.believed[id] {
			m.beliefs[id], m.believed[id] = m.belief(id), true
			keeper := m.clients.at(id)
			m.oversleeps[id] = m.keeps(keeper.id) && keeper.phase == holding && !m.punctual(keeper)
		}
		if m.oversleeps[id] {
			return overslept
		}
		if m.beliefs[id]>>s.now&1 == 0 {
			continue
		}
		g, client := m.ghosts.at(s.ghost), m.clients.at(id)
		gen := g.tenure(client.lease)
		if gen < g.n && g.excused>>gen&1 == 0 || gen == 0 {
			return holderPastTrust
		}
	}
	return ""
}

// belief has bit t set if the client trusts its tenure at time t.
func (m *machine) belief(id uint16) (bits uint32) {
	c := m.clients.at(id)
	if c.phase != holding {
		return 0
	}
	for t := range int64(maxTime) + 1 {
		if m.wiring.Admits(c.trust, t*int64(tick)) {
			bits |= 1 << t
		}
	}
	return bits
}

// grants adds a grant to what the observer knows.
func (g *ghost) grants(i issue, now uint8, w *world) kind {
	overlap := w.overlap
	var bad kind
	for k := range g.n {
		before := &g.issues[k]
		switch {
		case before.fence == i.fence && !w.raw:
			bad = numberIssuedTwice
		case before.client == i.client && before.attempt == i.attempt && bad == "" && g.era == 0:
			bad = requestGrantedTwice // a restore loses request records, and R2 and R6a with them
		}
	}
	switch {
	case bad != "":
	case g.n > 0 && i.fence < g.issues[g.n-1].fence && !overlap:
		bad = fenceNotLarger
	case g.cancelled>>slot(i.client, i.attempt)&1 == 1 && g.era == 0:
		bad = grantedAfterCancel
	case !overlap && g.since != 0 && now < g.since-1+uint8((cmp.Or(w.ttl, ttl)+w.delay)/tick):
		bad = leaseShortened
	}
	if g.n < maxIssues {
		g.issues[g.n] = i
		g.n++
	}
	g.since = now + 1
	return bad
}

// tenures checks one step of the authority's store: from before to after, asked for
// by q and committed.
func tenures(before, after *storeState, q message) kind {
	held := 0
	for i := range after.req {
		if s := after.req[i].State; after.req[i].ID != "" && (s == lastword.StateHeld || s == lastword.StatePending) {
			held++
		}
	}
	old, now := &before.rec.Lease, &after.rec.Lease
	lapsed := before.h.Tick >= old.Deadline || old.State != lastword.StateHeld || old.Fence.Epoch() < before.h.Floor
	switch {
	case held > 1:
		return twoTenuresHeld
	case old.ID != now.ID:
	case now.Deadline > old.Deadline && lapsed:
		return renewedAfterDeadline
	case now.Deadline > old.Deadline && q.lease != old.ID:
		return foreignTenureChanged
	case !old.Completed && now.Completed && (lapsed || q.lease != old.ID):
		return lateCompletion
	case old.State != lastword.StateHeld:
	case now.State == lastword.StateReleased && q.lease != old.ID,
		now.State == lastword.StateRevoked && q.fence != old.Fence,
		now.State == lastword.StateCanceled && (q.client != owner(old.Owner) || requestID(q.client, q.attempt) != old.RequestID):
		return foreignTenureChanged
	}
	return ""
}

func owner(name string) uint8 {
	for i, n := range clientNames {
		if n == name {
			return uint8(i)
		}
	}
	return maxClients
}
