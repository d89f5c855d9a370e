package authority_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

func TestR3NobodyPassesThoseWhoWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		// Who waits first has been cancelled elsewhere: in the round that finds out,
		// the resource is free and the request of the next one was not read.
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		p2 := w.open(authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		first := background(t.Context(), a, waiting("first", "1", time.Minute))
		second := background(t.Context(), a, waiting("second", "1", time.Minute))
		thaw := make(chan struct{})
		s.hook(func(h *hooked) { h.read = func([]store.Query) error { <-thaw; return nil } })
		time.Sleep(200 * time.Millisecond)
		if err := p2.Cancel(t.Context(), "jobs/nightly", "first", "1"); err != nil {
			t.Fatal(err)
		}
		if err := p2.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		barging := background(t.Context(), a, waiting("barging", "1", time.Minute))
		s.hook(func(h *hooked) { h.read = nil })
		close(thaw)
		wantCode(t, (<-first).err, lastword.ErrCanceled)
		got := <-second
		if got.err != nil || got.tenure.Fence.Counter() != 1 && got.tenure.Fence.Counter() != 2 {
			t.Fatalf("second in the queue: %+v", got)
		}
		synctest.Wait()
		select {
		case b := <-barging:
			t.Fatalf("who came last was served: %+v", b)
		default:
		}
	})
}

func TestR3NobodyPassesInOneRoundWithACancel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		first := background(t.Context(), a, waiting("first", "1", time.Minute))
		second := background(t.Context(), a, waiting("second", "1", time.Minute))
		// Between two looks at the queue, so that of it only the first is read.
		time.Sleep(40 * time.Millisecond)
		thaw := make(chan struct{})
		s.hook(func(h *hooked) { h.read = func([]store.Query) error { <-thaw; return nil } })
		background(t.Context(), a, lastword.AcquireRequest{Resource: "x", Owner: "x", RequestID: "1", TTL: time.Hour})
		errs := make(chan error, 2)
		go func() { errs <- a.Cancel(context.WithoutCancel(t.Context()), "jobs/nightly", "first", "1") }()
		go func() { errs <- a.Release(context.WithoutCancel(t.Context()), holder.TenureRef) }()
		synctest.Wait()
		barging := background(t.Context(), a, request("barging", "1", time.Minute))
		s.hook(func(h *hooked) { h.read = nil })
		close(thaw)
		for range 2 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, (<-first).err, lastword.ErrCanceled)
		wantCode(t, (<-barging).err, lastword.ErrHeld)
		if got := <-second; got.err != nil {
			t.Fatal(got.err)
		}
	})
}

func TestR3AWaiterThatComesBackKeepsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		ctx, leave := context.WithCancel(t.Context())
		first := background(ctx, a, waiting("first", "1", time.Minute))
		second := background(t.Context(), a, waiting("second", "1", time.Minute))
		leave()
		wantCode(t, (<-first).err, lastword.ErrUnavailable)
		synctest.Wait()
		if st := status(t, a); st.Waiters != 1 {
			t.Fatalf("%d waiters while one has left, want 1", st.Waiters)
		}
		time.Sleep(time.Second)
		back := background(t.Context(), a, waiting("first", "1", time.Minute))
		if err := a.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		got := <-back
		if got.err != nil || got.tenure.Fence != 2 {
			t.Fatalf("who came back: %+v", got)
		}
		if err := a.Release(t.Context(), got.tenure.TenureRef); err != nil {
			t.Fatal(err)
		}
		if next := <-second; next.err != nil || next.tenure.Fence != 3 {
			t.Fatalf("got %+v", next)
		}
	})
}

func TestR3APlaceIsNotKeptForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{MaxWaiters: 2})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		ctx, leave := context.WithCancel(t.Context())
		background(ctx, a, waiting("first", "1", time.Minute))
		second := background(t.Context(), a, waiting("second", "1", time.Minute))
		leave()
		synctest.Wait()
		// A place that is kept does not keep anybody out.
		third := background(t.Context(), a, waiting("third", "1", time.Minute))
		_, err := a.Acquire(t.Context(), waiting("fourth", "1", time.Minute))
		wantCode(t, err, lastword.ErrQuota)
		time.Sleep(3 * time.Second)
		if err := a.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		got := <-second
		if got.err != nil || got.tenure.Fence != 2 {
			t.Fatalf("got %+v", got)
		}
		_ = a.Release(t.Context(), got.tenure.TenureRef)
		if got := <-third; got.err != nil {
			t.Fatal(got.err)
		}
	})
}

func TestR2CallsOfOneRequestGetOneGrantAndNeverAnothersTerms(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		one := background(t.Context(), a, waiting("w", "1", time.Minute))
		same := background(t.Context(), a, waiting("w", "1", time.Minute))
		other := background(t.Context(), a, waiting("w", "1", time.Hour))
		if st := status(t, a); st.Waiters != 1 {
			t.Fatalf("%d waiters, want one request", st.Waiters)
		}
		if err := a.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		x, y := <-one, <-same
		if x.err != nil || y.err != nil || x.tenure.Grant != y.tenure.Grant {
			t.Fatalf("got %+v and %+v", x, y)
		}
		wantCode(t, (<-other).err, lastword.ErrRequestConflict)
	})
}

func TestR1AHeldAnswerDoesNotTellWhatIsNotDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		first := background(t.Context(), a, waiting("first", "1", time.Minute))
		r := waiting("second", "1", time.Minute)
		r.Wait = 2 * time.Second
		second := background(t.Context(), a, r)
		// The commit that hands over to the first one hangs, and is lost.
		s.hook(func(h *hooked) {
			h.sent = func(_ context.Context, steps []store.Step) error {
				if writes(steps, func(r store.Record) bool { return r.Lease.Owner == "first" }) {
					s.hook(func(h *hooked) { h.sent = nil })
					time.Sleep(4 * time.Second)
					return lostReply()
				}
				return nil
			}
		})
		// It comes with a look at the queue, which reads the second one's request too.
		thaw := make(chan struct{})
		s.hook(func(h *hooked) { h.read = func([]store.Query) error { <-thaw; return nil } })
		time.Sleep(150 * time.Millisecond)
		released := make(chan error, 1)
		go func() { released <- a.Release(context.WithoutCancel(t.Context()), holder.TenureRef) }()
		synctest.Wait()
		s.hook(func(h *hooked) { h.read = nil })
		close(thaw)
		got := <-second
		var e *lastword.Error
		if wantCode(t, got.err, lastword.ErrHeld); !errors.As(got.err, &e) || e.Holder != "holder" {
			t.Fatalf("got %v, want the holder that was durable", got.err)
		}
		wantCode(t, <-released, lastword.ErrUnknownOutcome)
		wantCode(t, (<-first).err, lastword.ErrUnknownOutcome)
		if st := status(t, a); st.Holder.Fence != holder.Fence || st.NextFence != 2 {
			t.Fatalf("status %+v", st)
		}
	})
}

func TestT23WaitersDoNotKeepTheirOwnerFromRenewing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{MaxPerOwner: 3})
		held := mustAcquire(t, a, request("o", "1", time.Minute))
		for i := range 3 {
			background(t.Context(), a, waiting("o", fmt.Sprint("w", i), time.Minute))
		}
		_, err := a.Acquire(t.Context(), request("o", "2", time.Minute))
		wantCode(t, err, lastword.ErrQuota)
		if _, err := a.Renew(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		synctest.Wait()
	})
}

func TestR3AWaitThatEndsWhileTheStoreIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		mustAcquire(t, a, request("holder", "1", time.Minute))
		s.hook(func(h *hooked) {
			h.read = func([]store.Query) error {
				s.hook(func(h *hooked) { h.read = nil })
				time.Sleep(3 * time.Second)
				return nil
			}
		})
		r := waiting("w", "1", time.Minute)
		r.Wait = time.Second
		at := time.Now()
		_, err := a.Acquire(t.Context(), r)
		wantCode(t, err, lastword.ErrHeld)
		if late := time.Since(at); late > 3100*time.Millisecond {
			t.Fatalf("answered after %v, want when the store did", late)
		}
		if st := status(t, a); st.Waiters != 0 {
			t.Fatalf("%d waiters left", st.Waiters)
		}
	})
}

func TestAnAcquireSaysOnceThatItBeginsToWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		queued := make(chan string, 10)
		say := func(who string) func() { return func() { queued <- who } }
		holder, err := a.AcquireQueued(t.Context(), waiting("holder", "1", time.Minute), say("holder"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := a.AcquireQueued(t.Context(), waiting("next", "1", time.Minute), say("next"))
			done <- err
		}()
		time.Sleep(10 * time.Second) // the queue is looked at often meanwhile
		if err := a.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := len(queued); n != 1 || <-queued != "next" {
			t.Errorf("%d said that they wait, want the one that did, once", n)
		}
	})
}
