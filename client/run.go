package client

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
)

// Run acquires a lease of resource, calls work with it, and releases it after
// work has returned or panicked; a panic is passed on. Without a lease work is not
// called, and the error is that of [Client.Acquire].
//
// The context of work is the lease's ([Lease.Context]); it ends too when ctx does.
// Work must return once it has ended: the lease is renewed, and nobody else gets
// the resource, until it does, for [Config.DrainTimeout] at most; after that it is
// not released but left to lapse (R28). The longest hold, and the end of trust, may
// come before that.
//
// The error joins what work returned and what became of the lease: if it was lost
// while work ran, an error that matches [lastword.ErrNotHolder] and the cause
// ([ErrExpired], [ErrRefused], [ErrMaxHold], [ErrOverrun]), even if work returned
// nil.
func (c *Client) Run(ctx context.Context, resource lastword.Resource, o AcquireOptions, work func(ctx context.Context, l *Lease) error) (err error) {
	if work == nil {
		return invalid("run", resource, "no work")
	}
	l, err := c.acquire(ctx, resource, o, true)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(l.Context())
	unhook := context.AfterFunc(ctx, func() {
		cancel(context.Cause(ctx))
		l.stop(context.Cause(ctx))
	})
	// Deferred, so that a panic of work passes through.
	defer func() {
		unhook()
		cancel(nil)
		close(l.work)
		err = errors.Join(err, l.endRun())
	}()
	return work(inner, l)
}

// endRun releases after the work has returned.
func (l *Lease) endRun() error {
	ctx, cancel := l.c.cleanup(context.Background())
	defer cancel()
	return l.release(ctx)
}
