package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
)

// R22, P5: a commit whose reply was lost is UNKNOWN, keeps its number for the same
// operation, and is settled by submitting that operation again, whether it had been
// done or not.
func TestResubmissionSettlesAnUnknownCommit(t *testing.T) {
	for _, done := range []bool{true, false} {
		w := newWorld(t)
		h := w.acquire()
		p := &losing{Place: w.place, next: []bool{done, done}}
		apply := func(o string) (lastword.Receipt, error) {
			return fence.Apply(t.Context(), w.gate, p, callOf(h, o), set(o))
		}
		_, err := apply("op-1")
		wantCode(t, err, lastword.CodeMutationUnknown)
		if got := h.sequence(t); got != (lastword.Sequence{Open: "op-1"}) {
			t.Fatalf("done %v: the numbering is %+v", done, got)
		}
		// Nothing may pass it.
		_, err = apply("op-2")
		e := wantCode(t, err, lastword.CodeOutOfOrder)
		if !strings.Contains(e.Message, `"op-1"`) {
			t.Fatalf("done %v: the error does not name the operation in the way: %v", done, e)
		}
		want := lastword.Applied
		if done {
			want = lastword.Replayed
		} else {
			// Lost a second time: still open.
			_, err = apply("op-1")
			wantCode(t, err, lastword.CodeMutationUnknown)
		}
		r, err := apply("op-1")
		if err != nil || r.Verdict != want || r.Seq != 1 {
			t.Fatalf("done %v: got %+v, %v", done, r, err)
		}
		if got := h.sequence(t); got != (lastword.Sequence{Last: 1}) {
			t.Fatalf("done %v: the numbering is %+v", done, got)
		}
		p.next = nil
		if r, err := apply("op-2"); err != nil || r.Seq != 2 {
			t.Fatalf("done %v: got %+v, %v", done, r, err)
		}
	}
}

// P5, KF-32 (2): the unknown operation comes back with other content. It is a
// conflict, and its number was consumed.
func TestAnUnknownOperationWithOtherContentSettlesToo(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	p := &losing{Place: w.place, next: []bool{true}}
	_, err := fence.Apply(t.Context(), w.gate, p, callOf(h, "op-1"), set("1"))
	wantCode(t, err, lastword.CodeMutationUnknown)
	c := callOf(h, "op-1")
	c.Content = []byte("other")
	_, err = fence.Apply(t.Context(), w.gate, p, c, set("other"))
	wantCode(t, err, lastword.CodeConflict)
	w.mustApply(h, "op-2", 2)
}

// R16a: a registration whose reply was lost is settled by registering again.
func TestAnUnknownRegistrationIsRepeated(t *testing.T) {
	for _, done := range []bool{true, false} {
		w := newWorld(t)
		h := w.acquire()
		p := &losing{Place: w.place, next: []bool{done}}
		_, err := fence.Advance(t.Context(), w.gate, p, callOf(h, ""))
		wantCode(t, err, lastword.CodeMutationUnknown)
		if rec, err := fence.Advance(t.Context(), w.gate, p, callOf(h, "")); err != nil || rec.Fence != 1 {
			t.Fatalf("done %v: got %+v, %v", done, rec, err)
		}
	}
}

// The effect's own error is the effect's, whatever it looks like: nothing stays, the
// number is dropped.
func TestAnErrorOfTheEffectIsNotTheWrites(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	w.mustApply(h, "op-1", 1)
	before := w.place.Snapshot()
	for _, boom := range []error{
		errors.New("boom"), lastword.ErrStale, lastword.ErrUnknownOutcome, context.DeadlineExceeded,
		&lastword.Error{Code: lastword.CodeMutationUnknown, Op: "apply", Message: "of another place"},
	} {
		_, err := fence.Apply(t.Context(), w.gate, w.place, callOf(h, "op-2"), func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
			tx.Set("doc", "half")
			return nil, boom
		})
		if !errors.Is(err, boom) {
			t.Errorf("got %v, want %v", err, boom)
		}
		if got := h.sequence(t); got != (lastword.Sequence{Last: 1}) {
			t.Errorf("%v: the numbering is %+v", boom, got)
		}
	}
	if w.place.Snapshot() != before {
		t.Fatal("something of a failed effect stayed")
	}
	w.mustApply(h, "op-3", 2)
}

func TestAPanicInTheEffectGivesTheNumberBack(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not go on")
			}
		}()
		_, _ = fence.Apply(t.Context(), w.gate, w.place, callOf(h, "op-1"), func(context.Context, *memfence.Tx) ([]byte, error) { panic("boom") })
	}()
	if got := h.sequence(t); got != (lastword.Sequence{}) {
		t.Fatalf("the numbering is %+v", got)
	}
	w.mustApply(h, "op-2", 1)
}

// R16: a place may run a write several times; the last run counts.
func TestAWriteThatIsRunAgainHasOneEffect(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	runs := 0
	r, err := fence.Apply(t.Context(), w.gate, retrying{w.place}, callOf(h, "op-1"), func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
		runs++
		n, _ := tx.Get("n")
		tx.Set("n", n+"x")
		return nil, nil
	})
	if n, _ := w.place.Get("n"); err != nil || r.Seq != 1 || runs != 3 || n != "x" {
		t.Fatalf("got %+v, %v after %d runs, n is %q", r, err, runs, n)
	}
	w.mustApply(h, "op-2", 2)
}

// An engine that could not do it has not done it.
func TestAnErrorOfThePlaceIsDefinite(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, fault := range []error{errors.New("disk full"), canceled.Err(), lastword.ErrUnavailable} {
		_, err := fence.Apply(t.Context(), w.gate, failing{w.place, fault}, callOf(h, "op-1"), set("1"))
		wantCode(t, err, lastword.CodeUnavailable)
		if !errors.Is(err, fault) {
			t.Errorf("%v does not match %v", err, fault)
		}
	}
	if got := h.sequence(t); got != (lastword.Sequence{}) {
		t.Fatalf("the numbering is %+v", got)
	}
	big := make([]byte, lastword.MaxResultBytes+1)
	_, err := fence.Apply(t.Context(), w.gate, w.place, callOf(h, "op-1"), func(context.Context, *memfence.Tx) ([]byte, error) { return big, nil })
	wantCode(t, err, lastword.CodeInvalid)
	w.mustApply(h, "op-1", 1)
}

// A place that commits against its contract leaves an open outcome, not a success.
func TestAPlaceThatCommitsAnywayIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	for _, run := range []bool{true, false} {
		h := w.acquire()
		_, err := fence.Apply(t.Context(), w.gate, careless{w.place, run}, callOf(h, "op"), func(context.Context, *memfence.Tx) ([]byte, error) {
			return nil, errors.New("boom")
		})
		wantCode(t, err, lastword.CodeMutationUnknown)
	}
}

// P4: never a foreign receipt.
func TestAForeignReceiptIsNotReturned(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	w.mustApply(h, "op-1", 1)
	for _, change := range []func(*lastword.Receipt){
		func(r *lastword.Receipt) { r.Resource = "doc/b" },
		func(r *lastword.Receipt) { r.Domain = "other.example" },
		func(r *lastword.Receipt) { r.Operation = "op-2" },
	} {
		p := wrapped{Place: w.place, receipt: change}
		r, err := fence.Apply(t.Context(), w.gate, p, callOf(h, "op-1"), func(context.Context, wrappedTx) ([]byte, error) { return nil, nil })
		wantCode(t, err, lastword.CodeInternal)
		if r.Operation != "" {
			t.Fatalf("got %+v", r)
		}
	}
}

func TestWaitingForANumberEndsWithTheContext(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	_, release, err := h.Sequence(t.Context(), record)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = fence.Apply(ctx, w.gate, w.place, callOf(h, "op-1"), set("1"))
	wantCode(t, err, lastword.CodeUnavailable)
	release()
	w.mustApply(h, "op-1", 1)
}

// P5: a commit that ended in a panic is as open as one whose reply was lost.
func TestAPanicInTheCommitKeepsTheNumber(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	func() {
		defer func() { _ = recover() }()
		_, _ = fence.Apply(t.Context(), w.gate, exploding{w.place}, callOf(h, "op-1"), set("1"))
	}()
	if got := h.sequence(t); got != (lastword.Sequence{Open: "op-1"}) {
		t.Fatalf("the numbering is %+v", got)
	}
	_, err := w.apply(h, "op-2")
	wantCode(t, err, lastword.CodeOutOfOrder)
	if r, err := w.apply(h, "op-1"); err != nil || r.Verdict != lastword.Replayed {
		t.Fatalf("got %+v, %v", r, err)
	}
	w.mustApply(h, "op-2", 2)
}
