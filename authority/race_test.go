package authority_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// TestR1ACallThatEndsAtTheMomentOfItsGrant runs on the real clock: callers give up
// while the loop grants, parks and requeues.
func TestR1ACallThatEndsAtTheMomentOfItsGrant(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	defer w.close()
	conflicts := newUnreliable(w.memory.Open(), seed, 0)
	a := w.openOn(conflicts, authority.Config{Tick: 5 * time.Millisecond, MinTTL: 10 * time.Millisecond})
	conflicts.fail(0.02)
	counts := map[lastword.Code]int{}
	const rounds = 1500
	for n := range rounds {
		resource := lastword.Resource(fmt.Sprint("r/", n))
		holder, err := settle(t, a, lastword.AcquireRequest{Resource: resource, Owner: "h", RequestID: "1", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		r := lastword.AcquireRequest{Resource: resource, Owner: "w", RequestID: "1", TTL: time.Minute, Wait: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		byWait := rnd.IntN(2) == 0
		limit := time.Duration(rnd.IntN(400)) * time.Microsecond
		if byWait {
			r.Wait = limit + time.Microsecond
		}
		done := make(chan outcome, 1)
		go func() {
			tenure, err := a.Acquire(ctx, r)
			done <- outcome{tenure: tenure, err: err}
		}()
		released := make(chan struct{})
		go func() {
			defer close(released)
			time.Sleep(time.Duration(rnd.IntN(400)) * time.Microsecond)
			for range 50 {
				if err := a.Release(context.WithoutCancel(ctx), holder.TenureRef); err == nil {
					return
				}
			}
		}()
		if !byWait {
			time.Sleep(limit)
			cancel()
		}
		var got outcome
		select {
		case got = <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: the call hangs", n)
		}
		<-released
		cancel()
		code := lastword.Code("")
		var e *lastword.Error
		if errors.As(got.err, &e) {
			code = e.Code
		}
		counts[code]++
		checkEnd(t, a, r, got, code)
	}
	t.Logf("ends: %v", counts)
	if counts[""] == 0 || counts[lastword.CodeHeld] == 0 || counts[lastword.CodeUnavailable] == 0 {
		t.Errorf("the rounds did not meet every end: %v", counts)
	}
}

// settle repeats an acquire over injected faults until it is known.
func settle(t *testing.T, a *authority.Authority, r lastword.AcquireRequest) (tenure lastword.Tenure, err error) {
	t.Helper()
	for range 200 {
		tenure, err = a.Acquire(t.Context(), r)
		if !errors.Is(err, lastword.ErrUnavailable) && !errors.Is(err, lastword.ErrUnknownOutcome) {
			return tenure, err
		}
	}
	return tenure, err
}

// checkEnd: a tenure is live; a definite refusal left none, and no waiter.
func checkEnd(t *testing.T, a *authority.Authority, r lastword.AcquireRequest, got outcome, code lastword.Code) {
	t.Helper()
	var st lastword.Status
	err := lastword.ErrUnavailable
	for range 200 {
		st, err = a.Status(t.Context(), lastword.StatusQuery{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID})
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if st.Waiters != 0 {
		t.Fatalf("after %q %d still wait", code, st.Waiters)
	}
	switch code {
	case "":
		if st.Asked != lastword.StateHeld || st.Holder != got.tenure.TenureRef {
			t.Fatalf("granted, but the status is %+v", st)
		}
	case lastword.CodeHeld, lastword.CodeUnavailable:
		if st.Asked != lastword.StateFree {
			t.Fatalf("%v, but the request is %s", got.err, st.Asked)
		}
	case lastword.CodeUnknown:
	default:
		t.Fatalf("unexpected end %v", got.err)
	}
}

func TestR1AnUndecidedCallEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hang := &hooked{Store: w.memory.Open()}
		a := w.openOn(hang, authority.Config{})
		thaw := make(chan struct{})
		hang.hook(func(h *hooked) {
			h.sent = func(context.Context, []store.Step) error { <-thaw; return nil }
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := background(ctx, a, request("a", "1", time.Minute))
		second := background(ctx, a, request("b", "1", time.Minute))
		at := time.Now()
		wantCode(t, (<-first).err, lastword.ErrUnknownOutcome)
		got := <-second
		wantCode(t, got.err, lastword.ErrUnavailable)
		if got.at.Sub(at) > time.Second {
			t.Fatalf("ended after %v", got.at.Sub(at))
		}
		hang.hook(func(h *hooked) { h.sent = nil })
		close(thaw)
		again := mustAcquire(t, a, request("a", "1", time.Minute)) // R2 finds out
		if again.Fence != 1 || !again.Repeated {
			t.Fatalf("got %+v", again)
		}
		if st := status(t, a); st.Waiters != 0 || st.NextFence != 2 {
			t.Fatalf("status %+v", st)
		}
	})
}

func TestR1ACallWhoseCallerHasGoneIsNotDecidedAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		mustAcquire(t, a, lastword.AcquireRequest{Resource: "x", Owner: "x", RequestID: "1", TTL: time.Hour})
		// Its step meets a conflict while its caller leaves.
		raw := w.memory.Open()
		ctx, cancel := context.WithCancel(t.Context())
		s.hook(func(h *hooked) {
			h.sent = func(_ context.Context, steps []store.Step) error {
				if !writes(steps, func(r store.Record) bool { return r.Lease.Owner == "a" }) {
					return nil
				}
				s.hook(func(h *hooked) { h.sent = nil })
				view, _ := raw.Read(context.Background(), store.Query{Resource: "jobs/nightly"})
				rec := view.Entries[0].Record
				rec.Revision++
				if ok, err := raw.Commit(context.Background(), store.Step{Epoch: view.Header.Epoch, Record: &rec}); err != nil || !ok[0] {
					t.Error("no conflict made", err)
				}
				cancel()
				time.Sleep(time.Millisecond)
				return nil
			}
		})
		_, err := a.Acquire(ctx, request("a", "1", time.Minute))
		wantCode(t, err, lastword.ErrUnknownOutcome)
		if st := status(t, a); st.State != lastword.StateFree {
			t.Fatalf("granted to nobody: %+v", st)
		}
	})
}

func TestCloseEndsEveryCallAndEveryGoroutine(t *testing.T) {
	for _, hanging := range []bool{false, true} {
		t.Run(fmt.Sprint("hanging=", hanging), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &hooked{Store: w.memory.Open()}
				a := w.openOn(s, authority.Config{})
				mustAcquire(t, a, request("a", "1", time.Hour))
				var waits []<-chan outcome
				for i := range 20 {
					waits = append(waits, background(context.Background(), a, waiting(fmt.Sprint("w", i), "1", time.Minute)))
				}
				if hanging {
					s.hook(func(h *hooked) {
						h.sent = func(ctx context.Context, _ []store.Step) error { <-ctx.Done(); return lostReply() }
					})
					waits = append(waits, background(context.Background(), a, lastword.AcquireRequest{Resource: "x", Owner: "x", RequestID: "1", TTL: time.Hour}))
				}
				var closers sync.WaitGroup
				for range 3 {
					closers.Go(func() { _ = a.Close() })
				}
				closers.Wait()
				synctest.Wait()
				for i, wait := range waits {
					select {
					case got := <-wait:
						if i < 20 {
							wantCode(t, got.err, lastword.ErrUnavailable)
						} else {
							wantCode(t, got.err, lastword.ErrUnknownOutcome)
						}
					default:
						t.Fatalf("call %d hangs after the close", i)
					}
				}
				_, err := a.Acquire(context.Background(), request("b", "1", time.Minute))
				wantCode(t, err, lastword.ErrUnavailable)
				// A goroutine that is left over deadlocks the bubble.
			})
		})
	}
}

func TestR3ManyWaitersAreCheapAndServedFast(t *testing.T) {
	const n = 10_000
	w := newWorld(t)
	defer w.close()
	a := w.open(authority.Config{})
	holder := mustAcquire(t, a, request("holder", "1", time.Minute))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	type turn struct {
		at   time.Time
		i    int
		err  error
		held lastword.Tenure
	}
	turns := make(chan turn, n)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r := waiting(fmt.Sprint("w", i), "1", time.Minute)
			held, err := a.Acquire(ctx, r)
			turns <- turn{time.Now(), i, err, held}
		})
	}
	for status(t, a).Waiters < n {
		time.Sleep(time.Millisecond)
	}
	_, err := a.Acquire(t.Context(), waiting("one more", "1", time.Minute))
	wantCode(t, err, lastword.ErrQuota)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse) / n
	t.Logf("%d bytes for each waiter, its goroutine included", each)
	if each > 32<<10 {
		t.Errorf("%d bytes for each waiter", each)
	}
	var worst, asked time.Duration
	for range 200 {
		at := time.Now()
		st := status(t, a)
		asked = max(asked, time.Since(at))
		if st.Waiters == 0 {
			t.Fatal("status lost the waiters")
		}
		at = time.Now()
		if err := a.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		next := <-turns
		if next.err != nil {
			t.Fatal(next.err)
		}
		worst = max(worst, next.at.Sub(at))
		holder = next.held
	}
	t.Logf("hand-over %v at worst, status %v", worst, asked)
	if worst > time.Second || asked > time.Second {
		t.Errorf("hand-over %v, status %v", worst, asked)
	}
	stop()
	wg.Wait()
	for status(t, a).Waiters > 0 {
		time.Sleep(time.Millisecond)
	}
}
