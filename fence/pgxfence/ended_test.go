package pgxfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/pgxfence"
)

const (
	another = `INSERT INTO effect (resource, operation, value) VALUES ('r', 'op', 'another')`
	prepare = `PREPARE TRANSACTION 'ended'`
	fails   = `SELECT 1/0`
)

var errOfEffect = errors.New("and it fails")

// ways are those in which statements are executed behind a first write: by an effect, which
// fails after them, or as what is sent.
func ways() map[string]func(ctx context.Context, f *pgxfence.Fence, h *holder, statements []string) error {
	return map[string]func(ctx context.Context, f *pgxfence.Fence, h *holder, statements []string) error{
		"Apply": func(ctx context.Context, f *pgxfence.Fence, h *holder, statements []string) error {
			_, err := f.Apply(ctx, h, "op", []byte("v"), func(ctx context.Context, tx pgx.Tx) error {
				if err := write(ctx, tx, "r", "op", "v"); err != nil {
					return err
				}
				for _, s := range statements {
					if _, err := tx.Exec(ctx, s); err != nil {
						return err
					}
				}
				return errOfEffect
			})
			return err
		},
		"Send": func(ctx context.Context, f *pgxfence.Fence, h *holder, statements []string) error {
			all := writes("r", "op", "v")
			for _, s := range statements {
				all = append(all, pgxfence.Statement{SQL: s})
			}
			_, err := f.Send(ctx, h, "op", []byte("v"), all...)
			return err
		},
	}
}

// Of an effect whose transaction was prepared, or whose session has committed something in
// another transaction, it is never said that nothing was changed.
func TestWhatEndsBehindItsTransactionIsUnknown(t *testing.T) { // P5, R15, R22
	tried(t, map[string][]string{
		"PREPARE":                    {prepare, fails},
		"PREPARE, BEGIN":             {prepare, "BEGIN", fails},
		"another transaction":        {"ROLLBACK", "BEGIN", another, "COMMIT", fails},
		"another one, alone":         {"ROLLBACK", another, "COMMIT", fails},
		"another one, and no error":  {"ROLLBACK", "BEGIN", another, "COMMIT"},
		"a third one":                {"ROLLBACK", "BEGIN", another, "COMMIT", "BEGIN"},
		"a transaction of its own":   {"COMMIT"},
		"what failed and has begun":  {"COMMIT", "BEGIN", fails},
		"committed, and LW001 after": {"COMMIT", `DO $$ BEGIN RAISE 'x' USING ERRCODE = 'LW001'; END $$`},
	}, func(t *testing.T, name string, err error, n func() int) {
		if !errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Error(err)
		}
		if n() == 0 {
			t.Error("nothing is there, so nothing is shown")
		}
	})
}

// An effect that fails in its own transaction is told as that.
func TestWhatFailsInItsTransactionChangesNothing(t *testing.T) { // P5
	tried(t, map[string][]string{
		"a division":           {fails},
		"a constraint":         {`INSERT INTO doc VALUES ('r', 'v'), ('r', 'v')`},
		"a savepoint":          {`SAVEPOINT a`, another, `ROLLBACK TO a`, `RELEASE a`, fails},
		"inside a savepoint":   {`SAVEPOINT a`, fails},
		"deferred":             {`CREATE TEMP TABLE deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`, `INSERT INTO deferred SELECT 1 FROM generate_series(1, 2)`, `SET CONSTRAINTS ALL IMMEDIATE`},
		"a backend that ended": {`DO $$ BEGIN IF (SELECT count(*) FROM doc) < 2 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RAISE 'x'; END $$`},
	}, func(t *testing.T, _ string, err error, n func() int) {
		if err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
			t.Error(err)
		}
		if n := n(); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

// tried executes statements in each way. n is how much of it is there, once what was
// prepared is committed.
func tried(t *testing.T, all map[string][]string, look func(t *testing.T, name string, err error, n func() int)) {
	t.Helper()
	for way, do := range ways() {
		for name, statements := range all {
			for _, path := range []string{"cold", "remembered"} {
				t.Run(way+", "+name+", "+path, func(t *testing.T) {
					pool := openPool(t, database(t))
					s := newSeal(t)
					f, h := guard(t, pool, s.config()), s.holder("r", "a", 1)
					if path == "remembered" {
						if _, err := f.Send(t.Context(), h, "first", []byte("v"), writes("r", "first", "v")...); err != nil {
							t.Fatal(err)
						}
					}
					err := do(t.Context(), f, h, statements)
					look(t, name, err, func() int {
						if statements[0] == prepare {
							mustExec(t, pool, `COMMIT PREPARED 'ended'`)
						}
						return count(t, pool, `SELECT (SELECT count(*) FROM effect WHERE operation = 'op') + (SELECT count(*) FROM lastword.receipt WHERE operation = 'op')`)
					})
					if errors.Is(err, lastword.ErrUnknownOutcome) {
						return
					}
					if _, err := f.Send(t.Context(), h, "next", []byte("v"), writes("r", "next", "v")...); err != nil {
						t.Errorf("the next one: %v", err)
					}
				})
			}
		}
	}
}
