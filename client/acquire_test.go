package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func TestHeldIsToldAtOnceWithTheHolder(t *testing.T) { // R3
	inBubble(t, func(t *testing.T, w *world) {
		a := w.client(client.Config{Owner: "a"})
		w.lease(a, client.AcquireOptions{})
		time.Sleep(time.Second)
		start := time.Now()
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
		wantIs(t, err, lastword.ErrHeld)
		wantNot(t, err, lastword.ErrUnknownOutcome)
		var e *lastword.Error
		if !errors.As(err, &e) || e.Holder != "a" || e.Fence != 1 || e.Remaining != 29*time.Second {
			t.Errorf("got %+v", e)
		}
		if time.Since(start) != 0 || w.count("cancel") != 0 {
			t.Errorf("took %s and %d cancels", time.Since(start), w.count("cancel"))
		}
	})
}

func TestALostReplyIsAskedForWithTheSameRequestID(t *testing.T) { // R2, R27, KF-02(a)
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(only("acquire", 1, fault{loseReply: true}))
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{RequestID: "R1"})
		if l.Fence() != 1 || l.Ref().RequestID != "R1" || w.count("acquire") != 2 {
			t.Errorf("fence %s, %+v, %d acquires", l.Fence(), l.Ref(), w.count("acquire"))
		}
		wantState(t, l, lastword.HolderHeld)
	})
}

func TestAGivenUpAcquireIsCancelled(t *testing.T) { // R6a, R27, KF-02(b)
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(only("acquire", 9, fault{delayReply: 5 * time.Second}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := w.client(client.Config{}).Acquire(ctx, doc, client.AcquireOptions{RequestID: "R1"})
		if l != nil {
			t.Fatal("a lease after the context had ended")
		}
		wantIs(t, err, lastword.ErrCanceled, context.DeadlineExceeded)
		wantNot(t, err, lastword.ErrUnknownOutcome)
		w.suffer(nil)
		b := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		if b.Fence() != 2 {
			t.Errorf("the next fence is %s, want 2", b.Fence())
		}
		time.Sleep(6 * time.Second) // the late replies arrive (KF-02(d))
		if n := w.count("renew"); n != 0 {
			t.Errorf("%d renewals after 6 s: nothing but b's lease may be kept", n)
		}
	})
}

func TestALateGrantIsDropped(t *testing.T) { // R27, KF-02(d)
	inBubble(t, func(t *testing.T, w *world) {
		// The transport does not notice the end of the context and hands the grant
		// to a caller who has given up.
		w.suffer(only("acquire", 1, fault{delayReply: 5 * time.Second, deaf: true}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := w.client(client.Config{}).Acquire(ctx, doc, client.AcquireOptions{})
		if l != nil {
			t.Fatalf("got a lease in state %s", l.State())
		}
		wantIs(t, err, lastword.ErrCanceled)
		if f := w.held(doc); f != 0 {
			t.Errorf("fence %s is left at the authority", f)
		}
		time.Sleep(time.Minute)
		if n := w.count("renew"); n != 0 {
			t.Errorf("%d renewals", n)
		}
	})
}

func TestAnAttemptThatCanNotBeCancelledIsUnknown(t *testing.T) { // R27, P5
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(outage)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := w.client(client.Config{}).Acquire(ctx, doc, client.AcquireOptions{RequestID: "R1", Wait: time.Minute})
		wantIs(t, err, lastword.ErrUnknownOutcome, context.DeadlineExceeded)
		wantNot(t, err, lastword.ErrCanceled, lastword.ErrUnavailable)
		if got := time.Since(start); got != 12*time.Second {
			t.Errorf("took %s, want 2 s and the clean-up's 10", got)
		}
		var open *client.OpenAttempt
		if !errors.As(err, &open) || open.RequestID != "R1" || open.Within != 48*time.Second+ttl/6+ttl+margin {
			t.Errorf("got %+v", open)
		}
	})
}

func TestHeldAfterALostCopyCancelsTheCopy(t *testing.T) { // R27
	inBubble(t, func(t *testing.T, w *world) {
		a := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		// The first copy is still on its way when the second one is refused.
		w.suffer(only("acquire", 1, fault{delay: 20 * time.Second}))
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
		wantIs(t, err, lastword.ErrHeld)
		if err := a.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if f := w.held(doc); f != 0 || w.fences[doc] != 1 {
			t.Errorf("the late copy was granted: held %s, last fence %s", f, w.fences[doc])
		}
	})
}

func TestHeldWithAnOpenCopyThatCanNotBeCancelledIsNotHeld(t *testing.T) { // R27, P5
	inBubble(t, func(t *testing.T, w *world) {
		w.lease(w.client(client.Config{}), client.AcquireOptions{})
		first := only("acquire", 1, fault{loseRequest: true})
		w.suffer(func(op string) fault {
			if op == "cancel" {
				return fault{loseRequest: true}
			}
			return first(op)
		})
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
		wantIs(t, err, lastword.ErrUnknownOutcome)
		wantNot(t, err, lastword.ErrHeld)
	})
}

func TestAWaitSurvivesATransportThatBreaks(t *testing.T) { // R3, R27
	inBubble(t, func(t *testing.T, w *world) {
		a := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		broken := &lastword.Error{Code: lastword.CodeUnknown, Message: "connection reset"}
		down := &lastword.Error{Code: lastword.CodeUnavailable, Message: "connection refused"}
		n := 0
		w.suffer(func(op string) fault {
			if op != "acquire" {
				return fault{}
			}
			n++
			return map[int]fault{1: {err: broken}, 2: {err: down}, 3: {err: down}}[n]
		})
		go func() {
			time.Sleep(50 * time.Second)
			_ = a.Close()
		}()
		start := time.Now()
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{Wait: time.Minute, RequestID: "R1"})
		if got := time.Since(start); got != 50*time.Second || l.Fence() != 2 || w.queued != 4 {
			t.Errorf("fence %s after %s and %d messages", l.Fence(), got, w.queued)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		// Nobody releases: the whole wait, not more, is spent.
		w.lease(w.client(client.Config{}), client.AcquireOptions{})
		n, start = 0, time.Now()
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{Wait: time.Minute})
		wantIs(t, err, lastword.ErrHeld)
		if got := time.Since(start); got != time.Minute {
			t.Errorf("waited %s", got)
		}
	})
}

func TestUnavailableWithNothingOpenIsToldAtOnce(t *testing.T) { // P5
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(func(string) fault { return fault{err: &lastword.Error{Code: lastword.CodeUnavailable}} })
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
		wantIs(t, err, lastword.ErrUnavailable)
		wantNot(t, err, lastword.ErrUnknownOutcome)
		if w.count("acquire") != 1 || w.count("cancel") != 0 {
			t.Errorf("calls: %v", w.calls)
		}
	})
}

func TestARequestIDWhoseTenureEndedGivesNoLease(t *testing.T) { // R2
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		l := w.lease(c, client.AcquireOptions{RequestID: "R1"})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := c.Acquire(t.Context(), doc, client.AcquireOptions{RequestID: "R1"})
		if again != nil {
			t.Fatal("a lease of an ended tenure")
		}
		wantIs(t, err, lastword.ErrTenureEnded)
	})
}

func TestTheAcquiresContextBoundsTheAcquireOnly(t *testing.T) { // KF-13 (1, 2)
	inBubble(t, func(t *testing.T, w *world) {
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "trace"), 2*time.Second)
		l, err := w.client(client.Config{}).Acquire(ctx, doc, client.AcquireOptions{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		wantState(t, l, lastword.HolderHeld)
		if l.Context().Err() != nil || l.Context().Value(key{}) != "trace" {
			t.Errorf("context: %v, value %v", l.Context().Err(), l.Context().Value(key{}))
		}
		if _, ok := l.Context().Deadline(); ok {
			t.Error("the lease's context has the acquire's deadline")
		}
	})
}

func TestCancellingAsTheGrantArrivesLeavesALeaseOrAnError(t *testing.T) { // KF-13 (3)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	got := map[bool]int{}
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		for i := range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			// Half of the rounds cancel as the authority has granted, the others
			// race with the reply.
			w.onServer = nil
			if i%2 == 0 {
				w.onServer = func(op string) {
					if op == "acquire" {
						cancel()
					}
				}
			} else {
				spin := r.IntN(3)
				w.suffer(only("acquire", 1, fault{delayReply: time.Millisecond}))
				time.AfterFunc(time.Duration(spin)*time.Millisecond, cancel)
			}
			l, err := c.Acquire(ctx, doc, client.AcquireOptions{})
			got[err == nil]++
			switch {
			case (err == nil) != (l != nil):
				t.Fatalf("seed %d, round %d: lease %v, error %v", seed, i, l, err)
			case err != nil && w.held(doc) != 0:
				t.Fatalf("seed %d, round %d: an error (%v), and a lease is left", seed, i, err)
			case err == nil && (w.held(doc) != l.Fence() || l.State() != lastword.HolderHeld || l.Context().Err() != nil):
				t.Fatalf("seed %d, round %d: the lease is not live", seed, i)
			case err == nil:
				if err := l.Close(); err != nil {
					t.Fatalf("seed %d, round %d: %v", seed, i, err)
				}
			}
			synctest.Wait()
			cancel()
		}
	})
	if got[true] < 100 || got[false] < 100 {
		t.Errorf("seed %d: %d leases and %d errors; both sides of the race must be seen", seed, got[true], got[false])
	}
}

func TestAContextOfALostLeaseDoesNotSpeakForANewAttempt(t *testing.T) { // R27
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		first := w.lease(c, client.AcquireOptions{})
		w.suffer(func(op string) fault {
			if op == "acquire" {
				return fault{loseReply: true}
			}
			return fault{}
		})
		closed := make(chan error, 1)
		time.AfterFunc(time.Second, func() { closed <- first.Close() })
		_, err := c.Acquire(first.Context(), "doc/2", client.AcquireOptions{})
		wantIs(t, err, lastword.ErrCanceled)
		wantNot(t, err, lastword.ErrNotHolder)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if f := w.held("doc/2"); f != 0 {
			t.Errorf("fence %s is left", f)
		}
	})
}

func TestAnAnswerThatIsNoLeaseIsCancelled(t *testing.T) { // R25
	inBubble(t, func(t *testing.T, w *world) {
		w.ttl = 30 * time.Millisecond // less than three margins
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
		wantIs(t, err, lastword.ErrInternal)
		if f := w.held(doc); f != 0 {
			t.Errorf("fence %s is left", f)
		}
	})
}
