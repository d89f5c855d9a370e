package authority

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
)

// Auditor keeps what operators do, durably. It is safe for concurrent use.
type Auditor interface {
	// Begin makes durable that a is about to be done; if it fails, a is not done. The
	// function that it returns, called once, makes durable what came of it. An action
	// that has begun and has no outcome may have been done.
	Begin(ctx context.Context, a Action) (ended func(outcome string) error, err error)
}

// Action is something that an operator does.
type Action struct {
	Name     string
	Operator string
	Reason   string
	// Resource and Fence are of what is done to one tenure.
	Resource lastword.Resource
	Fence    lastword.Token
	// Details are what else is to be known, by name. None is a secret.
	Details map[string]string
}

// The names of actions that this package asks an [Auditor] to keep.
const (
	ActionRevoke      = "revoke"
	ActionResume      = "resume"
	ActionAdvance     = "epoch advance"
	ActionInitWitness = "witness init"
)

// OutcomeDone is the outcome of an action that was done.
const OutcomeDone = "done"

// begin asks the auditor, if there is one. ended gives back err, joined with what the
// auditor has to say if err is nil.
func begin(ctx context.Context, to Auditor, a Action) (ended func(outcome string, err error) error, err error) {
	if to == nil {
		return func(_ string, err error) error { return err }, nil
	}
	keep, err := to.Begin(ctx, a)
	if err != nil {
		return nil, notDone(err, "what an operator does could not be written down, so it was not done")
	}
	return func(outcome string, err error) error {
		if kept := keep(outcome); err == nil {
			return kept
		}
		return err
	}, nil
}

// outcome is how an action ended, in a word.
func outcome(err error) string {
	if err == nil {
		return OutcomeDone
	}
	if e := (*lastword.Error)(nil); errors.As(err, &e) && e.Code != "" {
		return string(e.Code)
	}
	return string(lastword.CodeInternal)
}

// unkept says that the outcome of something that was begun is missing in the audit.
func (a *Authority) unkept(err error) {
	if err != nil {
		a.cfg.Logger.Error("the outcome of an operator's action could not be written down", "error", err)
	}
}
