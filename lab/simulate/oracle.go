package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// The names of violations, those of package model.
const (
	revokedGenerationOverwrite = "revoked_generation_overwrite"
	unauthorizedAccept         = "unauthorized_accept"
	numberIssuedTwice          = "number_issued_twice"
	fenceNotLarger             = "fence_not_larger"
	twoEffects                 = "two_effects"
	twoTenuresHeld             = "two_tenures_held"
	holderPastTrust            = "holder_past_trust"
	leaseShortened             = "lease_shortened"
	renewedAfterDeadline       = "renewed_after_deadline"
	foreignTenureChanged       = "foreign_tenure_changed"
	lateCompletion             = "late_completion"
	requestGrantedTwice        = "request_granted_twice"
	grantedAfterCancel         = "granted_after_cancel"
	receiptDisagrees           = "receipt_disagrees"
	acknowledgedWithoutEffect  = "acknowledged_without_effect"
	refusedButDone             = "refused_but_done"
	absenceDisproved           = "absence_disproved"
	segmentJump                = "segment_jump"
	numberOutOfTurn            = "number_out_of_turn"
	effectWithoutTrust         = "effect_without_trust"
	finalRevived               = "final_state_left"
	trustBeyondEvidence        = "trust_beyond_evidence"
	heldTooLong                = "held_too_long"
	askedOutOfTurn             = "asked_out_of_turn"
	releasedAtWork             = "released_at_work"
	wrongEnd                   = "wrong_end"
	overslept                  = "overslept"
	wrongVerdict               = "wrong_verdict"
	wrongRecord                = "wrong_record"
	wrongStart                 = "wrong_start"
	wrongAnswer                = "wrong_answer"
	waitingClientStarves       = "waiting_client_starves"
	// Not in the model: what only a run with an end can show.
	unknownLeftOpen   = "unknown_left_open"
	highwaterPolluted = "highwater_polluted"
	unchecked         = "unchecked_mutation"
)

// ghost is what only the observer knows of one resource.
type ghost struct {
	issues    []issue
	since     since
	cancelled [maxRounds]int32 // era + 1 in which the request id was cancelled
	granted   [maxRounds]int32 // era + 1 in which it was granted
	last      lastword.Token
}

// since is when the newest tenure that nobody ended was granted or renewed last.
type since struct {
	is bool
	at int64
}

// issue is one grant that was made durable.
type issue struct {
	fence   lastword.Token
	lease   string
	round   int16
	excused bool // it was ended under its holder
}

// find is the generation of a grant, from 1; 0 if there never was one.
func (g *ghost) find(fence lastword.Token, lease string) int {
	for i := len(g.issues); i > 0; i-- {
		if x := &g.issues[i-1]; x.fence == fence && x.lease == lease {
			return i
		}
	}
	return 0
}

func (g *ghost) tenure(lease string) int {
	for i := len(g.issues); i > 0; i-- {
		if g.issues[i-1].lease == lease {
			return i
		}
	}
	return 0
}

// violate ends the world with a violation; the first one counts.
func (w *world) violate(kind string, round int16, detail string) {
	if w.stopped || w.only != "" && kind != w.only {
		return
	}
	w.stopped = true
	w.violation = violation{kind: kind, detail: detail, round: round, at: w.now}
	w.note(noteViolation, actorObserver, round, 0, kind+": "+detail)
}

func (w *world) check(right bool, kind string, round int16, detail string) {
	if !right {
		w.violate(kind, round, detail)
	}
}

type violation struct {
	kind, detail string
	round        int16
	at           int64
}

// observeStep looks at one step of the authority's store before it is made.
func (w *world) observeStep(st *store, p *proc, d *decided) {
	m := d.m
	old, now := &st.lane[m.lane].rec.Lease, &d.change.Record.Lease
	lapsed := st.h.Tick >= old.Deadline || old.State != lastword.StateHeld || old.Fence.Epoch() < st.h.Floor
	mine := m.round >= 0 && old.RequestID == w.owners[m.round].request
	switch {
	case old.ID != now.ID:
	case now.Deadline > old.Deadline && lapsed:
		w.violate(renewedAfterDeadline, m.round, "a tenure was extended at or past its deadline")
	case now.Deadline > old.Deadline && m.lease != old.ID:
		w.violate(foreignTenureChanged, m.round, "a tenure was extended by who had named another one")
	case !old.Completed && now.Completed && (lapsed || m.lease != old.ID):
		w.violate(lateCompletion, m.round, "a result was stored for a tenure that was over")
	case old.State != lastword.StateHeld:
	case now.State == lastword.StateReleased && m.lease != old.ID,
		now.State == lastword.StateRevoked && m.fence != old.Fence,
		now.State == lastword.StateCanceled && !mine:
		w.violate(foreignTenureChanged, m.round, "a tenure was ended by who had named another one")
	}
}

// observe looks at it after it was made.
func (w *world) observe(st *store, d *decided, was *core.Record) {
	m := d.m
	g := &w.ghost[m.lane]
	sl := &st.lane[m.lane]
	l := &sl.rec.Lease
	held := 0
	for i := range d.change.Requests {
		if r := &d.change.Requests[i]; r.State == lastword.StateHeld {
			held++
		}
	}
	if held > 0 {
		held = 0
		for i := range sl.req {
			if sl.req[i].State == lastword.StateHeld && sl.req[i].ID != "" {
				held++
			}
		}
		if held > 1 {
			w.violate(twoTenuresHeld, m.round, "two tenures are held at once")
		}
	}
	switch d.effect {
	case grants:
		w.granted(g, l, m, was)
	case extends:
		g.since = since{true, w.now}
		w.count.Renewals++
		w.note(noteRenewed, actorStore, m.round, uint64(l.Fence), "")
	case ends, cancels:
		if open(&was.Lease) && !open(l) && l.State != lastword.StateExpired {
			g.since = since{}
			if d.effect == cancels {
				if k := g.find(was.Lease.Fence, was.Lease.ID); k > 0 {
					g.issues[k-1].excused = true
				}
			}
			w.note(noteEnded, actorStore, m.round, uint64(was.Lease.Fence), string(l.State))
		}
		if m.kind == askCancel {
			g.cancelled[m.round] = w.era + 1
		}
	case noEffect:
		if open(&was.Lease) && !open(l) {
			w.note(noteEnded, actorStore, m.round, uint64(was.Lease.Fence), string(l.State))
		}
	}
	if w.wiring.Forgetful && !open(l) && open(&was.Lease) {
		ls := &w.place.lane[m.lane]
		ls.rec = core.FenceRecord{}
		ls.receipts, ls.kept = [maxIntents]receipt{}, 0
	}
}

func (w *world) granted(g *ghost, l *core.Lease, m *message, was *core.Record) {
	w.count.Grants++
	w.note(noteGranted, actorStore, m.round, uint64(l.Fence), "")
	if was.Lease.ID != "" && (open(&was.Lease) || was.Lease.State == lastword.StateExpired) {
		w.count.Takeovers++
	}
	for i := range g.issues {
		if g.issues[i].fence == l.Fence {
			w.violate(numberIssuedTwice, m.round, "one number was issued twice")
		}
	}
	if !w.overlap {
		w.check(g.granted[m.round] != w.era+1, requestGrantedTwice, m.round, "one request id was granted two tenures")
		w.check(l.Fence > g.last, fenceNotLarger, m.round, "a later grant carries a lower number")
		w.check(g.cancelled[m.round] != w.era+1, grantedAfterCancel, m.round, "a request id was granted after its cancellation was durable")
		w.check(!g.since.is || w.now >= g.since.at+ttl-ttl/100, leaseShortened, m.round, "a tenure was succeeded before its TTL was over")
	}
	g.issues = append(g.issues, issue{fence: l.Fence, lease: l.ID, round: m.round})
	g.granted[m.round] = w.era + 1
	g.last = max(g.last, l.Fence)
	if o := &w.owners[m.round]; o.hit {
		w.lanes[m.lane].wasHit = true
	}
	g.since = since{true, w.now}
	w.wakeSleepers(m.lane)
	if w.stopped || w.overlap {
		return
	}
	for i := range w.owners[:w.ownersUsed] { // nobody else may trust any more
		if o := &w.owners[i]; o.lane == m.lane && o.phase == holding && o.round != m.round {
			w.checkTrust(o)
		}
	}
}

// checkTrust looks for a holder that trusts a tenure which has a successor, or that was
// never durable.
func (w *world) checkTrust(o *owner) {
	if w.overlap || w.untimely || o.phase != holding || o.timeless || !w.wiring.Admits(o.trust, o.clock.read(w.now)) {
		return
	}
	g := &w.ghost[o.lane]
	k := g.tenure(o.lease)
	if k == 0 || k < len(g.issues) && !g.issues[k-1].excused {
		w.violate(holderPastTrust, o.round, "a holder trusts a tenure that has a successor or was never durable")
	}
}

// checkStart is R10 in other words: who finds a store that its witness does not know
// stops, and else takes a number above all that were planned.
func (w *world) checkStart(st *store, plan *core.Start) {
	h, mark := &st.h, w.witnessOf()
	lost := false
	highest := h.Epoch
	if mark != nil {
		highest = max(highest, mark.Current, mark.Pending)
	}
	heard := mark != nil && (h.Epoch == mark.Current || mark.Starting && mark.Current < h.Epoch && h.Epoch <= mark.Pending)
	switch {
	case !h.Exists && mark == nil:
		return
	case !h.Exists:
		lost = !mark.Starting || !mark.First
	case mark == nil:
		lost = h.Witnessed
	default:
		lost = mark.Store != h.Identity || !heard
	}
	if _, copied := h.Original(); copied {
		lost = true
	}
	if w.lenient { // of a variant that breaks the start, what comes of it is looked for
		return
	}
	switch {
	case lost && plan.Code != lastword.CodeFenceRegression:
		w.violate(wrongStart, -1, "a start goes on with a store that its witness does not know")
	case !lost && (plan.Code != "" || plan.Epoch != highest+1):
		w.violate(wrongStart, -1, "a start does not take a number above all that were planned")
	}
}

// checkAcquire is what an acquire may be told (R2).
func (w *world) checkAcquire(st *store, p *proc, m *message, req *core.Request, d *decided, c core.Clock) {
	l := &st.lane[m.lane].rec.Lease
	live := open(l) && st.h.Tick < l.Deadline && c.Watched < l.TTL && l.Fence.Epoch() >= st.h.Floor
	a := &d.answer
	switch {
	case req != nil && req.LeaseID != "" && live && l.ID == req.LeaseID && a.Code == "":
		if !a.Repeated {
			w.violate(wrongAnswer, m.round, "a grant that had been made before is told as a new one")
		}
	case req == nil && a.Repeated:
		w.violate(wrongAnswer, m.round, "a grant is told as repeated that was never made")
	}
}
