package client

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
)

// Authority is what a holder calls; the embedded authority and the remote client
// satisfy it. Implementations are safe for concurrent use, return soon after
// their context has ended, and tell "it was refused" (a [lastword.Error] with the
// reason's code) from "there was no answer" ([lastword.ErrUnknownOutcome]). An
// error of another type counts as no answer, and so does a panic of a renewal, a
// question or an acquire that waits. Status is linearizable (R9); it is asked by lease id and request id.
type Authority interface {
	Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error)
	Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error)
	Release(ctx context.Context, ref lastword.TenureRef) error
	Complete(ctx context.Context, ref lastword.TenureRef, result []byte) error
	Cancel(ctx context.Context, resource lastword.Resource, owner, requestID string) error
	Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error)
}

// answer is what an error of an Authority means.
type answer uint8

const (
	refused answer = iota // the other side said so; nothing was done
	notDone               // certainly not done, but nobody decided: worth repeating
	unclear               // may or may not have been done
)

func answerOf(err error) answer {
	var e *lastword.Error
	if !errors.As(err, &e) {
		return unclear
	}
	switch e.Code {
	case lastword.CodeUnknown, lastword.CodeMutationUnknown:
		return unclear
	case lastword.CodeUnavailable:
		return notDone
	}
	return refused
}

// tenureGone reports whether err says that the tenure is not the current one.
// Other refusals of a renewal ("not ready", "too many") say nothing about it.
func tenureGone(err error) bool {
	return errors.Is(err, lastword.ErrNotHolder) || errors.Is(err, lastword.ErrTenureEnded) || errors.Is(err, lastword.ErrCanceled)
}

// howGone is how the tenure that err says is gone has ended, "" if err does not say.
func howGone(err error, ref lastword.TenureRef) lastword.State {
	var e *lastword.Error
	switch {
	case !errors.As(err, &e):
	case e.Code == lastword.CodeCanceled:
		return lastword.StateCanceled
	case e.Ended.LeaseID == ref.LeaseID:
		return e.Ended.State
	}
	return ""
}
