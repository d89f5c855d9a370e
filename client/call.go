package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

var errNoReturn = errors.New("the call did not return")

// begunCall is a call about a lease that has begun: its context ends with its
// time-out, and when trust does.
type begunCall struct {
	ctx     context.Context //nolint:containedctx // lives as long as the call
	cancel  context.CancelFunc
	began   int64
	timeout int64
	renews  bool
	end     *context.CancelFunc // where its lease keeps cancel
}

// callLocked begins what is due, as far as there is room, each beside everything else.
func (l *Lease) callLocked(now int64) {
	for !l.queued && (l.trust.RenewalDue(now) || l.trust.QueryDue(now)) {
		if !l.c.calls.enterLocked(l) {
			l.queued = true
			return
		}
		go l.c.calls.run(l.nextLocked(now))
	}
}

// called is the call that l has waited for, nil if it is not due any more.
func (l *Lease) called() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = false
	now := l.c.now()
	l.changeLocked(l.trust.At(now), now, nil)
	call := l.nextLocked(now)
	l.callLocked(now)
	l.planLocked()
	l.settleLocked()
	return call
}

// nextLocked is the call that is due, which counts as sent from here on.
func (l *Lease) nextLocked(now int64) func() {
	switch {
	case l.trust.RenewalDue(now):
		l.changeLocked(l.trust.Ask(now), now, nil)
		c := l.beginLocked(&l.renewing, now)
		c.renews = true
		return func() { l.renew(c) }
	case l.trust.QueryDue(now):
		l.changeLocked(l.trust.Question(now), now, nil)
		c := l.beginLocked(&l.asking, now)
		return func() { l.question(c) }
	}
	return nil
}

func (l *Lease) beginLocked(end *context.CancelFunc, now int64) *begunCall {
	l.calls++
	c := &begunCall{began: now, timeout: l.trust.Call, end: end}
	c.ctx, c.cancel = context.WithTimeout(context.Background(), time.Duration(c.timeout))
	*end = c.cancel
	return c
}

// perform makes the call. land takes the answer, whatever becomes of the call: a panic of
// the authority counts as no answer, for one lease must not end with the trouble of
// another.
func (l *Lease) perform(c *begunCall, call func(ctx context.Context) error, land func(error)) {
	err := errNoReturn
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the authority panicked: %v", p)
		}
		l.c.calls.learn(c, err)
		c.cancel()
		land(err)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls--
		*c.end = nil // one call of a kind at a time
		l.settleLocked()
	}()
	err = call(c.ctx)
}

func (l *Lease) renew(c *begunCall) {
	var t lastword.Tenure
	l.perform(c, func(ctx context.Context) (err error) {
		t, err = l.renewal(ctx)
		return err
	}, func(err error) {
		if err == nil || answerOf(err) == refused || !l.isOver() {
			l.c.answered(l.values, OpRenew, l, l.tenure.Resource, c.began, err)
		}
		l.stepWith(err, func(trust core.Trust, now int64) core.Trust {
			return takeRenewal(l.c, trust, l.tenure.TenureRef, t, err, now)
		})
	})
}

func (l *Lease) question(c *begunCall) {
	var st lastword.Status
	l.perform(c, func(ctx context.Context) (err error) {
		ref := l.tenure.TenureRef
		st, err = l.c.authority.Status(ctx, lastword.StatusQuery{
			Resource: ref.Resource, LeaseID: ref.LeaseID, Owner: ref.Owner, RequestID: ref.RequestID,
		})
		return err
	}, func(err error) {
		pause := l.c.retryPause(l.tenure.TTL)
		l.step(func(trust core.Trust, now int64) core.Trust {
			if err != nil {
				// Also a refusal of the question is no answer about the tenure.
				return trust.Untold(pause, now)
			}
			return trust.Told(l.tenure.TenureRef, st, pause, now)
		})
	})
}

// renewOnce sends one renewal and takes its answer. The error is why there was no
// clear success.
func renewOnce(ctx context.Context, c *Client, trust core.Trust, ref lastword.TenureRef) (core.Trust, error) {
	trust = trust.Ask(c.now())
	var t lastword.Tenure
	err := bounded(ctx, time.Duration(trust.Call), func(ctx context.Context) (err error) {
		t, err = c.authority.Renew(ctx, ref)
		return err
	})
	return takeRenewal(c, trust, ref, t, err, c.now()), err
}

// takeRenewal tells the rules what came of a renewal. Only a refusal of the
// tenure itself is definite (R26). An answer about another tenure is none.
func takeRenewal(c *Client, trust core.Trust, ref lastword.TenureRef, t lastword.Tenure, err error, now int64) core.Trust {
	switch {
	case err == nil && t.TTL <= maxSpan && t.LeaseID == ref.LeaseID && t.Fence == ref.Fence:
		return trust.Renewed(int64(t.TTL), int64(t.Remaining), now)
	case tenureGone(err):
		return trust.Ended(howGone(err, ref), now)
	default:
		return trust.Unclear(c.retryPause(time.Duration(trust.TTL)), now)
	}
}

// retryPause is the pause after a renewal or question of this TTL without a clear
// answer.
func (c *Client) retryPause(ttl time.Duration) int64 {
	return int64(c.cfg.pause(time.Duration(core.TrustRetry(int64(ttl)))))
}
