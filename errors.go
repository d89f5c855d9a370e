package lastword

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Code says why something was refused or failed. The set is closed; programs act
// on codes, never on messages. A verdict that refuses is a code too.
type Code string

// The codes of authority and holder.
const (
	// CodeInvalid: the request is malformed or out of bounds; repeating it
	// unchanged fails again.
	CodeInvalid Code = "INVALID"
	// CodeHeld: another tenure is valid. Definite.
	CodeHeld Code = "HELD"
	// CodeNotHolder: the named tenure is not the current, valid one. Definite.
	CodeNotHolder Code = "NOT_HOLDER"
	// CodeRequestConflict: the request id, or the tenure's result, is known with
	// other content.
	CodeRequestConflict Code = "REQUEST_CONFLICT"
	// CodeTenureEnded: the request id was granted and that tenure has ended; no
	// new fence was issued.
	CodeTenureEnded Code = "TENURE_ENDED"
	// CodeCanceled: the request id was cancelled, before or while it was waited for.
	CodeCanceled Code = "CANCELED"
	// CodeExhausted: the counter or the epochs are used up.
	CodeExhausted Code = "EXHAUSTED"
	// CodeQuota: a bound of the authority (waiters, leases of one owner) is reached.
	CodeQuota Code = "QUOTA"
	// CodeUnavailable: not done, and it is certain that it was not done; the
	// other side is not there, or is not ready.
	CodeUnavailable Code = "UNAVAILABLE"
	// CodeUnknown: no answer; it may or may not have been done.
	CodeUnknown Code = "UNKNOWN"
	// CodeInternal: a broken invariant. Not done.
	CodeInternal Code = "INTERNAL"
)

// The codes of the resource: the refusing verdicts.
const (
	CodeConflict          = Code(Conflict)
	CodeStaleOwner        = Code(StaleOwner)
	CodeReceiptExpired    = Code(ReceiptExpired)
	CodeOutOfOrder        = Code(OutOfOrder)
	CodeRootMismatch      = Code(RootMismatch)
	CodeFenceRegression   = Code(FenceRegression)
	CodeFenceJump         = Code(FenceJump)
	CodeUnverified        = Code(Unverified)
	CodeStatusUnavailable = Code(StatusUnavailable)
	CodeFenceRequired     = Code(FenceRequired)
	CodeMutationUnknown   = Code(MutationUnknown)
)

// Sentinels for errors.Is. They match by code.
var (
	ErrInvalid           error = &Error{Code: CodeInvalid}
	ErrHeld              error = &Error{Code: CodeHeld}
	ErrNotHolder         error = &Error{Code: CodeNotHolder}
	ErrRequestConflict   error = &Error{Code: CodeRequestConflict}
	ErrTenureEnded       error = &Error{Code: CodeTenureEnded}
	ErrCanceled          error = &Error{Code: CodeCanceled}
	ErrExhausted         error = &Error{Code: CodeExhausted}
	ErrQuota             error = &Error{Code: CodeQuota}
	ErrUnavailable       error = &Error{Code: CodeUnavailable}
	ErrInternal          error = &Error{Code: CodeInternal}
	ErrConflict          error = &Error{Code: CodeConflict}
	ErrStale             error = &Error{Code: CodeStaleOwner}
	ErrReceiptExpired    error = &Error{Code: CodeReceiptExpired}
	ErrOutOfOrder        error = &Error{Code: CodeOutOfOrder}
	ErrRootMismatch      error = &Error{Code: CodeRootMismatch}
	ErrRegression        error = &Error{Code: CodeFenceRegression}
	ErrFenceJump         error = &Error{Code: CodeFenceJump}
	ErrUnverified        error = &Error{Code: CodeUnverified}
	ErrStatusUnavailable error = &Error{Code: CodeStatusUnavailable}
	ErrFenceRequired     error = &Error{Code: CodeFenceRequired}

	// ErrUnknownOutcome matches every error that leaves the outcome open, of the
	// authority ([CodeUnknown]) and of a resource ([CodeMutationUnknown]). It is
	// neither success nor failure (P5).
	ErrUnknownOutcome error = &Error{Code: CodeUnknown}
)

// Error is the one error type of lastword. It never holds key material or a
// grant.
type Error struct {
	Code     Code
	Op       string   // what was tried: "acquire", "apply", …
	Resource Resource // of what, where there is one
	Message  string   // what was wrong, lower case
	Hint     string   // the way out, where there is one

	Holder    string        // HELD: who holds it
	Fence     Token         // HELD: its fence; of a resource's refusal: the highest fence stored there
	Remaining time.Duration // HELD: what is left of it, a lower bound
	Waiters   int           // HELD: how many wait already
	Ended     Ending        // TENURE_ENDED, and NOT_HOLDER where it is known: how

	Err error // the cause, if there is one
}

// Error names operation, resource, code and way out in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Op != "" && e.Resource != "" {
		b.WriteByte(' ')
	}
	b.WriteString(string(e.Resource))
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(string(e.Code))
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the sentinels of this package by code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	if !ok || t == nil {
		return false
	}
	same := t.Code == e.Code || t.Code == CodeUnknown && e.Code == CodeMutationUnknown
	return same && t.sentinel()
}

// sentinel reports whether e is nothing but a code. An error that says more is
// one event, and two events never match by accident.
func (e *Error) sentinel() bool {
	rest := *e
	rest.Code = ""
	return e.Code != "" && reflect.ValueOf(rest).IsZero()
}
