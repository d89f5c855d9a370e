package client

import (
	"context"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Lease is one tenure of a resource. It is safe for concurrent use and satisfies
// [lastword.Holder]. It comes from [Client.Acquire] or [Client.Run] only.
type Lease struct {
	c      *Client
	tenure lastword.Tenure

	ctx    context.Context //nolint:containedctx // the life of the tenure is what it stands for
	cancel context.CancelCauseFunc

	// over ends when trust does, no earlier: a lease that is being given up has a
	// cancelled ctx while its work finishes, and is still renewed.
	over     context.Context //nolint:containedctx // as above
	setOver  context.CancelFunc
	finished chan struct{} // closed when the keeper has returned
	work     chan struct{} // closed when the work under Run has returned; nil without

	mu      sync.Mutex
	trust   core.Trust
	watch   *time.Timer // wakes up when trust changes by itself
	records map[string]*record
	ended   error // why trust ended

	completed *lastword.Digest // of the accepted result

	releasing chan struct{} // holds one token; who has it may send the release
	answered  bool          // the release has a definite answer,
	answer    error         // namely this one
}

// leaseKey marks the contexts of a lease.
type leaseKey struct{ l *Lease }

func newLease(c *Client, values context.Context, t lastword.Tenure, trust core.Trust, work bool) *Lease {
	l := &Lease{
		c:         c,
		tenure:    t,
		trust:     trust,
		finished:  make(chan struct{}),
		records:   make(map[string]*record),
		releasing: make(chan struct{}, 1),
	}
	if work {
		l.work = make(chan struct{})
	}
	base := context.WithValue(context.WithoutCancel(values), leaseKey{l}, true)
	l.ctx, l.cancel = context.WithCancelCause(base)
	l.over, l.setOver = context.WithCancel(context.Background())
	return l
}

// start begins to keep the lease: from here on it ends by itself.
func (l *Lease) start() {
	l.mu.Lock()
	l.watch = time.AfterFunc(time.Hour, func() { l.State() })
	l.mu.Unlock()
	l.State()
	go l.keep()
}

// Fence is the fencing token. It never changes; it needs no I/O (R29).
func (l *Lease) Fence() lastword.Token { return l.tenure.Fence }

// Grant is the signed grant, compact JWS. It never changes and needs no I/O (R29).
func (l *Lease) Grant() string { return l.tenure.Grant }

// GrantDigest is the digest of the grant, as receipts carry it.
func (l *Lease) GrantDigest() lastword.Digest { return l.tenure.GrantDigest }

// Ref names the tenure at the authority.
func (l *Lease) Ref() lastword.TenureRef { return l.tenure.TenureRef }

// Resource is what is held.
func (l *Lease) Resource() lastword.Resource { return l.tenure.Resource }

// TTL is the granted time to live, as the grant was answered.
func (l *Lease) TTL() time.Duration { return l.tenure.TTL }

// Previous tells how the tenure before this one ended; without a completion there
// may be unfinished work (R1).
func (l *Lease) Previous() lastword.Ending { return l.tenure.Previous }

// Context ends once, with a cause that matches [ErrExpired], [ErrRefused],
// [ErrMaxHold] or [ErrReleased], no later than the local deadline (R28). (Timers
// may be late, after a suspend above all; State and Sequence never are.) It
// carries the values of the acquire's context, and neither its cancellation nor
// its deadline.
func (l *Lease) Context() context.Context { return l.ctx }

// State is what is known at this moment; it compares with the clock, and does no
// I/O (R25, R26).
func (l *Lease) State() lastword.HolderState {
	return l.step(core.Trust.At).State
}

// step is the only way in which trust changes. The clock is read under the lock,
// so that the readings of successive steps never go back. Logging is outside: a
// log handler that blocks must not delay the end of trust.
func (l *Lease) step(f func(core.Trust, int64) core.Trust) core.Trust {
	before, after := l.move(f)
	if after.State != before.State {
		l.log(before, after)
	}
	return after
}

func (l *Lease) move(f func(core.Trust, int64) core.Trust) (before, after core.Trust) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, now := l.trust, l.c.now()
	l.trust = f(before, now)
	switch {
	case !l.trust.Final():
		l.watchLocked(now)
	case !before.Final():
		l.endLocked()
	}
	return before, l.trust
}

func (l *Lease) endLocked() {
	l.ended = endError(l.trust.End, l.tenure.Resource)
	l.cancel(l.ended)
	l.setOver()
	if l.watch != nil {
		l.watch.Stop()
	}
	l.records = nil
	l.c.forget(l)
}

// watchLocked sets the timer to the next moment at which trust changes without
// anybody doing anything. The system's timers may stop in a suspend while the
// clock goes on, so none is set for longer than a renewal may take.
func (l *Lease) watchLocked(now int64) {
	next, ok := l.trust.Wake()
	if !ok || l.watch == nil {
		return
	}
	l.watch.Reset(time.Duration(min(next-now, core.TrustCall(l.trust.TTL))))
}

func (l *Lease) log(before, after core.Trust) {
	log := l.c.cfg.Logger.With("resource", l.tenure.Resource, "fence", l.tenure.Fence, "lease", l.tenure.LeaseID)
	switch after.State { //nolint:exhaustive // the others are the quiet course of things
	case lastword.HolderUnknown:
		log.Warn("ownership is not known; no new effect starts")
	case lastword.HolderHeld:
		if before.State == lastword.HolderUnknown {
			log.Info("ownership is known again")
		}
	case lastword.HolderExpired:
		log.Warn("the lease ended", "cause", l.why())
	case lastword.HolderReleased:
		log.Debug("the lease was given up")
	}
}

// keep renews until trust is over.
func (l *Lease) keep() {
	defer l.c.running.Done()
	defer close(l.finished)
	for l.waitDue() {
		trust := l.step(core.Trust.Ask)
		if trust.Final() {
			break
		}
		t, err := sendRenewal(l.over, l.c, trust, l.tenure.TenureRef)
		trust = l.step(func(trust core.Trust, now int64) core.Trust {
			return takeRenewal(l.c, trust, t, err, now)
		})
		if err != nil && !trust.Final() {
			l.c.cfg.Logger.Debug("a renewal had no clear answer", "resource", l.tenure.Resource, "fence", l.tenure.Fence, "error", err)
		}
	}
	// With work under Run the release would come before the work has stopped: Run
	// sends it.
	if l.work == nil {
		l.releaseAfterMaxHold()
	}
}

// waitDue waits until a renewal is due; false if trust ended before.
func (l *Lease) waitDue() bool {
	for {
		trust := l.step(core.Trust.At)
		if trust.Final() {
			return false
		}
		now := l.c.now()
		if now >= trust.Due {
			return true
		}
		// Cut into pieces for the same reason as the watch.
		if !sleep(l.over, time.Duration(min(trust.Due-now, core.TrustCall(trust.TTL)))) {
			return false
		}
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
