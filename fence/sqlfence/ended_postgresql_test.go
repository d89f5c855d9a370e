package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
)

const (
	pgAnother = `INSERT INTO effect (resource, operation, value) VALUES ('r', 'op', 'another')`
	pgPrepare = `PREPARE TRANSACTION 'ended'`
	pgFails   = `SELECT 1/0`
)

// remembering runs a test on a place that has not seen the record, and on one that has.
func remembering(t *testing.T, name string, test func(t *testing.T, e *ended, h lastword.Holder)) {
	t.Helper()
	for _, path := range []string{"cold", "remembered"} {
		t.Run(name+", "+path, func(t *testing.T) {
			e := engines["PostgreSQL"](t)
			h := e.seal.holder("r", "a", 1)
			if path == "remembered" {
				e.put(t, h, "first")
			}
			test(t, e, h)
		})
	}
}

// Of an effect whose transaction was prepared, or whose session has committed something in
// another transaction, it is never said that nothing was changed.
func TestAnEffectThatEndsBehindItsTransactionIsUnknown(t *testing.T) { // P5, R15, R22
	for name, statements := range map[string][]string{
		"PREPARE":                    {pgPrepare},
		"PREPARE, and fails":         {pgPrepare, pgFails},
		"PREPARE, BEGIN, fails":      {pgPrepare, "BEGIN", pgFails},
		"another transaction":        {"ROLLBACK", "BEGIN", pgAnother, "COMMIT"},
		"another one, and fails":     {"ROLLBACK", "BEGIN", pgAnother, "COMMIT", pgFails},
		"another one, BEGIN":         {"ROLLBACK; BEGIN; " + pgAnother + "; COMMIT; BEGIN"},
		"a statement behind it":      {"ROLLBACK", pgAnother},
		"another one, which is open": {"ROLLBACK", pgAnother, "BEGIN", pgAnother},
	} {
		remembering(t, name, func(t *testing.T, e *ended, h lastword.Holder) {
			t.Cleanup(func() { _, _ = e.db.ExecContext(context.WithoutCancel(t.Context()), `ROLLBACK PREPARED 'ended'`) })
			runs := 0
			_, err := e.fence.Apply(t.Context(), h, "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
				runs++
				if err := e.write(ctx, tx, "r", "op", "v"); err != nil {
					return err
				}
				if err := text(statements...)(ctx, tx); err != nil {
					return err
				}
				return errOfEffect
			})
			if !errors.Is(err, lastword.ErrUnknownOutcome) || runs != 1 {
				t.Errorf("after %d runs: %v", runs, err)
			}
			if strings.HasPrefix(name, "PREPARE") {
				if _, err := e.db.ExecContext(t.Context(), `COMMIT PREPARED 'ended'`); err != nil {
					t.Error(err)
				}
			}
			if count(t, e.db, e.effects, "op") == 0 {
				t.Error("nothing is there, so nothing is shown")
			}
		})
	}
}

// An effect that fails in its own transaction is told as that.
func TestAnEffectThatFailsInItsTransactionChangesNothing(t *testing.T) { // P5
	type effect = func(ctx context.Context, tx *sql.Tx) error
	execute := func(statements ...string) effect {
		return func(ctx context.Context, tx *sql.Tx) error { return text(statements...)(ctx, tx) }
	}
	for name, fails := range map[string]effect{
		"an error of Go":       func(context.Context, *sql.Tx) error { return errOfEffect },
		"a division":           execute(pgFails),
		"a constraint":         execute(`INSERT INTO doc VALUES ('r', 'v'), ('r', 'v')`),
		"a savepoint":          execute(`SAVEPOINT a`, pgAnother, `ROLLBACK TO a`, `RELEASE a`, pgFails),
		"inside a savepoint":   execute(`SAVEPOINT a`, pgFails),
		"a plain error after":  func(ctx context.Context, tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, pgFails); return errOfEffect },
		"a backend that ended": execute(`SELECT pg_terminate_backend(pg_backend_pid())`, pgFails),
		"rows that are open": func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, `SELECT * FROM generate_series(1, 100000)`)
			if err != nil {
				return err
			}
			rows.Next()
			return errors.Join(errOfEffect, rows.Err())
		},
		"a context that ended": func(ctx context.Context, tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, `SELECT pg_sleep(10)`)
			return err
		},
		"deferred": execute(`CREATE TEMP TABLE deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`, `INSERT INTO deferred VALUES (1), (1)`),
	} {
		remembering(t, name, func(t *testing.T, e *ended, h lastword.Holder) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			runs := 0
			_, err := e.fence.Apply(ctx, h, "op", []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
				runs++
				if err := e.write(ctx, tx, "r", "op", "v"); err != nil || runs > 1 && name == "a backend that ended" {
					return errors.Join(err, errOfEffect)
				}
				return fails(ctx, tx)
			})
			if err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
				t.Errorf("after %d runs: %v", runs, err)
			}
			if n := count(t, e.db, e.effects, "op") + count(t, e.db, e.receipts, "op"); n != 0 {
				t.Errorf("%d rows", n)
			}
			e.put(t, h, "next")
		})
	}
}
