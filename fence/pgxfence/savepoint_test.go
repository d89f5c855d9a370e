package pgxfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword"
)

// The lock of a row that was taken inside a savepoint goes with the roll-back to it, and so
// do record, receipt and pass. An effect that rolls back to a savepoint of its own keeps
// them.
func TestARollBackToASavepointTakesTheFenceWithIt(t *testing.T) {
	pool := openPool(t, database(t))
	s := newSeal(t)
	f := guard(t, pool, s.config())
	h := s.holder("r", "a", 1)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	inner, err := tx.Begin(t.Context()) // SAVEPOINT
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Within(t.Context(), inner, h, "op", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := inner.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The transaction holds nothing any more: somebody else is not kept waiting.
	other := s.holder("r", "b", 2)
	if _, err := f.Apply(t.Context(), other, "other", []byte("w"), func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, "r", "other", "w") }); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Within(t.Context(), tx, h, "op", []byte("v")); !errors.Is(err, lastword.ErrStale) {
		t.Errorf("within again, after a newer owner: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = f.Apply(t.Context(), other, "again", []byte("x"), func(ctx context.Context, tx pgx.Tx) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, `SELECT 1 / 0`); err == nil {
			t.Error("nothing failed")
		}
		if err := inner.Rollback(ctx); err != nil {
			return err
		}
		return write(ctx, tx, "r", "again", "x")
	})
	if err != nil || count(t, pool, `SELECT count(*) FROM effect`) != 2 {
		t.Errorf("a savepoint of the effect's own: %v", err)
	}
	verify(t, pool)
}

// What an effect executes after it has ended the transaction is not recorded.
func TestAnEffectThatEndsTheTransactionIsRefused(t *testing.T) {
	pool := openPool(t, database(t))
	s := newSeal(t)
	f := guard(t, pool, s.config())
	h := s.holder("r", "a", 1)
	put := func(op string, end string) error {
		_, err := f.Apply(t.Context(), h, op, []byte("v"), func(ctx context.Context, tx pgx.Tx) error {
			if end != "" {
				_, _ = tx.Exec(ctx, end) // an effect that ignores what it was told
			}
			return nil
		})
		return err
	}
	for _, end := range []string{"rollback", "SELECT 1 / 0"} {
		for range 2 { // a record that is new, and one that is remembered
			if err := put("op-"+end, end); err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
				t.Errorf("%s: %v", end, err)
			}
		}
		if n := count(t, pool, `SELECT count(*) FROM lastword.receipt WHERE operation = $1`, "op-"+end); n != 0 {
			t.Errorf("%s: %d receipts", end, n)
		}
		if err := put("good after "+end, ""); err != nil {
			t.Errorf("after %s: %v", end, err)
		}
	}
}
