package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

func placeVariants() []Variant {
	return []Variant{
		{
			Name: "check-then-write", World: "r31", Property: revokedGenerationOverwrite,
			Breaks: "the resource checks in one transaction and writes in the next",
			change: func(w *Wiring) { w.Torn = CheckThenSet },
		},
		{
			Name: "row-lock-lost-at-a-savepoint", World: "r31", Property: revokedGenerationOverwrite,
			Breaks: "the record's lock is given up between check and effect, and its conditional write meets no row",
			change: func(w *Wiring) { w.Torn = LockLost },
		},
		{
			Name: "equality-instead-of-order", World: "r31", Property: revokedGenerationOverwrite,
			Breaks: "a fence that is not the stored one counts as newer",
			change: func(w *Wiring) {
				w.Admit = func(rec core.FenceRecord, known core.KnownOperation, a core.Attempt) core.Decision {
					if rec.Exists && a.Fence != rec.Fence {
						rec.Fence = a.Fence - 1
					}
					return core.Admit(rec, known, a)
				}
			},
		},
		{
			Name: "high-water-pruned", World: "tenures", Property: revokedGenerationOverwrite,
			Breaks: "the record is deleted with the tenure while its data lives",
			change: func(w *Wiring) { w.Forgetful = true },
		},
		{
			Name: "status-from-memory", World: "undeclared", Property: revokedGenerationOverwrite,
			Breaks: "a process answers HELD for every tenure that it remembers having granted",
			change: func(w *Wiring) {
				w.Status = func(_ core.Record, requests []core.Request, lease string, _ lastword.Token) lastword.State {
					for i := range requests {
						if requests[i].ID != "" && requests[i].LeaseID == lease {
							return lastword.StateHeld
						}
					}
					return lastword.StateFree
				}
			},
		},
		{
			Name: "restored-and-left-open", World: "places", Property: revokedGenerationOverwrite,
			Breaks: "a restored resource goes on with the record of its backup",
			change: func(w *Wiring) { w.Unshut = true },
		},
		{
			Name: "restored-and-not-raised", World: "places-twice", Property: revokedGenerationOverwrite,
			Breaks: "a restored record is closed, but not raised to the authority's next fence",
			change: func(w *Wiring) {
				w.Shut = func(rec core.FenceRecord, _ lastword.Token) core.FenceRecord { return core.Close(rec, 0) }
			},
		},
		{
			Name: "effect-before-the-record", World: "segments", Property: twoEffects,
			Breaks: "the effect is committed before record and receipt",
			change: func(w *Wiring) { w.Torn = EffectFirst },
		},
		{
			Name: "receipt-before-the-effect", World: "segments", Property: acknowledgedWithoutEffect,
			Breaks: "record and receipt are committed before the effect",
			change: func(w *Wiring) { w.Torn = ReceiptFirst },
		},
		{
			Name: "receipt-beside-the-transaction", World: "segments", Property: receiptDisagrees,
			Breaks: "the receipt is written after the transaction",
			change: func(w *Wiring) { w.Torn = ReceiptMissed },
		},
		{
			Name: "own-lost-reply-is-a-conflict", World: "segments", Property: refusedButDone,
			Breaks: "a write that is repeated after a lost reply does not look for its own receipt",
			change: func(w *Wiring) {
				w.Operation = func(core.KnownOperation) core.KnownOperation { return core.KnownOperation{} }
			},
		},
	}
}

func holderVariants() []Variant {
	return []Variant{
		{
			Name: "trust-counted-from-the-reply", World: "tenures", Property: holderPastTrust,
			Breaks: "a holder counts its TTL from when the answer came",
			change: func(w *Wiring) { w.Base = func(_, now int64) int64 { return now } },
		},
		{
			Name: "repeated-grant-counts-anew", World: "requests", Property: holderPastTrust,
			Breaks: "the answer to a repeated acquire says that the whole TTL remains",
			change: func(w *Wiring) { w.Remaining = func(core.Answer) bool { return true } },
		},
		{
			Name: "writes-while-unknown", World: "tenures", Property: effectWithoutTrust,
			Breaks: "a holder starts new effects as long as it has not expired",
			change: func(w *Wiring) {
				w.Admits = func(t core.Trust, now int64) bool { return !t.At(now).Final() }
			},
		},
		{
			Name: "operation-ids-restart", World: "again", Property: acknowledgedWithoutEffect,
			Breaks: "operation ids count from the beginning in each tenure",
			change: func(w *Wiring) { w.Names = ByNumber },
		},
		{
			Name: "crashed-effect-run-again", World: "segments", Property: twoEffects,
			Breaks: "after a crash the work is done again under new operation ids",
			change: func(w *Wiring) { w.Names = ByLife },
		},
		{
			Name: "lookup-without-registering", World: "settle", Property: absenceDisproved,
			Breaks: "a newer tenure looks for a receipt without registering its fence first",
			change: func(w *Wiring) { w.Settles = false },
		},
		{
			Name: "number-dropped-while-unknown", World: "work", Property: segmentJump,
			Breaks: "while an outcome is open, the next operation takes the same number",
			change: func(w *Wiring) { w.Skips = SkipsReusing },
		},
		{
			Name: "segments-under-latest", World: "work", Property: segmentJump,
			Breaks: "work whose every segment counts runs under the policy of the newest state",
			change: func(w *Wiring) {
				w.Skips = SkipsCounting
				w.Attempt = func(a core.Attempt) core.Attempt {
					a.Policy = core.Latest
					return a
				}
			},
		},
	}
}
