package authority_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

func TestR10AnotherProcessMovesTheEpochAndTheFirstGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p1 := w.open(authority.Config{})
		first := mustAcquire(t, p1, request("a", "1", 10*time.Second))
		p2 := w.open(authority.Config{})
		if e1, e2 := epoch(t, p1), epoch(t, p2); e1 != 0 || e2 != 1 {
			t.Fatalf("epochs %d and %d, want 0 and 1", e1, e2)
		}
		if _, err := p1.Renew(t.Context(), first.TenureRef); err != nil {
			t.Fatalf("a renewal under the epoch before: %v", err)
		}
		if e := epoch(t, p1); e != 1 {
			t.Fatalf("the first process grants under %d, want the epoch of the second start", e)
		}
		if _, err := p2.Renew(t.Context(), first.TenureRef); err != nil {
			t.Fatal(err)
		}
		if err := p2.Release(t.Context(), first.TenureRef); err != nil {
			t.Fatal(err)
		}
		next := mustAcquire(t, p1, request("b", "1", time.Second))
		if next.Fence <= first.Fence || next.Fence.Epoch() != 1 {
			t.Fatalf("fence %s after %s", next.Fence.Text(), first.Fence.Text())
		}
	})
}

func TestR10TwoStartsBetweenTwoReadingsAreNoRegression(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		// The first process reads the store after one start and the witness after
		// the next one.
		var armed atomic.Bool
		between := &loadHook{Witness: w.witness, before: func() {
			if armed.CompareAndSwap(true, false) {
				w.open(authority.Config{})
			}
		}}
		p1 := w.open(authority.Config{Witness: between})
		synctest.Wait() // its loop has looked and sleeps: it learns of the next start below
		w.open(authority.Config{})
		armed.Store(true)
		mustAcquire(t, p1, request("a", "1", time.Second))
		if e := epoch(t, p1); e != 2 {
			t.Fatalf("epoch %d, want 2", e)
		}
	})
}

func TestR10AStartBesideAnotherStartIsNoRegression(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(authority.Config{})
		for loads := 1; loads <= 3; loads++ {
			n := 0
			between := &loadHook{Witness: w.witness}
			between.before = func() {
				if n++; n == loads {
					w.open(authority.Config{})
				}
			}
			w.open(authority.Config{Witness: between})
		}
	})
}

// loadHook runs something before a load.
type loadHook struct {
	authority.Witness
	before func()
}

func (l *loadHook) Load(ctx context.Context) (*authority.Mark, error) {
	if f := l.before; f != nil {
		f()
	}
	return l.Witness.Load(ctx)
}

func TestR9WhatAnotherProcessWroteInBetweenIsNotBuiltUpon(t *testing.T) {
	// One round of P1 both marks a lapsed tenure (for a cancel of another request)
	// and grants to a waiter; before its commit arrives, A renews at P2. Counted by
	// revisions, P2's write stands where P1's first one would have.
	inBubble(t, func(t *testing.T, w *world) {
		s1 := &hooked{Store: w.memory.Open()}
		p1 := w.openOn(s1, authority.Config{})
		p2 := w.open(authority.Config{})
		a := mustAcquire(t, p1, request("a", "1", time.Second))
		b := background(t.Context(), p1, waiting("b", "1", time.Second))
		time.Sleep(960 * time.Millisecond)
		synctest.Wait()
		s1.hook(func(h *hooked) {
			h.read = func([]store.Query) error {
				s1.hook(func(h *hooked) { h.read = nil })
				time.Sleep(70 * time.Millisecond)
				return nil
			}
			h.sent = func(_ context.Context, steps []store.Step) error {
				if writes(steps, func(r store.Record) bool { return r.Lease.Owner == "b" }) {
					s1.hook(func(h *hooked) { h.sent = nil })
					if _, err := p2.Renew(context.WithoutCancel(t.Context()), a.TenureRef); err != nil {
						t.Errorf("renewal at P2: %v", err)
					}
				}
				return nil
			}
		})
		background(t.Context(), p1, lastword.AcquireRequest{Resource: "x", Owner: "x", RequestID: "1", TTL: time.Hour})
		if err := p1.Cancel(t.Context(), "jobs/nightly", "x", "1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		renewed := time.Now()
		if st := status(t, p2); st.Holder.Fence != a.Fence {
			t.Fatalf("holder %+v, want a, who renewed", st.Holder)
		}
		got := <-b
		if got.err != nil || got.tenure.Fence <= a.Fence {
			t.Fatalf("got %+v", got)
		}
		if waited := got.at.Sub(renewed); waited < 950*time.Millisecond {
			t.Fatalf("granted %v after the renewal", waited)
		}
	})
}

func TestR3AWaiterKeepsItsPlaceWhenAnotherProcessComesBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s1 := &hooked{Store: w.memory.Open()}
		p1 := w.openOn(s1, authority.Config{})
		p2 := w.open(authority.Config{})
		a := mustAcquire(t, p1, request("a", "1", time.Minute))
		b := background(t.Context(), p1, waiting("b", "1", time.Minute))
		c := background(t.Context(), p1, waiting("c", "1", time.Minute))
		s1.hook(func(h *hooked) {
			h.sent = func(_ context.Context, steps []store.Step) error {
				if writes(steps, func(r store.Record) bool { return r.Lease.Owner == "b" }) {
					s1.hook(func(h *hooked) { h.sent = nil })
					// A's release reaches P2 too, and arrives first.
					if err := p2.Release(context.WithoutCancel(t.Context()), a.TenureRef); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
		})
		if err := p1.Release(t.Context(), a.TenureRef); err != nil {
			t.Fatal(err)
		}
		got := <-b
		if got.err != nil || got.tenure.Owner != "b" {
			t.Fatalf("got %+v", got)
		}
		if err := p1.Release(t.Context(), got.tenure.TenureRef); err != nil {
			t.Fatal(err)
		}
		if next := <-c; next.err != nil || next.tenure.Fence <= got.tenure.Fence {
			t.Fatalf("got %+v after %+v", next, got)
		}
	})
}

func TestR9WaitersAtOneProcessAreServedAfterWhatHappensAtAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p1, p2 := w.open(authority.Config{}), w.open(authority.Config{})
		a := mustAcquire(t, p1, request("a", "1", 2*time.Second))
		b := background(t.Context(), p2, waiting("b", "1", 2*time.Second))
		time.Sleep(300 * time.Millisecond)
		released := time.Now()
		if err := p1.Release(t.Context(), a.TenureRef); err != nil {
			t.Fatal(err)
		}
		got := <-b
		if late := got.at.Sub(released); got.err != nil || late > 101*time.Millisecond {
			t.Fatalf("%v, served %v after the release, want a tick at most", got.err, late)
		}
		granted := time.Now()
		c := background(t.Context(), p1, waiting("c", "1", time.Second))
		next := <-c
		if late := next.at.Sub(granted); next.err != nil || late < 2*time.Second || late > 2250*time.Millisecond {
			t.Fatalf("%v, taken over after %v, want the TTL of 2s and two ticks at most", next.err, late)
		}
		if next.tenure.Previous.State != lastword.StateExpired || next.tenure.Fence <= got.tenure.Fence {
			t.Fatalf("got %+v", next.tenure)
		}
	})
}

func TestR6aACancelAtOneProcessEndsTheWaitingAtAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p1, p2 := w.open(authority.Config{}), w.open(authority.Config{})
		mustAcquire(t, p1, request("a", "1", time.Minute))
		var waits []<-chan outcome
		for i := range 20 {
			waits = append(waits, background(t.Context(), p2, waiting(fmt.Sprint("w", i), "1", time.Second)))
		}
		for _, i := range []int{0, 13} {
			if err := p1.Cancel(t.Context(), "jobs/nightly", fmt.Sprint("w", i), "1"); err != nil {
				t.Fatal(err)
			}
			cancelled := time.Now()
			got := <-waits[i]
			wantCode(t, got.err, lastword.ErrCanceled)
			if late := got.at.Sub(cancelled); late > 500*time.Millisecond {
				t.Fatalf("place %d: the waiting ended %v after the cancel", i, late)
			}
		}
		if st := status(t, p2); st.Waiters != 18 {
			t.Fatalf("%d waiters, want 18", st.Waiters)
		}
		_ = p2.Close()
	})
}

func TestR9SeveralProcessesNeverGrantTwice(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inBubble(t, func(t *testing.T, w *world) {
		const workers, rounds = 12, 40
		processes := []*authority.Authority{w.open(authority.Config{}), w.open(authority.Config{}), w.open(authority.Config{})}
		var mu sync.Mutex
		var last lastword.Token
		holding := 0
		var wg sync.WaitGroup
		for i := range workers {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for n := range rounds {
					p := processes[rnd.IntN(len(processes))]
					tenure, err := p.Acquire(t.Context(), waiting(fmt.Sprint("w", i), fmt.Sprint(n), time.Second))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					holding++
					if holding != 1 || tenure.Fence <= last {
						t.Errorf("%d hold, fence %s after %s", holding, tenure.Fence.Text(), last.Text())
					}
					last = tenure.Fence
					mu.Unlock()
					time.Sleep(time.Duration(rnd.IntN(900)) * time.Millisecond)
					mu.Lock()
					holding--
					mu.Unlock()
					if rnd.IntN(3) > 0 {
						if err := processes[rnd.IntN(len(processes))].Release(t.Context(), tenure.TenureRef); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
	})
}
