package fence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
)

// watcher is an observer that remembers, and can be made to do worse.
type watcher struct {
	mu      sync.Mutex
	answers []fence.Answer
	before  func(fence.Answer)
}

func (o *watcher) Answered(_ context.Context, a fence.Answer) {
	if o.before != nil {
		o.before(a)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers = append(o.answers, a)
}

func (o *watcher) last(t *testing.T) fence.Answer {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.answers) == 0 {
		t.Fatal("no answer was told")
	}
	return o.answers[len(o.answers)-1]
}

// observed gives w a gate with an observer, on a clock that each look advances.
func (w *world) observed() *watcher {
	w.Helper()
	o := &watcher{}
	w.gate = w.newGate(func(c *fence.Config) {
		c.Observer = o
		var now time.Duration
		c.Elapsed = func() time.Duration { now += time.Second; return now }
	})
	return o
}

func TestAnObserverIsToldOfEveryVerdict(t *testing.T) {
	w := newWorld(t)
	o := w.observed()
	want := func(want fence.Answer) {
		t.Helper()
		want.Place, want.Mode, want.Domain, want.Took = w.place.Name(), fence.FenceOnly, domain, time.Second
		got := o.last(t)
		if got.Took == 2*time.Second { // the age of the place's floor was looked at, too
			want.Took = got.Took
		}
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	old, next := w.acquire(), w.acquire()
	w.mustApply(old, "op-1", 1)
	want(fence.Answer{Op: fence.OpApply, Resource: doc, Operation: "op-1", Fence: 1, Verdict: lastword.Applied})
	if r, err := w.apply(old, "op-1"); err != nil || r.Verdict != lastword.Replayed {
		t.Fatal(r, err)
	}
	want(fence.Answer{Op: fence.OpApply, Resource: doc, Operation: "op-1", Fence: 1, Verdict: lastword.Replayed})
	if _, err := fence.Advance(t.Context(), w.gate, w.place, callOf(next, "")); err != nil {
		t.Fatal(err)
	}
	want(fence.Answer{Op: fence.OpAdvance, Resource: doc, Fence: 2, Verdict: lastword.Applied})
	_, err := w.apply(old, "op-2")
	wantCode(t, err, lastword.CodeStaleOwner)
	want(fence.Answer{Op: fence.OpApply, Resource: doc, Operation: "op-2", Fence: 1, Verdict: lastword.StaleOwner})

	forged := callOf(next, "op-3")
	forged.Holder, forged.Mutation.Grant, forged.Resource = nil, next.grant[:len(next.grant)-8]+"AAAAAAAA", doc
	_, err = fence.Apply(t.Context(), w.gate, w.place, forged, set("x"))
	wantCode(t, err, lastword.CodeUnverified)
	want(fence.Answer{Op: fence.OpApply, Resource: doc, Operation: "op-3", Verdict: lastword.Unverified})
	forged.Mutation.Grant = ""
	_, err = fence.Apply(t.Context(), w.gate, w.place, forged, set("x"))
	wantCode(t, err, lastword.CodeFenceRequired)
	want(fence.Answer{Op: fence.OpApply, Resource: doc, Verdict: lastword.FenceRequired})
	_, err = fence.Apply(t.Context(), w.gate, w.place, callOf(next, ""), set("x"))
	wantCode(t, err, lastword.CodeInvalid)
	want(fence.Answer{Op: fence.OpApply, Resource: doc, Code: lastword.CodeInvalid})

	if _, found, err := fence.Lookup(t.Context(), w.gate, w.place, doc, "op-1"); err != nil || !found {
		t.Fatal(found, err)
	}
	want(fence.Answer{Op: fence.OpLookup, Resource: doc, Operation: "op-1", Verdict: lastword.Replayed})
	if _, found, err := fence.Lookup(t.Context(), w.gate, w.place, doc, "op-9"); err != nil || found {
		t.Fatal(found, err)
	}
	want(fence.Answer{Op: fence.OpLookup, Resource: doc, Operation: "op-9"})

	tx, err := w.place.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := fence.Within(t.Context(), w.gate, w.place, tx, callOf(next, "op-4")); err != nil {
		t.Fatal(err)
	}
	want(fence.Answer{Op: fence.OpWithin, Resource: doc, Operation: "op-4", Fence: 2, Verdict: lastword.Applied})
}

// P5: an unknown outcome is told as what it is.
func TestAnObserverIsToldOfAnUnknownOutcome(t *testing.T) {
	w := newWorld(t)
	o := w.observed()
	p := &losing{Place: w.place, next: []bool{true}}
	_, err := fence.Apply(t.Context(), w.gate, p, callOf(w.acquire(), "op-1"), set("1"))
	wantCode(t, err, lastword.CodeMutationUnknown)
	if got := o.last(t); got.Verdict != lastword.MutationUnknown || got.Operation != "op-1" || got.Fence != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestAnEffectsOwnErrorIsNoVerdict, even where it looks like one: of another gate,
// say. Nor is a panic, which passes.
func TestAnEffectsOwnErrorIsNoVerdict(t *testing.T) {
	w := newWorld(t)
	o := w.observed()
	h := w.acquire()
	_, err := fence.Apply(t.Context(), w.gate, w.place, callOf(h, "op-1"), func(context.Context, *memfence.Tx) ([]byte, error) {
		return nil, &lastword.Error{Code: lastword.CodeStaleOwner}
	})
	if !errors.Is(err, lastword.ErrStale) {
		t.Fatal(err)
	}
	if got := o.last(t); !got.EffectFailed || got.Verdict != "" || got.Code != "" {
		t.Errorf("got %+v", got)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the effect's panic did not pass")
			}
		}()
		_, _ = fence.Apply(t.Context(), w.gate, w.place, callOf(h, "op-1"), func(context.Context, *memfence.Tx) ([]byte, error) {
			panic("effect")
		})
	}()
	if got := o.last(t); got.Verdict != "" || got.Code != "" || got.EffectFailed {
		t.Errorf("a panic is told as %+v", got)
	}
}

// TestAnObserverThatPanicsHarmsNobody.
func TestAnObserverThatPanicsHarmsNobody(t *testing.T) {
	w := newWorld(t)
	o := w.observed()
	told := 0
	o.before = func(fence.Answer) { told++; panic("observer") }
	h := w.acquire()
	w.mustApply(h, "op-1", 1)
	w.mustApply(h, "op-2", 2)
	if told != 2 {
		t.Errorf("told of %d calls, want 2", told)
	}
}

// TestAnObserverThatBlocksKeepsItsCallerOnly: neither the place nor the numbering of
// the same tenure is held meanwhile.
func TestAnObserverThatBlocksKeepsItsCallerOnly(t *testing.T) {
	w := newWorld(t)
	stuck, open := make(chan struct{}), make(chan struct{})
	w.gate = w.newGate(func(c *fence.Config) {
		c.Observer = &watcher{before: func(a fence.Answer) {
			if a.Operation == "op-1" {
				close(stuck)
				<-open
			}
		}}
	})
	h := w.acquire()
	done := make(chan error, 1)
	go func() {
		_, err := w.apply(h, "op-1")
		done <- err
	}()
	<-stuck
	w.mustApply(h, "op-2", 2)
	select {
	case err := <-done:
		t.Errorf("an answer got past its observer: %v", err)
	default:
	}
	close(open)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNoObserverCostsNothing: nothing is allocated for what nobody wants to hear.
func TestNoObserverCostsNothing(t *testing.T) {
	w := newWorld(t)
	measure := func() float64 {
		return testing.AllocsPerRun(200, func() {
			if _, _, err := fence.Lookup(t.Context(), w.gate, w.place, doc, "op"); err != nil {
				t.Fatal(err)
			}
		})
	}
	without := measure()
	w.gate = w.newGate(func(c *fence.Config) { c.Observer = silent{} })
	if with := measure(); with > without {
		t.Errorf("%v allocations with an observer, %v without", with, without)
	}
}

type silent struct{}

func (silent) Answered(context.Context, fence.Answer) {}
