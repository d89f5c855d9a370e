package lastword

import "strings"

// Verdict is what a resource answers to a mutation. The set is closed (protocol
// §4). Only [Applied], and what [Verdict.Shadow] says, changed the business data.
type Verdict string

// The verdicts.
const (
	// Applied: admitted; business effect, record and receipt are one commit.
	Applied Verdict = "APPLIED"
	// Replayed: this operation with this payload had its effect before; the
	// answer is its first receipt. It raises no fence.
	Replayed Verdict = "REPLAYED"
	// Conflict: the operation id is known with another payload, or the (fence,
	// seq) was accepted for another operation. Nothing ran.
	Conflict Verdict = "CONFLICT"
	// StaleOwner: the fence is below the highest one the resource accepted. It
	// says nothing about earlier writes of that owner still in flight.
	StaleOwner Verdict = "STALE_OWNER"
	// ReceiptExpired: the operation may have had its effect, its receipt is
	// gone. Reconcile.
	ReceiptExpired Verdict = "RECEIPT_EXPIRED"
	// OutOfOrder: the order rule of the record's policy does not admit the seq.
	OutOfOrder Verdict = "OUT_OF_ORDER"
	// RootMismatch: equal fence and lease, other operation root.
	RootMismatch Verdict = "ROOT_MISMATCH"
	// FenceRegression: two verified grants carry one fence, or the authority
	// went back below the stored fence. The record is frozen.
	FenceRegression Verdict = "FENCE_REGRESSION"
	// FenceJump: the fence is further ahead than the record's step and the
	// authority did not confirm it.
	FenceJump Verdict = "FENCE_JUMP"
	// Unverified: the grant did not verify, or the authority says that it is
	// not held.
	Unverified Verdict = "UNVERIFIED"
	// StatusUnavailable: the record wants the authority's answer and none came.
	StatusUnavailable Verdict = "STATUS_UNAVAILABLE"
	// FenceRequired: a mutation without a grant on a protected resource.
	FenceRequired Verdict = "FENCE_REQUIRED"
	// MutationUnknown: whether the commit happened could not be learnt. Settle it.
	MutationUnknown Verdict = "MUTATION_UNKNOWN"
)

// Code is the error code of a verdict; "" for [Applied], [Replayed] and what
// [Verdict.Shadow] says, which are no errors.
func (v Verdict) Code() Code {
	if _, shadow := v.Shadowed(); shadow || v == Applied || v == Replayed {
		return ""
	}
	return Code(v)
}

// Final reports whether v settles the operation's number: the operation will
// never consume it, so the next operation of the tenure takes the same one
// (protocol §1, seq). After any other refusal only the same operation may.
func (v Verdict) Final() bool {
	switch v {
	case Replayed, StaleOwner, RootMismatch, ReceiptExpired, Conflict:
		return true
	case Applied, OutOfOrder, FenceRegression, FenceJump, Unverified,
		StatusUnavailable, FenceRequired, MutationUnknown:
		return false
	}
	return false
}

// Shadow is the answer to a write that passed although v would have refused it, since
// its record is still being rolled out (R18): "SHADOW(STALE_OWNER)". It has an effect
// and no receipt.
func (v Verdict) Shadow() Verdict { return shadowPrefix + v + ")" }

// Shadowed is what would have refused a write that passed in shadow.
func (v Verdict) Shadowed() (Verdict, bool) {
	inner, ok := strings.CutPrefix(string(v), shadowPrefix)
	if !ok || !strings.HasSuffix(inner, ")") {
		return "", false
	}
	return Verdict(strings.TrimSuffix(inner, ")")), true
}

const shadowPrefix = "SHADOW("
