package authority

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
)

// Observer is told what an [Authority] does. It is told, never asked: nothing waits
// for what it says, and everything it hears of has happened and is durable.
//
// Guaranteed: Report is called on a goroutine of its own, one call at a time. One
// that is slow or blocks delays nobody; what it does not take is dropped beyond a
// bound, and counted. Answered is called by the goroutine that made the call, just
// before that gets its answer and with no lock held: one that blocks keeps this
// answer from this caller and delays no other call. A panic of either is contained.
type Observer interface {
	// Answered tells of one call that has its answer. ctx is the call's, and may
	// have ended.
	Answered(ctx context.Context, a Answer)
	// Report tells what the loop has done since the last one, and where it stands.
	// It must not keep r's slices.
	Report(r Report)
}

// Op is what was called.
type Op string

// The operations that an [Observer] is told of.
const (
	OpAcquire  Op = "acquire"
	OpRenew    Op = "renew"
	OpRelease  Op = "release"
	OpComplete Op = "complete"
	OpCancel   Op = "cancel"
	OpRevoke   Op = "revoke"
	OpReport   Op = "report"
	OpResume   Op = "resume"
	OpStatus   Op = "status"
	OpList     Op = "list"
)

// Answer is how one call ended.
type Answer struct {
	Op       Op
	Resource lastword.Resource
	Fence    lastword.Token // of the tenure it was about; 0 if there is none
	Code     lastword.Code  // "" if it was done
	Took     time.Duration  // from its beginning, by Config.Elapsed
	// Queued says that an acquire has waited for somebody else. Took is then how
	// long it waited, and with Code "" the call was woken by a grant.
	Queued bool
	// Repeated says that the request id had been granted before: the same grant, no
	// new one (R2).
	Repeated bool
}

// Report is what the loop has done since the last one.
type Report struct {
	Commits []Commit
	Ended   []TenureEnd
	// HandOvers are the times from the end of a tenure until the next one, of a
	// caller that waited, was durable. What another process ended or granted is not
	// among them.
	HandOvers []time.Duration
	// WitnessFailures is how often the witness could not be read or written.
	WitnessFailures int
	// Dropped is how many commits, ends and grants are left out, because the last
	// Report took too long.
	Dropped int
	State   State
}

// Commit is one group commit: the steps of many calls in one write of the store. A
// write that only advances the counter of elapsed time is none, nor is one that
// forgets old request records.
type Commit struct {
	Records int           // resources that were written
	Calls   int           // calls that share it
	Took    time.Duration // until the store, and the witness where it had to be told, answered
	Code    lastword.Code // "" if the store answered
}

// TenureEnd is the end of one tenure, made durable by this process.
type TenureEnd struct {
	How lastword.State // RELEASED, EXPIRED, REVOKED or CANCELED
	// Held is from its grant until its end, of an expired one until its TTL was over.
	// Known is false where this process did not grant it.
	Held  time.Duration
	Known bool
}

// State is where an authority stands when it is told.
type State struct {
	Epoch uint32 // issuer epoch that it grants under
	// Counter is the highest counter that this process has granted in it, of any
	// resource: none is granted above [lastword.MaxCounter] (R11).
	Counter uint64
	Waiters int // that are queued at this process
	// OldestWaiter is for how long the one that waits longest has waited.
	OldestWaiter time.Duration
	// Live is how many open tenures this process knows of: which it granted, or
	// renewed or wrote to since, and whose deadline has not passed.
	Live int
	// Stopped says that it has stopped granting until it is started again: store and
	// witness do not belong together any more (R10).
	Stopped bool
	// WitnessMissing says that there was no witness when it was read last.
	WitnessMissing bool
}

// seen is a call that the observer will be told of.
type seen struct {
	a      *Authority // nil: nobody is told
	answer Answer
	began  time.Duration
}

func (a *Authority) begin(op Op, resource lastword.Resource, fence lastword.Token) seen {
	if a.cfg.Observer == nil {
		return seen{}
	}
	return seen{a: a, answer: Answer{Op: op, Resource: resource, Fence: fence}, began: a.cfg.Elapsed()}
}

// end tells how the call ended.
func (s *seen) end(ctx context.Context, err *error) {
	if s.a == nil {
		return
	}
	s.answer.Took = s.a.cfg.Elapsed() - s.began
	s.answer.Code = codeOf(*err)
	defer func() { _ = recover() }() // a panic of an observer is no answer
	s.a.cfg.Observer.Answered(ctx, s.answer)
}

// endAcquire tells how an acquire ended; c is nil if it did not come to the loop.
func (s *seen) endAcquire(ctx context.Context, c *call, t *lastword.Tenure, err *error) {
	if s.a == nil {
		return
	}
	s.answer.Fence, s.answer.Repeated = t.Fence, t.Repeated
	s.answer.Queued = c != nil && c.refused.Load() != nil
	s.end(ctx, err)
}

// codeOf is the code of an error, "" for none.
func codeOf(err error) lastword.Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*lastword.Error](err); ok {
		return e.Code
	}
	return lastword.CodeInternal
}
