package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// diary keeps what happened in its order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// write is a guarded write that takes no time.
func write(l *client.Lease) (uint64, error) {
	seq, release, err := l.Sequence(context.Background(), "db:main doc/1")
	if err != nil {
		return 0, err
	}
	defer release()
	seq.Last++
	return seq.Last, nil
}

// TTL 10 s; a stop signal; the worker needs 3 s and makes two more writes; B waits.
func TestTheReleaseComesAfterTheLastWrite(t *testing.T) { // R28, KF-14 (1)
	inBubble(t, func(t *testing.T, w *world) {
		var log diary
		w.onServer = func(op string) {
			if op == "release" || op == "renew" && w.held(doc) == 1 { // B's grant is confirmed by a renewal
				log.note(op)
			}
		}
		var events listener
		a := w.client(client.Config{OnEvent: events.take})
		ctx, stop := context.WithCancel(t.Context())
		granted := make(chan error, 1)
		go func() {
			time.Sleep(time.Second)
			b, err := w.client(client.Config{}).Acquire(t.Context(), doc, client.AcquireOptions{Wait: time.Minute})
			log.note("grant of B")
			if err == nil && b.Fence() != 2 {
				err = errors.New("B has fence " + b.Fence().Text())
			}
			granted <- err
		}()
		time.AfterFunc(2*time.Second, stop)
		err := a.Run(ctx, doc, client.AcquireOptions{TTL: 10 * time.Second}, func(ctx context.Context, l *client.Lease) error {
			for range 10 {
				if _, err := write(l); err != nil {
					t.Error(err)
				}
			}
			<-ctx.Done()
			log.note("cancel")
			time.Sleep(time.Second)
			for range 2 {
				n, err := write(l)
				if err != nil {
					t.Errorf("a write of the drain: %v", err)
				}
				time.Sleep(time.Second)
				log.note("write " + string(rune('0'+n-10)))
			}
			return nil
		})
		if err := errors.Join(err, <-granted); err != nil {
			t.Fatal(err)
		}
		want := []string{"cancel", "renew", "write 1", "write 2", "release", "grant of B"}
		if got := log.all(); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		synctest.Wait()
		if !slices.ContainsFunc(events.events, func(e client.Event) bool { return e.Stopping && errors.Is(e.Cause, context.Canceled) }) {
			t.Errorf("no event says that the work was told to stop: %+v", events.events)
		}
	})
}

// The worker needs 60 s, the drain limit is 5 s; or it never looks at all.
func TestWorkThatOverrunsTheDrainLosesTheLeaseUnreleased(t *testing.T) { // R28, KF-14 (2, 3)
	stops := map[string]func(c *client.Client, l *client.Lease, cancel func()) error{
		"the caller's context": func(_ *client.Client, _ *client.Lease, cancel func()) error { cancel(); return nil },
		"Release":              func(_ *client.Client, l *client.Lease, _ func()) error { return l.Release(context.Background()) },
		"Close of the lease":   func(_ *client.Client, l *client.Lease, _ func()) error { return l.Close() },
		"Close of the client":  func(c *client.Client, _ *client.Lease, _ func()) error { return c.Close() },
	}
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var events listener
				c := w.client(client.Config{DrainTimeout: 5 * time.Second, OnEvent: events.take})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				leases, done := make(chan *client.Lease, 1), make(chan error, 1)
				go func() {
					done <- c.Run(ctx, doc, client.AcquireOptions{TTL: 10 * time.Second}, func(_ context.Context, l *client.Lease) error {
						leases <- l
						time.Sleep(time.Minute)
						_, err := write(l)
						wantIs(t, err, lastword.ErrNotHolder, client.ErrReleased, client.ErrOverrun)
						return nil
					})
				}()
				l := <-leases
				time.Sleep(time.Second)
				stopped := time.Now()
				told := make(chan error, 1)
				go func() { told <- stop(c, l, cancel) }()
				time.Sleep(5*time.Second - time.Millisecond)
				synctest.Wait()
				if !l.State().Admits() {
					t.Errorf("state inside the drain: %s", l.State())
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				wantState(t, l, lastword.HolderExpired)
				if w.held(doc) != 1 || w.count("release") != 0 {
					t.Error("released although the work has not stopped")
				}
				b := w.lease(w.client(client.Config{}), client.AcquireOptions{Wait: time.Minute})
				// The last renewal was sent 3⅓ s after the stop's second before it.
				if got := time.Since(stopped); b.Fence() != 2 || got < 5*time.Second || got > 15*time.Second {
					t.Errorf("B has fence %s after %s", b.Fence(), got)
				}
				err := <-done
				wantIs(t, err, lastword.ErrNotHolder, client.ErrOverrun)
				if w.count("release") != 0 {
					t.Error("a late release was sent")
				}
				switch err := <-told; name {
				case "Release", "Close of the client":
					wantIs(t, err, lastword.ErrUnavailable, client.ErrOverrun)
				case "Close of the lease":
					wantIs(t, err, lastword.ErrUnavailable)
				}
				if e := events.last(); e.To != lastword.HolderExpired || !errors.Is(e.Cause, client.ErrOverrun) {
					t.Errorf("the overrun is not reported: %+v", e)
				}
			})
		})
	}
}

func TestARequestsContextDoesNotEndWorkInTheBackground(t *testing.T) { // KF-13 (2)
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		worked := make(chan error, 1)
		handler := func(ctx context.Context) error {
			l, err := c.Acquire(ctx, doc, client.AcquireOptions{TTL: 3 * time.Second})
			if err != nil {
				return err
			}
			go func() {
				time.Sleep(20 * time.Second)
				_, err := write(l)
				worked <- errors.Join(err, l.Close())
			}()
			return nil
		}
		request, reply := context.WithCancel(t.Context())
		if err := handler(request); err != nil {
			t.Fatal(err)
		}
		reply() // the server ends the request's context
		if err := <-worked; err != nil {
			t.Error(err)
		}
	})
}

// The grant waits 8 s in a queue of the program before the work begins.
func TestAGrantThatWaitsInAQueueOfTheProgramIsStillLive(t *testing.T) { // KF-13 (4)
	for name, lost := range map[string]bool{"kept": false, "lost meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.client(client.Config{})
				queue := make(chan *client.Lease, 1)
				queue <- w.lease(c, client.AcquireOptions{TTL: 3 * time.Second})
				if lost {
					w.suffer(outage)
				}
				time.Sleep(8 * time.Second)
				l := <-queue
				_, err := write(l)
				if lost {
					wantIs(t, err, lastword.ErrNotHolder, client.ErrExpired)
					wantIs(t, context.Cause(l.Context()), client.ErrExpired)
					return
				}
				if err != nil || w.held(doc) != l.Fence() {
					t.Errorf("the work is refused: %v, held %s", err, w.held(doc))
				}
			})
		})
	}
}
