package client

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
)

// Acquire asks for a lease of resource and returns it once it is HELD.
//
// ctx bounds the acquiring only. The lease's own context carries the values of
// ctx but neither its cancellation nor its deadline. If ctx ends first, there is
// an error and no lease is left: the attempt is cancelled in a call of its own,
// bounded by [Config.CleanupTimeout], and the error is [lastword.ErrCanceled]. If
// the cancel was not confirmed, the error is [lastword.ErrUnknownOutcome] with an
// [OpenAttempt] inside (R27). Either one matches the error of ctx too.
//
// While there is no answer, the attempt is repeated with the same request id, and
// [Config.Logger] is told. It ends also if ctx does not, with C for the time-out of one
// call (a sixth of the TTL, or [Config.CallTimeout] where that is less): it is asked
// about until 3 C after the wait, then it is cancelled, again and again, until nothing
// of it can be valid any more. That is at most Wait + 4 C and a TTL with its margin,
// and the pauses between the tries, after the beginning, or after the grant where a
// grant could not be confirmed. If the cancel is confirmed, the error is
// [lastword.ErrUnavailable]: no lease is left. If not, it is
// [lastword.ErrUnknownOutcome] with an [OpenAttempt], as above.
//
// [lastword.ErrHeld] says that another tenure is valid: at once, or with
// [AcquireOptions.Wait] after the wait. [lastword.ErrTenureEnded] says that this
// request id was granted and that tenure is over. [lastword.ErrNotHolder] says
// that the grant lapsed before it could be confirmed. [lastword.ErrInvalid] says that
// the options are out of bounds, or that this client is using the request id: for an
// acquire that is under way, or for a lease that is not over. One tenure has one Lease.
func (c *Client) Acquire(ctx context.Context, resource lastword.Resource, o AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, resource, o, false)
}

func (c *Client) acquire(ctx context.Context, resource lastword.Resource, o AcquireOptions, work bool) (l *Lease, err error) {
	if c.reporter != nil {
		began, caller := c.now(), ctx
		defer func() { c.answered(caller, OpAcquire, l, resource, began, err) }()
	}
	o, err = o.withDefaults(c.cfg, resource)
	if err != nil {
		return nil, err
	}
	if err := c.start(resource); err != nil {
		return nil, err
	}
	defer c.running.Done()
	name := requestName{resource, o.RequestID}
	if err := c.claim(name); err != nil {
		return nil, err
	}
	defer func() {
		if l == nil {
			c.unclaim(name)
		}
	}()

	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(errClosing) })()

	a := newAttempt(c, ctx, caller, resource, o, work)
	l, err = a.run()
	if err == nil {
		return l, nil
	}
	return nil, a.settled(err)
}

// settled is the error of a failed attempt, after making sure that no lease is
// left of it (R27).
func (a *attempt) settled(cause error) error {
	if !a.asking.Open {
		if !isLastword(cause) {
			return a.error(lastword.CodeUnavailable, "gave up before anything was sent", "", cause)
		}
		return cause
	}
	if tenureGone(cause) {
		return cause
	}
	if err := a.cancel(cause); err != nil {
		return a.unsettled(cause, err)
	}
	switch {
	case errors.Is(cause, errSilence):
		return a.error(lastword.CodeUnavailable, "gave up; the attempt is cancelled and no lease is left", "", cause)
	case !isLastword(cause):
		return a.error(lastword.CodeCanceled, "gave up; the attempt is cancelled and no lease is left", "", cause)
	}
	return cause
}

// unsettled is the error of an attempt of which neither an answer came nor a cancel
// was confirmed.
func (a *attempt) unsettled(cause, canceling error) error {
	e := &OpenAttempt{
		Owner: a.c.cfg.Owner, RequestID: a.options.RequestID,
		Within: time.Duration(a.asking.Left(a.c.now())), Err: cause,
	}
	a.c.cfg.Logger.Warn("an attempt was given up and its cancel was not confirmed; it lapses by itself",
		"resource", a.resource, "owner", e.Owner, "request", e.RequestID, "within", e.Within, "error", canceling)
	if isLastword(cause) {
		// What the authority decided about one copy does not decide about the
		// others; that error must not be found inside this one.
		e.Err = errors.New(cause.Error())
	}
	return a.error(lastword.CodeUnknown, "gave up, and the cancel was not confirmed",
		"acquire again with this owner and request id, or cancel them, to find out", e)
}

func (a *attempt) error(code lastword.Code, message, hint string, cause error) error {
	return &lastword.Error{Code: code, Op: "acquire", Resource: a.resource, Message: message, Hint: hint, Err: cause}
}

// cancel ends the attempt at the authority; nil means that it is confirmed. Who has
// gone waits for the clean-up only, everybody else until nothing of it is valid.
func (a *attempt) cancel(cause error) error {
	limit := a.c.cfg.CleanupTimeout
	if errors.Is(cause, errSilence) {
		limit = max(time.Duration(a.asking.Left(a.c.now())), a.c.cfg.callTimeout(a.options.TTL))
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(a.ctx), limit)
	defer stop()
	if errors.Is(cause, errSilence) {
		a.c.cfg.Logger.Warn("still no answer; the attempt is being cancelled", "resource", a.resource,
			"owner", a.c.cfg.Owner, "request", a.options.RequestID, "for", limit.Round(time.Millisecond))
		defer context.AfterFunc(a.ctx, func() {
			sleep(ctx, a.c.cfg.CleanupTimeout)
			stop()
		})()
	}
	err := a.c.retry(ctx, "cancel", a.resource, a.options.TTL, a.c.cfg.CleanupTimeout/4, func(ctx context.Context) error {
		return a.c.authority.Cancel(ctx, a.resource, a.c.cfg.Owner, a.options.RequestID)
	})
	if tenureGone(err) {
		return nil
	}
	return err
}

func isLastword(err error) bool {
	var e *lastword.Error
	return errors.As(err, &e)
}
