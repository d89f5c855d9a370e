package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// wiring is what stands between the rules and the world: the rules themselves, as
// production calls them, and the few things that production code around them has to
// do right. A variant replaces one of them.
type wiring struct {
	// The rules of the authority.
	acquire     func(core.Record, *core.Request, core.Header, core.Clock, core.AcquireInput) (core.Change, core.Answer)
	renew       func(core.Record, core.Header, core.Clock, lastword.TenureRef) (core.Change, core.Answer)
	release     func(core.Record, *core.Request, core.Header, core.Clock, lastword.TenureRef) (core.Change, core.Answer)
	complete    func(core.Record, *core.Request, core.Header, core.Clock, lastword.TenureRef, []byte) (core.Change, core.Answer)
	cancel      func(core.Record, *core.Request, core.Header, core.Clock, string, string) (core.Change, core.Answer)
	revoke      func(core.Record, core.Header, core.Clock, lastword.Token) (core.Change, core.Answer)
	look        func(core.Record, core.Header, core.Clock) (core.Change, core.Answer)
	planStart   func(core.Header, *core.Witness) core.Start
	planAdvance func(core.Header, *core.Witness, ...uint32) (core.Start, core.Header)
	compare     func(held uint32, h core.Header, w *core.Witness) core.Drift

	// The rules of the place.
	admit   func(core.FenceRecord, core.KnownOperation, core.Attempt) core.Decision
	advance func(core.FenceRecord, core.Attempt) core.Decision
	shut    func(core.FenceRecord, lastword.Token) core.FenceRecord

	// The rules of the holder.
	newTrust   func(core.TrustGrant, int64) core.Trust
	renewed    func(t core.Trust, ttl, remaining, now int64) core.Trust
	ended      func(t core.Trust, how lastword.State, now int64) core.Trust
	told       func(t core.Trust, ref lastword.TenureRef, st lastword.Status, pause, now int64) core.Trust
	released   func(t core.Trust, now int64) core.Trust
	renewalDue func(t core.Trust, now int64) bool
	next       func(t core.Trust) (at int64, is bool)
	take       func(lastword.Sequence, string) (lastword.Sequence, uint64, bool)
	settle     func(s lastword.Sequence, seq, own uint64, v lastword.Verdict) lastword.Sequence

	// holds reports whether a step's conditions hold: the epoch, the counter if a
	// deadline was computed from it, and the revision (R8, R9, R10).
	holds func(st *storeState, c conditions) bool
	// watch is what a process has seen of a record after a tick of time: it goes on
	// only while the revision stays (R8).
	watch func(p procState, rec core.Record) (watched core.Span)
	// ticks is a TTL in ticks of the counter.
	ticks func(d, tick core.Span) core.Tick
	// hasty counts the time of a commit as watching of what it wrote.
	hasty bool
	// step is how far a process moves the counter that it has watched stand.
	step func(st *storeState, read core.Tick) core.Tick
	// known is the request record that an acquire, release, … is shown.
	known func(*core.Request) *core.Request
	// committed is what becomes durable beside an accepted step.
	committed func(before core.Record, after core.Record) core.Record
	// remaining says whether an answer to an acquire counts the whole TTL (R25).
	remaining func(a core.Answer) bool
	// leaseID names a tenure; in production it is a random text.
	leaseID func(p procState, st *storeState, era uint8) string
	// status is what a process answers about a tenure (R9): from the store, after a
	// look.
	status func(p procState, st *storeState, q message) lastword.State
	// restless keeps what was seen of the counter although it has moved since.
	restless bool
	// early lets an answer leave before what it depends on is durable (R1).
	early bool
	// started is the store's header after a start.
	started func(core.Header) core.Header

	// verify reports whether a grant is the authority's and bound to what travels
	// with it (R12).
	verify func(g *ghost, q message) bool
	// attempt is what the place makes of a verified message.
	attempt func(a core.Attempt) core.Attempt
	// operation is what the place knows of an operation.
	operation func(core.KnownOperation) core.KnownOperation
	// torn is how the place's one transaction falls apart; whole in production.
	torn tear
	// unshut leaves a restored place open, forgetful lets its record go with the
	// tenure.
	unshut, forgetful bool
	// settles says that the settler registers its fence before it looks (R22).
	settles bool

	// admits says whether a holder may start a write (R26).
	admits func(t core.Trust, now int64) bool
	// base is the moment from which a grant's trust is counted (R25).
	base func(sent, now int64) int64
	// hurries releases while the work is under way (R28).
	hurries bool
	// name is the operation id of an intent.
	name func(c clientState, intent uint8) uint8
	// draws lets a client that comes back fetch a number apart from its grant.
	draws bool
	// peeks answers such a wish with the present tenure's number.
	peeks bool
	// reread lets a holder take the number that a renewal's answer carries.
	reread bool
	// skips lets a holder go on to its next write while the outcome of one is open:
	// with the same number, or with the next one.
	skips skip
	// payload is the content of an intent.
	payload func(intent uint8) uint8

	// rollback puts the store back to its backup when a process crashes.
	rollback bool
	// blind: a restore goes unnoticed by whoever runs.
	blind bool
}

type conditions struct {
	epoch    uint32
	onTick   bool
	tick     core.Tick
	revision uint64
}

type skip uint8

const (
	waits skip = iota
	reusesNumber
	countsOn
)

// tear is the way in which a place's transaction is not one.
type tear uint8

const (
	whole         tear = iota
	checkThenSet       // decided on what an earlier step had read
	lockLost           // the record's lock was given up between check and effect
	effectFirst        // the effect is committed before record and receipt
	receiptFirst       // record and receipt are committed before the effect
	receiptMissed      // the receipt is written after the transaction
)

// production is the wiring that is right.
func production() *wiring {
	return &wiring{
		acquire: core.Acquire, renew: core.Renew, release: core.Release, complete: core.Complete,
		cancel: core.Cancel, revoke: core.Revoke, look: core.Look,
		planStart: core.PlanStart, planAdvance: core.PlanAdvance, compare: core.Compare,
		admit: core.Admit, advance: core.Advance, shut: core.Close,
		newTrust: core.NewTrust, renewed: core.Trust.Renewed, ended: core.Trust.Ended, told: core.Trust.Told,
		released: core.Trust.Released, renewalDue: core.Trust.RenewalDue, next: core.Trust.Next, take: core.TakeNumber, settle: core.SettleNumber,

		holds: func(st *storeState, c conditions) bool {
			return st.h.Epoch == c.epoch && (!c.onTick || st.h.Tick == c.tick) && st.rec.Revision == c.revision
		},
		watch: func(p procState, rec core.Record) core.Span {
			if p.revision != rec.Revision {
				return 0
			}
			return p.watched
		},
		ticks:     core.Ticks,
		step:      func(st *storeState, read core.Tick) core.Tick { return read + 1 },
		known:     func(r *core.Request) *core.Request { return r },
		committed: func(_, after core.Record) core.Record { return after },
		remaining: func(a core.Answer) bool { return !a.Repeated },
		leaseID:   leaseName,
		status:    statusOf,
		started:   func(h core.Header) core.Header { return h },

		verify: func(g *ghost, q message) bool {
			return q.leaked || !q.forged && g.find(q.fence, q.lease) != 0
		},
		attempt:   func(a core.Attempt) core.Attempt { return a },
		operation: func(k core.KnownOperation) core.KnownOperation { return k },
		settles:   true,

		admits:  func(t core.Trust, now int64) bool { return t.At(now).State.Admits() },
		base:    func(sent, _ int64) int64 { return sent },
		name:    func(_ clientState, intent uint8) uint8 { return intent },
		payload: func(intent uint8) uint8 { return intent },
	}
}
