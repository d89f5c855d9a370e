package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// broken is what a call comes to whose connection breaks, or which something answers
// that is no authority.
var broken = &lastword.Error{Code: lastword.CodeUnknown, Message: "connection reset"}

// down is what a call comes to that was certainly not sent.
var down = &lastword.Error{Code: lastword.CodeUnavailable, Message: "connection refused"}

// logged is a logger, and what it has written.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn})), &b
}

// firstThen lets the first acquire suffer x and everything after it y.
func firstThen(x, y fault) func(string) fault {
	first := true
	return func(string) fault {
		if first {
			first = false
			return x
		}
		return y
	}
}

// With ttl 30 s a call has 5 s, and the margin is 0.3 s.
func TestAnAcquireWithoutAnAnswerGivesUpWhenNothingOfItCanBeValid(t *testing.T) { // R27
	const call = ttl / 6
	for name, c := range map[string]struct {
		wait   time.Duration
		faults func(string) fault
		after  time.Duration // the last copy was sent this long after the beginning
		calls  int           // at most
	}{
		"nobody answers":                     {0, outage, 2 * call, 30},
		"nobody answers a wait":              {3 * time.Second, outage, 3*time.Second + 2*call, 30},
		"something else answers":             {0, func(string) fault { return fault{err: broken} }, 2 * call, 80},
		"it dies after it has received":      {0, firstThen(fault{err: broken}, fault{err: down}), 0, 60},
		"it dies and a call is not answered": {0, firstThen(fault{loseRequest: true}, fault{err: down}), 0, 60},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.suffer(c.faults)
				log, said := logged()
				start := time.Now()
				l, err := w.client(client.Config{Owner: "me", Logger: log}).Acquire(t.Context(), doc, client.AcquireOptions{RequestID: "R1", Wait: c.wait})
				took := time.Since(start)
				if l != nil {
					t.Fatal("a lease of nothing")
				}
				wantIs(t, err, lastword.ErrUnknownOutcome)
				wantNot(t, err, lastword.ErrUnavailable, lastword.ErrCanceled)
				var open *client.OpenAttempt
				if !errors.As(err, &open) || open.Owner != "me" || open.RequestID != "R1" || open.Within != 0 {
					t.Errorf("got %+v", open)
				}
				for _, part := range []string{"request id R1 of owner me", "acquire again with this owner and request id, or cancel them"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%v does not say %q", err, part)
					}
				}
				least := c.after + call + ttl + margin
				if took < least || took > c.wait+4*call+ttl+margin+time.Second {
					t.Errorf("it took %s, want %s or little more", took, least)
				}
				if n := w.count("acquire") + w.count("cancel"); n > c.calls || w.count("cancel") == 0 {
					t.Errorf("%d acquires and %d cancels in %s", w.count("acquire"), w.count("cancel"), took)
				}
				if n := strings.Count(said.String(), "no answer to the acquire yet"); n != 1 || !strings.Contains(said.String(), "owner=me request=R1") {
					t.Errorf("said %d times: %s", n, said)
				}
			})
		})
	}
}

func TestAGrantThatCanNotBeConfirmedIsGivenUp(t *testing.T) { // R25, R27
	inBubble(t, func(t *testing.T, w *world) {
		a := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		const given = 23 * time.Second // neither a renewal nor the next call of the wait is due
		time.AfterFunc(given, func() {
			// Before the lease is given back: the grant's confirmation follows at once.
			w.suffer(func(op string) fault { return fault{loseRequest: op != "release"} })
			_ = a.Close()
		})
		start := time.Now()
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{Wait: time.Hour})
		wantIs(t, err, lastword.ErrUnknownOutcome)
		if took := time.Since(start); took < given+ttl || took > given+4*ttl/6+ttl+margin+5*time.Second {
			t.Errorf("it took %s: the rest of the wait has nothing to do with it", took)
		}
	})
}

func TestAnAttemptThatIsAskedAboutInVainIsCancelledAsSoonAsThatCanBe(t *testing.T) { // R6a, R27
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(func(op string) fault { return fault{loseReply: true} })
		time.AfterFunc(25*time.Second, func() { w.suffer(nil) })
		start := time.Now()
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
		wantIs(t, err, lastword.ErrUnavailable)
		wantNot(t, err, lastword.ErrUnknownOutcome, lastword.ErrCanceled)
		if took := time.Since(start); took < 25*time.Second || took > 30*time.Second || w.held(doc) != 0 {
			t.Errorf("after %s the fence %s is held", took, w.held(doc))
		}
	})
}

func TestWhoGoesWhileAnAttemptIsBeingCancelledWaitsForTheCleanUpOnly(t *testing.T) { // R27
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(outage)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		start := time.Now()
		_, err := w.client(client.Config{CleanupTimeout: 2 * time.Second}).Acquire(ctx, doc, client.AcquireOptions{})
		var open *client.OpenAttempt
		if !errors.As(err, &open) || open.Within < 10*time.Second {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 27*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestAnOpenAttemptOutlivesAnAuthorityThatIsAway(t *testing.T) { // R27
	inBubble(t, func(t *testing.T, w *world) {
		n := 0
		w.suffer(func(string) fault {
			n++
			switch {
			case n == 1:
				return fault{loseReply: true}
			case n < 6:
				return fault{err: down}
			}
			return fault{}
		})
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{RequestID: "R1"})
		if l.Fence() != 1 || w.count("cancel") != 0 || n != 6 {
			t.Errorf("fence %s after %v", l.Fence(), w.calls)
		}
	})
}

func TestWhoGivesUpIsToldByTheErrorAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.lease(w.client(client.Config{}), client.AcquireOptions{})
		log, said := logged()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.client(client.Config{Logger: log}).Acquire(ctx, doc, client.AcquireOptions{Wait: time.Hour})
		wantIs(t, err, lastword.ErrCanceled)
		if said.Len() > 0 {
			t.Errorf("said: %s", said)
		}
	})
}

func TestAPermanentAnswerIsNotAskedForAgain(t *testing.T) { // R27
	for _, code := range []lastword.Code{lastword.CodeInternal, lastword.CodeInvalid, lastword.CodeQuota, lastword.CodeFenceRegression} {
		inBubble(t, func(t *testing.T, w *world) {
			w.suffer(func(op string) fault { return fault{err: refuse(code, op, doc)} })
			start := time.Now()
			_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
			var e *lastword.Error
			if !errors.As(err, &e) || e.Code != code || len(w.calls) != 1 || time.Since(start) != 0 {
				t.Errorf("%s: got %v after %v", code, err, w.calls)
			}
			// Of two copies one was lost: the refusal decides about the other one only.
			w.suffer(firstThen(fault{err: broken}, fault{err: refuse(code, "acquire", doc)}))
			w.calls = nil
			_, err = w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{})
			wantIs(t, err, lastword.ErrUnknownOutcome)
			if len(w.calls) != 3 || time.Since(start) > time.Second {
				t.Errorf("%s: %v in %s", code, w.calls, time.Since(start))
			}
		})
	}
}

func TestALostAnswerToAWaitIsFoundWhileTheTenureLasts(t *testing.T) { // R2, R27
	inBubble(t, func(t *testing.T, w *world) {
		a := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(only("acquire", 1, fault{loseReply: true})) // of the one that is queued
		var freed time.Time
		time.AfterFunc(20*time.Second, func() { freed = time.Now(); _ = a.Close() })
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{Wait: time.Hour})
		if took := time.Since(freed); took > ttl/3 || l.Fence() != 2 {
			t.Errorf("fence %s was found after %s", l.Fence(), took)
		}
		wantState(t, l, lastword.HolderHeld)
		time.Sleep(2 * time.Hour)
		if l.Context().Err() != nil {
			t.Errorf("it has ended: %v", context.Cause(l.Context()))
		}
		if n := w.count("cancel"); n != 0 || w.queued != 1 {
			t.Errorf("%d cancels, %d queued", n, w.queued)
		}
	})
}

func TestALookAtAnotherEndOfTheAttemptEndsTheWait(t *testing.T) { // R6a
	inBubble(t, func(t *testing.T, w *world) {
		w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.suffer(only("acquire", 1, fault{loseRequest: true}))
		time.AfterFunc(20*time.Second, func() { _ = w.Cancel(context.Background(), doc, "me", "R1") })
		start := time.Now()
		_, err := w.client(client.Config{Owner: "me"}).Acquire(t.Context(), doc, client.AcquireOptions{Wait: time.Hour, RequestID: "R1"})
		wantIs(t, err, lastword.ErrCanceled)
		if took := time.Since(start); took > 20*time.Second+ttl/3 {
			t.Errorf("it took %s", took)
		}
	})
}

func TestAWaitThatEndsWhileItIsLookedAtNeedsNoCancel(t *testing.T) { // R3
	inBubble(t, func(t *testing.T, w *world) {
		w.lease(w.client(client.Config{}), client.AcquireOptions{})
		n := 0
		w.suffer(func(op string) fault {
			if n++; op == "acquire" && n > 1 {
				return fault{delayReply: 4 * time.Second} // under way at the end of the wait
			}
			return fault{}
		})
		start := time.Now()
		_, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{Wait: 12 * time.Second})
		wantIs(t, err, lastword.ErrHeld)
		if w.count("cancel") != 0 || w.count("acquire") < 2 || time.Since(start) > 17*time.Second {
			t.Errorf("%v in %s", w.calls, time.Since(start))
		}
	})
}

// What the look that is under way at the end of a wait comes to is part of the answer.
func TestALookThatIsUnderWayAtTheEndOfTheWaitIsWaitedFor(t *testing.T) { // R27
	for name, c := range map[string]struct {
		look    fault // looks are sent at 5 s and at 10 s, and the wait ends at 12 s
		cancels int
		granted bool
	}{
		"it is lost":             {fault{loseRequest: true}, 1, false},
		"it arrives later":       {fault{delay: 3 * time.Second}, 0, true},
		"it says the same again": {fault{delayReply: 3 * time.Second}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a := w.lease(w.client(client.Config{}), client.AcquireOptions{})
				n := 0
				w.suffer(func(op string) fault {
					if op != "acquire" {
						return fault{}
					}
					if n++; n == 3 {
						return c.look
					}
					return fault{}
				})
				time.AfterFunc(12500*time.Millisecond, func() { _ = a.Close() })
				l, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{Wait: 12 * time.Second})
				if c.granted != (err == nil) || err == nil && l.Fence() != 2 {
					t.Errorf("got %v, %v", l, err)
				}
				if !c.granted {
					wantIs(t, err, lastword.ErrHeld)
				}
				if w.count("cancel") != c.cancels || n != 3 {
					t.Errorf("calls: %v", w.calls)
				}
			})
		})
	}
}

func TestAWaitingCallThatPanicsIsNoAnswer(t *testing.T) { // R27
	inBubble(t, func(t *testing.T, w *world) {
		a := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		time.AfterFunc(20*time.Second, func() { _ = a.Close() })
		start := time.Now()
		c, err := client.New(&panicking{Authority: w.fake}, client.Config{Elapsed: func() time.Duration { return time.Since(start) }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if l, err := c.Acquire(t.Context(), doc, client.AcquireOptions{Wait: time.Minute}); err != nil || l.Fence() != 2 {
			t.Errorf("got %v, %v", l, err)
		}
	})
}

// panicking panics at the first acquire.
type panicking struct {
	client.Authority
	was bool
}

func (p *panicking) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	if !p.was {
		p.was = true
		panic("broken")
	}
	return p.Authority.Acquire(ctx, r)
}

// On the real authority: who looks keeps its place, and passes nobody.
func TestWhoLooksKeepsItsPlaceInTheQueue(t *testing.T) { // R2, R3
	inBubble(t, func(t *testing.T, _ *world) {
		real := embedded(t)
		start := time.Now()
		of := func(owner string) *client.Client {
			c, err := client.New(real, client.Config{Owner: owner, Elapsed: func() time.Duration { return time.Since(start) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		first, err := of("holder").Acquire(t.Context(), doc, client.AcquireOptions{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 3)
		for i, owner := range []string{"a", "b", "c"} {
			c := of(owner)
			time.AfterFunc(time.Duration(i)*time.Second, func() {
				l, err := c.Acquire(context.Background(), doc, client.AcquireOptions{TTL: 3 * time.Second, Wait: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				order <- owner
				time.Sleep(5 * time.Second) // the others look several times
				_ = l.Close()
			})
		}
		time.Sleep(20 * time.Second)
		st, err := real.Status(t.Context(), lastword.StatusQuery{Resource: doc})
		if err != nil || st.Waiters != 3 {
			t.Errorf("%d wait, %v; want each once", st.Waiters, err)
		}
		_ = first.Close()
		for _, want := range []string{"a", "b", "c"} {
			if got := <-order; got != want {
				t.Errorf("%s is granted in %s's turn", got, want)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
	})
}

func TestARequestIDThatIsInUseIsRefused(t *testing.T) { // R2
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		l := w.lease(c, client.AcquireOptions{RequestID: "R1"})
		again, err := c.Acquire(t.Context(), doc, client.AcquireOptions{RequestID: "R1"})
		if again != nil {
			t.Error("a second lease of one tenure")
		}
		wantIs(t, err, lastword.ErrInvalid)
		var e *lastword.Error
		if !errors.As(err, &e) || e.Fence != l.Fence() || !strings.Contains(err.Error(), "R1") {
			t.Errorf("got %v", err)
		}
		if w.count("acquire") != 1 || w.count("cancel") != 0 {
			t.Errorf("calls: %v", w.calls)
		}
		wantState(t, l, lastword.HolderHeld)
		// Of another resource it is another request.
		other, err := c.Acquire(t.Context(), "doc/2", client.AcquireOptions{RequestID: "R1"})
		if err != nil {
			t.Fatal(err)
		}
		// An acquire that is under way has it, too, until it has failed.
		waiting := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := c.Acquire(ctx, doc, client.AcquireOptions{RequestID: "R2", Wait: time.Hour})
			waiting <- err
		}()
		synctest.Wait()
		_, err = c.Acquire(t.Context(), doc, client.AcquireOptions{RequestID: "R2"})
		wantIs(t, err, lastword.ErrInvalid)
		cancel()
		<-waiting
		_, err = c.Acquire(t.Context(), doc, client.AcquireOptions{RequestID: "R2"})
		wantIs(t, err, lastword.ErrCanceled) // by the first: the authority is asked again
		// Once the lease is over the authority decides.
		if err := errors.Join(l.Close(), other.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = c.Acquire(t.Context(), doc, client.AcquireOptions{RequestID: "R1"})
		wantIs(t, err, lastword.ErrTenureEnded)
		if n := client.Claims(c); n != 0 {
			t.Errorf("%d request ids are still in use", n)
		}
	})
}
