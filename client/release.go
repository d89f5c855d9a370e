package client

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Release gives the lease up: no new effect is admitted, then the lease's context
// ends with [ErrReleased], renewals stop, and the authority is told, again and
// again within ctx while it does not answer. Repeated, it gives the same answer.
//
// While work under [Client.Run] is under way only the context ends; the lease is
// renewed, and admits the work's last writes, until the work has returned (R28).
// If ctx or [Config.DrainTimeout] ends before that, trust ends, no release is sent,
// the lease is left to lapse, and the error is [lastword.ErrUnavailable] and
// [ErrOverrun]. The work itself must not wait for its own end: called with a context
// of the lease from there, Release is [lastword.ErrInvalid].
//
// nil means that the authority confirmed. [lastword.ErrNotHolder]: the tenure had
// ended otherwise; an EXPIRED lease stays EXPIRED and nothing is sent, except that a
// lease which reached its longest hold ([ErrMaxHold]) is given back early.
// [lastword.ErrUnknownOutcome]: there was no answer; the lease lapses by itself,
// and Release may be called again. With a ctx that has ended nothing is sent: trust
// ends, the lease is left to lapse, and the error is [lastword.ErrUnavailable].
func (l *Lease) Release(ctx context.Context) error {
	if ctx.Value(leaseKey{l}) != nil {
		if l.working() {
			return invalid("release", l.tenure.Resource, "the work under Run is not over: return from it, and Run releases")
		}
		// The lease's own context ends with the lease, before the call is sent.
		var cancel context.CancelFunc
		ctx, cancel = l.c.cleanup(ctx)
		defer cancel()
	}
	if err := l.drain(ctx); err != nil {
		return err
	}
	return l.release(ctx)
}

// Close is Release within [Config.CleanupTimeout]. While work under [Client.Run]
// is under way it ends the context and does not wait: Run releases when the work
// has returned, and the error is [lastword.ErrUnavailable].
func (l *Lease) Close() error {
	if l.working() && !l.step(core.Trust.At).Final() {
		l.giveUp()
		return l.notReleased("the work under Run is not over; Run releases when it returns", nil)
	}
	ctx, cancel := l.c.cleanup(context.Background())
	defer cancel()
	return l.release(ctx)
}

// drainAndClose is Close that waits for the work.
func (l *Lease) drainAndClose() error {
	if err := l.drain(context.Background()); err != nil {
		return err
	}
	return l.Close()
}

// drain tells the work under Run to stop and waits for it. The error says that it
// did not stop in time.
func (l *Lease) drain(ctx context.Context) error {
	if !l.working() || l.step(core.Trust.At).Final() {
		return nil
	}
	l.giveUp()
	select {
	case <-l.work:
	case <-l.whenOver():
	case <-ctx.Done():
		l.step(core.Trust.Overrun)
	}
	if l.step(core.Trust.At).End != core.TrustOverrun {
		return nil
	}
	return l.notReleased("the work under Run did not stop in time", errors.Join(ErrOverrun, ctx.Err()))
}

// giveUp ends the context of the work under Run; the lease is kept while it stops.
func (l *Lease) giveUp() {
	cause := endError(core.TrustReleased, l.tenure.Resource)
	l.mu.Lock()
	l.leaveLocked(cause)
	l.mu.Unlock()
	l.stop(cause)
}

// stop begins the time that the work under Run has to stop, once.
func (l *Lease) stop(cause error) {
	l.step(func(t core.Trust, now int64) core.Trust {
		if t = t.At(now); t.Final() || l.stopping || !l.working() {
			return t
		}
		l.stopping = true
		l.noteLocked(Event{At: time.Duration(now), From: t.State, To: t.State, Stopping: true, Cause: cause})
		return t.Stop(int64(l.c.cfg.DrainTimeout), now)
	})
}

// release is what follows once no work is under way.
func (l *Lease) release(ctx context.Context) error {
	trust := l.step(core.Trust.Released)
	if trust.State == lastword.HolderReleased {
		return l.sendRelease(ctx)
	}
	if trust.End == core.TrustMaxHold {
		l.giveBack(ctx, trust)
	}
	return &lastword.Error{Code: lastword.CodeNotHolder, Op: "release", Resource: l.tenure.Resource, Err: l.why(), Message: "the lease had ended"}
}

// giveBack tells the authority, as well as it can, that a lease which reached its
// longest hold is not in use any more. Not earlier: the work may have gone on.
func (l *Lease) giveBack(ctx context.Context, trust core.Trust) {
	if l.c.now() >= trust.Until {
		return
	}
	if err := l.sendRelease(ctx); err != nil {
		l.c.cfg.Logger.Debug("no release after the longest hold; the lease lapses by itself", "resource", l.tenure.Resource, "error", err)
	}
}

func (l *Lease) working() bool {
	if l.work == nil {
		return false
	}
	select {
	case <-l.work:
		return false
	default:
		return true
	}
}

// releaseTurn holds one token; who has it may send the release.
func (l *Lease) releaseTurn() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.releasing == nil {
		l.releasing = make(chan struct{}, 1)
	}
	return l.releasing
}

func (l *Lease) sendRelease(ctx context.Context) (sent error) {
	turn := l.releaseTurn()
	select {
	case turn <- struct{}{}:
	default:
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return l.unknown("release", ctx.Err()) // another call is sending it
		}
	}
	defer func() { <-turn }()
	switch err := ctx.Err(); {
	case l.answered:
		return l.answer
	case err != nil && l.sent:
		return l.unknown("release", err)
	case err != nil:
		return l.notReleased("nothing was sent; the lease lapses by itself", err)
	}
	l.sent = true
	if l.c.reporter != nil {
		began, caller := l.c.now(), ctx
		defer func() { l.c.answered(caller, OpRelease, l, l.tenure.Resource, began, sent) }()
	}
	// Past the deadline the tenure is over whether the release arrives or not.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.step(core.Trust.At).Until-l.c.now()))
	defer cancel()
	err := l.c.retry(ctx, "release", l.tenure.Resource, l.tenure.TTL, l.callTimeout(), func(ctx context.Context) error {
		return l.c.authority.Release(ctx, l.tenure.TenureRef)
	})
	if err != nil && answerOf(err) != refused {
		return l.open("release", err)
	}
	l.answered, l.answer = true, err
	return err
}

// callTimeout bounds calls that are not renewals. They are not in a hurry: a
// short TTL must not make them fail on a slow line, and a long one must not use up
// the time of the clean-up with one try.
func (l *Lease) callTimeout() time.Duration {
	return min(max(l.c.cfg.callTimeout(l.tenure.TTL), time.Second), l.c.cfg.CleanupTimeout/4)
}

// Complete stores the result of the tenure at the authority, at most
// [lastword.MaxResultBytes]. It starts only while the lease admits new effects;
// without an answer it is repeated with the same result within ctx.
//
// nil means that the result is stored. Repeated with the same result: nil again;
// with another one: [lastword.ErrRequestConflict]. [lastword.ErrNotHolder]: not
// accepted, and the lease is over. [lastword.ErrUnknownOutcome]: it may or may
// not have been stored, or [ErrOwnershipUnknown]: nothing was sent. A release is
// no completion (R6b).
func (l *Lease) Complete(ctx context.Context, result []byte) (err error) {
	if l.c.reporter != nil {
		began := l.c.now()
		defer func() { l.c.answered(ctx, OpComplete, l, l.tenure.Resource, began, err) }()
	}
	if len(result) > lastword.MaxResultBytes {
		return invalid("complete", l.tenure.Resource, "the result has %d bytes, more than %d", len(result), lastword.MaxResultBytes)
	}
	digest := lastword.DigestOf(result)
	if known := l.completion(); known != nil {
		if *known == digest {
			return nil
		}
		return &lastword.Error{Code: lastword.CodeRequestConflict, Op: "complete", Resource: l.tenure.Resource, Message: "the tenure has completed with another result"}
	}
	if err := l.refusal("complete"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: "complete", Resource: l.tenure.Resource, Message: "nothing was sent", Err: err}
	}
	result = bytes.Clone(result)
	err = l.c.retry(ctx, "complete", l.tenure.Resource, l.tenure.TTL, l.callTimeout(), func(ctx context.Context) error {
		return l.c.authority.Complete(ctx, l.tenure.TenureRef, result)
	})
	switch {
	case err == nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.completed = &digest
		return nil
	case answerOf(err) != refused:
		return l.open("complete", err)
	case tenureGone(err):
		how := howGone(err, l.tenure.TenureRef)
		l.step(func(t core.Trust, now int64) core.Trust { return t.Ended(how, now) })
	}
	return err
}

func (l *Lease) completion() *lastword.Digest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.completed
}

// open gives an error that is no refusal its type.
func (l *Lease) open(op string, err error) error {
	if isLastword(err) {
		return err
	}
	return l.unknown(op, err)
}

func (l *Lease) unknown(op string, err error) error {
	return &lastword.Error{Code: lastword.CodeUnknown, Op: op, Resource: l.tenure.Resource, Message: "no answer", Err: err}
}

func (l *Lease) notReleased(why string, err error) error {
	return &lastword.Error{Code: lastword.CodeUnavailable, Op: "release", Resource: l.tenure.Resource, Message: why, Err: err}
}
