package memfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
)

var key = fence.Key{Domain: "docs.example", Resource: "doc/a"}

func store(ctx context.Context, tx *memfence.Tx, operation string) error {
	old, _, err := tx.Load(ctx, key, operation)
	if err != nil {
		return err
	}
	next := old
	next.Exists, next.Lost, next.Fence, next.LastOperation = true, false, old.Fence+1, operation
	tx.Set("doc", operation)
	return tx.Store(ctx, key, old, next, &lastword.Receipt{
		Domain: key.Domain, Resource: key.Resource, Operation: operation, Result: []byte("r"), Verdict: lastword.Applied,
	})
}

func TestATransactionIsWholeOrNothing(t *testing.T) {
	p := memfence.New("docs")
	ctx := t.Context()
	boom := errors.New("boom")
	empty := p.Snapshot()
	err := p.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
		if err := store(ctx, tx, "op-1"); err != nil {
			t.Fatal(err)
		}
		if v, _ := tx.Get("doc"); v != "op-1" {
			t.Errorf("a transaction does not see its own change: %q", v)
		}
		if _, known, err := tx.Load(ctx, key, "op-1"); err != nil || !known.Receipt {
			t.Errorf("a transaction does not see its own receipt: %+v, %v", known, err)
		}
		if p.Snapshot() != empty {
			t.Error("a change is visible before its commit")
		}
		return boom
	})
	if !errors.Is(err, boom) || p.Snapshot() != empty {
		t.Fatalf("after a roll-back: %v\n%s", err, p.Snapshot())
	}
	func() {
		defer func() { _ = recover() }()
		_ = p.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
			_ = store(ctx, tx, "op-1")
			panic("boom")
		})
	}()
	if p.Snapshot() != empty {
		t.Fatal("something of a panic stayed")
	}
	ending, cancel := context.WithCancel(ctx)
	err = p.Transact(ending, key, func(ctx context.Context, tx *memfence.Tx) error {
		cancel()
		return store(ctx, tx, "op-1")
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, lastword.ErrUnknownOutcome) || p.Snapshot() != empty {
		t.Fatalf("after the end of the context: %v", err)
	}
	if err := p.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error { return store(ctx, tx, "op-1") }); err != nil {
		t.Fatal(err)
	}
	if v, found := p.Get("doc"); !found || v != "op-1" || !strings.Contains(p.Snapshot(), `value "doc" "op-1"`) {
		t.Fatalf("after the commit: %s", p.Snapshot())
	}
}

// R15: the record that was read must still be there, and a receipt is never replaced.
func TestStoreIsConditional(t *testing.T) {
	p := memfence.New("docs")
	err := p.Transact(t.Context(), key, func(ctx context.Context, tx *memfence.Tx) error {
		if err := store(ctx, tx, "op-1"); err != nil {
			return err
		}
		if err := tx.Store(ctx, key, fence.Record{}, fence.Record{Exists: true}, nil); !errors.Is(err, lastword.ErrInternal) {
			t.Errorf("another record was overwritten: %v", err)
		}
		if err := store(ctx, tx, "op-1"); !errors.Is(err, lastword.ErrInternal) {
			t.Errorf("a receipt was replaced: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTransactionsTakeTurns(t *testing.T) {
	p := memfence.New("docs")
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Begin(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, lastword.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	waiting := make(chan error)
	go func() { waiting <- p.Note(t.Context(), key, fence.Evidence{Verdict: lastword.StaleOwner}) }()
	tx.Set("doc", "1")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	tx.Rollback() // does nothing
	if err := tx.Commit(); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a second commit: %v", err)
	}
	if _, _, err := tx.Load(t.Context(), key, ""); !errors.Is(err, lastword.ErrInternal) {
		t.Fatalf("a load after the end: %v", err)
	}
	if v, _ := p.Get("doc"); v != "1" {
		t.Fatalf("the value is %q", v)
	}
}

func TestACopyGoesItsOwnWay(t *testing.T) {
	p := memfence.New("docs")
	write := func(p *memfence.Place, o string) {
		if err := p.Transact(t.Context(), key, func(ctx context.Context, tx *memfence.Tx) error { return store(ctx, tx, o) }); err != nil {
			t.Fatal(err)
		}
	}
	write(p, "op-1")
	backup := p.Copy("backup")
	if backup.Snapshot() != p.Snapshot() || backup.Name() == p.Name() {
		t.Fatal("the copy is not a copy")
	}
	before := backup.Snapshot()
	write(p, "op-2")
	if backup.Snapshot() != before {
		t.Fatal("the copy changes with the place")
	}
	r, found, err := p.Find(t.Context(), key, "op-1")
	if err != nil || !found {
		t.Fatal(found, err)
	}
	r.Result[0] = 'X'
	if r, _, _ := p.Find(t.Context(), key, "op-1"); string(r.Result) != "r" {
		t.Fatal("a caller can change a stored receipt")
	}
}

func ExamplePlace_Begin() {
	place := memfence.New("docs")
	tx, err := place.Begin(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback()
	tx.Set("doc/a", "text")
	_, found := place.Get("doc/a")
	fmt.Println("before the commit:", found)
	fmt.Println(tx.Commit())
	text, _ := place.Get("doc/a")
	fmt.Println("after it:", text)
	// Output:
	// before the commit: false
	// <nil>
	// after it: text
}
