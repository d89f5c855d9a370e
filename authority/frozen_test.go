package authority_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

func TestKF35AnAuthorityThatThawsGrantsNothingAndExpiresNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		frozen := &hooked{Store: w.memory.Open()}
		p1 := w.openOn(frozen, authority.Config{})
		p2 := w.open(authority.Config{})
		a := mustAcquire(t, p1, request("a", "1", 4*time.Second))
		b := background(t.Context(), p1, waiting("b", "1", 4*time.Second))
		for range 3 {
			time.Sleep(time.Second)
			if _, err := p1.Renew(t.Context(), a.TenureRef); err != nil {
				t.Fatal(err)
			}
		}
		// P1 stands still for 10 s in the middle of a round; its renewals pile up
		// there, A's client goes on at P2.
		thaw := make(chan struct{})
		frozen.hook(func(h *hooked) { h.read = func([]store.Query) error { <-thaw; return nil } })
		late := make(chan error, 1)
		go func() {
			_, err := p1.Renew(context.WithoutCancel(t.Context()), a.TenureRef)
			late <- err
		}()
		for range 10 {
			time.Sleep(time.Second)
			if _, err := p2.Renew(t.Context(), a.TenureRef); err != nil {
				t.Fatalf("renewal at the other process: %v", err)
			}
		}
		time.Sleep(time.Second)
		frozen.hook(func(h *hooked) { h.read = nil })
		close(thaw)
		if err := <-late; err != nil {
			t.Fatalf("the renewal that was queued: %v", err)
		}
		if st := status(t, p1); st.Holder.Fence != a.Fence {
			t.Fatalf("after the thaw the holder is %+v", st.Holder)
		}
		thawed := time.Now()
		if got := <-b; got.err != nil || got.at.Sub(thawed) < 4*time.Second {
			t.Fatalf("%v, granted %v after the last renewal", got.err, got.at.Sub(thawed))
		}
	})
}

func TestX4AFrozenAuthorityAloneHandlesQueuedRenewalsFirst(t *testing.T) {
	// A TTL of one tick: a gap that counts as a tick would end it at once.
	inBubble(t, func(t *testing.T, w *world) {
		frozen := &hooked{Store: w.memory.Open()}
		a := w.openOn(frozen, authority.Config{})
		held := mustAcquire(t, a, request("a", "1", 100*time.Millisecond))
		b := background(t.Context(), a, waiting("b", "1", time.Minute))
		time.Sleep(60 * time.Millisecond)
		thaw := make(chan struct{})
		frozen.hook(func(h *hooked) { h.read = func([]store.Query) error { <-thaw; return nil } })
		background(t.Context(), a, lastword.AcquireRequest{Resource: "x", Owner: "x", RequestID: "1", TTL: time.Hour})
		late := make(chan error, 1)
		go func() {
			_, err := a.Renew(context.WithoutCancel(t.Context()), held.TenureRef)
			late <- err
		}()
		time.Sleep(10 * time.Second)
		frozen.hook(func(h *hooked) { h.read = nil })
		close(thaw)
		if err := <-late; err != nil {
			t.Fatalf("the renewal that was queued: %v", err)
		}
		if got := <-b; got.err != nil {
			t.Fatal(got.err)
		}
	})
}

func TestR9AGrantDecidedBeforeTheSleepHasNoEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		frozen := &hooked{Store: w.memory.Open()}
		p1 := w.openOn(frozen, authority.Config{})
		p2 := w.open(authority.Config{})
		thaw := make(chan struct{})
		frozen.hook(func(h *hooked) {
			h.sent = func(_ context.Context, steps []store.Step) error {
				if writes(steps, func(r store.Record) bool { return r.Lease.Owner == "old" }) {
					<-thaw
				}
				return nil
			}
		})
		old := background(t.Context(), p1, request("old", "1", time.Second))
		b := mustAcquire(t, p2, request("b", "1", time.Minute))
		time.Sleep(10 * time.Second)
		frozen.hook(func(h *hooked) { h.sent = nil })
		close(thaw)
		got := <-old
		wantCode(t, got.err, lastword.ErrHeld)
		if st := status(t, p1); st.Holder.Fence != b.Fence {
			t.Fatalf("holder %+v", st.Holder)
		}
	})
}

func TestR3NobodyIsToldThatTheyHoldWhatHasLapsed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.openOn(lateFor(w, "a", 2*time.Second), authority.Config{})
		other := w.openOn(w.memory.Open(), authority.Config{})
		late := background(t.Context(), a, request("a", "1", time.Second))
		time.Sleep(time.Millisecond)
		next := background(t.Context(), other, waiting("b", "1", 10*time.Second))
		err := (<-late).err
		wantCode(t, err, lastword.ErrTenureEnded)
		if e, _ := errors.AsType[*lastword.Error](err); e.Ended.State != lastword.StateExpired || e.Ended.Fence == 0 {
			t.Errorf("ended %+v", e.Ended)
		}
		if got := <-next; got.err != nil || got.tenure.Previous.Owner != "a" {
			t.Errorf("the next one: %+v", got)
		}
	})
}

func TestR8NobodyIsToldThatTheyLapsedWhileTheStoreCallsThemHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.openOn(lateFor(w, "a", 2*time.Second), authority.Config{})
		got := mustAcquire(t, a, request("a", "1", time.Second))
		if got.Remaining != 0 {
			t.Fatalf("%v remain of a grant that took longer than its TTL", got.Remaining)
		}
		if st := status(t, a); st.Holder.Fence != got.Fence {
			t.Fatalf("status %+v", st)
		}
		if renewed, err := a.Renew(t.Context(), got.TenureRef); err != nil || renewed.Remaining != time.Second {
			t.Fatalf("a renewal tells: %+v, %v", renewed, err)
		}
	})
}

// lateFor is a store whose answers to what is written for owner come late.
func lateFor(w *world, owner string, by time.Duration) *hooked {
	slow := &hooked{Store: w.memory.Open()}
	slow.hook(func(h *hooked) {
		h.answered = func(steps []store.Step, _ []bool) error {
			if writes(steps, func(r store.Record) bool { return r.Lease.Owner == owner }) {
				slow.hook(func(h *hooked) { h.answered = nil })
				time.Sleep(by)
			}
			return nil
		}
	})
	return slow
}
