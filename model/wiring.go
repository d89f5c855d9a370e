package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Wiring is what stands between the rules and a world: the rules themselves, as
// production calls them, and the few things that production code around them has to
// do right. A variant replaces one of them. It is for the model and for whoever drives
// the same rules through other worlds, and breaks them in the same ways.
type Wiring struct {
	// The rules of the authority.
	Acquire     func(core.Record, *core.Request, core.Header, core.Clock, core.AcquireInput) (core.Change, core.Answer)
	Renew       func(core.Record, core.Header, core.Clock, lastword.TenureRef) (core.Change, core.Answer)
	Release     func(core.Record, *core.Request, core.Header, core.Clock, lastword.TenureRef) (core.Change, core.Answer)
	Complete    func(core.Record, *core.Request, core.Header, core.Clock, lastword.TenureRef, []byte) (core.Change, core.Answer)
	Cancel      func(core.Record, *core.Request, core.Header, core.Clock, string, string) (core.Change, core.Answer)
	Revoke      func(core.Record, core.Header, core.Clock, lastword.Token) (core.Change, core.Answer)
	Look        func(core.Record, core.Header, core.Clock) (core.Change, core.Answer)
	PlanStart   func(core.Header, *core.Witness) core.Start
	PlanAdvance func(core.Header, *core.Witness, ...uint32) (core.Start, core.Header)
	Compare     func(held uint32, h core.Header, w *core.Witness) core.Drift

	// The rules of the place.
	Admit   func(core.FenceRecord, core.KnownOperation, core.Attempt) core.Decision
	Advance func(core.FenceRecord, core.Attempt) core.Decision
	Shut    func(core.FenceRecord, lastword.Token) core.FenceRecord

	// The rules of the holder.
	NewTrust   func(core.TrustGrant, int64) core.Trust
	Renewed    func(t core.Trust, ttl, remaining, now int64) core.Trust
	Ended      func(t core.Trust, how lastword.State, now int64) core.Trust
	Told       func(t core.Trust, ref lastword.TenureRef, st lastword.Status, pause, now int64) core.Trust
	Released   func(t core.Trust, now int64) core.Trust
	RenewalDue func(t core.Trust, now int64) bool
	Next       func(t core.Trust) (at int64, is bool)
	Take       func(lastword.Sequence, string) (lastword.Sequence, uint64, bool)
	Settle     func(s lastword.Sequence, seq, own uint64, v lastword.Verdict) lastword.Sequence

	// Holds reports whether a step's conditions hold, for a store with this header and a
	// record of this revision (R8, R9, R10).
	Holds func(h core.Header, revision uint64, c Conditions) bool
	// Watch is what a process has seen of a record after a tick of time: it goes on
	// only while the revision stays (R8). seen is the revision that it watched.
	Watch func(seen uint64, watched core.Span, rec core.Record) core.Span
	// Ticks is a TTL in ticks of the counter.
	Ticks func(d, tick core.Span) core.Tick
	// Hasty counts the time of a commit as watching of what it wrote.
	Hasty bool
	// Step is where a process moves the counter that it has watched stand.
	Step func(read core.Tick) core.Tick
	// Known is the request record that an acquire, release, … is shown.
	Known func(*core.Request) *core.Request
	// Committed is what becomes durable beside an accepted step.
	Committed func(before core.Record, after core.Record) core.Record
	// Remaining says whether an answer to an acquire counts the whole TTL (R25).
	Remaining func(a core.Answer) bool
	// Status is what a process answers about a tenure (R9): from the store, after a
	// look.
	Status func(rec core.Record, requests []core.Request, lease string, fence lastword.Token) lastword.State
	// Restless keeps what was seen of the counter although it has moved since.
	Restless bool
	// Early lets an answer leave before what it depends on is durable (R1).
	Early bool
	// Started is the store's header after a start.
	Started func(core.Header) core.Header

	// Seal is what the place believes of a grant (R12).
	Seal Seal
	// Attempt is what the place makes of a verified message.
	Attempt func(a core.Attempt) core.Attempt
	// Operation is what the place knows of an operation.
	Operation func(core.KnownOperation) core.KnownOperation
	// Torn is how the place's one transaction falls apart.
	Torn Tear
	// Unshut leaves a restored place open, Forgetful lets its record go with the
	// tenure.
	Unshut, Forgetful bool
	// Settles says that the settler registers its fence before it looks (R22).
	Settles bool

	// Admits says whether a holder may start a write (R26).
	Admits func(t core.Trust, now int64) bool
	// Base is the moment from which a grant's trust is counted (R25).
	Base func(sent, now int64) int64
	// Hurries releases while the work is under way (R28).
	Hurries bool
	// Names is how the operation id of an intent is made.
	Names Names
	// Draws lets a client that comes back fetch a number apart from its grant.
	Draws bool
	// Peeks answers such a wish with the present tenure's number.
	Peeks bool
	// Reread lets a holder take the number that a renewal's answer carries.
	Reread bool
	// Skips lets a holder go on to its next write while the outcome of one is open.
	Skips Skip

	// Rollback puts the store back to its backup when a process crashes.
	Rollback bool
	// Blind: a restore goes unnoticed by whoever runs.
	Blind bool
}

// Conditions are what a step of the authority's store depends on: the epoch, the
// counter if a deadline was computed from it, and the record's revision.
type Conditions struct {
	Epoch    uint32
	OnTick   bool
	Tick     core.Tick
	Revision uint64
}

// Skip is what a holder does about a number whose outcome is open.
type Skip uint8

// The ways to skip: not at all in production.
const (
	SkipsNothing  Skip = iota
	SkipsReusing       // goes on with the same number
	SkipsCounting      // goes on with the next one
)

// Seal is what a place believes.
type Seal uint8

// The seals: in production, the authority's grant, bound to its number.
const (
	GrantSeal Seal = iota
	LeaseSeal      // the grant, whatever number travels with it
	AnySeal        // everything: the key is taken from the message
)

// Names is how operation ids are made.
type Names uint8

// The names: in production, one for each intent.
const (
	ByIntent Names = iota
	ByNumber       // counted anew in each tenure, and all contents are alike
	ByLife         // counted anew after a crash
)

// Tear is the way in which a place's transaction is not one.
type Tear uint8

// The tears: none in production.
const (
	Whole         Tear = iota
	CheckThenSet       // decided on what an earlier step had read
	LockLost           // the record's lock was given up between check and effect
	EffectFirst        // the effect is committed before record and receipt
	ReceiptFirst       // record and receipt are committed before the effect
	ReceiptMissed      // the receipt is written after the transaction
)

// Production is the wiring that is right.
func Production() *Wiring {
	return &Wiring{
		Acquire: core.Acquire, Renew: core.Renew, Release: core.Release, Complete: core.Complete,
		Cancel: core.Cancel, Revoke: core.Revoke, Look: core.Look,
		PlanStart: core.PlanStart, PlanAdvance: core.PlanAdvance, Compare: core.Compare,
		Admit: core.Admit, Advance: core.Advance, Shut: core.Close,
		NewTrust: core.NewTrust, Renewed: core.Trust.Renewed, Ended: core.Trust.Ended, Told: core.Trust.Told,
		Released: core.Trust.Released, RenewalDue: core.Trust.RenewalDue, Next: core.Trust.Next,
		Take: core.TakeNumber, Settle: core.SettleNumber,

		Holds: func(h core.Header, revision uint64, c Conditions) bool {
			return h.Epoch == c.Epoch && (!c.OnTick || h.Tick == c.Tick) && revision == c.Revision
		},
		Watch: func(seen uint64, watched core.Span, rec core.Record) core.Span {
			if seen != rec.Revision {
				return 0
			}
			return watched
		},
		Ticks:     core.Ticks,
		Step:      func(read core.Tick) core.Tick { return read + 1 },
		Known:     func(r *core.Request) *core.Request { return r },
		Committed: func(_, after core.Record) core.Record { return after },
		Remaining: func(a core.Answer) bool { return !a.Repeated },
		Status:    statusOf,
		Started:   func(h core.Header) core.Header { return h },

		Attempt:   func(a core.Attempt) core.Attempt { return a },
		Operation: func(k core.KnownOperation) core.KnownOperation { return k },
		Settles:   true,

		Admits: func(t core.Trust, now int64) bool { return t.At(now).State.Admits() },
		Base:   func(sent, _ int64) int64 { return sent },
	}
}

// statusOf is what the store says of the tenure that a write names.
func statusOf(rec core.Record, requests []core.Request, lease string, fence lastword.Token) lastword.State {
	if rec.Lease.ID == lease && rec.Lease.Fence != fence {
		return lastword.StateFree
	}
	var req *core.Request
	for i := range requests {
		if requests[i].ID != "" && requests[i].LeaseID == lease && requests[i].Fence == fence {
			req = &requests[i]
		}
	}
	state, _ := core.Asked(rec, req, lease)
	return state
}
