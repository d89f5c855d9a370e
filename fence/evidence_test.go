package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
)

// R16b: if the evidence cannot be written, the refusal is told all the same, and it
// never looks like an unknown outcome.
func TestARefusalOutlivesItsEvidence(t *testing.T) {
	w := newWorld(t)
	a, b := w.acquire(), w.acquire()
	w.mustApply(b, "b-1", 1)
	for _, fault := range []error{errors.New("disk full"), errLost} {
		_, err := fence.Apply(t.Context(), w.gate, noteless{w.place, fault}, callOf(a, "a-1"), set("x"))
		wantCode(t, err, lastword.CodeStaleOwner)
		if !errors.Is(err, lastword.ErrStale) || !errors.Is(fault, errLost) && !errors.Is(err, fault) {
			t.Errorf("%v does not match both", err)
		}
		if errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Errorf("%v looks like an unknown outcome", err)
		}
	}
}

// R16b: the caller's context may have ended when the evidence is written.
func TestEvidenceDoesNotEndWithTheCaller(t *testing.T) {
	w := newWorld(t)
	a, b := w.acquire(), w.acquire()
	w.mustApply(b, "b-1", 1)
	ctx, cancel := context.WithCancel(t.Context())
	p := cancelling{w.place, cancel}
	_, err := fence.Apply(ctx, w.gate, p, callOf(a, "a-1"), set("x"))
	wantCode(t, err, lastword.CodeStaleOwner)
	if ctx.Err() == nil {
		t.Fatal("the context did not end")
	}
	if i, err := fence.Inspect(t.Context(), w.gate, w.place, doc); err != nil || i.Refusals[lastword.StaleOwner] != 1 {
		t.Fatalf("got %+v, %v", i.Refusals, err)
	}
}

// R16b, KF-22: evidence that cannot be written before the caller's deadline does not
// hold the refusal up, and is written with the next call.
func TestEvidenceThatComesTooLateIsWrittenByTheNextCall(t *testing.T) {
	w := newWorld(t)
	a, b := w.acquire(), w.acquire()
	w.mustApply(b, "b-1", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	p := &busy{Place: w.place, locked: true}
	_, err := fence.Apply(ctx, w.gate, p, callOf(a, "a-1"), set("x"))
	wantCode(t, err, lastword.CodeStaleOwner)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the refusal took %v, with 50ms to go", took)
	}
	w.mustApply(b, "b-2", 2) // still locked: it is not held up for long
	p.locked = false
	w.mustApply(b, "b-3", 3)
	if i, err := fence.Inspect(t.Context(), w.gate, w.place, doc); err != nil || i.Refusals[lastword.StaleOwner] != 1 {
		t.Fatalf("got %+v, %v, want one refusal counted", i.Refusals, err)
	}
}

// busy is a place at which evidence waits for a lock until its context ends.
type busy struct {
	*memfence.Place
	locked bool
}

func (p *busy) Note(ctx context.Context, key fence.Key, e fence.Evidence) error {
	if !p.locked {
		return p.Place.Note(ctx, key, e)
	}
	<-ctx.Done()
	return &lastword.Error{Code: lastword.CodeUnavailable, Op: "note", Message: "busy", Err: ctx.Err()}
}

type cancelling struct {
	*memfence.Place
	cancel func()
}

func (p cancelling) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	defer p.cancel()
	return p.Place.Transact(ctx, key, fn)
}

// within makes one refused write in a transaction of its own.
func (w *world) within(g *fence.Gate, p fence.Place[*memfence.Tx], h *holder, o string) error {
	w.Helper()
	tx, err := w.place.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	defer tx.Rollback()
	_, err = fence.Within(w.Context(), g, p, tx, callOf(h, o))
	return err
}

func TestEvidenceOfWithinIsWrittenByTheNextCallOrAFlush(t *testing.T) {
	w := newWorld(t)
	a, b := w.acquire(), w.acquire()
	w.mustApply(b, "b-1", 1)
	refusals := func() uint64 {
		i, err := fence.Inspect(t.Context(), w.gate, w.place, doc)
		if err != nil {
			t.Fatal(err)
		}
		return i.Refusals[lastword.StaleOwner]
	}
	wantCode(t, w.within(w.gate, w.place, a, "a-1"), lastword.CodeStaleOwner)
	if n := refusals(); n != 0 {
		t.Fatalf("%d refusals are noted inside the caller's transaction", n)
	}
	w.mustApply(b, "b-2", 2)
	if n := refusals(); n != 1 {
		t.Fatalf("%d refusals are noted after the next call, want 1", n)
	}
	// A flush that fails keeps what it has.
	wantCode(t, w.within(w.gate, noteless{w.place, errors.New("disk full")}, a, "a-1"), lastword.CodeStaleOwner)
	wantCode(t, w.within(w.gate, w.place, a, "a-1"), lastword.CodeStaleOwner)
	if err := w.gate.Flush(t.Context()); err == nil {
		t.Fatal("the flush did not fail")
	}
	if err := w.gate.Flush(t.Context()); err == nil {
		t.Fatal("what could not be written is gone")
	}
	if n := refusals(); n != 2 {
		t.Fatalf("%d refusals are noted, want 2", n)
	}
}

// What waits is bounded, what does not fit is told, and a freeze finds its place.
func TestWaitingEvidenceIsBounded(t *testing.T) {
	w := newWorld(t)
	a, b := w.acquire(), w.acquire()
	w.mustApply(b, "b-1", 1)
	const bound = 1024
	for i := range bound + 1 {
		err := w.within(w.gate, w.place, a, fmt.Sprintf("a-%d", i))
		if !errors.Is(err, lastword.ErrStale) {
			t.Fatal(err)
		}
		if full := errors.Is(err, lastword.ErrQuota); full != (i == bound) {
			t.Fatalf("refusal %d: told that it was not kept: %v", i, full)
		}
	}
	twin := w.acquire()
	twin.claims.Fence, twin.claims.LeaseID = b.claims.Fence, "twin"
	var err error
	if twin.grant, twin.digest, err = w.signer.Sign("", twin.claims); err != nil {
		t.Fatal(err)
	}
	if err := w.within(w.gate, w.place, twin, "t-1"); !errors.Is(err, lastword.ErrRegression) || errors.Is(err, lastword.ErrQuota) {
		t.Fatal(err)
	}
	if err := w.gate.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	i, err := fence.Inspect(t.Context(), w.gate, w.place, doc)
	if err != nil || !i.Record.Frozen || i.Refusals[lastword.StaleOwner] != bound-1 {
		t.Fatalf("got %+v, %v", i, err)
	}
}
