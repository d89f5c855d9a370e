package authority_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// seedAt makes a store whose next start is in epoch, and whose next fence of
// jobs/nightly there has counter + 1.
func (w *world) seedAt(epoch uint32, counter uint64) {
	w.t.Helper()
	a := w.open(authority.Config{})
	held := mustAcquire(w.t, a, request("seed", "seed", time.Second))
	must(w.t, a.Release(w.t.Context(), held.TenureRef))
	_ = a.Close()
	s := w.memory.Open()
	view, err := s.Read(w.t.Context(), store.Query{Resource: held.Resource})
	must(w.t, err)
	h, rec := view.Header, view.Entries[0].Record
	h.Epoch = epoch - 1
	rec.Epoch, rec.Counter = epoch, counter
	rec.Revision++
	applied, err := s.Commit(w.t.Context(), store.Step{Epoch: view.Header.Epoch, Header: &h, Record: &rec})
	if err != nil || !applied[0] {
		w.t.Fatal(applied, err)
	}
	w.witness = authority.NewMemoryWitness() // it is adopted
}

// KF-18, R11, T21: the largest numbers are exact and distinct, the acquire after them is
// refused with the way out, and nothing wraps.
func TestKF18TheLargestFences(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.seedAt(lastword.MaxEpoch, lastword.MaxCounter-3)
	var log bytes.Buffer
	a := w.open(authority.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !strings.Contains(log.String(), "issuer epochs of this domain are running out") || !strings.Contains(log.String(), "left=0") {
		t.Errorf("no alarm of the epochs: %q", log.String())
	}
	for i, want := range []string{"9007199254740989", "9007199254740990", "9007199254740991"} {
		got := mustAcquire(t, a, request("o", fmt.Sprint(i), time.Second))
		if got.Fence.String() != want {
			t.Fatalf("fence %s, want %s", got.Fence, want)
		}
		verifyGrant(t, a, got)
		must(t, a.Release(t.Context(), got.TenureRef))
	}
	st := status(t, a)
	if st.NextFence != 0 {
		t.Fatalf("next fence %s", st.NextFence)
	}
	_, err := a.Acquire(t.Context(), request("o", "4", time.Second))
	wantCode(t, err, lastword.ErrExhausted)
	if !strings.Contains(err.Error(), "a new domain is the way out") {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "fences of this issuer epoch are running out") {
		t.Errorf("no alarm of the counter: %q", log.String())
	}
	_ = a.Close()
	_, err = authority.Open(t.Context(), w.memory.Open(), w.signer, authority.Config{Domain: domain, Witness: w.witness})
	wantCode(t, err, lastword.ErrExhausted)
	_, err = w.advance(authority.Config{}, authority.AdvanceRequest{Operator: "ann", Reason: "r", Restored: true})
	wantCode(t, err, lastword.ErrExhausted)
}

// R11, T21: the counter of an epoch that is used up names a new epoch as the way out, and it
// is one: also without a restart.
func TestKF18ACounterThatIsUsedUpBeginsAgainInANewEpoch(t *testing.T) {
	w, ring := newRingWorld(t)
	defer w.close()
	w.seedAt(1, lastword.MaxCounter-2)
	seen := &lastState{make(chan uint64, 1024)}
	var log bytes.Buffer
	a := w.open(authority.Config{Observer: seen, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	last := mustAcquire(t, a, request("o", "1", time.Second))
	must(t, a.Release(t.Context(), last.TenureRef))
	if last.Fence.Counter() != lastword.MaxCounter-1 {
		t.Fatalf("fence %s", last.Fence.Text())
	}
	last = mustAcquire(t, a, request("o", "2", time.Minute))
	_, err := a.Acquire(t.Context(), request("p", "1", time.Second))
	wantCode(t, err, lastword.ErrHeld) // held is what it is
	must(t, a.Release(t.Context(), last.TenureRef))
	for range 3 {
		_, err = a.Acquire(t.Context(), request("p", "2", time.Second))
		wantCode(t, err, lastword.ErrExhausted)
	}
	if !strings.Contains(err.Error(), "lastword epoch advance") || strings.Count(log.String(), "running out") != 1 {
		t.Fatalf("%v; log %q", err, log.String())
	}
	if _, err := ring.BeginEpoch(); err != nil {
		t.Fatal(err)
	}
	must(t, a.Reload(t.Context()))
	next := mustAcquire(t, a, request("p", "3", time.Second))
	if next.Fence <= last.Fence || next.Fence.Counter() != 1 {
		t.Fatalf("fence %s after %s", next.Fence.Text(), last.Fence.Text())
	}
	_ = a.Close()
	if n := seen.highest(); n != lastword.MaxCounter {
		t.Fatalf("the observer was told of counter %d at most", n)
	}
}

// KF-18: a thousand acquires that the store refuses use up no number.
func TestKF18FailedAcquiresUseUpNoNumber(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	s := &hooked{Store: w.memory.Open()}
	a := w.openOn(s, authority.Config{})
	first := mustAcquire(t, a, request("o", "first", time.Second))
	must(t, a.Release(t.Context(), first.TenureRef))
	s.hook(func(h *hooked) {
		h.sent = func(context.Context, []store.Step) error {
			return &lastword.Error{Code: lastword.CodeUnavailable, Message: "injected: the database is read-only"}
		}
	})
	for i := range 1000 {
		_, err := a.Acquire(t.Context(), request("o", fmt.Sprint(i), time.Second))
		wantCode(t, err, lastword.ErrUnavailable)
	}
	s.hook(func(h *hooked) { h.sent = nil })
	if next := mustAcquire(t, a, request("o", "next", time.Second)); next.Fence != first.Fence+1 {
		t.Fatalf("fence %s after %s", next.Fence.Text(), first.Fence.Text())
	}
}

// lastState keeps the highest counter that was told.
type lastState struct{ counters chan uint64 }

func (s *lastState) Answered(context.Context, authority.Answer) {}

func (s *lastState) Report(r authority.Report) {
	s.counters <- r.State.Counter
}

func (s *lastState) highest() (n uint64) {
	for {
		select {
		case c := <-s.counters:
			n = max(n, c)
		default:
			return n
		}
	}
}
