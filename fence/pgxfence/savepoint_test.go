package pgxfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/pgxfence"
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

// An effect that ends its transaction by itself is never told as APPLIED, and never as
// "nothing was changed" if something was. Where its COMMIT has taken the receipt along, the
// operation is not run again.
func TestAnEffectThatEndsTheTransactionIsNeverToldAsWhatItIsNot(t *testing.T) { // P4, P5, R15, R22
	broken := errors.New("and it fails")
	for _, end := range []string{"commit", "commit; begin", "rollback", "rollback; begin", "tx.Commit", "tx.Rollback", "SELECT 1 / 0"} {
		for _, remembered := range []bool{false, true} {
			for _, failure := range []error{nil, broken} {
				t.Run(fmt.Sprint(end, remembered, failure), func(t *testing.T) {
					pool := openPool(t, database(t))
					s := newSeal(t)
					f := guard(t, pool, s.config())
					h, runs := s.holder("r", "a", 1), 0
					apply := func(op, end string) error {
						r, err := f.Apply(t.Context(), h, op, []byte("v"), func(ctx context.Context, tx pgx.Tx) error {
							runs++
							if err := write(ctx, tx, "r", op, "v"); err != nil || end == "" {
								return err
							}
							switch end { // an effect that ignores what it was told
							case "tx.Commit":
								_ = tx.Commit(ctx)
							case "tx.Rollback":
								_ = tx.Rollback(ctx)
							default:
								_, _ = tx.Conn().PgConn().Exec(ctx, end).ReadAll()
							}
							return failure
						})
						if err == nil && r.Verdict == lastword.Replayed {
							return errReplayed
						}
						return err
					}
					if remembered {
						if err := apply("first", ""); err != nil {
							t.Fatal(err)
						}
					}
					runs = 0
					err := apply("op", end)
					effects := count(t, pool, `SELECT count(*) FROM effect WHERE operation = 'op'`)
					receipts := count(t, pool, `SELECT count(*) FROM lastword.receipt WHERE operation = 'op'`)
					t.Logf("%d effects, %d receipts: %v", effects, receipts, err)
					commits := strings.Contains(strings.ToLower(end), "commit")
					if err == nil || runs != 1 || (effects > 0) != commits || receipts > effects || (receipts > 0) != (commits && remembered) {
						t.Fatalf("%d runs, %d effects, %d receipts: %v", runs, effects, receipts, err)
					}
					ends := end != "SELECT 1 / 0" // it is not known what the session did behind it
					if errors.Is(err, lastword.ErrUnknownOutcome) != ends || failure != nil && !errors.Is(err, failure) {
						t.Errorf("told as %v", err)
					}
					if commits && strings.Contains(err.Error(), "without a receipt") != (receipts == 0) {
						t.Errorf("%d receipts: %v", receipts, err)
					}
					_, found, err := f.Lookup(t.Context(), "r", "op")
					if err != nil || found != (receipts > 0) {
						t.Errorf("looked up: %v %v", found, err)
					}
					if err := apply("op", ""); found && (!errors.Is(err, errReplayed) || runs != 1) || !found && err != nil {
						t.Errorf("again: %v after %d runs", err, runs)
					}
					if err := apply("next", ""); err != nil {
						t.Errorf("the connections are not clean: %v", err)
					}
				})
			}
		}
	}
}

var errReplayed = errors.New("replayed")

// With Send record and receipt are stored before the statements, always.
func TestASendThatEndsTheTransactionIsNeverToldAsWhatItIsNot(t *testing.T) { // P4, P5
	pool := openPool(t, database(t))
	s := newSeal(t)
	f := guard(t, pool, s.config())
	h := s.holder("r", "a", 1)
	outside := pgxfence.Statement{SQL: "INSERT INTO doc VALUES ('outside', '')"}
	for _, end := range []string{"rollback", "commit"} {
		_, err := f.Send(t.Context(), h, "op-"+end, []byte("v"), pgxfence.Statement{SQL: end}, outside)
		if !errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Errorf("%s: %v", end, err)
		}
		if n := count(t, pool, `SELECT count(*) FROM doc`); n != 0 {
			t.Errorf("%s: what came after it was committed without a fence", end)
		}
		r, err := f.Send(t.Context(), h, "op-"+end, []byte("v"))
		if err != nil || (r.Verdict == lastword.Replayed) != (end == "commit") {
			t.Errorf("%s: again: %s, %v", end, r.Verdict, err)
		}
	}
}

// An effect that writes to the fence's record by itself is noticed before COMMIT, whether
// the place remembers the record or not, and with Send.
func TestAnEffectThatChangesTheRecordIsNoticed(t *testing.T) { // R15
	pool := openPool(t, database(t))
	s := newSeal(t)
	f := guard(t, pool, s.config())
	h := s.holder("r", "a", 1)
	const change = `UPDATE lastword.fence SET fence = fence + 1 WHERE resource = 'r'`
	apply := func(op, statement string) error {
		_, err := f.Apply(t.Context(), h, op, []byte(op), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement)
			return err
		})
		return err
	}
	send := func(op, statement string) error {
		_, err := f.Send(t.Context(), h, op, []byte(op), pgxfence.Statement{SQL: statement})
		return err
	}
	if err := apply("first", `SELECT 1`); err != nil {
		t.Fatal(err)
	}
	fresh := guard(t, pool, s.config()) // remembers nothing
	for name, try := range map[string]func(op, statement string) error{
		"Apply, remembered": apply, "Send": send,
		"Apply": func(op, statement string) error {
			_, err := fresh.Apply(t.Context(), h, op, []byte(op), func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, statement)
				return err
			})
			return err
		},
	} {
		var told *lastword.Error
		if err := try("bad "+name, change); !errors.As(err, &told) || told.Code != lastword.CodeInternal {
			t.Errorf("%s: %v", name, err)
		}
		if n := count(t, pool, `SELECT count(*) FROM lastword.fence WHERE fence = 1`); n != 1 {
			t.Errorf("%s: the record was changed", name)
		}
		if err := apply("after "+name, `SELECT 1`); err != nil {
			t.Errorf("%s, and then: %v", name, err)
		}
	}
}
