package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// troubles are errors that SQLite knows, which an effect meets once it has ended its
// transaction by itself: none of them proves anything about what was before.
var troubles = map[string]func(ctx context.Context, t *testing.T, tx *sql.Tx, path string) error{
	"UNIQUE": func(ctx context.Context, _ *testing.T, tx *sql.Tx, _ string) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO doc VALUES ('twice', ''), ('twice', '')`)
		return err
	},
	"BUSY": func(ctx context.Context, t *testing.T, tx *sql.Tx, path string) error {
		if _, err := tx.ExecContext(ctx, `PRAGMA busy_timeout = 1`); err != nil {
			return err
		}
		lock, err := openDB(t, path, durable).BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		mustExecTx(t, lock, `DELETE FROM doc WHERE FALSE`)
		_, err = tx.ExecContext(ctx, `DELETE FROM doc`)
		return errors.Join(err, lock.Rollback())
	},
	"FULL": func(ctx context.Context, _ *testing.T, tx *sql.Tx, _ string) error {
		if _, err := tx.ExecContext(ctx, `PRAGMA max_page_count = 1`); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO doc VALUES ('large', hex(zeroblob(1000000)))`)
		_, again := tx.ExecContext(context.WithoutCancel(ctx), `PRAGMA max_page_count = 100000`)
		return errors.Join(err, again)
	},
	"a table that became protected": func(ctx context.Context, t *testing.T, tx *sql.Tx, path string) error {
		place, err := sqlfence.OpenPlace(ctx, openDB(t, path, durable+"&_pragma=foreign_keys(1)"), "other")
		if err != nil {
			return err
		}
		_, err = place.Protect(ctx, sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{resource}"}, anna)
		if err := errors.Join(err, place.Close()); err != nil {
			t.Error(err)
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO doc VALUES ('other', '')`)
		return err
	},
	"the end of the context": func(ctx context.Context, _ *testing.T, _ *sql.Tx, _ string) error {
		ctx.Value(cancelKey{}).(context.CancelFunc)()
		return ctx.Err()
	},
}

type cancelKey struct{}

func mustExecTx(t *testing.T, tx *sql.Tx, statement string) {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// What an effect has committed by itself is never "nothing was changed", whatever error it
// meets after that, and is never done again.
func TestAnErrorAfterAnEffectHasEndedItsTransactionProvesNothing(t *testing.T) { // P4, P5, R16, R22
	for _, end := range []string{"COMMIT", "ROLLBACK; BEGIN; INSERT INTO effect (resource, operation, value) VALUES ('r', 'op', 'v'); COMMIT"} {
		for name, trouble := range troubles {
			for _, remembered := range []bool{false, true} {
				t.Run(end[:6]+", "+name+map[bool]string{true: ", remembered"}[remembered], func(t *testing.T) {
					db, path := database(t)
					s := newSeal(t)
					f, h := guard(t, db, s.config()), s.holder("r", "a", 1)
					if remembered {
						mustPut(t, f, h, "r", "first", "v")
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					ctx = context.WithValue(ctx, cancelKey{}, cancel)
					runs := 0
					_, err := f.Apply(ctx, h, "op", []byte("v"), func(_ context.Context, tx *sql.Tx) error {
						runs++
						if runs > 1 {
							return errors.New("it runs again")
						}
						if err := errors.Join(write(ctx, tx, "r", "op", "v"), text(end)(ctx, tx)); err != nil {
							t.Error(err)
						}
						err := trouble(ctx, t, tx, path)
						if err == nil {
							t.Error("there was no trouble")
						}
						return err
					})
					if n := count(t, db, `SELECT count(*) FROM effect WHERE operation = 'op'`); runs != 1 || n != 1 || !errors.Is(err, lastword.ErrUnknownOutcome) {
						t.Errorf("%d effects after %d runs: %v", n, runs, err)
					}
					if name != "a table that became protected" {
						mustPut(t, f, s.holder("r", "a", 2), "r", "next", "v") // the connections are clean
					}
				})
			}
		}
	}
}

// The savepoint by which a transaction is known again has a name that no effect takes.
func TestASavepointOfTheEffectDoesNotHideThatItsTransactionWasEnded(t *testing.T) { // P4, P5
	for _, savepoint := range []string{"SAVEPOINT lastword", "SAVEPOINT lastword_mark"} {
		for _, begin := range []string{"ROLLBACK; BEGIN; ", "ROLLBACK; "} {
			t.Run(begin+savepoint, func(t *testing.T) {
				db, _ := database(t)
				s := newSeal(t)
				f := guard(t, db, s.config())
				_, err := f.Apply(t.Context(), s.holder("r", "a", 1), "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
					return errors.Join(write(ctx, tx, "r", "op", "v"), text(begin+savepoint)(ctx, tx))
				})
				if n := count(t, db, `SELECT count(*) FROM lastword_receipt`); n != 0 || !errors.Is(err, lastword.ErrUnknownOutcome) {
					t.Errorf("%d receipts of what is gone: %v", n, err)
				}
			})
		}
	}
	db, _ := database(t)
	s := newSeal(t)
	f := guard(t, db, s.config())
	_, err := fence.Apply(t.Context(), f.Gate(), f.Place(), fence.Call{Holder: s.holder("r", "a", 1), Content: []byte("v"), Mutation: lastword.Mutation{Operation: "op"}},
		func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
			return nil, errors.Join(write(ctx, tx.SQL(), "r", "op", "v"), text("ROLLBACK TO lastword")(ctx, tx.SQL()))
		})
	if n := count(t, db, `SELECT count(*) FROM lastword_receipt`); err == nil || n != 0 {
		t.Errorf("%d receipts of what was rolled back: %v", n, err)
	}
}
