package client_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// hanging answers nothing until its caller gives up.
type hanging struct{ client.Authority }

func (hanging) Release(ctx context.Context, _ lastword.TenureRef) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAClosedChaosEndsTheCallsOfThoseWhoHaveGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := mustChaos(t, hanging{w.fake}, client.ChaosConfig{DelayRequest: 1, MaxDelay: 2 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		_ = x.Release(ctx, lastword.TenureRef{Resource: doc})
		time.Sleep(3 * time.Second) // it has arrived, and hangs
		start := time.Now()
		if err := x.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("closed after %s, %v", time.Since(start), err)
		}
	})
}

// huge answers renewals with a TTL that no clock can hold.
type huge struct{ client.Authority }

func (h huge) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	t, err := h.Authority.Renew(ctx, ref)
	t.TTL, t.Remaining = 1<<63-1, 1<<63-1
	return t, err
}

func TestARenewalWithAnImpossibleTTLIsNoAnswer(t *testing.T) { // R25
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		w.blind = true // only a renewal could tell what remains
		c, err := client.New(huge{w.fake}, client.Config{Jitter: func() float64 { return 0 }, Elapsed: func() time.Duration { return time.Since(start) }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		l, err := c.Acquire(t.Context(), doc, client.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl/3 + time.Second)
		wantState(t, l, lastword.HolderUnknown)
		if got := wantEnd(t, l, client.ErrUnknownTooLong).Sub(start); got != ttl-margin {
			t.Errorf("trust ended after %s", got)
		}
	})
}

func TestAClosedClientIsWhyAnAcquireEnds(t *testing.T) { // R27
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		w.lease(w.client(client.Config{}), client.AcquireOptions{})
		failed := make(chan error, 1)
		go func() {
			_, err := c.Acquire(t.Context(), doc, client.AcquireOptions{Wait: time.Hour})
			failed <- err
		}()
		synctest.Wait()
		_ = c.Close()
		err := <-failed
		wantIs(t, err, lastword.ErrCanceled)
		wantNot(t, err, context.Canceled) // the caller has canceled nothing
		if !strings.Contains(err.Error(), "the client was closed") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWorkIsToldToStopOnce(t *testing.T) { // R28
	inBubble(t, func(t *testing.T, w *world) {
		var r listener
		ctx, cancel := context.WithCancel(t.Context())
		err := w.client(client.Config{OnEvent: r.take, DrainTimeout: 5 * time.Second}).Run(ctx, doc, client.AcquireOptions{}, func(_ context.Context, l *client.Lease) error {
			cancel()
			for range 3 {
				time.Sleep(time.Second)
				_ = l.Close() // the work is not over: it is told to stop, again
			}
			<-l.Context().Done()
			time.Sleep(time.Minute)
			return nil
		})
		wantIs(t, err, client.ErrOverrun)
		stops := 0
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events {
			if e.Stopping {
				stops++
			}
		}
		if stops != 1 {
			t.Errorf("told %d times", stops)
		}
	})
}

// keeping keeps the very bytes that it was given.
type keeping struct {
	client.Authority
	result []byte
}

func (k *keeping) Complete(_ context.Context, _ lastword.TenureRef, result []byte) error {
	k.result = result
	return nil
}

func TestACompletionIsTheCallersBytesAtThatMoment(t *testing.T) { // R6b
	inBubble(t, func(t *testing.T, w *world) {
		k := &keeping{Authority: w.fake}
		c, err := client.New(k, client.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		l, err := c.Acquire(t.Context(), doc, client.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		result := []byte("done")
		if err := l.Complete(t.Context(), result); err != nil {
			t.Fatal(err)
		}
		copy(result, "lost") // a copy of the message may still be on its way
		if string(k.result) != "done" {
			t.Errorf("the authority has %q", k.result)
		}
	})
}

// After a suspend the shortest lease is looked at in its time, however long the others are.
func TestALongLeaseDoesNotSlowDownTheLookAtAShortOne(t *testing.T) { // R25
	inBubble(t, func(t *testing.T, w *world) {
		var slept atomic.Int64
		start := time.Now()
		c := w.client(client.Config{Elapsed: func() time.Duration { return time.Since(start) + time.Duration(slept.Load()) }})
		if _, err := c.Acquire(t.Context(), "doc/long", client.AcquireOptions{TTL: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		l := w.lease(c, client.AcquireOptions{})
		synctest.Wait() // the timers are set
		slept.Store(int64(ttl))
		if late := wantEnd(t, l, client.ErrExpired).Sub(start); late > ttl/6 {
			t.Errorf("nobody looked at the clock for %s after the suspend", late)
		}
	})
}
