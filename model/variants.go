package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Variant is the system with one thing broken. The rules stay as they are; what is
// broken stands around them, as code around them might have it.
type Variant struct {
	Name string
	// Breaks says in a sentence what is broken.
	Breaks string
	// Property is the name of the violation that it must be caught by.
	Property string
	// World is where it is looked for.
	World string

	change func(*Wiring)
	tune   func(*world)
}

// None is the name of the right system, which is no variant.
const None = "none"

// Variants are all broken systems, those of R31 first.
func Variants() []Variant {
	var all []Variant
	all = append(all, r31Variants()...)
	all = append(all, numberVariants()...)
	all = append(all, timeVariants()...)
	all = append(all, tenureVariants()...)
	all = append(all, placeVariants()...)
	all = append(all, holderVariants()...)
	all = append(all, keeperVariants()...)
	return append(all, toldVariants()...)
}

func r31Variants() []Variant {
	return []Variant{
		{
			Name: "no-fence", World: "r31", Property: revokedGenerationOverwrite,
			Breaks: "the resource does not compare: each write finds an empty record",
			change: func(w *Wiring) { w.Admit = blank },
		},
		{
			Name: "split-authority", World: "r31", Property: unauthorizedAccept,
			Breaks: "a number can be drawn apart from a grant, and a client that comes back draws one",
			change: func(w *Wiring) { w.Draws, w.Seal = true, LeaseSeal },
		},
		{
			Name: "rollback-issuer", World: "r31", Property: revokedGenerationOverwrite,
			Breaks: "a crash puts the issuer back to its backup, nobody notices, and the resource knows a tenure by its number alone",
			change: func(w *Wiring) { w.Rollback, w.Attempt = true, numberAlone },
		},
	}
}

// blank lets a write meet a record that knows nothing.
func blank(_ core.FenceRecord, known core.KnownOperation, a core.Attempt) core.Decision {
	return core.Admit(core.FenceRecord{}, known, a)
}

// numberAlone names a tenure by its fence.
func numberAlone(a core.Attempt) core.Attempt {
	a.LeaseID = a.Fence.String()
	return a
}

func numberVariants() []Variant {
	return []Variant{
		{
			Name: "regression-guard-fails-open", World: "restores", Property: numberIssuedTwice,
			Breaks: "a restored store is taken as it is, by who runs and by who starts",
			change: func(w *Wiring) { w.Blind, w.PlanStart = true, goOn },
		},
		{
			Name: "epoch-compared-with-itself", World: "restores", Property: numberIssuedTwice,
			Breaks: "a process compares the store's epoch with the store's epoch",
			change: func(w *Wiring) {
				w.Compare = func(uint32, core.Header, *core.Witness) core.Drift { return core.Moved }
			},
		},
		{
			Name: "start-without-witness", World: "restores", Property: numberIssuedTwice,
			Breaks: "a start takes the store's epoch + 1 and does not ask the witness",
			change: func(w *Wiring) {
				w.PlanStart = func(h core.Header, _ *core.Witness) core.Start {
					mark := core.Witness{Current: h.Epoch, Pending: h.Epoch, Store: h.Identity, Longest: ttl}
					return core.PlanStart(h, &mark)
				}
			},
		},
		{
			Name: "unfinished-start-taken-over", World: "starts", Property: numberIssuedTwice,
			Breaks: "a start goes on with the epoch that another one has announced",
			change: func(w *Wiring) {
				w.PlanStart = func(h core.Header, mark *core.Witness) core.Start {
					if mark.Starting {
						return core.Start{Witness: *mark, Epoch: mark.Pending}
					}
					return core.PlanStart(h, mark)
				}
			},
		},
		{
			Name: "counter-in-the-lease", World: "tenures", Property: fenceNotLarger,
			Breaks: "the counter is part of the lease and goes with it when it expires",
			change: func(w *Wiring) {
				w.Acquire = func(rec core.Record, req *core.Request, h core.Header, c core.Clock, in core.AcquireInput) (core.Change, core.Answer) {
					if open(rec.Lease) && !rec.Lease.Live(h, c) {
						rec.Counter = 0
					}
					return core.Acquire(rec, req, h, c, in)
				}
			},
		},
		{
			Name: "counter-reset-on-release", World: "tenures", Property: fenceNotLarger,
			Breaks: "a release deletes the record, the counter with it",
			change: func(w *Wiring) {
				w.Committed = func(_, after core.Record) core.Record {
					if after.Lease.State == lastword.StateReleased {
						after.Counter = 0
					}
					return after
				}
			},
		},
		{
			Name: "number-as-float", World: "r31", Property: revokedGenerationOverwrite,
			Breaks: "the number passes through a 32-bit float, and the resource knows a tenure by its number alone",
			change: func(w *Wiring) {
				w.Attempt = func(a core.Attempt) core.Attempt {
					a.Fence = lastword.Token(float32(a.Fence))
					return numberAlone(a)
				}
			},
			tune: func(w *world) { w.epoch = 1 },
		},
		{
			Name: "fence-re-read", World: "r31", Property: unauthorizedAccept,
			Breaks: "a client that comes back asks for the present fence and takes it for its own",
			change: func(w *Wiring) { w.Draws, w.Peeks, w.Seal = true, true, LeaseSeal },
		},
		{
			Name: "fence-changes-at-renewal", World: "tenures", Property: unauthorizedAccept,
			Breaks: "a renewal issues a number, and the holder writes under it",
			change: func(w *Wiring) {
				w.Seal, w.Reread = LeaseSeal, true
				w.Renew = func(rec core.Record, h core.Header, c core.Clock, ref lastword.TenureRef) (core.Change, core.Answer) {
					change, answer := core.Renew(rec, h, c, ref)
					if answer.Code == "" {
						change.Record.Counter++
						fence, _ := lastword.MakeToken(change.Record.Epoch, change.Record.Counter)
						change.Record.Lease.Fence, answer.Lease.Fence = fence, fence
					}
					return change, answer
				}
			},
		},
		{
			Name: "key-from-the-message", World: "operators", Property: unauthorizedAccept,
			Breaks: "a grant is checked with the key that it brings",
			change: func(w *Wiring) { w.Seal = AnySeal },
		},
	}
}

// goOn starts on whatever is there.
func goOn(h core.Header, mark *core.Witness) core.Start {
	plan := core.PlanStart(h, mark)
	if plan.Code == lastword.CodeFenceRegression {
		return core.Start{Witness: core.Witness{Current: h.Epoch, Pending: h.Epoch, Longest: ttl, Store: h.Identity}, Epoch: h.Epoch}
	}
	return plan
}

func timeVariants() []Variant {
	return []Variant{
		{
			Name: "ticks-without-the-extra-one", World: "tenures", Property: leaseShortened,
			Breaks: "a TTL becomes ⌈d / tick⌉ ticks, as if it began with a fresh one",
			change: func(w *Wiring) {
				w.Ticks = func(d, tick core.Span) core.Tick { return core.Ticks(d, tick) - 1 }
			},
		},
		{
			Name: "deadline-from-a-stale-tick", World: "stale", Property: leaseShortened,
			Breaks: "the tick that a deadline was computed from is no condition of the write",
			change: func(w *Wiring) {
				w.Holds = func(h core.Header, revision uint64, c Conditions) bool {
					return h.Epoch == c.Epoch && revision == c.Revision
				}
			},
		},
		{
			Name: "counter-moved-by-everybody", World: "renewals", Property: leaseShortened,
			Breaks: "a process adds a tick to the counter whatever it has become meanwhile",
			change: func(w *Wiring) { w.Restless = true },
		},
		{
			Name: "watching-the-lease-not-the-record", World: "renewals", Property: leaseShortened,
			Breaks: "a process goes on watching although the record was renewed",
			change: func(w *Wiring) {
				w.Watch = func(seen uint64, watched core.Span, _ core.Record) core.Span {
					if seen == 0 {
						return 0
					}
					return watched
				}
			},
		},
		{
			Name: "watching-from-before-the-commit", World: "processes", Property: leaseShortened,
			Breaks: "the time that a commit took counts as watching of what it wrote",
			change: func(w *Wiring) { w.Hasty = true },
		},
		{
			Name: "start-ends-all-tenures", World: "restores", Property: leaseShortened,
			Breaks: "a start treats the tenures that it finds as over",
			change: func(w *Wiring) {
				w.Started = func(h core.Header) core.Header {
					h.Floor = h.Epoch
					return h
				}
			},
		},
		{
			Name: "no-wait-after-a-regression", World: "restores", Property: leaseShortened,
			Breaks: "after an epoch advance the first grant does not wait for lost tenures",
			change: func(w *Wiring) {
				w.PlanAdvance = func(h core.Header, mark *core.Witness, found ...uint32) (core.Start, core.Header) {
					plan, next := core.PlanAdvance(h, mark, found...)
					next.HoldUntil = 0
					return plan, next
				}
			},
		},
		{
			Name: "deadline-inclusive", World: "tenures", Property: renewedAfterDeadline,
			Breaks: "at the deadline tick a tenure can still be renewed",
			change: func(w *Wiring) {
				w.Renew = func(rec core.Record, h core.Header, c core.Clock, ref lastword.TenureRef) (core.Change, core.Answer) {
					if c.Tick == rec.Lease.Deadline {
						c.Tick--
						c.Watched = 0
					}
					return core.Renew(rec, h, c, ref)
				}
			},
		},
		{
			Name: "lapsed-lease-revived-by-a-write", World: "undeclared", Property: renewedAfterDeadline,
			Breaks: "a write of the holder, and so the question about its status, extends a tenure that has lapsed",
			change: func(w *Wiring) {
				w.Look = func(rec core.Record, h core.Header, c core.Clock) (core.Change, core.Answer) {
					if !open(rec.Lease) || rec.Lease.Live(h, c) {
						return core.Look(rec, h, c)
					}
					rec.Revision++
					rec.Lease.Deadline = c.Tick + rec.Lease.Ticks
					return core.Change{Write: true, Record: rec}, core.Answer{Lease: rec.Lease}
				}
			},
		},
		{
			Name: "nobody-moves-the-counter", World: "calm", Property: waitingClientStarves,
			Breaks: "a crashed holder's tenure never lapses: no process moves the counter or watches",
			change: func(w *Wiring) {
				w.Step = func(read core.Tick) core.Tick { return read }
				w.Watch = func(uint64, core.Span, core.Record) core.Span { return 0 }
			},
		},
	}
}
