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

// callLocked makes a call about the lease beside everything else: a renewal or a
// question. It ends with its time-out, and when trust does. land takes the answer,
// whatever becomes of the call: a panic of the authority counts as no answer, for
// one lease must not end with the trouble of another.
func (l *Lease) callLocked(timeout int64, call func(ctx context.Context) error, land func(error)) {
	l.calls++
	go func() {
		err := errNoReturn
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the authority panicked: %v", p)
			}
			land(err)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls--
			l.settleLocked()
		}()
		err = bounded(l.over, time.Duration(timeout), call)
	}()
}

func (l *Lease) renewLocked() {
	var t lastword.Tenure
	began := l.trust.Sent
	l.callLocked(l.trust.Call, func(ctx context.Context) (err error) {
		t, err = l.renewal(ctx)
		return err
	}, func(err error) {
		if l.over.Err() == nil || err == nil || answerOf(err) == refused {
			l.c.answered(l.ctx, OpRenew, l, l.tenure.Resource, began, err)
		}
		l.stepWith(err, func(trust core.Trust, now int64) core.Trust {
			return takeRenewal(l.c, trust, l.tenure.TenureRef, t, err, now)
		})
	})
}

func (l *Lease) questionLocked() {
	var st lastword.Status
	l.callLocked(l.trust.Call, func(ctx context.Context) (err error) {
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
