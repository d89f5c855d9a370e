package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func TestTrustEndsWithoutAnyPacketCountedFromTheSending(t *testing.T) { // R25, R28
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(only("acquire", 1, fault{delayReply: 4 * time.Second}))
		sent := time.Now()
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		if took := time.Since(sent); took != 4*time.Second {
			t.Fatalf("the acquire took %s", took)
		}
		w.suffer(outage)
		wantState(t, l, lastword.HolderHeld)
		at := wantEnd(t, l, client.ErrExpired)
		if got, want := at.Sub(sent), ttl-margin; got != want {
			t.Errorf("trust ended after %s, want %s", got, want)
		}
		wantState(t, l, lastword.HolderExpired)
		wantIs(t, context.Cause(l.Context()), lastword.ErrNotHolder)
		if w.held(doc) == 0 {
			t.Error("trust was over later than the authority's deadline")
		}
	})
}

func TestAStoppedProcessSeesTheEndBeforeAnyTimerRuns(t *testing.T) { // R25, KF-10
	inBubble(t, func(t *testing.T, w *world) {
		var slept atomic.Int64
		start := time.Now()
		c := w.client(client.Config{Elapsed: func() time.Duration { return time.Since(start) + time.Duration(slept.Load()) }})
		l := w.lease(c, client.AcquireOptions{})
		slept.Store(int64(ttl)) // a suspend: the clock went on, no timer fired
		if _, _, err := l.Sequence(t.Context(), "memory:here/doc/1"); err == nil {
			t.Error("a number was lent after the suspend")
		} else {
			wantIs(t, err, lastword.ErrNotHolder, client.ErrExpired)
		}
		wantState(t, l, lastword.HolderExpired)
		wantIs(t, context.Cause(l.Context()), client.ErrExpired)
		synctest.Wait()
		if n := w.count("renew"); n != 0 {
			t.Errorf("%d renewals of an expired lease", n)
		}
	})
}

func TestTheClockIsComparedOftenerThanTheTimersSay(t *testing.T) { // R25
	for name, before := range map[string]time.Duration{
		"between renewals":                0,
		"while a renewal does not return": 17 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.suffer(only("renew", 9, fault{delay: time.Hour, deaf: true}))
				var slept atomic.Int64
				start := time.Now()
				c := w.client(client.Config{Elapsed: func() time.Duration { return time.Since(start) + time.Duration(slept.Load()) }})
				l := w.lease(c, client.AcquireOptions{})
				time.Sleep(before)
				synctest.Wait() // the timers are set
				slept.Store(int64(ttl))
				if late := wantEnd(t, l, client.ErrExpired).Sub(start) - before; late > ttl/6 {
					t.Errorf("nobody looked at the clock for %s after the suspend", late)
				}
			})
		})
	}
}

func TestALeaseOutlivesASuspendThatIsShorterThanItsTrust(t *testing.T) { // R25
	inBubble(t, func(t *testing.T, w *world) {
		var slept atomic.Int64
		start := time.Now()
		c := w.client(client.Config{Elapsed: func() time.Duration { return time.Since(start) + time.Duration(slept.Load()) }})
		l := w.lease(c, client.AcquireOptions{})
		synctest.Wait() // the timers are set
		slept.Store(int64(20 * time.Second))
		time.Sleep(ttl - time.Second)
		synctest.Wait()
		wantState(t, l, lastword.HolderHeld)
	})
}

// afterAWait is a lease that b waited for, of which a's release was the moment. From
// then on the way there suffers.
func (w *world) afterAWait(t *testing.T, faults func(op string) fault) *client.Lease {
	a := w.lease(w.client(client.Config{}), client.AcquireOptions{})
	b := w.client(client.Config{})
	go func() {
		time.Sleep(42 * time.Second) // not when a's own renewal is due: it would suffer, too
		w.suffer(faults)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	l := w.lease(b, client.AcquireOptions{Wait: time.Minute})
	wantState(t, l, lastword.HolderHeld)
	if l.Fence() != 2 || l.Previous().State != lastword.StateReleased {
		t.Errorf("fence %s after %+v", l.Fence(), l.Previous())
	}
	return l
}

func TestAGrantThatWaitedIsConfirmedByARepetition(t *testing.T) { // R25
	inBubble(t, func(t *testing.T, w *world) {
		const there, back = time.Second, 2 * time.Second
		l := w.afterAWait(t, func(op string) fault {
			if op == "renew" {
				t.Error("a renewal was sent, too")
			}
			if op == "acquire" {
				return fault{delay: there, delayReply: back}
			}
			return fault{}
		})
		confirmed := time.Now()
		w.suffer(outage)
		// Trust counts from when the repetition was sent, and from what was left when
		// it was processed: neither of its two ways adds to it.
		if got := wantEnd(t, l, client.ErrExpired).Sub(confirmed); got != ttl-there-margin-(there+back) {
			t.Errorf("trusted for %s after the confirmation, want %s", got, ttl-there-margin-(there+back))
		}
	})
}

func TestAGrantThatWaitedIsConfirmedByOneRenewalIfTheRepetitionTellsNothing(t *testing.T) { // R25
	for name, x := range map[string]fault{
		"refused":   {err: &lastword.Error{Code: lastword.CodeUnavailable, Message: "503"}},
		"no answer": {loseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				lost := false
				l := w.afterAWait(t, func(op string) fault {
					if op == "acquire" {
						return x
					}
					if op == "renew" && !lost {
						lost = true
						return fault{loseReply: true}
					}
					return fault{}
				})
				if !lost {
					t.Error("no renewal was sent")
				}
				confirmed := time.Now()
				w.suffer(outage)
				// The confirming renewal was sent and answered in one instant.
				if got := wantEnd(t, l, client.ErrExpired).Sub(confirmed); got != ttl-margin {
					t.Errorf("trusted for %s after the confirmation, want %s", got, ttl-margin)
				}
			})
		})
	}
}

func TestAGrantThatLapsedBeforeItsConfirmationIsNoLease(t *testing.T) { // R25, R3
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(func(op string) fault {
			if op == "acquire" {
				return fault{delayReply: 31 * time.Second, deaf: true}
			}
			return fault{}
		})
		l, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
		if l != nil {
			t.Fatalf("got a lease in state %s", l.State())
		}
		wantIs(t, err, lastword.ErrNotHolder)
		wantNot(t, err, lastword.ErrUnknownOutcome)
	})
}

func TestErrorsOfRenewalsAreRepeatedFasterAndRecover(t *testing.T) { // R26, KF-12 (1)
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{TTL: 9 * time.Second})
		fence := l.Fence()
		down := fault{err: &lastword.Error{Code: lastword.CodeUnavailable, Message: "503"}}
		w.suffer(only2("renew", "status", 3, down))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		wantState(t, l, lastword.HolderUnknown)
		_, _, err := l.Sequence(t.Context(), "r")
		wantIs(t, err, lastword.ErrUnknownOutcome, client.ErrOwnershipUnknown)
		wantNot(t, err, lastword.ErrNotHolder)
		wantIs(t, l.Complete(t.Context(), nil), client.ErrOwnershipUnknown)
		time.Sleep(3 * 375 * time.Millisecond) // the shortest pauses
		synctest.Wait()
		if r, q := w.count("renew"), w.count("status"); r != 4 || q != 4 {
			t.Errorf("%d renewals and %d questions within three pauses, want 4 of each", r, q)
		}
		wantState(t, l, lastword.HolderHeld)
		if l.Fence() != fence || l.Context().Err() != nil {
			t.Errorf("fence %s, context %v", l.Fence(), l.Context().Err())
		}
	})
}

func TestADefiniteRefusalEndsTheLeaseAtOnce(t *testing.T) { // R26, KF-12 (2)
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{TTL: 9 * time.Second})
		w.revoke(doc)
		if got := wantEnd(t, l, client.ErrRefused).Sub(start); got != 3*time.Second {
			t.Errorf("ended after %s, want with the first renewal", got)
		}
		wantState(t, l, lastword.HolderExpired)
		time.Sleep(time.Minute)
		if n := w.count("renew"); n != 1 {
			t.Errorf("%d renewals, want the refused one only", n)
		}
		wantIs(t, l.Release(t.Context()), lastword.ErrNotHolder, client.ErrRefused)
		if n := w.count("release"); n != 0 {
			t.Errorf("%d releases were sent for a lease that is over", n)
		}
	})
}

func TestErrorsOnlyEndInExpiredAtTheLocalDeadline(t *testing.T) { // R26, KF-12 (3)
	for name, x := range map[string]fault{
		"errors":       {err: &lastword.Error{Code: lastword.CodeUnavailable}},
		"no requests":  {loseRequest: true},
		"a deaf store": {delay: 12 * time.Second, deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				start := time.Now()
				l := w.lease(w.client(client.Config{}), client.AcquireOptions{TTL: 9 * time.Second})
				w.suffer(func(string) fault { return x })
				time.Sleep(3*time.Second + 9*time.Second/6)
				synctest.Wait()
				wantState(t, l, lastword.HolderUnknown)
				if got, want := wantEnd(t, l, client.ErrExpired).Sub(start), 9*time.Second-90*time.Millisecond; got != want {
					t.Errorf("ended after %s, want %s", got, want)
				}
				w.suffer(nil)
				time.Sleep(time.Minute)
				wantState(t, l, lastword.HolderExpired)
			})
		})
	}
}

func TestTheGrantedTTLIsWhatCounts(t *testing.T) { // R8, R25
	inBubble(t, func(t *testing.T, w *world) {
		w.ttl = 3 * time.Second
		start := time.Now()
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{TTL: time.Hour})
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if n := w.count("renew"); n != 10 {
			t.Errorf("%d renewals in 10 s, want one a second", n)
		}
		w.suffer(outage)
		if got, want := wantEnd(t, l, client.ErrExpired).Sub(start), 13*time.Second-30*time.Millisecond; got != want {
			t.Errorf("ended after %s, want %s", got, want)
		}
	})
}

func TestMaxHoldEndsTheLeaseAndItsHandleGivesItBack(t *testing.T) { // R28, KF-11(d)
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		c := w.client(client.Config{})
		o := client.AcquireOptions{TTL: 3 * time.Second, MaxHold: 10 * time.Second}
		l := w.lease(c, o)
		if got := wantEnd(t, l, client.ErrMaxHold).Sub(start); got != 10*time.Second {
			t.Errorf("ended after %s", got)
		}
		wantState(t, l, lastword.HolderExpired)
		synctest.Wait()
		if w.held(doc) != 1 {
			t.Error("released although nobody said that the work has stopped (KF-14)")
		}
		wantIs(t, l.Close(), lastword.ErrNotHolder, client.ErrMaxHold)
		if w.held(doc) != 0 {
			t.Error("not given back although the work has stopped")
		}
		n := w.count("renew")
		forgotten := w.lease(c, o) // nobody closes this one
		<-forgotten.Context().Done()
		time.Sleep(3 * time.Second)
		if w.held(doc) != 0 {
			t.Error("a forgotten lease did not lapse within a TTL")
		}
		if got := w.count("renew") - n; got > 10 {
			t.Errorf("%d renewals", got)
		}
		wantIs(t, forgotten.Close(), client.ErrMaxHold)
		if got := w.count("release"); got != 1 {
			t.Errorf("%d releases; one that can not be in time must not be sent", got)
		}
	})
}
