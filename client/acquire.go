package client

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
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
// While there is no answer, the attempt is repeated with the same request id.
// [lastword.ErrHeld] says that another tenure is valid: at once, or with
// [AcquireOptions.Wait] after the wait. [lastword.ErrTenureEnded] says that this
// request id was granted and that tenure is over. [lastword.ErrNotHolder] says
// that the grant lapsed before it could be confirmed.
// [lastword.ErrUnavailable] says that nothing was asked.
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
	if _, ok := c.authority.(Prover); o.ProofLife > 0 && !ok {
		return nil, invalid("acquire", resource, "this authority gives no status proofs")
	}
	if err := c.start(resource); err != nil {
		return nil, err
	}
	defer c.running.Done()

	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(errClosing) })()

	a := &attempt{c: c, ctx: ctx, options: o, work: work, resource: resource, began: c.now(), values: caller}
	l, err = a.run()
	if err == nil {
		return l, nil
	}
	return nil, a.settled(err)
}

var errClosing = errors.New("the client was closed")

// attempt is one acquire: one request id, however often it has to be sent.
type attempt struct {
	c        *Client
	ctx      context.Context //nolint:containedctx // lives as long as the call
	values   context.Context //nolint:containedctx // the caller's, for the lease
	options  AcquireOptions
	resource lastword.Resource
	work     bool
	began    int64
	open     bool // a copy was sent whose outcome is not known, or a grant is not in use
}

func (a *attempt) run() (*Lease, error) {
	pauses := a.c.backoff(a.options.TTL)
	for {
		if err := a.ended(); err != nil {
			return nil, err
		}
		base := a.c.now()
		t, err := a.send(base)
		if err == nil {
			a.open = true
			return a.granted(base, t)
		}
		switch answerOf(err) {
		case refused:
			return nil, err
		case unclear:
			a.open = true
		case notDone:
			if !a.open && a.waitLeft(a.c.now()) == 0 {
				return nil, err
			}
		}
		a.c.cfg.Logger.Debug("no answer to acquire, asking again with the same request id",
			"resource", a.resource, "request", a.options.RequestID, "error", err)
		sleep(a.ctx, pauses())
	}
}

// ended is why the attempt has to be given up, nil if it has not. The cause of the
// caller's context is not taken: it may be another lease's error, which would say
// something about this one.
func (a *attempt) ended() error {
	if context.Cause(a.ctx) == errClosing { //nolint:errorlint // set here, never wrapped
		return errClosing
	}
	return a.ctx.Err()
}

func (a *attempt) send(now int64) (lastword.Tenure, error) {
	wait := a.waitLeft(now)
	var t lastword.Tenure
	err := bounded(a.ctx, wait+a.c.cfg.callTimeout(a.options.TTL), func(ctx context.Context) (err error) {
		t, err = a.c.authority.Acquire(ctx, lastword.AcquireRequest{
			Resource:  a.resource,
			RequestID: a.options.RequestID,
			Owner:     a.c.cfg.Owner,
			TTL:       a.options.TTL,
			Wait:      wait,
			Root:      a.options.Root,
			Class:     a.options.Class,
			ProofLife: a.options.ProofLife,
		})
		return err
	})
	return t, err
}

// waitLeft is what is left of the wait. At 0 an open attempt still asks, to find
// out what became of it.
func (a *attempt) waitLeft(now int64) time.Duration {
	return max(a.options.Wait-time.Duration(now-a.began), 0)
}

// granted makes a lease of a grant, confirmed by a renewal where it has to be.
func (a *attempt) granted(base int64, t lastword.Tenure) (*Lease, error) {
	if err := a.check(t); err != nil {
		return nil, err
	}
	trust := core.NewTrust(core.TrustGrant{
		Base:      base,
		TTL:       int64(t.TTL),
		Remaining: int64(t.Remaining),
		Waited:    t.Waited,
		Bound:     a.c.cfg.bound(),
		Call:      int64(a.c.cfg.CallTimeout),
		MaxHold:   int64(a.options.MaxHold),
		Early:     int64(a.c.cfg.Jitter() * 1000),
	}, a.c.now())
	for trust.State == lastword.HolderRequested {
		var err error
		if trust, err = a.confirm(trust, t.TenureRef); err != nil {
			return nil, err
		}
	}
	// A caller that has gone would never release it.
	if err := a.ended(); err != nil {
		return nil, err
	}
	l := newLease(a.c, a.values, t, trust, a.work)
	l.proofLife = a.options.ProofLife
	l.keepProof(t.StatusProof)
	if !a.c.enter(l) {
		l.cancel(errClosing)
		return nil, errClosing
	}
	l.begin()
	return l, nil
}

// check refuses an answer that no lease can be made of.
func (a *attempt) check(t lastword.Tenure) error {
	wrong := ""
	switch margin := time.Duration(a.c.cfg.bound().Margin(int64(t.TTL))); {
	case t.State != lastword.StateHeld:
		wrong = "its state is " + string(t.State) + ", not HELD"
	case t.Resource != a.resource || t.RequestID != a.options.RequestID:
		wrong = "it is for another request"
	case !t.Fence.Valid() || t.LeaseID == "":
		wrong = "it has no fence or no lease id"
	case t.TTL <= 0 || t.TTL > maxSpan || margin > t.TTL/3:
		wrong = "its ttl " + t.TTL.String() + " is too short for the margin, or too long"
	default:
		return nil
	}
	return &lastword.Error{Code: lastword.CodeInternal, Op: "acquire", Resource: a.resource, Message: "the authority's answer can not be used: " + wrong}
}

// confirm asks once for a renewal of a grant that can not be trusted yet (R25).
func (a *attempt) confirm(trust core.Trust, ref lastword.TenureRef) (core.Trust, error) {
	if !sleep(a.ctx, time.Duration(trust.Due-a.c.now())) {
		return trust, a.ended()
	}
	trust, err := renewOnce(a.ctx, a.c, trust, ref)
	if trust.Final() {
		return trust, &lastword.Error{
			Code: lastword.CodeNotHolder, Op: "acquire", Resource: a.resource, Err: err,
			Message: "the grant was over before it could be confirmed", Hint: "acquire again with a new request id",
		}
	}
	return trust, nil
}

// settled is the error of a failed attempt, after making sure that no lease is
// left of it (R27).
func (a *attempt) settled(cause error) error {
	gaveUp := !isLastword(cause)
	if !a.open {
		if gaveUp {
			return &lastword.Error{Code: lastword.CodeUnavailable, Op: "acquire", Resource: a.resource, Message: "gave up before anything was sent", Err: cause}
		}
		return cause
	}
	if tenureGone(cause) {
		return cause
	}
	if err := a.cancel(); err != nil {
		a.c.cfg.Logger.Warn("an attempt was given up and its cancel was not confirmed; it lapses by itself",
			"resource", a.resource, "request", a.options.RequestID, "error", err)
		e := &OpenAttempt{
			RequestID: a.options.RequestID,
			Within:    a.waitLeft(a.c.now()) + a.options.TTL,
			Err:       cause,
		}
		if isLastword(cause) {
			// What the authority decided about one copy does not decide about the
			// others; that error must not be found inside this one.
			e.Err = errors.New(cause.Error())
		}
		return &lastword.Error{
			Code: lastword.CodeUnknown, Op: "acquire", Resource: a.resource, Err: e,
			Message: "gave up, and the cancel was not confirmed", Hint: "repeat it with the same request id, or wait until it has expired",
		}
	}
	if gaveUp {
		return &lastword.Error{
			Code: lastword.CodeCanceled, Op: "acquire", Resource: a.resource, Err: cause,
			Message: "gave up; the attempt is cancelled and no lease is left",
		}
	}
	return cause
}

// cancel ends the attempt at the authority; nil means that it is confirmed.
func (a *attempt) cancel() error {
	ctx, cancel := a.c.cleanup(a.ctx)
	defer cancel()
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
