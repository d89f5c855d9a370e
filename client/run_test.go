package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

var errWork = errors.New("the work failed")

func TestRunReleasesAfterTheWork(t *testing.T) { // R28
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		for _, want := range []error{nil, errWork} {
			err := c.Run(t.Context(), doc, client.AcquireOptions{}, func(ctx context.Context, l *client.Lease) error {
				time.Sleep(time.Minute)
				if w.held(doc) != l.Fence() || ctx.Err() != nil {
					t.Errorf("held %s, context %v", w.held(doc), ctx.Err())
				}
				return want
			})
			if !errors.Is(err, want) || (err != nil) != (want != nil) {
				t.Errorf("got %v, want %v", err, want)
			}
			if f := w.held(doc); f != 0 {
				t.Errorf("fence %s is held after Run", f)
			}
		}
	})
}

func TestRunWithoutALeaseDoesNotCallTheWork(t *testing.T) { // KF-02
	inBubble(t, func(t *testing.T, w *world) {
		w.suffer(func(string) fault { return fault{err: &lastword.Error{Code: lastword.CodeInternal}} })
		err := w.client(client.Config{}).Run(t.Context(), doc, client.AcquireOptions{}, func(context.Context, *client.Lease) error {
			t.Error("the work ran")
			return nil
		})
		wantIs(t, err, lastword.ErrInternal)
	})
}

func TestAPanicOfTheWorkIsPassedOnAndTheLeaseReleased(t *testing.T) { // KF-11(a)
	inBubble(t, func(t *testing.T, w *world) {
		defer func() {
			if p := recover(); p != "broken" {
				t.Errorf("got panic %v", p)
			}
			if f := w.held(doc); f != 0 {
				t.Errorf("fence %s is held after the panic", f)
			}
		}()
		_ = w.client(client.Config{}).Run(t.Context(), doc, client.AcquireOptions{}, func(context.Context, *client.Lease) error { panic("broken") })
	})
}

func TestRenewalsOfWorkThatBlocksEndAtTheLongestHold(t *testing.T) { // KF-11(b)
	inBubble(t, func(t *testing.T, w *world) {
		start, unblock := time.Now(), make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- w.client(client.Config{}).Run(context.Background(), doc, client.AcquireOptions{TTL: 3 * time.Second, MaxHold: 10 * time.Second},
				func(ctx context.Context, l *client.Lease) error {
					if got := wantEnd(t, l, client.ErrMaxHold).Sub(start); got != 10*time.Second {
						t.Errorf("loss signal after %s", got)
					}
					wantIs(t, context.Cause(ctx), client.ErrMaxHold)
					wantState(t, l, lastword.HolderExpired)
					<-unblock
					return nil
				})
		}()
		time.Sleep(10*time.Second + time.Millisecond)
		if w.held(doc) != 1 || w.count("release") != 0 {
			t.Error("released although the work has not stopped (KF-14)")
		}
		b := w.lease(w.client(client.Config{}), client.AcquireOptions{Wait: time.Minute})
		if got := time.Since(start); got > 13*time.Second || b.Fence() != 2 {
			t.Errorf("b has fence %s after %s", b.Fence(), got)
		}
		close(unblock)
		wantIs(t, <-done, lastword.ErrNotHolder, client.ErrMaxHold)
		if f := w.held(doc); f != 2 {
			t.Errorf("the late release of a hit fence %s", f)
		}
	})
}

func TestRunSaysThatTheLeaseWasLost(t *testing.T) { // R28, KF-15
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		err := c.Run(t.Context(), doc, client.AcquireOptions{}, func(ctx context.Context, _ *client.Lease) error {
			w.revoke(doc)
			<-ctx.Done()
			wantIs(t, context.Cause(ctx), client.ErrRefused)
			return errWork
		})
		wantIs(t, err, errWork, lastword.ErrNotHolder, client.ErrRefused)
		err = c.Run(t.Context(), doc, client.AcquireOptions{}, func(ctx context.Context, _ *client.Lease) error {
			w.suffer(outage)
			<-ctx.Done()
			return nil // the work did not look
		})
		wantIs(t, err, lastword.ErrNotHolder, client.ErrExpired)
	})
}

func TestTheCallersContextEndsTheWorkNotTheLease(t *testing.T) { // R28, KF-14
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errWork) })
		err := w.client(client.Config{DrainTimeout: time.Minute}).Run(ctx, doc, client.AcquireOptions{}, func(ctx context.Context, l *client.Lease) error {
			<-ctx.Done()
			wantIs(t, context.Cause(ctx), errWork)
			time.Sleep(40 * time.Second) // the lease is kept meanwhile
			wantState(t, l, lastword.HolderHeld)
			return context.Cause(ctx)
		})
		wantIs(t, err, errWork)
		wantNot(t, err, lastword.ErrNotHolder)
		if w.held(doc) != 0 || w.count("release") != 1 {
			t.Errorf("calls: %v", w.calls)
		}
	})
}

func TestReleaseWaitsForTheWork(t *testing.T) { // R28, KF-14 (1)
	inBubble(t, func(t *testing.T, w *world) {
		leases, done := make(chan *client.Lease), make(chan error, 1)
		go func() {
			done <- w.client(client.Config{DrainTimeout: 30 * time.Second}).Run(context.Background(), doc, client.AcquireOptions{TTL: 9 * time.Second}, func(ctx context.Context, l *client.Lease) error {
				leases <- l
				<-ctx.Done()
				wantIs(t, context.Cause(ctx), client.ErrReleased)
				wantIs(t, l.Release(ctx), lastword.ErrInvalid) // it must not wait for itself
				wantIs(t, l.Close(), lastword.ErrUnavailable)
				time.Sleep(20 * time.Second)
				if _, release, err := l.Sequence(context.Background(), "r"); err != nil {
					t.Errorf("the last write: %v", err)
				} else {
					release()
				}
				return nil
			})
		}()
		l := <-leases
		start := time.Now()
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if got := time.Since(start); got != 20*time.Second {
			t.Errorf("released after %s, want after the work", got)
		}
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if n := w.count("release"); n != 1 {
			t.Errorf("%d releases", n)
		}
	})
}

func TestALeaseWhoseWorkDoesNotStopIsLeftToLapse(t *testing.T) { // R28, KF-14 (2)
	inBubble(t, func(t *testing.T, w *world) {
		leases, done := make(chan *client.Lease), make(chan error, 1)
		go func() {
			done <- w.client(client.Config{}).Run(context.Background(), doc, client.AcquireOptions{}, func(_ context.Context, l *client.Lease) error {
				leases <- l
				time.Sleep(time.Minute)
				return nil
			})
		}()
		l := <-leases
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		wantIs(t, l.Release(ctx), lastword.ErrUnavailable, context.DeadlineExceeded)
		wantState(t, l, lastword.HolderExpired)
		if w.held(doc) != 1 {
			t.Error("released although the work has not stopped")
		}
		wantIs(t, <-done, lastword.ErrNotHolder, client.ErrReleased)
		if n := w.count("release") + w.count("renew"); n != 0 {
			t.Errorf("calls: %v", w.calls)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) { // R27, R28
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		l := w.lease(c, client.AcquireOptions{})
		other, err := c.Acquire(t.Context(), "doc/2", client.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		waiting, worked := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := c.Acquire(context.Background(), doc, client.AcquireOptions{Wait: time.Hour})
			waiting <- err
		}()
		go func() {
			worked <- c.Run(context.Background(), "doc/3", client.AcquireOptions{}, func(ctx context.Context, _ *client.Lease) error {
				<-ctx.Done()
				return nil
			})
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, l, client.ErrReleased)
		wantEnd(t, other, client.ErrReleased)
		wantIs(t, <-waiting, lastword.ErrCanceled)
		if err := <-worked; err != nil {
			t.Errorf("run: %v", err)
		}
		for _, r := range []lastword.Resource{doc, "doc/2", "doc/3"} {
			if f := w.held(r); f != 0 {
				t.Errorf("%s: fence %s is held", r, f)
			}
		}
		_, err = c.Acquire(t.Context(), doc, client.AcquireOptions{})
		wantIs(t, err, lastword.ErrUnavailable)
		if err := c.Close(); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

func TestManyLeasesLeaveNothingBehind(t *testing.T) { // R28
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{})
		for i := range 200 {
			l := w.lease(c, client.AcquireOptions{})
			switch i % 3 {
			case 0:
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			case 1:
				w.revoke(doc)
				<-l.Context().Done()
			case 2:
				w.suffer(outage)
				<-l.Context().Done()
				w.suffer(nil)
				time.Sleep(time.Second)
			}
		}
		synctest.Wait() // a lease is taken off the list after its context has ended
		if n := client.Leases(c); n != 0 {
			t.Errorf("%d leases are still listed", n)
		}
	})
}
