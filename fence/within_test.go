package fence_test

import (
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// The numbering of a holder across transactions that the caller commits or not: it
// is settled at the record, by what was committed, and an operation whose outcome is
// unknown stays in the way.
func TestNumbersWithinAreSettledAtTheRecord(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	p := &losing{Place: w.place, next: []bool{false}}
	_, err := fence.Apply(t.Context(), w.gate, p, callOf(h, "lost"), set("lost"))
	wantCode(t, err, lastword.CodeMutationUnknown)

	within := func(o string, commit bool) (lastword.Receipt, error) {
		t.Helper()
		tx, err := w.place.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		r, err := fence.Within(t.Context(), w.gate, w.place, tx, callOf(h, o))
		if err == nil && commit {
			err = tx.Commit()
		}
		return r, err
	}
	_, err = within("other", true)
	wantCode(t, err, lastword.CodeOutOfOrder)
	// Submitted again and rolled back by the caller: still open.
	if r, err := within("lost", false); err != nil || r.Seq != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	_, err = within("other", true)
	wantCode(t, err, lastword.CodeOutOfOrder)
	if r, err := within("lost", true); err != nil || r.Seq != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if r, err := within("other", true); err != nil || r.Seq != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if r, err := within("lost", true); err != nil || r.Verdict != lastword.Replayed || r.Seq != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	w.mustApply(h, "last", 3)
	w.mustApply(h, "very last", 4)
}

// A number of the caller's own transaction is not consumed by a newer tenure's.
func TestANumberWithinThatWasOvertaken(t *testing.T) {
	w := newWorld(t)
	a, b := w.acquire(), w.acquire()
	tx, err := w.place.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fence.Within(t.Context(), w.gate, w.place, tx, callOf(a, "a-1")); err != nil {
		t.Fatal(err)
	}
	tx.Rollback()
	w.mustApply(b, "b-1", 1)
	w.mustApply(b, "b-2", 2)
	_, err = w.apply(a, "a-1")
	wantCode(t, err, lastword.CodeStaleOwner)
	if got := a.sequence(t); got != (lastword.Sequence{}) {
		t.Fatalf("the numbering is %+v", got)
	}
}

// A replay that a transaction answered from what it had stored itself goes with the
// transaction.
func TestAReplayWithinIsProvisionalToo(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	tx, err := w.place.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []lastword.Verdict{lastword.Applied, lastword.Replayed} {
		r, err := fence.Within(t.Context(), w.gate, w.place, tx, callOf(h, "op-1"))
		if err != nil || r.Verdict != want || r.Seq != 1 {
			t.Fatalf("got %+v, %v, want %s", r, err, want)
		}
	}
	tx.Rollback()
	w.mustApply(h, "op-2", 1)
}

// An unknown commit after a write within is unknown: the record does not settle it
// for another operation.
func TestAnUnknownCommitAfterWithinStaysInTheWay(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	tx, err := w.place.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fence.Within(t.Context(), w.gate, w.place, tx, callOf(h, "op-1")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	p := &losing{Place: w.place, next: []bool{false}}
	_, err = fence.Apply(t.Context(), w.gate, p, callOf(h, "op-2"), set("2"))
	wantCode(t, err, lastword.CodeMutationUnknown)
	_, err = w.apply(h, "op-3")
	wantCode(t, err, lastword.CodeOutOfOrder)
	w.mustApply(h, "op-2", 2)
	w.mustApply(h, "op-3", 3)
}
