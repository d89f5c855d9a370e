package model

import (
	"math/bits"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// outcome is something that a world is there to come to. An exploration in which one
// of them is never reached has shown nothing about it, whatever the number of its
// states: it fails (see [WorldReport.Missing]).
type outcome uint8

const (
	outPrefix outcome = iota // the script's end
	outEarly                 // an older tenure's write before the newer one's first, which is legal (R31)

	// Of the authority.
	outGranted
	outGrantedAgain
	outHeld
	outDelayed
	outTenureEnded
	outCanceled
	outRequestConflict
	outExhausted
	outRenewed
	outNotRenewed
	outReleased
	outReleasedAgain
	outNotReleased
	outCompleted
	outCompletedAgain
	outOtherResult
	outNotCompleted
	outCancelEnds
	outCancelFirst
	outCancelLate
	outRevoked
	outNotRevoked
	outByCounter
	outByWatching
	outFirstStart
	outAdopted
	outNoEpoch

	// Of the place.
	outApplied
	outReplayed
	outConflict
	outStale
	outReceiptExpired
	outOutOfOrder
	outRootMismatch
	outRegression
	outJump
	outUnverified
	outVerifyAgain
	outRegistered
	outFound
	outNotFound

	// Of the holder.
	outConfirmed
	outUnknown
	outAskedHeld
	outAskedOver
	outRenewedUnknown
	outLongHeld
	outLateAnswer
	outExpired
	outMaxHold
	outDrained
	outOverrun

	outcomeCount
)

var outcomeNames = [outcomeCount]string{
	outPrefix: "the end of the script", outEarly: "an older tenure's write before the newer one's first",
	outGranted: "a grant", outGrantedAgain: "the same grant again", outHeld: "HELD by a tenure", outDelayed: "HELD by a delay alone",
	outTenureEnded: "TENURE_ENDED", outCanceled: "CANCELED", outRequestConflict: "REQUEST_CONFLICT", outExhausted: "EXHAUSTED",
	outRenewed: "a renewal", outNotRenewed: "NOT_HOLDER to a renewal",
	outReleased: "a release", outReleasedAgain: "the same release again", outNotReleased: "NOT_HOLDER to a release",
	outCompleted: "a completion", outCompletedAgain: "the same completion again",
	outOtherResult: "REQUEST_CONFLICT to a completion", outNotCompleted: "NOT_HOLDER to a completion",
	outCancelEnds: "a cancellation that ends a tenure", outCancelFirst: "a cancellation before its request",
	outCancelLate: "a cancellation after the end", outRevoked: "a revocation", outNotRevoked: "NOT_HOLDER to a revocation",
	outByCounter: "an expiry by the counter", outByWatching: "an expiry by watching",
	outFirstStart: "the very first start", outAdopted: "a witness made anew", outNoEpoch: "no epoch left",
	outApplied: "APPLIED", outReplayed: "REPLAYED", outConflict: "CONFLICT", outStale: "STALE_OWNER",
	outReceiptExpired: "RECEIPT_EXPIRED", outOutOfOrder: "OUT_OF_ORDER", outRootMismatch: "ROOT_MISMATCH",
	outRegression: "FENCE_REGRESSION", outJump: "FENCE_JUMP", outUnverified: "UNVERIFIED",
	outVerifyAgain: "a bundle that is too old",
	outRegistered:  "a registration", outFound: "a receipt that is found", outNotFound: "a receipt that is not found",
	outConfirmed: "a grant that a renewal confirms", outUnknown: "OWNERSHIP_UNKNOWN",
	outAskedHeld: "HELD again by a status answer", outAskedOver: "an end that a status answer tells",
	outRenewedUnknown: "HELD again by a renewal", outLongHeld: "a tenure that renewals keep past its first deadline",
	outLateAnswer: "an answer after the end", outExpired: "a trust that ends by itself",
	outMaxHold: "the longest hold", outDrained: "a release after a drain", outOverrun: "a drain that is overrun",
}

// outcomes is a set of them.
type outcomes uint64

func outs(all ...outcome) (set outcomes) {
	for _, o := range all {
		set |= 1 << o
	}
	return set
}

func steps(all ...eventKind) (set uint64) {
	for _, k := range all {
		set |= 1 << k
	}
	return set
}

// came notes that something was reached.
func (m *machine) came(o outcome) { m.reached |= 1 << o }

var verdictOutcomes = map[lastword.Verdict]outcome{
	lastword.Applied: outApplied, lastword.Replayed: outReplayed, lastword.Conflict: outConflict, lastword.StaleOwner: outStale,
	lastword.ReceiptExpired: outReceiptExpired, lastword.OutOfOrder: outOutOfOrder, lastword.RootMismatch: outRootMismatch,
	lastword.FenceRegression: outRegression, lastword.FenceJump: outJump, lastword.Unverified: outUnverified,
}

// ruled notes a verdict of the place.
func (m *machine) ruled(q message, v lastword.Verdict) {
	o, ok := verdictOutcomes[v]
	switch {
	case !ok:
	case q.kind == doAdvance && v == lastword.Applied:
		m.came(outRegistered)
	default:
		m.came(o)
	}
}

// answeredWith notes what the authority made of a message; before and after are the
// store's states around the step.
func (m *machine) answeredWith(before, after *storeState, q message, d decision) {
	if open(before.rec.Lease) && (after.rec.Lease.ID != before.rec.Lease.ID || after.rec.Lease.State == lastword.StateExpired) {
		if before.h.Tick >= before.rec.Lease.Deadline {
			m.came(outByCounter)
		} else if before.rec.Lease.Fence.Epoch() >= before.h.Floor {
			m.came(outByWatching)
		}
	}
	m.came(outcomeOf(q.kind, d.answer))
}

func outcomeOf(asked messageKind, a core.Answer) outcome {
	done := a.Code == ""
	switch asked {
	case askAcquire:
		return acquireOutcome(a)
	case askRenew:
		return choose(done, outRenewed, outNotRenewed)
	case askRelease:
		return choose(done, choose(a.Repeated, outReleasedAgain, outReleased), outNotReleased)
	case askComplete:
		if a.Code == lastword.CodeRequestConflict {
			return outOtherResult
		}
		return choose(done, choose(a.Repeated, outCompletedAgain, outCompleted), outNotCompleted)
	case askCancel:
		return choose(a.Repeated, outCancelLate, choose(a.Lease.ID != "", outCancelEnds, outCancelFirst))
	case askRevoke:
		return choose(done, outRevoked, outNotRevoked)
	default:
		return outcomeCount // nobody waits for it
	}
}

func acquireOutcome(a core.Answer) outcome {
	switch a.Code {
	case "":
		return choose(a.Repeated, outGrantedAgain, outGranted)
	case lastword.CodeHeld:
		return choose(a.Blocked, outDelayed, outHeld)
	case lastword.CodeTenureEnded:
		return outTenureEnded
	case lastword.CodeCanceled:
		return outCanceled
	case lastword.CodeRequestConflict:
		return outRequestConflict
	case lastword.CodeExhausted:
		return outExhausted
	default:
		return outcomeCount
	}
}

func choose(yes bool, one, other outcome) outcome {
	if yes {
		return one
	}
	return other
}

// missing are the names of what the world was to come to and did not.
func (e *explorer) missing() (names []string) {
	for left := uint64(e.m.w.wants &^ e.m.reached); left != 0; left &= left - 1 {
		names = append(names, outcomeNames[bits.TrailingZeros64(left)])
	}
	for left := e.m.w.happens; left != 0; left &= left - 1 {
		if k := bits.TrailingZeros64(left); e.fired[k] == 0 {
			names = append(names, eventNames[k])
		}
	}
	return names
}
