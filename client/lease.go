package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Lease is one tenure of a resource. It is safe for concurrent use and satisfies
// [lastword.Holder]. It comes from [Client.Acquire] or [Client.Run] only.
type Lease struct {
	c      *Client
	tenure lastword.Tenure

	values context.Context //nolint:containedctx // of the acquire: the lease's own context has its values

	work chan struct{} // closed when the work under Run has returned; nil without

	mu       sync.Mutex
	trust    core.Trust
	begun    bool               // it is kept: renewals and questions are sent
	queued   bool               // it waits for its turn to make a call
	calls    int                // those under way
	renewing context.CancelFunc // ends the last renewal
	asking   context.CancelFunc // ends the last question
	settled  bool               // trust is over and no call is under way
	stopping bool               // the work under Run has been told to stop
	records  map[string]*record
	ended    error // why trust ended
	// What many leases never need is made when it is asked for.
	ctx    context.Context //nolint:containedctx // the life of the tenure is what it stands for
	cancel context.CancelCauseFunc
	left   error // with what ctx has ended, or is to end as soon as it is made
	// over is closed when trust ends, no earlier: a lease that is being given up has a
	// cancelled ctx while its work finishes, and is still renewed.
	over   chan struct{}
	outbox outbox

	proofLife time.Duration          // 0: no proof is asked for
	proof     atomic.Pointer[string] // the newest one

	wake place // in the agenda
	turn place // among those that wait for their turn

	completed *lastword.Digest // of the accepted result

	releasing chan struct{} // see releaseTurn
	sent      bool          // a release was sent
	answered  bool          // it has a definite answer,
	answer    error         // namely this one
}

// leaseKey marks the contexts of a lease.
type leaseKey struct{ l *Lease }

func newLease(c *Client, values context.Context, t lastword.Tenure, trust core.Trust, work bool) *Lease {
	l := &Lease{c: c, values: values, tenure: t, trust: trust}
	l.wake, l.turn = place{lease: l, index: -1}, place{lease: l, index: -1}
	if work {
		l.work = make(chan struct{})
	}
	return l
}

// begin keeps the lease: from here on it is renewed, and ends by itself.
func (l *Lease) begin() {
	l.mu.Lock()
	l.begun = true
	l.noteLocked(Event{At: time.Duration(l.c.now()), From: lastword.HolderRequested, To: l.trust.State, Cause: l.ended})
	l.mu.Unlock()
	l.State()
}

// Fence is the fencing token. It never changes; it needs no I/O (R29).
func (l *Lease) Fence() lastword.Token { return l.tenure.Fence }

// Grant is the signed grant, compact JWS. It never changes and needs no I/O (R29).
func (l *Lease) Grant() string { return l.tenure.Grant }

// GrantDigest is the digest of the grant, as receipts carry it.
func (l *Lease) GrantDigest() lastword.Digest { return l.tenure.GrantDigest }

// Ref names the tenure at the authority.
func (l *Lease) Ref() lastword.TenureRef { return l.tenure.TenureRef }

func (l *Lease) request() requestName {
	return requestName{l.tenure.Resource, l.tenure.RequestID}
}

// Resource is what is held.
func (l *Lease) Resource() lastword.Resource { return l.tenure.Resource }

// TTL is the granted time to live, as the grant was answered.
func (l *Lease) TTL() time.Duration { return l.tenure.TTL }

// Previous tells how the tenure before this one ended; without a completion there
// may be unfinished work (R1).
func (l *Lease) Previous() lastword.Ending { return l.tenure.Previous }

// Context ends once, with a cause that matches exactly one of [ErrExpired],
// [ErrRefused], [ErrMaxHold] and [ErrReleased], no later than the local deadline
// (R28). (Timers may be late, after a suspend above all; State and Sequence never
// are.) It carries the values of the acquire's context, and neither its cancellation
// nor its deadline.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		base := context.WithValue(context.WithoutCancel(l.values), leaseKey{l}, true)
		l.ctx, l.cancel = context.WithCancelCause(base)
		if l.left != nil {
			l.cancel(l.left)
		}
	}
	return l.ctx
}

// leaveLocked ends the context; the first cause counts.
func (l *Lease) leaveLocked(cause error) {
	if l.left == nil {
		l.left = cause
	}
	if l.cancel != nil {
		l.cancel(cause)
	}
}

// whenOver is closed when trust ends.
func (l *Lease) whenOver() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		l.over = make(chan struct{})
		if l.trust.Final() {
			close(l.over)
		}
	}
	return l.over
}

func (l *Lease) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trust.Final()
}

// State is what is known at this moment; it compares with the clock, and waits for
// no I/O (R25, R26).
func (l *Lease) State() lastword.HolderState {
	return l.step(core.Trust.At).State
}

// step is the only way in which trust changes. The clock is read under the lock, so
// that the readings of successive steps never go back. Nothing here blocks.
func (l *Lease) step(f func(core.Trust, int64) core.Trust) core.Trust {
	return l.stepWith(nil, f)
}

// stepWith is a step whose reason, if it leads to OWNERSHIP_UNKNOWN, is err.
func (l *Lease) stepWith(err error, f func(core.Trust, int64) core.Trust) core.Trust {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.c.now()
	l.changeLocked(f(l.trust, now), now, err)
	if l.begun {
		l.callLocked(now)
	}
	l.planLocked()
	l.settleLocked()
	return l.trust
}

func (l *Lease) changeLocked(next core.Trust, now int64, err error) {
	before := l.trust
	l.trust = next
	if next.Final() && !before.Final() {
		l.endLocked()
	}
	if next.State == before.State || !l.begun {
		return
	}
	e := Event{At: time.Duration(now), From: before.State, To: next.State}
	switch {
	case next.Final():
		e.Cause = l.ended
	case next.State == lastword.HolderUnknown:
		e.Cause = err
	}
	l.noteLocked(e)
}

func (l *Lease) endLocked() {
	l.ended = endError(l.trust.End, l.tenure.Resource)
	l.leaveLocked(l.ended)
	if l.over != nil {
		close(l.over)
	}
	for _, end := range []context.CancelFunc{l.renewing, l.asking} {
		if end != nil {
			end()
		}
	}
	l.records = nil
	l.c.calls.drop(l)
	l.c.forget(l)
}

// settleLocked tells the client once nothing of the lease is going on any more, and
// no further event comes.
func (l *Lease) settleLocked() {
	if l.begun && !l.settled && l.trust.Final() && l.calls == 0 {
		l.settled = true
		l.c.running.Done()
	}
}

// planLocked puts the next moment at which something is to be done into the agenda.
func (l *Lease) planLocked() {
	next, ok := l.trust.Next()
	if l.queued { // what is due waits for its turn, and trust does not
		next, ok = l.trust.Wake()
	}
	switch {
	case !l.begun:
	case !ok:
		l.c.agenda.drop(l)
	default:
		l.c.agenda.plan(l, next, l.trust.Call)
	}
}

// refusal is why nothing may start now, nil if it may.
func (l *Lease) refusal(op string) error {
	trust := l.step(core.Trust.At)
	if trust.State.Admits() {
		return nil
	}
	e := &lastword.Error{Op: op, Resource: l.tenure.Resource}
	if !trust.Final() {
		e.Code, e.Err = lastword.CodeUnknown, ErrOwnershipUnknown
		e.Message, e.Hint = "nothing was sent", "try again once the lease is HELD, or stop when its context ends"
		return e
	}
	e.Code, e.Err = lastword.CodeNotHolder, l.why()
	e.Message = "nothing was sent"
	return e
}

// why is the error with which trust ended.
func (l *Lease) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}
