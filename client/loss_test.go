package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// Three workers, TTL 5 s; every reply is 4 s late for 20 s. Nobody's renewals are
// answered in time: whoever holds loses, another one takes over.
func TestEachLossIsSignalledOnceInTimeAndNoTwoHold(t *testing.T) { // R25, R28, KF-15 (1)
	inBubble(t, func(t *testing.T, w *world) {
		const ttl = 5 * time.Second
		start := time.Now()
		elapsed := func() time.Duration { return time.Since(start) }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		live := map[*client.Lease]bool{}
		var leases, signals, late, lost atomic.Int32
		var wg sync.WaitGroup
		for i := range 3 {
			c := w.client(client.Config{Owner: fmt.Sprint("worker-", i), Elapsed: elapsed, CleanupTimeout: time.Second})
			wg.Go(func() {
				for ctx.Err() == nil {
					err := c.Run(ctx, doc, client.AcquireOptions{TTL: ttl, Wait: time.Minute}, func(ctx context.Context, l *client.Lease) error {
						leases.Add(1)
						context.AfterFunc(l.Context(), func() {
							signals.Add(1)
							if elapsed() > client.LocalDeadline(l) {
								late.Add(1)
							}
						})
						mu.Lock()
						live[l] = true
						mu.Unlock()
						<-ctx.Done()
						mu.Lock()
						delete(live, l)
						mu.Unlock()
						return nil
					})
					if errors.Is(err, lastword.ErrNotHolder) {
						lost.Add(1)
					}
				}
			})
		}
		time.Sleep(2 * time.Second)
		w.suffer(func(string) fault { return fault{delayReply: 4 * time.Second} })
		for range 60 * 100 {
			if time.Since(start) > 22*time.Second {
				w.suffer(nil)
			}
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			holders := 0
			for l := range live {
				if l.State().Admits() {
					holders++
				}
			}
			mu.Unlock()
			if holders > 1 {
				t.Fatalf("%d hold after %s", holders, time.Since(start))
			}
		}
		cancel()
		wg.Wait()
		synctest.Wait()
		if n := leases.Load(); n < 2 || lost.Load() == 0 || signals.Load() != n || late.Load() != 0 {
			t.Errorf("%d leases, %d lost, %d signals, %d of them late", n, lost.Load(), signals.Load(), late.Load())
		}
	})
}

func TestALossWhileTheReleaseHangsIsOneSignal(t *testing.T) { // R28, KF-15
	for name, x := range map[string]fault{
		"no answer": {loseReply: true}, "an error": {err: errors.New("broken pipe")}, "deaf": {delay: 20 * time.Second, deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var r listener
				l := w.lease(w.client(client.Config{OnEvent: r.take}), client.AcquireOptions{TTL: 5 * time.Second})
				var signals atomic.Int32
				context.AfterFunc(l.Context(), func() { signals.Add(1) })
				w.suffer(only("release", 99, x))
				start := time.Now()
				released := make(chan error, 1)
				go func() { released <- l.Release(context.Background()) }()
				synctest.Wait()
				if l.Context().Err() == nil {
					t.Error("the context has not ended although the release is under way")
				}
				w.revoke(doc) // it is lost meanwhile
				b := w.lease(w.client(client.Config{}), client.AcquireOptions{})
				err := <-released
				want := lastword.ErrUnknownOutcome
				if x.deaf { // its answer comes in the end
					want = lastword.ErrNotHolder
				}
				wantIs(t, err, want)
				if got := time.Since(start); got > 20*time.Second {
					t.Errorf("Release took %s", got)
				}
				wantWay(t, &r, l, lastword.HolderHeld, lastword.HolderReleased)
				if signals.Load() != 1 || w.held(doc) != b.Fence() {
					t.Errorf("%d signals, held %s", signals.Load(), w.held(doc))
				}
			})
		})
	}
}

func TestCallbacksOnTheContextMayBlockOrWait(t *testing.T) { // R28, KF-15
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		gate := make(chan struct{})
		defer close(gate)
		start := time.Now()
		var all []*client.Lease
		for i := range 50 {
			l, err := c.Acquire(t.Context(), lastword.Resource(fmt.Sprintf("doc/%d", i)), client.AcquireOptions{TTL: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(l.Context(), func() { <-gate })
			all = append(all, l)
		}
		w.revoke("doc/7")
		time.Sleep(time.Minute)
		for i, l := range all {
			if i == 7 {
				wantState(t, l, lastword.HolderExpired)
				continue
			}
			if !l.State().Admits() {
				t.Errorf("lease %d: %s", i, l.State())
			}
		}
		w.suffer(outage)
		for _, l := range all {
			<-l.Context().Done()
		}
		if got := time.Since(start); got > time.Minute+5*time.Second {
			t.Errorf("the last of them ended %s after the last renewal", got-time.Minute)
		}
	})
}

// An authority's numbers are never taken further than a TTL goes.
func TestSentinelsFromTheAuthorityStretchNothing(t *testing.T) { // KF-20, R25
	for name, remaining := range map[string]time.Duration{
		"the largest": math.MaxInt64, "the smallest": math.MinInt64, "negative": -1, "2^53 ms": 1 << 53, "none": 0,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				start := time.Now()
				odd := sentinel{Authority: w.fake, remaining: remaining}
				c, err := client.New(odd, client.Config{Elapsed: func() time.Duration { return time.Since(start) }})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				l, err := c.Acquire(ctx, doc, client.AcquireOptions{})
				if remaining <= 0 { // nothing to trust, and never confirmed
					if err == nil {
						t.Fatalf("a lease of nothing: %s", l.State())
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				w.suffer(only2("renew", "status", 999, fault{loseRequest: true}))
				if got := wantEnd(t, l, client.ErrExpired).Sub(start); got != ttl-margin {
					t.Errorf("trusted for %s", got)
				}
			})
		})
	}
	for _, odd := range []time.Duration{math.MaxInt64, math.MinInt64, -1, 1} {
		inBubble(t, func(t *testing.T, w *world) {
			w.ttl = odd
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := w.client(client.Config{}).Acquire(ctx, doc, client.AcquireOptions{})
			wantIs(t, err, lastword.ErrInternal)
		})
	}
}

// sentinel answers something odd in place of what remains.
type sentinel struct {
	client.Authority
	remaining time.Duration
}

func (a sentinel) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	t, err := a.Authority.Acquire(ctx, r)
	t.Remaining = a.remaining
	return t, err
}

func (a sentinel) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	t, err := a.Authority.Renew(ctx, ref)
	t.Remaining = a.remaining
	return t, err
}

func (a sentinel) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	st, err := a.Authority.Status(ctx, q)
	st.Remaining = a.remaining
	return st, err
}
