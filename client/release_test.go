package client_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func TestReleaseStopsAdmittingThenEndsTheContextThenTells(t *testing.T) { // R28, R6
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(only("release", 1, fault{delay: time.Second}))
		early := make(chan bool, 1)
		context.AfterFunc(l.Context(), func() { early <- w.held(doc) == l.Fence() && !l.State().Admits() })
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !<-early {
			t.Error("the context must end after admission and before the authority knows")
		}
		wantState(t, l, lastword.HolderReleased)
		wantEnd(t, l, client.ErrReleased)
		_, _, err := l.Sequence(t.Context(), "r")
		wantIs(t, err, lastword.ErrNotHolder, client.ErrReleased)
		if err := errors.Join(l.Release(t.Context()), l.Close()); err != nil {
			t.Errorf("repeated: %v", err)
		}
		if n := w.count("release"); n != 1 {
			t.Errorf("%d releases were sent, want 1", n)
		}
		time.Sleep(time.Minute)
		if n := w.count("renew"); n != 0 {
			t.Errorf("%d renewals after the release", n)
		}
	})
}

func TestReleaseWithoutAReplyIsRepeated(t *testing.T) { // R6
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(only("release", 2, fault{loseReply: true}))
		if err := l.Release(l.Context()); err != nil { // its own context ends first
			t.Error(err)
		}
		if n := w.count("release"); n != 3 {
			t.Errorf("%d releases, want 3", n)
		}
	})
}

func TestReleaseThatNobodyAnswersIsUnknownUntilTheDeadlineMakesItMoot(t *testing.T) { // R6, P5
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(outage)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantIs(t, l.Release(ctx), lastword.ErrUnknownOutcome)
		wantState(t, l, lastword.HolderReleased)
		wantIs(t, l.Release(t.Context()), lastword.ErrUnknownOutcome)
		if got := time.Since(start); got != ttl-margin {
			t.Errorf("gave up after %s, want at the local deadline", got)
		}
	})
}

func TestReleaseWithAContextThatHasEndedLeavesTheLeaseToLapse(t *testing.T) { // R28
	inBubble(t, func(t *testing.T, w *world) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
			err := l.Release(ended)
			wantIs(t, err, lastword.ErrUnavailable, context.Canceled)
			wantNot(t, err, lastword.ErrUnknownOutcome)
			wantState(t, l, lastword.HolderReleased)
			if w.count("release") != 0 || w.held(doc) != l.Fence() {
				t.Fatal("a release was sent")
			}
			time.Sleep(ttl)
		}
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(only("release", 9, fault{loseReply: true}))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantIs(t, l.Release(short), lastword.ErrUnknownOutcome)
		wantIs(t, l.Release(ended), lastword.ErrUnknownOutcome) // one was sent before
	})
}

func TestReleaseOfAnExpiredLeaseIsMoot(t *testing.T) { // R6
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(outage)
		wantEnd(t, l, client.ErrExpired)
		wantIs(t, l.Release(t.Context()), lastword.ErrNotHolder, client.ErrExpired)
		wantState(t, l, lastword.HolderExpired)
		if n := w.count("release"); n != 0 {
			t.Errorf("%d releases", n)
		}
	})
}

func TestReleaseWhileARenewalIsUnderWay(t *testing.T) { // R6, KF-15
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(only("renew", 1, fault{delay: 2 * time.Second}))
		time.Sleep(11 * time.Second)
		wantState(t, l, lastword.HolderRenewing)
		start := time.Now()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("waited %s for the renewal's answer", got)
		}
		time.Sleep(5 * time.Second) // the renewal arrives
		wantState(t, l, lastword.HolderReleased)
		if f := w.held(doc); f != 0 {
			t.Errorf("fence %s is held", f)
		}
	})
}

func TestCompleteIsIdempotentAndOnlyWhileAdmitted(t *testing.T) { // R6b
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(only("complete", 1, fault{loseReply: true}))
		for range 2 {
			if err := l.Complete(t.Context(), []byte("done")); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.count("complete"); n != 2 {
			t.Errorf("%d messages, want the lost one and its repetition", n)
		}
		wantIs(t, l.Complete(t.Context(), []byte("other")), lastword.ErrRequestConflict)
		wantIs(t, l.Complete(t.Context(), bytes.Repeat([]byte("x"), lastword.MaxResultBytes+1)), lastword.ErrInvalid)
		wantState(t, l, lastword.HolderHeld)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Complete(t.Context(), []byte("done")); err != nil {
			t.Errorf("the same result after the release: %v", err)
		}

		late := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.revoke(doc)
		wantIs(t, late.Complete(t.Context(), nil), lastword.ErrNotHolder)
		wantEnd(t, late, client.ErrRefused)
		n := w.count("complete")
		wantIs(t, late.Complete(t.Context(), nil), lastword.ErrNotHolder, client.ErrRefused)
		if w.count("complete") != n {
			t.Error("a completion of an expired lease was sent")
		}
	})
}

func TestCompleteWithoutAnAnswerIsUnknown(t *testing.T) { // R6b, P5
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		lost := only("complete", 1, fault{loseReply: true})
		w.suffer(func(op string) fault {
			if x := lost(op); x != (fault{}) || op != "complete" {
				return x
			}
			return fault{err: &lastword.Error{Code: lastword.CodeUnavailable}}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		err := l.Complete(ctx, nil)
		wantIs(t, err, lastword.ErrUnknownOutcome)
		wantNot(t, err, lastword.ErrUnavailable, client.ErrOwnershipUnknown)
	})
}

func TestFenceAndGrantNeedNoCall(t *testing.T) { // R29
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{Owner: "a"}), client.AcquireOptions{RequestID: "R1"})
		n := len(w.calls)
		var h lastword.Holder = l
		if l.Fence() != 1 || h.Grant() != "grant of doc/1 1" || l.GrantDigest().IsZero() || l.Resource() != doc || l.TTL() != ttl {
			t.Errorf("got %s %q %s %s", l.Fence(), l.Grant(), l.GrantDigest(), l.Resource())
		}
		want := lastword.TenureRef{Resource: doc, Owner: "a", RequestID: "R1", LeaseID: "lease-1", Fence: 1}
		if l.Ref() != want {
			t.Errorf("got %+v, want %+v", l.Ref(), want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l.Fence() != 1 || len(w.calls) != n+1 {
			t.Errorf("fence %s, calls %v", l.Fence(), w.calls)
		}
	})
}

func TestASequenceIsLentToOneWriteAtATimePerRecord(t *testing.T) { // §1 seq
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		seq, release, err := l.Sequence(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, other, err := l.Sequence(t.Context(), "b"); err != nil {
			t.Errorf("another record: %v", err)
		} else {
			other()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = l.Sequence(ctx, "a")
		wantIs(t, err, context.DeadlineExceeded, lastword.ErrUnavailable)

		got := make(chan uint64)
		go func() {
			next, release, err := l.Sequence(t.Context(), "a")
			if err != nil {
				t.Error(err)
				close(got)
				return
			}
			defer release()
			got <- next.Last
		}()
		synctest.Wait()
		seq.Last = 7
		release()
		release() // once is enough, twice does no harm
		if n := <-got; n != 7 {
			t.Errorf("the next write sees %d, want 7", n)
		}
	})
}

func TestAWaitForASequenceEndsWithTheLease(t *testing.T) { // R26
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		_, release, err := l.Sequence(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		w.suffer(outage)
		failed := make(chan error)
		go func() {
			_, _, err := l.Sequence(context.Background(), "a")
			failed <- err
		}()
		wantIs(t, <-failed, lastword.ErrNotHolder, client.ErrExpired)
	})
}

func TestAWaitForASequenceThatEndsInUnknownLendsNothing(t *testing.T) { // R26
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		_, release, err := l.Sequence(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		w.suffer(outage)
		failed := make(chan error)
		go func() {
			_, _, err := l.Sequence(context.Background(), "a")
			failed <- err
		}()
		time.Sleep(16 * time.Second)
		release()
		wantIs(t, <-failed, client.ErrOwnershipUnknown)
		w.suffer(nil)
		time.Sleep(5 * time.Second)
		if _, release, err := l.Sequence(t.Context(), "a"); err != nil {
			t.Errorf("after the recovery: %v", err)
		} else {
			release()
		}
	})
}
