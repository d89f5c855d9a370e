package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

var (
	errClosing = errors.New("the client was closed")
	// errSilence: an open attempt was asked about for as long as that makes sense.
	errSilence = errors.New("no clear answer in time")
)

// attempt is one acquire: one request id, however often it has to be sent.
type attempt struct {
	c        *Client
	ctx      context.Context //nolint:containedctx // lives as long as the call
	values   context.Context //nolint:containedctx // the caller's, for the lease
	options  AcquireOptions
	resource lastword.Resource
	work     bool
	began    int64
	asking   core.Asking
	told     bool // that there is no answer
}

func newAttempt(c *Client, ctx, values context.Context, resource lastword.Resource, o AcquireOptions, work bool) *attempt {
	now := c.now()
	return &attempt{
		c: c, ctx: ctx, values: values, options: o, resource: resource, work: work, began: now,
		asking: core.NewAsking(int64(o.Wait), int64(c.cfg.callTimeout(o.TTL)), now),
	}
}

func (a *attempt) run() (*Lease, error) {
	pauses := a.c.backoff(a.options.TTL)
	for {
		if err := a.ended(); err != nil {
			return nil, err
		}
		s := a.ask()
		if s.err == nil {
			return a.granted(s.base, s.tenure)
		}
		switch a.note(s) {
		case refused:
			return nil, s.err
		case notDone:
			// With a copy open there is still something to find out.
			if !a.asking.Open && a.waitLeft(a.c.now()) == 0 {
				return nil, s.err
			}
		case unclear:
		}
		if a.silent() {
			return nil, inSilence(s.err)
		}
		a.tell(s.err)
		sleep(a.ctx, pauses())
	}
}

// inSilence is errSilence with what came in place of an answer at last, as a text: an
// error of one copy must not be found inside the one of the attempt.
func inSilence(last error) error { return fmt.Errorf("%w: %s", errSilence, last.Error()) }

// silent says that an open attempt is not asked about any longer.
func (a *attempt) silent() bool { return a.asking.Open && a.c.now() >= a.asking.Asks }

// tell says once that there is no answer, and what is done about it. Who has gone is
// answered by the error.
func (a *attempt) tell(err error) {
	if a.ended() != nil {
		return
	}
	now := a.c.now()
	left := a.waitLeft(now)
	if a.asking.Open {
		left = max(time.Duration(a.asking.Asks-now), 0)
	}
	level := a.c.cfg.Logger.Debug
	if !a.told {
		a.told, level = true, a.c.cfg.Logger.Warn
	}
	level("no answer to the acquire yet; asking again with the same request id", "resource", a.resource,
		"owner", a.c.cfg.Owner, "request", a.options.RequestID, "for", left.Round(time.Millisecond), "error", err)
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

// sent is one copy of the attempt, and what came of it.
type sent struct {
	base   int64
	wait   time.Duration
	tenure lastword.Tenure
	err    error
}

// note keeps what a copy that was not granted means for the attempt.
func (a *attempt) note(s sent) answer {
	means := answerOf(s.err)
	if means == unclear {
		call := a.c.cfg.callTimeout(a.options.TTL)
		a.asking = a.asking.Unanswered(s.base, int64(s.wait), int64(call), int64(a.options.TTL), a.c.cfg.bound())
	}
	return means
}

// ask sends one copy. While that is queued at the authority, others that do not queue
// look now and then whether it has been granted: its answer may have got lost without
// a sign, and the tenure would be over at the end of the wait. Copies of one request
// id are one request there (R2): none takes the place of another, or passes anybody.
func (a *attempt) ask() sent {
	wait := a.waitLeft(a.c.now())
	if wait == 0 {
		return a.send(a.ctx, 0)
	}
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	queued := a.sending(ctx, wait)
	var look <-chan sent // nil while there is none
	again := time.NewTimer(a.lookPause())
	defer again.Stop()
	for {
		select {
		case s := <-queued:
			return a.settle(s, look)
		case s := <-look:
			if s.err == nil || tenureGone(s.err) {
				return s // and the one that is queued is about the same tenure
			}
			a.note(s) // HELD, above all
			look = nil
			again.Reset(a.lookPause())
		case <-again.C:
			if a.waitLeft(a.c.now()) > 0 {
				look = a.sending(ctx, 0)
			}
		}
	}
}

// settle is the answer to the copy that was queued, or a grant that came to the one
// which looks, if that is under way: a copy must not be left open for nothing.
func (a *attempt) settle(queued sent, look <-chan sent) sent {
	if queued.err == nil || look == nil {
		return queued
	}
	s := <-look
	if s.err == nil {
		return s
	}
	a.note(s)
	return queued
}

func (a *attempt) lookPause() time.Duration {
	return a.c.cfg.pause(time.Duration(core.AskingLook(int64(a.options.TTL))))
}

// sending sends a copy beside everything else. Close waits for it.
func (a *attempt) sending(ctx context.Context, wait time.Duration) <-chan sent {
	done := make(chan sent, 1)
	a.c.running.Add(1)
	go func() {
		defer a.c.running.Done()
		s := sent{base: a.c.now(), wait: wait, err: errNoReturn}
		defer func() {
			if p := recover(); p != nil {
				s.err = fmt.Errorf("the authority panicked: %v", p)
			}
			done <- s
		}()
		s = a.send(ctx, wait)
	}()
	return done
}

func (a *attempt) send(ctx context.Context, wait time.Duration) sent {
	s := sent{base: a.c.now(), wait: wait}
	s.err = bounded(ctx, wait+a.c.cfg.callTimeout(a.options.TTL), func(ctx context.Context) (err error) {
		s.tenure, err = a.c.authority.Acquire(ctx, lastword.AcquireRequest{
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
	return s
}

// waitLeft is what is left of the wait. At 0 an open attempt still asks, to find
// out what became of it.
func (a *attempt) waitLeft(now int64) time.Duration {
	return max(a.options.Wait-time.Duration(now-a.began), 0)
}

// granted makes a lease of a grant, confirmed by a renewal where it has to be.
func (a *attempt) granted(base int64, t lastword.Tenure) (*Lease, error) {
	now := a.c.now()
	a.asking = a.asking.Granted(int64(a.c.cfg.callTimeout(t.TTL)), int64(t.TTL), now, a.c.cfg.bound())
	if err := a.check(t); err != nil {
		return nil, err
	}
	trust := a.trust(base, t, now)
	if trust.State == lastword.HolderRequested && t.Waited {
		if base, repeated, ok := a.repeat(t); ok {
			trust = a.trust(base, repeated, a.c.now())
		}
	}
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
		return nil, errClosing
	}
	l.begin()
	return l, nil
}

func (a *attempt) trust(base int64, t lastword.Tenure, now int64) core.Trust {
	return core.NewTrust(core.TrustGrant{
		Base:      base,
		TTL:       int64(t.TTL),
		Remaining: int64(t.Remaining),
		Waited:    t.Waited,
		Bound:     a.c.cfg.bound(),
		Call:      int64(a.c.cfg.CallTimeout),
		MaxHold:   int64(a.options.MaxHold),
		Early:     int64(a.c.cfg.Jitter() * 1000),
	}, now)
}

// repeat sends the acquire of a grant that waited once more, now that it is granted.
// The answer says what was left when this new message had been processed (R25), and
// costs the authority no write, as a renewal would. Where it says anything else than
// that the tenure is valid, the renewal is left to find out.
func (a *attempt) repeat(granted lastword.Tenure) (base int64, t lastword.Tenure, ok bool) {
	s := a.send(a.ctx, 0)
	if s.err != nil {
		a.note(s)
		return 0, t, false
	}
	same := s.tenure.TenureRef == granted.TenureRef && s.tenure.GrantDigest == granted.GrantDigest && s.tenure.TTL == granted.TTL
	return s.base, s.tenure, same && !s.tenure.Waited
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
	return a.error(lastword.CodeInternal, "the authority's answer can not be used: "+wrong, "", nil)
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
	if trust.State != lastword.HolderRequested {
		return trust, nil
	}
	if err == nil {
		err = errors.New("the answer leaves nothing to trust")
	}
	a.asking = a.asking.Unanswered(trust.Sent, 0, trust.Call, trust.TTL, a.c.cfg.bound())
	if a.silent() {
		return trust, inSilence(err)
	}
	a.tell(err)
	return trust, nil
}
