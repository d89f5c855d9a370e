package authority_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

func TestR2ARepetitionAfterALostAnswerGetsTheSameGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		for i, lose := range []func(h *hooked){
			func(h *hooked) { h.answered = func([]store.Step, []bool) error { return lostReply() } },
			func(h *hooked) { h.sent = func(context.Context, []store.Step) error { return lostReply() } },
			func(h *hooked) {
				h.answered = func([]store.Step, []bool) error { return errors.New("no words for it") }
			},
		} {
			r := request("a", fmt.Sprint(i), time.Minute)
			s.hook(lose)
			_, err := a.Acquire(t.Context(), r)
			wantCode(t, err, lastword.ErrUnknownOutcome)
			s.hook(func(h *hooked) { h.sent, h.answered = nil, nil })
			got := mustAcquire(t, a, r)
			if int(got.Fence) != i+1 || got.Repeated != (i != 1) {
				t.Fatalf("%d: %+v", i, got)
			}
			if err := a.Release(t.Context(), got.TenureRef); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestR3AWaiterGoesOnWaitingWhereTheStoreCertainlyDidNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		mustAcquire(t, a, request("holder", "1", time.Second))
		b := background(t.Context(), a, waiting("b", "1", time.Minute))
		var reads atomic.Int64
		s.hook(func(h *hooked) {
			h.read = func([]store.Query) error { reads.Add(1); return unavailable() }
			h.sent = func(context.Context, []store.Step) error { return unavailable() }
		})
		time.Sleep(5 * time.Second)
		if reads.Load() > 200 {
			t.Fatalf("%d readings in 5s of a store that is away", reads.Load())
		}
		s.hook(func(h *hooked) { h.read = nil })
		time.Sleep(5 * time.Second)
		s.hook(func(h *hooked) { h.sent = nil })
		if got := <-b; got.err != nil || got.tenure.Fence != 2 {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestARefusedStepRedecidesOnlyItsResource(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{})
		raw := w.memory.Open()
		thaw := make(chan struct{})
		s.hook(func(h *hooked) { h.read = func([]store.Query) error { <-thaw; return nil } })
		var waits []<-chan outcome
		for i := range 10 {
			r := request("a", "1", time.Minute)
			r.Resource = lastword.Resource(fmt.Sprint("r/", i))
			waits = append(waits, background(t.Context(), a, r))
		}
		commits := map[lastword.Resource]int{}
		s.hook(func(h *hooked) {
			h.read = nil
			h.sent = func(_ context.Context, steps []store.Step) error {
				for _, step := range steps {
					if step.Record == nil {
						continue
					}
					resource := step.Record.Resource
					if commits[resource]++; resource == "r/5" && commits[resource] == 1 {
						rec := *step.Record
						rec.Lease = store.Lease{}
						rec.Epoch, rec.Counter = 0, 41
						if ok, err := raw.Commit(context.Background(), store.Step{Epoch: step.Epoch, Record: &rec}); err != nil || !ok[0] {
							t.Error("no conflict made", err)
						}
					}
				}
				return nil
			}
		})
		close(thaw)
		for i, wait := range waits {
			got := <-wait
			want := lastword.Token(1)
			if i == 5 {
				want = 42
			}
			if got.err != nil || got.tenure.Fence != want {
				t.Fatalf("%d: %+v, want fence %d", i, got, want)
			}
		}
		for resource, n := range commits {
			if n > 1 && resource != "r/5" {
				t.Errorf("%s was written %d times", resource, n)
			}
		}
	})
}

// TestNothingAcknowledgedIsLostOnAnUnreliableStore runs holders over stores that
// lose, delay and refuse: what they were told stays true.
func TestNothingAcknowledgedIsLostOnAnUnreliableStore(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for part := range uint64(6) {
		inBubble(t, func(t *testing.T, w *world) {
			unsteady(t, w, seed+part)
		})
	}
}

func unsteady(t *testing.T, w *world, seed uint64) {
	var stores []*unreliable
	var processes []*authority.Authority
	for i := range uint64(2) {
		s := newUnreliable(w.memory.Open(), seed*10+i, 20*time.Millisecond)
		processes = append(processes, w.openOn(s, authority.Config{}))
		stores = append(stores, s)
	}
	for _, s := range stores {
		s.fail(0.1)
	}
	any := func(rnd *rand.Rand) *authority.Authority { return processes[rnd.IntN(len(processes))] }
	var mu sync.Mutex
	fences := map[lastword.Token]string{}
	var highest lastword.Token
	var wg sync.WaitGroup
	for i := range 8 {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for n := range 25 {
				r := waiting(fmt.Sprint("w", i), fmt.Sprint(n), 3*time.Second)
				mu.Lock()
				floor := highest
				mu.Unlock()
				held, err := insist(t, func() (lastword.Tenure, error) { return any(rnd).Acquire(t.Context(), r) })
				if errors.Is(err, lastword.ErrTenureEnded) {
					continue // granted while its answer was lost, and lapsed
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if by := fences[held.Fence]; by != "" || !held.Repeated && held.Fence <= floor {
					t.Errorf("fence %s of %q given to %s, after %s", held.Fence.Text(), by, r.Owner, floor.Text())
				}
				fences[held.Fence], highest = r.Owner, max(highest, held.Fence)
				mu.Unlock()
				keep(t, any, rnd, r, held)
			}
		})
	}
	wg.Wait()
	for _, s := range stores {
		s.fail(0)
	}
	time.Sleep(10 * time.Second)
	for _, p := range processes { // they have recovered
		got := mustAcquire(t, p, waiting("last", fmt.Sprint(len(fences)), time.Second))
		if got.Fence <= highest && !got.Repeated {
			t.Errorf("fence %s after %s", got.Fence.Text(), highest.Text())
		}
	}
}

// insist repeats a call until its outcome is known.
func insist(t *testing.T, call func() (lastword.Tenure, error)) (held lastword.Tenure, err error) {
	for range 300 {
		held, err = call()
		if !errors.Is(err, lastword.ErrUnavailable) && !errors.Is(err, lastword.ErrUnknownOutcome) {
			return held, err
		}
	}
	return held, err
}

// keep renews for a while, checks that the same tenure is still there within what
// was promised, and releases it or lets it lapse.
func keep(t *testing.T, any func(*rand.Rand) *authority.Authority, rnd *rand.Rand, r lastword.AcquireRequest, held lastword.Tenure) {
	trust := time.Time{}
	for range rnd.IntN(4) {
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
		sent := time.Now()
		renewed, err := any(rnd).Renew(t.Context(), held.TenureRef)
		switch {
		case err == nil && renewed.Fence != held.Fence:
			t.Errorf("renewed to fence %s", renewed.Fence.Text())
		case err == nil:
			trust = sent.Add(renewed.Remaining)
		case errors.Is(err, lastword.ErrNotHolder) && time.Now().Before(trust):
			t.Errorf("%s lost its tenure %v before the end of what it was promised", r.Owner, time.Until(trust))
			return
		case errors.Is(err, lastword.ErrNotHolder):
			return
		}
	}
	if rnd.IntN(3) > 0 {
		_, err := insist(t, func() (lastword.Tenure, error) {
			return lastword.Tenure{}, any(rnd).Release(t.Context(), held.TenureRef)
		})
		if err != nil && time.Now().Before(trust) {
			t.Errorf("release: %v", err)
		}
	}
}
