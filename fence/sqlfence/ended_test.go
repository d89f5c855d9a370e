package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// endings are ways in which an effect ends its transaction by itself, and whether what it
// had done before is committed then.
var endings = map[string]ending{
	"COMMIT":                     {text("COMMIT"), true},
	"COMMIT, BEGIN":              {text("COMMIT", "BEGIN"), true},
	"ROLLBACK":                   {text("ROLLBACK"), false},
	"ROLLBACK, BEGIN":            {text("ROLLBACK", "BEGIN"), false},
	"ROLLBACK; BEGIN":            {text("ROLLBACK; BEGIN"), false},
	"COMMIT; BEGIN":              {text("COMMIT; BEGIN"), true},
	"END, BEGIN":                 {text("END", "BEGIN"), true},
	"SAVEPOINT, ROLLBACK; BEGIN": {text("SAVEPOINT own", "ROLLBACK; BEGIN", "SAVEPOINT own"), false},
	"tx.Commit":                  {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, true},
	"tx.Rollback":                {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, false},
}

// liteEndings are those of SQLite alone.
var liteEndings = map[string]ending{
	"ROLLBACK; BEGIN IMMEDIATE":      {text("ROLLBACK; BEGIN IMMEDIATE"), false},
	"COMMIT; BEGIN EXCLUSIVE":        {text("COMMIT; BEGIN EXCLUSIVE"), true},
	"a savepoint is the transaction": {text("ROLLBACK; SAVEPOINT own"), false},
	"OR ROLLBACK, BEGIN": {func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO effect (id, resource, operation, value) VALUES (1, '', '', ''), (1, '', '', '')"); err == nil {
			return errors.New("the row was taken twice")
		}
		_, err := tx.ExecContext(ctx, "BEGIN")
		return err
	}, false},
}

func text(statements ...string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, s := range statements {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// ended is a database of either engine, behind a fence.
type ended struct {
	lite  bool
	db    *sql.DB
	seal  *seal
	fence *sqlfence.Fence
	write func(ctx context.Context, tx execer, resource lastword.Resource, operation, value string) error
	// count is a query with the place of its parameter.
	effects, receipts string
}

var engines = map[string]func(t *testing.T) *ended{
	"SQLite": func(t *testing.T) *ended {
		db, _ := database(t)
		s := newSeal(t)
		return &ended{true, db, s, guard(t, db, s.config()), write, `SELECT count(*) FROM effect WHERE operation = ?`, `SELECT count(*) FROM lastword_receipt WHERE operation = ?`}
	},
	"PostgreSQL": func(t *testing.T) *ended {
		if testing.Short() {
			t.Skip("heavy: a database for each test; runs without the race detector")
		}
		db, err := sql.Open("pgx", pgDatabase(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		s := newSeal(t)
		return &ended{false, db, s, guard(t, db, s.config()), pgWrite, `SELECT count(*) FROM effect WHERE operation = $1`, `SELECT count(*) FROM lastword.receipt WHERE operation = $1`}
	},
}

// An effect that ends its transaction by itself is never told as APPLIED, and never as
// "nothing was changed" if something was. Where its COMMIT has taken the receipt along,
// the operation is not run again.
func TestAnEffectThatEndsItsTransactionIsNeverToldAsWhatItIsNot(t *testing.T) { // P4, P5, R15, R22
	for engine, open := range engines {
		all := maps.Clone(endings)
		if engine == "SQLite" {
			maps.Copy(all, liteEndings)
		}
		for name, ending := range all {
			for _, path := range paths {
				t.Run(engine+", "+name+path.name, func(t *testing.T) {
					e := open(t)
					h := e.seal.holder("r", "a", 1)
					if path.remembered {
						e.put(t, h, "first")
					}
					e.breaks(t, h, ending, path)
					e.put(t, h, "next") // the connections are clean
				})
			}
		}
	}
}

// path is how an effect comes to its end, and whether the place remembers the record.
type path struct {
	name       string
	remembered bool
	failure    error
	result     []byte
}

var errOfEffect = errors.New("and it fails")

var paths = []path{
	{name: ""},
	{name: ", and fails", failure: errOfEffect},
	{name: ", with a result", result: []byte("result")},
	{name: ", remembered", remembered: true},
	{name: ", remembered, and fails", remembered: true, failure: errOfEffect},
	{name: ", remembered, with a result", remembered: true, result: []byte("result")},
}

type ending = struct {
	end     func(ctx context.Context, tx *sql.Tx) error
	commits bool
}

// breaks lets an effect end its transaction, compares what was told with what is there, and
// applies the operation again.
func (e *ended) breaks(t *testing.T, h lastword.Holder, ending ending, path path) {
	t.Helper()
	runs := 0
	apply := func(end bool) (lastword.Receipt, error) {
		call := fence.Call{Holder: h, Content: []byte("v"), Mutation: lastword.Mutation{Operation: "op"}}
		return fence.Apply(t.Context(), e.fence.Gate(), e.fence.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
			runs++
			if err := e.write(ctx, tx.SQL(), "r", "op", "v"); err != nil || !end {
				return path.result, err
			}
			if err := ending.end(ctx, tx.SQL()); err != nil {
				t.Errorf("it could not end the transaction: %v", err)
			}
			return path.result, path.failure
		})
	}
	r, err := apply(true)
	effects, receipts := count(t, e.db, e.effects, "op"), count(t, e.db, e.receipts, "op")
	t.Logf("%d effects, %d receipts: %v", effects, receipts, err)
	if err == nil || r.Verdict != "" {
		t.Fatalf("told as %s, %v", r.Verdict, err)
	}
	if (effects > 0) != ending.commits || runs != 1 {
		t.Errorf("%d effects after %d runs", effects, runs)
	}
	unknown := errors.Is(err, lastword.ErrUnknownOutcome)
	if effects+receipts > 0 && !unknown {
		t.Errorf("%d effects and %d receipts were told as nothing: %v", effects, receipts, err)
	}
	if !e.lite && !unknown { // the session may have committed in another transaction
		t.Errorf("what the effect did behind it is not known: %v", err)
	}
	if e.lite != (receipts == 0) && ending.commits && path.remembered {
		t.Errorf("%d receipts", receipts)
	}
	if path.failure != nil && !errors.Is(err, path.failure) {
		t.Errorf("what the effect said is not in %v", err)
	}
	if unknown && !strings.Contains(err.Error(), "look the operation up") {
		t.Errorf("no way out in %v", err)
	}
	if unknown && strings.Contains(err.Error(), "without a receipt") != (receipts == 0) {
		t.Errorf("%d receipts: %v", receipts, err)
	}
	_, found, err := e.fence.Lookup(t.Context(), "r", "op")
	if err != nil || found != (receipts > 0) {
		t.Errorf("looked up: %v %v", found, err)
	}
	again, err := apply(false)
	if err != nil || (again.Verdict == lastword.Replayed) != found || found && runs != 1 {
		t.Errorf("again: %s after %d runs, %v", again.Verdict, runs, err)
	}
}

func (e *ended) put(t *testing.T, h lastword.Holder, operation string) {
	t.Helper()
	r, err := e.fence.Apply(t.Context(), h, operation, []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
		return e.write(ctx, tx, "r", operation, "v")
	})
	if err != nil || r.Verdict != lastword.Applied {
		t.Fatalf("%s: %s %v", operation, r.Verdict, err)
	}
}

// In a transaction of the caller's own what Within has stored is the transaction's: a
// ROLLBACK in words takes it along, a COMMIT in words has committed it, and after either
// nothing is admitted any more.
func TestWithinATransactionThatWasEndedInWordsNothingIsAdmitted(t *testing.T) { // P4, R15
	for engine, open := range engines {
		for name, ending := range endings {
			if strings.HasPrefix(name, "tx.") {
				continue // database/sql refuses every further statement
			}
			t.Run(engine+", "+name, func(t *testing.T) {
				e := open(t)
				h := e.seal.holder("r", "a", 1)
				within := func(before bool) error {
					tx, err := e.db.BeginTx(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = tx.Rollback() }()
					if before {
						if err := ending.end(t.Context(), tx); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := e.fence.Within(t.Context(), tx, h, "op", []byte("v")); err != nil {
						return err
					}
					if err := e.write(t.Context(), tx, "r", "op", "v"); err != nil {
						t.Fatal(err)
					}
					if !before {
						if err := ending.end(t.Context(), tx); err != nil {
							t.Fatal(err)
						}
					}
					return tx.Commit()
				}
				if err := within(true); !strings.Contains(name, "BEGIN") && (err == nil || errors.Is(err, lastword.ErrUnknownOutcome)) {
					t.Errorf("within, after it: %v", err)
				} else if (err == nil) != (count(t, e.db, e.receipts, "op") == 1) {
					t.Errorf("within, after it: %v, %d receipts", err, count(t, e.db, e.receipts, "op"))
				}
				if count(t, e.db, e.effects, "op") != count(t, e.db, e.receipts, "op") {
					t.Error("an effect without a receipt, or the reverse")
				}
				if strings.Contains(name, "BEGIN") { // it was a transaction again
					return
				}
				err := within(false)
				want := 0
				if ending.commits {
					want = 1
				}
				if n := count(t, e.db, e.receipts, "op"); n != want || count(t, e.db, e.effects, "op") != want {
					t.Errorf("%d receipts, %v", n, err)
				}
				if _, found, err := e.fence.Lookup(t.Context(), "r", "op"); err != nil || found != ending.commits {
					t.Errorf("looked up: %v %v", found, err)
				}
			})
		}
	}
}
