package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// watcher is an observer that remembers, and can be made to do worse.
type watcher struct {
	mu      sync.Mutex
	answers []client.Answer
	changes []client.Change
	held    int
	missed  int
	before  func()
	values  []any // of contexts
}

type markKey struct{}

func (o *watcher) Answered(ctx context.Context, a client.Answer) {
	if o.before != nil {
		o.before()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.missed += a.Missed
	o.values = append(o.values, ctx.Value(markKey{}))
	o.answers = append(o.answers, a)
}

func (o *watcher) Changed(c client.Change) {
	if o.before != nil {
		o.before()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.missed += c.Missed
	o.held += c.Held
	o.changes = append(o.changes, c)
}

// outcomes are the answers as "op code fence".
func (o *watcher) outcomes() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range o.answers {
		all = append(all, fmt.Sprintf("%s %s %d", a.Op, a.Code, a.Fence))
	}
	return all
}

func TestAnObserverIsToldOfEveryOutcomeAndChange(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := &watcher{}
		c := w.client(client.Config{Observer: o})
		ctx := context.WithValue(t.Context(), markKey{}, "mark")
		l, err := c.Acquire(ctx, doc, client.AcquireOptions{TTL: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Acquire(ctx, doc, client.AcquireOptions{TTL: 6 * time.Second})
		wantIs(t, err, lastword.ErrHeld)
		time.Sleep(2500 * time.Millisecond) // one renewal
		synctest.Wait()
		if o.held != 1 {
			t.Errorf("got %d held leases, want 1", o.held)
		}
		if err := l.Complete(ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_ = l.Close() // nothing is sent
		synctest.Wait()
		want := []string{"acquire  1", "acquire HELD 0", "renew  1", "complete  1", "release  1"}
		if got := o.outcomes(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if want := []any{"mark", "mark", "mark", "mark", nil}; !slices.Equal(o.values, want) {
			t.Errorf("values of the contexts: got %v, want %v", o.values, want)
		}
		var way []string
		for _, c := range o.changes {
			way = append(way, fmt.Sprintf("%s %s %+d", c.From, c.To, c.Held))
		}
		if want := []string{"REQUESTED HELD +1", "HELD RENEWING +0", "RENEWING HELD +0", "HELD RELEASED -1"}; !slices.Equal(way, want) {
			t.Errorf("got %q, want %q", way, want)
		}
		if last := o.changes[len(o.changes)-1]; !errors.Is(last.Cause, client.ErrReleased) || o.held != 0 {
			t.Errorf("the last change is %+v, %d held", last, o.held)
		}
	})
}

// TestAnObserverIsToldHowLongAnAcquireWaited.
func TestAnObserverIsToldHowLongAnAcquireWaited(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := &watcher{}
		c := w.client(client.Config{Observer: o})
		first := w.lease(c, client.AcquireOptions{})
		time.AfterFunc(3*time.Second, func() { _ = first.Close() })
		w.lease(c, client.AcquireOptions{Wait: time.Minute})
		synctest.Wait()
		got := o.answers[len(o.answers)-1]
		if got.Op != client.OpAcquire {
			got = o.answers[len(o.answers)-2]
		}
		if !got.Waited || got.Took != 3*time.Second || got.Fence != 2 || time.Since(got.End) != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestAnObserverThatBlocksDelaysNothing: leases are renewed and end in time, others
// are acquired, and Close is through after its clean-up time. The newest news is kept,
// and the number of held leases comes out right (R28).
func TestAnObserverThatBlocksDelaysNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		open := make(chan struct{})
		o := &watcher{before: func() { <-open }}
		c := w.client(client.Config{Observer: o, CleanupTimeout: time.Second})
		l := w.lease(c, client.AcquireOptions{TTL: 6 * time.Second})
		const rounds = 10_000
		time.Sleep(rounds*2*time.Second + time.Second) // a renewal every 2 s
		if got := w.count("renew"); got != rounds || l.State() != lastword.HolderHeld {
			t.Errorf("%d renewals, want %d; the lease is %s", got, rounds, l.State())
		}
		w.revoke(doc)
		time.Sleep(2 * time.Second)
		wantEnd(t, l, client.ErrRefused)
		start := time.Now()
		w.lease(c, client.AcquireOptions{TTL: 6 * time.Second})
		if took := time.Since(start); took != 0 {
			t.Errorf("an acquire took %v", took)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("close took %v, want the clean-up time of 1s", took)
		}
		close(open)
		synctest.Wait()
		if o.held != 0 || o.missed == 0 {
			t.Errorf("%d held after the last change, %d missed", o.held, o.missed)
		}
		if total := len(o.answers) + len(o.changes) + o.missed; total != 3*rounds+9 { // of a first lease 5 beside its renewals, of a second one 4
			t.Errorf("%d told or missed, want %d", total, 3*rounds+9)
		}
		if last := o.changes[len(o.changes)-1]; last.To != lastword.HolderReleased {
			t.Errorf("the last change told is %+v", last)
		}
	})
}

// TestAnObserverThatPanicsIsToldOfWhatFollows.
func TestAnObserverThatPanicsIsToldOfWhatFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		told := 0
		o := &watcher{before: func() { told++; panic("observer") }}
		l := w.lease(w.client(client.Config{Observer: o}), client.AcquireOptions{TTL: 6 * time.Second})
		time.Sleep(2500 * time.Millisecond)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if told != 7 { // acquire, renew, release, and four changes
			t.Errorf("told %d times, want 7", told)
		}
	})
}

// TestARenewalThatTheEndOfItsLeaseCutShortIsNotTold: it is nobody's trouble.
func TestARenewalThatTheEndOfItsLeaseCutShortIsNotTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := &watcher{}
		l := w.lease(w.client(client.Config{Observer: o}), client.AcquireOptions{TTL: 6 * time.Second})
		w.suffer(only("renew", 1, fault{delay: time.Second}))
		time.Sleep(2500 * time.Millisecond) // it is on its way
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got, want := o.outcomes(), []string{"acquire  1", "release  1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
