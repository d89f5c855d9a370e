package client_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// listener keeps events.
type listener struct {
	mu     sync.Mutex
	events []client.Event
}

func (r *listener) take(e client.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// states is the way of one lease so far.
func (r *listener) states(l *client.Lease) (way []lastword.HolderState) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.LeaseID == l.Ref().LeaseID && e.Resource == l.Resource() {
			if n := len(way); n > 0 && way[n-1] != e.From {
				way = append(way, "GAP")
			}
			way = append(way, e.To)
		}
	}
	return way
}

func (r *listener) last() client.Event {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		return client.Event{}
	}
	return r.events[len(r.events)-1]
}

func wantWay(t *testing.T, r *listener, l *client.Lease, want ...lastword.HolderState) {
	t.Helper()
	if got := r.states(l); !slices.Equal(got, want) {
		t.Errorf("the lease went %v, want %v", got, want)
	}
}

// TTL 6 s, renewal each 2 s; exactly one renewal is applied and its reply lost.
func TestALostReplyOfARenewalIsFoundOutByAQuestion(t *testing.T) { // R26, KF-03
	inBubble(t, func(t *testing.T, w *world) {
		var r listener
		l := w.lease(w.client(client.Config{OnEvent: r.take}), client.AcquireOptions{TTL: 6 * time.Second})
		write := func() (uint64, error) {
			seq, release, err := l.Sequence(t.Context(), "db:main doc/1")
			if err != nil {
				return 0, err
			}
			defer release()
			seq.Last++
			return seq.Last, nil
		}
		for want := range uint64(3) {
			if n, err := write(); err != nil || n != want+1 {
				t.Fatalf("write %d: %d, %v", want+1, n, err)
			}
		}
		lost := only("renew", 1, fault{loseReply: true})
		w.suffer(func(op string) fault {
			if op == "status" {
				return fault{delay: 100 * time.Millisecond}
			}
			return lost(op)
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantState(t, l, lastword.HolderRenewing)
		if _, err := write(); err != nil {
			t.Errorf("RENEWING admits: %v", err)
		}
		time.Sleep(time.Second) // its time-out
		synctest.Wait()
		wantState(t, l, lastword.HolderUnknown)
		_, err := write()
		wantIs(t, err, client.ErrOwnershipUnknown, lastword.ErrUnknownOutcome)
		wantNot(t, err, lastword.ErrNotHolder)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		wantState(t, l, lastword.HolderHeld)
		if n := w.count("renew"); n != 1 {
			t.Errorf("%d renewals; the question alone has to find out", n)
		}
		if n, err := write(); err != nil || n != 5 {
			t.Errorf("repeated: number %d, %v; want the one that was refused", n, err)
		}
		w.suffer(nil)
		time.Sleep(10 * time.Second)
		if l.Fence() != 1 || l.Context().Err() != nil {
			t.Errorf("fence %s, context %v", l.Fence(), l.Context().Err())
		}
		if way := r.states(l); !slices.Equal(way[:4], []lastword.HolderState{
			lastword.HolderHeld, lastword.HolderRenewing, lastword.HolderUnknown, lastword.HolderHeld,
		}) || slices.Contains(way, lastword.HolderExpired) || slices.Contains(way, lastword.HolderReleased) {
			t.Errorf("the lease went %v", way)
		}
		if err := l.Release(t.Context()); err != nil || w.count("release") != 1 {
			t.Errorf("release: %v after %d tries", err, w.count("release"))
		}
	})
}

func TestWhatRemainsBoundsWhatAQuestionBringsBack(t *testing.T) { // R25, R26
	for name, blind := range map[string]bool{"the authority knows what remains": false, "only a renewal can tell": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.blind = blind
				start := time.Now()
				l := w.lease(w.client(client.Config{}), client.AcquireOptions{TTL: 6 * time.Second})
				// The first renewal is applied at 2 s; nothing of the others arrives.
				first := only("renew", 1, fault{loseReply: true})
				w.suffer(func(op string) fault {
					if x := first(op); x != (fault{}) || op == "status" {
						return x
					}
					return fault{loseRequest: true}
				})
				margin, want, cause := 60*time.Millisecond, 8*time.Second, client.ErrExpired
				if blind {
					want, cause = 6*time.Second, client.ErrUnknownTooLong
				}
				if got := wantEnd(t, l, cause).Sub(start); got != want-margin {
					t.Errorf("trusted for %s, want %s", got, want-margin)
				}
				if n := w.count("status"); n < 3 {
					t.Errorf("%d questions; they go on until trust is over", n)
				}
			})
		})
	}
}

func TestAQuestionSaysAtOnceHowTheTenureEnded(t *testing.T) { // R26, R28
	for name, c := range map[string]struct {
		end   func(w *world, l *client.Lease)
		cause error
		of    error
	}{
		"revoked":   {func(w *world, _ *client.Lease) { w.revoke(doc) }, client.ErrRevoked, client.ErrRefused},
		"cancelled": {func(w *world, l *client.Lease) { w.drop(l, lastword.StateCanceled) }, client.ErrAttemptCanceled, client.ErrRefused},
		"released":  {func(w *world, l *client.Lease) { w.drop(l, lastword.StateReleased) }, client.ErrRefused, client.ErrRefused},
		"lapsed":    {func(w *world, l *client.Lease) { w.drop(l, lastword.StateExpired) }, client.ErrExpired, client.ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var r listener
				l := w.lease(w.client(client.Config{OnEvent: r.take}), client.AcquireOptions{TTL: 6 * time.Second})
				w.suffer(only("renew", 99, fault{loseRequest: true}))
				c.end(w, l)
				start := time.Now()
				if got := wantEnd(t, l, c.cause).Sub(start); got != 3*time.Second {
					t.Errorf("ended after %s, want with the first question", got)
				}
				wantIs(t, l.Release(t.Context()), lastword.ErrNotHolder, c.cause, c.of)
				n := 0
				for _, cause := range []error{client.ErrExpired, client.ErrRefused, client.ErrReleased, client.ErrMaxHold} {
					if errors.Is(context.Cause(l.Context()), cause) {
						n++
					}
				}
				if n != 1 {
					t.Errorf("the cause matches %d of the four", n)
				}
				wantWay(t, &r, l, lastword.HolderHeld, lastword.HolderRenewing, lastword.HolderUnknown, lastword.HolderExpired)
				if e := r.last(); !e.Final() || !errors.Is(e.Cause, c.cause) {
					t.Errorf("the last event: %+v", e)
				}
			})
		})
	}
}

func TestARefusalThatSaysHowTheTenureEndedIsUnderstood(t *testing.T) { // R26, R28
	for how, cause := range map[lastword.State]error{
		lastword.StateRevoked: client.ErrRevoked, lastword.StateExpired: client.ErrExpired, lastword.StateReleased: client.ErrRefused,
	} {
		inBubble(t, func(t *testing.T, w *world) {
			l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
			e := refuse(lastword.CodeNotHolder, "renew", doc)
			e.Ended = lastword.Ending{State: how, LeaseID: l.Ref().LeaseID, Fence: l.Fence()}
			w.suffer(only("renew", 1, fault{err: e}))
			wantEnd(t, l, cause)
		})
	}
	inBubble(t, func(t *testing.T, w *world) { // the ending of another tenure says nothing about this one
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		e := refuse(lastword.CodeNotHolder, "renew", doc)
		e.Ended = lastword.Ending{State: lastword.StateRevoked, LeaseID: "lease-9"}
		w.suffer(only("renew", 1, fault{err: e}))
		wantEnd(t, l, client.ErrRefused)
		wantNot(t, context.Cause(l.Context()), client.ErrRevoked)
	})
}

// A slow answer to a question arrives when a renewal has been answered long ago.
func TestALateAnswerToAQuestionTakesNothingBack(t *testing.T) { // R9, R26
	inBubble(t, func(t *testing.T, w *world) {
		var r listener
		l := w.lease(w.client(client.Config{OnEvent: r.take, CallTimeout: 400 * time.Millisecond}), client.AcquireOptions{TTL: 6 * time.Second})
		first := only("renew", 1, fault{loseReply: true})
		w.suffer(func(op string) fault {
			if op == "status" { // asked at 2.4 s, answered at 2.4 s, heard at 3.9 s
				return fault{delayReply: 1500 * time.Millisecond, deaf: true}
			}
			return first(op)
		})
		time.Sleep(3800 * time.Millisecond)
		synctest.Wait()
		wantState(t, l, lastword.HolderHeld) // by the second renewal, at 2.65 s
		w.suffer(outage)
		start := time.Now()
		// 2.65 + 6 − 0.06; what the question says would be 2.4 + 5.6 − 0.06
		if got, want := wantEnd(t, l, client.ErrUnknownTooLong).Sub(start), 8590*time.Millisecond-3800*time.Millisecond; got != want {
			t.Errorf("trusted for another %s, want %s", got, want)
		}
	})
}

func TestAnAnswerAboutAnotherTenureIsNone(t *testing.T) { // R5, R26
	inBubble(t, func(t *testing.T, w *world) {
		l := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		w.mu.Lock()
		w.leases[doc].answerAs = 2 // the fence changes at the renewal
		w.mu.Unlock()
		w.suffer(only("status", 99, fault{loseRequest: true}))
		wantEnd(t, l, client.ErrUnknownTooLong)
		if l.Fence() != 1 {
			t.Errorf("fence %s", l.Fence())
		}
	})
}

// Silent loss: nothing is refused and nothing answered, from t0 on.
func TestSilentLossEndsTrustWithoutAPacketAndNothingRevives(t *testing.T) { // KF-10 (1, 2, 3)
	for name, x := range map[string]fault{"no packet passes": {loseRequest: true}, "accepted and never answered": {loseReply: true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var r listener
				l := w.lease(w.client(client.Config{OnEvent: r.take}), client.AcquireOptions{TTL: 6 * time.Second})
				signals := 0
				context.AfterFunc(l.Context(), func() { signals++ })
				time.Sleep(2500 * time.Millisecond) // the renewal of 2 s was confirmed
				lastSent := time.Now().Add(-500 * time.Millisecond)
				w.suffer(func(string) fault { return x })
				var unknown, lastWrite time.Time
				for range 60 { // a write each 200 ms
					_, release, err := l.Sequence(t.Context(), "db:main doc/1")
					switch {
					case err == nil:
						release()
						lastWrite = time.Now()
					case errors.Is(err, lastword.ErrUnknownOutcome) && unknown.IsZero():
						unknown = time.Now()
					}
					time.Sleep(200 * time.Millisecond)
				}
				synctest.Wait()
				if got := unknown.Sub(lastSent); got > 3*time.Second+200*time.Millisecond {
					t.Errorf("not known to be unknown before %s after the last renewal, want a renewal interval and one time-out", got)
				}
				if got := lastWrite.Sub(lastSent); got >= 6*time.Second-60*time.Millisecond {
					t.Errorf("a write started %s after the last confirmed renewal was sent", got)
				}
				if signals != 1 {
					t.Errorf("%d loss signals", signals)
				}
				w.suffer(nil) // healed
				time.Sleep(time.Minute)
				wantState(t, l, lastword.HolderExpired)
				if e := r.last(); e.To != lastword.HolderExpired || time.Duration(0) == e.At || !errors.Is(e.Cause, client.ErrUnknownTooLong) {
					t.Errorf("the last event: %+v", e)
				}
			})
		})
	}
}

func TestACallThatPanicsOrVanishesIsNoAnswer(t *testing.T) { // KF-10 (4), KF-15
	for name, trouble := range map[string]func(){"panic": func() { panic("broken transport") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				broken := troubled{Authority: w.fake, resource: doc, trouble: trouble}
				start := time.Now()
				c, err := client.New(broken, client.Config{Elapsed: func() time.Duration { return time.Since(start) }, Jitter: func() float64 { return 0 }})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				first, err := c.Acquire(t.Context(), doc, client.AcquireOptions{TTL: 6 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				second, err := c.Acquire(t.Context(), "doc/2", client.AcquireOptions{TTL: 6 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if got := wantEnd(t, first, client.ErrUnknownTooLong).Sub(start); got > 6*time.Second {
					t.Errorf("ended after %s", got)
				}
				time.Sleep(time.Minute)
				wantState(t, second, lastword.HolderHeld)
				if w.held("doc/2") != second.Fence() {
					t.Error("the second lease is not renewed")
				}
			})
		})
	}
}

// troubled does something else than to renew or to answer about one resource.
type troubled struct {
	client.Authority
	resource lastword.Resource
	trouble  func()
}

func (a troubled) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	if ref.Resource == a.resource {
		a.trouble()
	}
	return a.Authority.Renew(ctx, ref)
}

func (a troubled) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	if q.Resource == a.resource {
		a.trouble()
	}
	return a.Authority.Status(ctx, q)
}

// No network fault: the process gets no CPU for 10 s.
func TestALateCompletionOfAStoppedProcessIsRefused(t *testing.T) { // KF-10 (5)
	inBubble(t, func(t *testing.T, w *world) {
		var stopped atomic.Int64
		start := time.Now()
		c := w.client(client.Config{Elapsed: func() time.Duration { return time.Since(start) + time.Duration(stopped.Load()) }})
		a := w.lease(c, client.AcquireOptions{TTL: 6 * time.Second})
		synctest.Wait()
		w.drop(a, lastword.StateExpired) // its deadline has passed by the authority's clock
		stopped.Store(int64(10 * time.Second))
		b := w.lease(w.client(client.Config{}), client.AcquireOptions{})
		if err := b.Complete(t.Context(), []byte("b")); err != nil {
			t.Fatal(err)
		}
		wantIs(t, a.Complete(t.Context(), []byte("a")), lastword.ErrNotHolder, client.ErrExpired)
		if n := w.count("complete"); n != 1 {
			t.Errorf("%d completions were sent", n)
		}
	})
}
