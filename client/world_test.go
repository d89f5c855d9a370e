package client_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

const (
	doc    = "doc/1"
	ttl    = 30 * time.Second
	margin = 300 * time.Millisecond
)

// world is a fake authority and the clock of a synctest bubble.
type world struct {
	*fake
	t *testing.T
}

// inBubble runs test in a bubble, which waits for every goroutine in it to end: a
// keeper or a timer that is left over fails the test.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) {
		w := &world{fake: newFake(), t: t}
		t.Cleanup(w.inFlight.Wait) // runs after the clients are closed
		test(t, w)
	})
	// One that has returned is counted until it was scheduled off.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
			return
		}
	}
}

func (w *world) client(cfg client.Config) *client.Client {
	w.t.Helper()
	if cfg.Elapsed == nil {
		start := time.Now()
		cfg.Elapsed = func() time.Duration { return time.Since(start) }
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 0 }
	}
	c, err := client.New(w.fake, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.t.Logf("close: %v", err)
		}
	})
	return c
}

func (w *world) lease(c *client.Client, o client.AcquireOptions) *client.Lease {
	w.t.Helper()
	l, err := c.Acquire(w.t.Context(), doc, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func wantState(t *testing.T, l *client.Lease, want lastword.HolderState) {
	t.Helper()
	if got := l.State(); got != want {
		t.Errorf("state: got %s, want %s", got, want)
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want an error that is %v", err, target)
		}
	}
}

func wantNot(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("got %v, which must not be %v", err, target)
		}
	}
}

// wantEnd waits for the end of the lease's context and says when it was.
func wantEnd(t *testing.T, l *client.Lease, cause error) time.Time {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(time.Hour):
		t.Fatalf("the lease has not ended within an hour, want %v", cause)
	}
	wantIs(t, context.Cause(l.Context()), cause)
	return time.Now()
}
