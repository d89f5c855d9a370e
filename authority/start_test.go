package authority_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

var errCrash = errors.New("injected: crashed here")

// crashing starts an authority that dies at the n-th durable step (1 is the first),
// before it or after it; done is false if it did not get that far.
func (w *world) crashing(n int, after bool, cfg authority.Config) (a *authority.Authority, crashed bool) {
	w.t.Helper()
	count := 0
	at := func(isAfter bool) error {
		if isAfter == after {
			if count++; count == n {
				crashed = true
				return errCrash
			}
		}
		return nil
	}
	s := &hooked{
		Store:    w.memory.Open(),
		sent:     func(context.Context, []store.Step) error { return at(false) },
		answered: func([]store.Step, []bool) error { return at(true) },
	}
	cfg.Domain, cfg.Witness = domain, &brittle{Witness: w.witness, step: at}
	a, err := authority.Open(w.t.Context(), s, w.signer, cfg)
	if crashed {
		if err == nil {
			w.t.Fatal("a start that crashed has succeeded")
		}
		return nil, true
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.opened = append(w.opened, a)
	return a, false
}

func TestR10AStartMayCrashAnywhereAndIsTakenOver(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; n <= 3; n++ {
			for _, first := range []bool{true, false} {
				t.Run(fmt.Sprintf("first=%v step %d after=%v", first, n, after), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world) {
						var before lastword.Tenure
						if !first {
							a := w.open(authority.Config{Witnessed: true})
							before = mustAcquire(t, a, request("a", "1", time.Second))
							_ = a.Close()
						}
						if _, crashed := w.crashing(n, after, authority.Config{}); !crashed {
							t.Fatalf("a start has fewer than %d durable steps", n)
						}
						a := w.open(authority.Config{})
						next := mustAcquire(t, a, waiting("b", "1", time.Second))
						if next.Fence <= before.Fence || !first && next.Fence.Epoch() == 0 {
							t.Fatalf("fence %s after %s", next.Fence.Text(), before.Fence.Text())
						}
						for range 3 { // crash again and again
							w.crashing(n, after, authority.Config{})
						}
						last := w.open(authority.Config{})
						if epoch(t, last) <= next.Fence.Epoch() {
							t.Fatalf("epoch %d after %d", epoch(t, last), next.Fence.Epoch())
						}
					})
				})
			}
		}
	}
}

func TestR10AnInterruptedFirstStartIsNoRegression(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.crashing(1, true, authority.Config{})
		// The interrupted one may only be slow, on another store: it keeps its epoch.
		if got := mustAcquire(t, w.open(authority.Config{}), request("a", "1", time.Second)); got.Fence.Epoch() != 1 || got.Fence.Counter() != 1 {
			t.Fatalf("fence %s, want the first one of epoch 1", got.Fence.Text())
		}
	})
}

// TestR10AnEpochIsFollowedOnlyOnceTheWitnessKnows: a process starts and crashes
// after it has set the store's epoch. One that runs goes on with that epoch; a backup
// from before it must not pass for the store afterwards.
func TestR10AnEpochIsFollowedOnlyOnceTheWitnessKnows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		backup := w.memory.Copy()
		w.crashing(2, true, authority.Config{}) // witness announced, store's epoch set
		granted := mustAcquire(t, a, request("a", "1", time.Second))
		if granted.Fence.Epoch() != 1 {
			t.Fatalf("fence %s, want one of the epoch that the crashed start had set", granted.Fence.Text())
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		w.memory = backup
		_, err := authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
		wantCode(t, err, lastword.ErrRegression)
	})
}

// wantRegression asks everything that must not be answered (R10).
func wantRegression(t *testing.T, a *authority.Authority, held lastword.TenureRef) {
	t.Helper()
	r := request("z", "1", time.Second)
	r.Resource = "another"
	_, err := a.Acquire(t.Context(), r)
	wantCode(t, err, lastword.ErrRegression)
	_, err = a.Acquire(t.Context(), request("z", "1", time.Second)) // HELD otherwise
	wantCode(t, err, lastword.ErrRegression)
	_, err = a.Renew(t.Context(), held)
	wantCode(t, err, lastword.ErrRegression)
	_, err = a.Status(t.Context(), lastword.StatusQuery{Resource: held.Resource})
	wantCode(t, err, lastword.ErrRegression)
	_, err = a.Epoch()
	wantCode(t, err, lastword.ErrRegression)
}

// restored is a world whose store is a copy from before the latest start.
func restored(t *testing.T, w *world) (lost, kept lastword.Tenure) {
	t.Helper()
	a := w.open(authority.Config{})
	kept = mustAcquire(t, a, lastword.AcquireRequest{Resource: "kept", Owner: "a", RequestID: "1", TTL: time.Hour})
	backup := w.memory.Copy()
	_ = a.Close()
	a = w.open(authority.Config{})
	lost = mustAcquire(t, a, request("lost", "1", 40*time.Second))
	_ = a.Close()
	w.memory = backup
	return lost, kept
}

func TestR10ARestoredStoreDoesNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		restored(t, w)
		_, err := authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
		wantCode(t, err, lastword.ErrRegression)
		if strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "advance") {
			t.Fatalf("%q does not name the way out in one line", err)
		}
	})
}

func TestR10ARestoreBehindTheBackOfARunningAuthorityStopsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		swap := &swapped{Store: w.memory.Open()}
		first := w.openOn(swap, authority.Config{})
		swap.copy = w.memory.Copy().Open()
		_ = first.Close()
		a := w.openOn(swap, authority.Config{})
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		b := background(t.Context(), a, waiting("b", "1", time.Minute))
		swap.other.Store(true)
		time.Sleep(time.Second)
		wantCode(t, (<-b).err, lastword.ErrRegression)
		wantRegression(t, a, held.TenureRef)
	})
}

// swapped is a store that is exchanged behind an authority's back, between rounds.
type swapped struct {
	store.Store
	other atomic.Bool
	copy  store.Store
}

func (s *swapped) present() store.Store {
	if s.other.Load() {
		return s.copy
	}
	return s.Store
}

func (s *swapped) Read(ctx context.Context, q ...store.Query) (store.View, error) {
	return s.present().Read(ctx, q...)
}

func (s *swapped) Commit(ctx context.Context, steps ...store.Step) ([]bool, error) {
	return s.present().Commit(ctx, steps...)
}

func TestR10AdvanceOutranksEverythingAndWaitsForLostTenures(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lost, kept := restored(t, w)
		a := w.open(authority.Config{OnRegression: authority.Advance})
		at := time.Now()
		if _, err := a.Renew(t.Context(), kept.TenureRef); !errors.Is(err, lastword.ErrNotHolder) {
			t.Fatalf("a tenure found was renewed: %v", err)
		}
		_, err := a.Acquire(t.Context(), request("b", "1", time.Second))
		var held *lastword.Error
		if !errors.As(err, &held) || held.Code != lastword.CodeHeld || held.Holder != "" {
			t.Fatalf("got %v, want a refusal that names no holder", err)
		}
		r := waiting("b", "2", time.Second)
		r.Wait = time.Hour
		got := <-background(t.Context(), a, r)
		if got.err == nil {
			t.Fatalf("granted after %v, but the longest TTL is an hour", got.at.Sub(at))
		}
		r.RequestID = "3"
		got = <-background(t.Context(), a, r)
		if got.err != nil || got.at.Sub(at) < time.Hour || got.tenure.Fence <= lost.Fence {
			t.Fatalf("%+v after %v", got, got.at.Sub(at))
		}
		next := mustAcquire(t, w.open(authority.Config{}), lastword.AcquireRequest{Resource: "kept", Owner: "b", RequestID: "1", TTL: time.Second})
		if next.Fence <= kept.Fence || next.Previous.State != lastword.StateExpired {
			t.Fatalf("got %+v", next)
		}
	})
}

func TestR10AnInterruptedAdvanceIsStillARegression(t *testing.T) {
	// The witness of a marked store is lost; the advance over it dies after it has
	// announced itself. Without the advance, a start must not take it over.
	for n := 1; n <= 3; n++ {
		for _, after := range []bool{false, true} {
			inBubble(t, func(t *testing.T, w *world) {
				a := w.open(authority.Config{Witnessed: true})
				held := mustAcquire(t, a, request("a", "1", time.Minute))
				_ = a.Close()
				w.witness = authority.NewMemoryWitness()
				if _, crashed := w.crashing(n, after, authority.Config{OnRegression: authority.Advance}); !crashed {
					t.Fatalf("an advance has fewer than %d steps", n)
				}
				b, err := authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
				if err != nil {
					wantCode(t, err, lastword.ErrRegression)
					b = w.open(authority.Config{OnRegression: authority.Advance})
				} else {
					w.opened = append(w.opened, b)
				}
				_, err = b.Renew(t.Context(), held.TenureRef)
				wantCode(t, err, lastword.ErrNotHolder)
				_, err = b.Acquire(t.Context(), request("b", "1", time.Second))
				wantCode(t, err, lastword.ErrHeld)
			})
		}
	}
}

func TestR10AnAdvanceCountsTheEpochsOfRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		for range 5 {
			_ = a.Close()
			a = w.open(authority.Config{})
		}
		high := mustAcquire(t, a, request("a", "1", time.Second))
		_ = a.Close()
		// The header went back, the records did not, and the witness is another one.
		s := w.memory.Open()
		view, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old := view.Header
		old.Epoch = 1
		if _, err := s.Commit(t.Context(), store.Step{Epoch: view.Header.Epoch, Header: &old}); err != nil {
			t.Fatal(err)
		}
		w.witness = authority.NewMemoryWitness()
		if _, err := w.witness.Swap(t.Context(), nil, authority.Mark{Current: 2, Store: "another", Longest: 1}); err != nil {
			t.Fatal(err)
		}
		b := w.open(authority.Config{OnRegression: authority.Advance, MaxTTL: time.Minute})
		next := mustAcquire(t, b, waiting("b", "1", time.Second))
		if next.Fence <= high.Fence {
			t.Fatalf("fence %s after %s", next.Fence.Text(), high.Fence.Text())
		}
	})
}

func TestR10AnEmptiedStoreIsARegression(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		before := mustAcquire(t, a, request("a", "1", 2*time.Second))
		_ = a.Close()
		w.memory = memstore.New()
		_, err := authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
		wantCode(t, err, lastword.ErrRegression)
		b := w.open(authority.Config{OnRegression: authority.Advance, MaxTTL: time.Minute})
		at := time.Now()
		next := mustAcquire(t, b, waiting("b", "1", time.Second))
		if next.Fence <= before.Fence || time.Since(at) < 2*time.Second {
			t.Fatalf("fence %s after %v", next.Fence.Text(), time.Since(at))
		}
	})
}

func TestR10OfACloneTheOlderOneStops(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		clone := w.memory.Copy()
		b := w.openOn(clone.Open(), authority.Config{})
		time.Sleep(110 * time.Millisecond)
		wantRegression(t, a, held.TenureRef)
		if _, err := b.Renew(t.Context(), held.TenureRef); err != nil {
			t.Fatalf("at the newer one: %v", err)
		}
	})
}

func TestR10TheWitnessIsReadAtLeastEveryShortestTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{Tick: 10 * time.Second})
		clone := w.memory.Copy()
		w.openOn(clone.Open(), authority.Config{})
		time.Sleep(100 * time.Millisecond)
		_, err := a.Acquire(t.Context(), request("a", "1", time.Second))
		wantCode(t, err, lastword.ErrRegression)
	})
}

func TestR10AMissingWitnessIsAdoptedOnlyBesideAnUnmarkedStore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		held := mustAcquire(t, a, request("a", "1", 30*time.Second))
		_ = a.Close()
		w.witness = authority.NewMemoryWitness()
		var log bytes.Buffer
		b := w.open(authority.Config{Witnessed: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if !strings.Contains(log.String(), "witness was missing") {
			t.Fatalf("no warning in %q", log.String())
		}
		if mark, _ := w.witness.Load(t.Context()); mark == nil || mark.Longest != store.Span(30*time.Second) {
			t.Fatalf("the mark is %+v, want the longest TTL of what was found", mark)
		}
		if _, err := b.Renew(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		_ = b.Close()
		w.witness = authority.NewMemoryWitness()
		_, err := authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
		wantCode(t, err, lastword.ErrRegression)
	})
}

func TestR10NoGrantWhileTheWitnessIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		witness := &brittle{Witness: w.witness}
		a := w.open(authority.Config{Witness: witness})
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		b := background(t.Context(), a, waiting("b", "1", time.Minute))
		witness.setBroken(true)
		asked := witness.asked()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := witness.asked() - asked; n > 40 {
			t.Fatalf("the witness was asked %d times in 1s while it was away", n)
		}
		_, err := a.Acquire(t.Context(), lastword.AcquireRequest{Resource: "x", Owner: "a", RequestID: "1", TTL: time.Second})
		wantCode(t, err, lastword.ErrUnavailable)
		_, err = a.Renew(t.Context(), held.TenureRef)
		wantCode(t, err, lastword.ErrUnavailable)
		witness.setBroken(false)
		time.Sleep(200 * time.Millisecond)
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatalf("after it came back: %v", err)
		}
		if got := <-b; got.err != nil {
			t.Fatalf("the waiter: %v", got.err)
		}
		// Away just when a longer TTL has to be told.
		c := mustAcquire(t, a, lastword.AcquireRequest{Resource: "y", Owner: "a", RequestID: "1", TTL: time.Minute})
		witness.setBroken(true)
		_, err = a.Acquire(t.Context(), lastword.AcquireRequest{Resource: "x", Owner: "a", RequestID: "2", TTL: time.Hour})
		wantCode(t, err, lastword.ErrUnavailable)
		witness.setBroken(false)
		got := mustAcquire(t, a, lastword.AcquireRequest{Resource: "x", Owner: "a", RequestID: "2", TTL: time.Hour})
		if mark, _ := w.witness.Load(t.Context()); mark.Longest != store.Span(time.Hour) || got.Fence != 1 || c.Fence != 1 {
			t.Fatalf("mark %+v", mark)
		}
	})
}

func TestR10ALongerTTLIsToldToAWitnessThatOthersWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p1, p2 := w.open(authority.Config{}), w.open(authority.Config{})
		for i := range 20 {
			for p, a := range []*authority.Authority{p1, p2} {
				r := lastword.AcquireRequest{Resource: lastword.Resource(fmt.Sprint(p, "/", i)), Owner: "a", RequestID: "1"}
				r.TTL = time.Duration(2*i+p+1) * time.Second
				mustAcquire(t, a, r)
			}
		}
		if mark, _ := w.witness.Load(t.Context()); mark.Longest != store.Span(40*time.Second) {
			t.Fatalf("mark %+v", mark)
		}
	})
}
