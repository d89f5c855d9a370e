package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Why a lease ended. The cause of [Lease.Context] matches exactly one of them, and
// so do the errors of what is tried afterwards; all of these are also
// [lastword.ErrNotHolder].
var (
	// ErrExpired: trust was over before a renewal was answered (R25), or the
	// authority said that the tenure had lapsed there.
	ErrExpired = errors.New("the lease expired")
	// ErrRefused: the authority said that the tenure is not the current one (R26).
	ErrRefused = errors.New("the authority refused the lease")
	// ErrReleased: the holder gave the lease up.
	ErrReleased = errors.New("the lease was released")
	// ErrMaxHold: the lease was held for the longest time it was to be held.
	ErrMaxHold = errors.New("the lease reached its longest hold")
)

// What can be said beyond that. Each of these matches one of the above, too.
var (
	// ErrUnknownTooLong: trust ended while ownership was not known ([ErrExpired]).
	// Nobody said that the lease was lost; it could not be found out in time.
	ErrUnknownTooLong = fmt.Errorf("%w while ownership was not known", ErrExpired)
	// ErrRevoked: the authority said that an operator revoked it ([ErrRefused]).
	ErrRevoked = fmt.Errorf("%w: it was revoked", ErrRefused)
	// ErrAttemptCanceled: the authority said that the attempt was cancelled in its
	// owner's name ([ErrRefused]).
	ErrAttemptCanceled = fmt.Errorf("%w: its attempt was cancelled", ErrRefused)
	// ErrOverrun: the work did not stop in [Config.DrainTimeout] after the lease was
	// given up, so it was left to lapse ([ErrReleased]).
	ErrOverrun = fmt.Errorf("%w, but the work did not stop in time and it was left to lapse", ErrReleased)
)

// ErrOwnershipUnknown says that it is not known at this moment whether the lease is
// still held, so nothing was sent. The same effect may be tried again once the lease is
// HELD. Errors that match it match [lastword.ErrUnknownOutcome] too.
var ErrOwnershipUnknown = errors.New("ownership is not known")

// OpenAttempt is the cause inside an [lastword.ErrUnknownOutcome] of an acquire
// that was given up and whose cancel was not confirmed either (R27). The resource
// may still be granted to it. To find out, repeat the acquire with this owner and
// request id, or cancel them; or wait.
type OpenAttempt struct {
	Owner     string
	RequestID string
	// Within is the longest time, from the return of the error, until the attempt
	// has expired by itself: the rest of the wait, of the time-out of the call and of
	// the TTL with its margin, counted from the last copy that may have arrived. 0:
	// that time is over. It does not cover a copy that is still on its way after its
	// time-out.
	Within time.Duration
	Err    error // why it was given up
}

// Error says how long the attempt may live.
func (e *OpenAttempt) Error() string {
	rest := "has expired"
	if e.Within > 0 {
		rest = "has expired in " + e.Within.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("request id %s of owner %s may have been granted, and %s if no copy of it is on its way: %v", e.RequestID, e.Owner, rest, e.Err)
}

// Unwrap is why the attempt was given up.
func (e *OpenAttempt) Unwrap() error { return e.Err }

func invalid(op string, r lastword.Resource, format string, args ...any) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: r, Message: fmt.Sprintf(format, args...)}
}

// endError is the cause with which a lease's context ends.
func endError(end core.TrustEnd, r lastword.Resource) error {
	e := &lastword.Error{Code: lastword.CodeNotHolder, Op: "hold", Resource: r}
	switch end {
	case core.TrustGoesOn:
		return nil
	case core.TrustLapsed:
		e.Err, e.Hint = ErrExpired, "acquire again: a new lease has a larger fence"
	case core.TrustRefused:
		e.Err, e.Hint = ErrRefused, "acquire again: a new lease has a larger fence"
	case core.TrustUnknown:
		e.Err, e.Hint = ErrUnknownTooLong, "acquire again: a new lease has a larger fence"
	case core.TrustRevoked:
		e.Err, e.Hint = ErrRevoked, "ask the operator before acquiring again"
	case core.TrustCanceled:
		e.Err, e.Hint = ErrAttemptCanceled, "acquire again with a new request id"
	case core.TrustReleased:
		e.Err = ErrReleased
	case core.TrustOverrun:
		e.Err, e.Hint = ErrOverrun, "look at the context in the work, or raise the drain time-out"
	case core.TrustMaxHold:
		e.Err, e.Hint = ErrMaxHold, "raise max-hold if the work may take longer"
	}
	return e
}
