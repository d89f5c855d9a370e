package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

var schema = sqldb.Schema{
	Name: "test", Tables: []string{"lastword_test"}, Alone: true,
	Steps: [][]string{
		{"CREATE TABLE lastword_test (k TEXT PRIMARY KEY, v INTEGER NOT NULL CHECK (v >= 0)) STRICT, WITHOUT ROWID"},
		{"INSERT INTO lastword_test VALUES ('made', 1)", "UPDATE lastword_test SET v = v + 1"},
	},
}

func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: "sqlite", Path: path, Busy: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func conn(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func exec(t *testing.T, q sqldb.Querier, query string) {
	t.Helper()
	if _, err := q.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestEveryConnectionIsDurableAndSaysSo(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a ?#%41 b.db"))
	for i := range 3 { // held at once, so that these are three connections
		c := conn(t, db)
		for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "20", "foreign_keys": "1"} {
			var got string
			if err := c.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&got); err != nil || got != want {
				t.Errorf("connection %d: %s is %q (%v), want %s", i, name, got, err, want)
			}
		}
	}
}

func TestTheNameOfAFileIsTakenLiterally(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ?#%41 b.db")
	exec(t, open(t, path), "CREATE TABLE t (x)")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

func TestASettingThatDoesNotHoldIsAnError(t *testing.T) {
	// A database in memory has no write-ahead log, whatever is asked for.
	err := open(t, ":memory:").PingContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), `journal_mode is "memory"`) {
		t.Errorf("got %v", err)
	}
}

func TestAPathThatCannotBeOpenedIsSaidSo(t *testing.T) {
	err := open(t, filepath.Join(t.TempDir(), "no", "such.db")).PingContext(t.Context())
	if got := (sqldb.SQLite{}).Class(err); got != sqldb.CannotOpen {
		t.Errorf("%v is %v, want %v", err, got, sqldb.CannotOpen)
	}
}

func TestErrorsOfSQLiteAreSorted(t *testing.T) {
	d := sqldb.SQLite{}
	dir := t.TempDir()
	a := conn(t, open(t, filepath.Join(dir, "x.db")))
	b := conn(t, open(t, filepath.Join(dir, "x.db")))
	exec(t, a, "CREATE TABLE t (x INTEGER PRIMARY KEY)")
	exec(t, a, d.Begin())
	exec(t, a, "INSERT INTO t VALUES (1)")
	if _, err := b.ExecContext(t.Context(), d.Begin()); d.Class(err) != sqldb.Busy || !d.RolledBack(err) {
		t.Errorf("a second writer: %v is %v", err, d.Class(err))
	}
	exec(t, b, "BEGIN")
	if _, err := b.QueryContext(t.Context(), "SELECT * FROM t"); err != nil {
		t.Fatal(err)
	}
	exec(t, a, "COMMIT")
	if _, err := b.ExecContext(t.Context(), "INSERT INTO t VALUES (2)"); d.Class(err) != sqldb.Busy {
		t.Errorf("a stale snapshot: %v is %v", err, d.Class(err))
	}
	if _, err := a.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); d.Class(err) != sqldb.Constraint {
		t.Errorf("a second row of one key: %v is %v", err, d.Class(err))
	}
	exec(t, a, "PRAGMA query_only = ON")
	if _, err := a.ExecContext(t.Context(), "INSERT INTO t VALUES (3)"); d.Class(err) != sqldb.ReadOnly {
		t.Errorf("a write to a read-only database: %v is %v", err, d.Class(err))
	}

	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("garbage ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, garbage).PingContext(t.Context()); d.Class(err) != sqldb.NotADatabase {
		t.Errorf("a file that is no database: %v is %v", err, d.Class(err))
	}
	for _, err := range []error{nil, errors.New("x"), context.Canceled} {
		if d.Class(err) != sqldb.Other || d.RolledBack(err) {
			t.Errorf("%v is %v", err, d.Class(err))
		}
	}
}

type coded int

func (c coded) Code() int     { return int(c) }
func (c coded) Error() string { return fmt.Sprintf("code %d", int(c)) }

func TestACommitErrorIsUnknownUnlessItProvesTheRollBack(t *testing.T) {
	d := sqldb.SQLite{}
	for code, want := range map[int]bool{5: true, 517: true, 19: true, 10: false, 1034: false, 13: false, 9: false, 1: false, 11: false} {
		if got := d.RolledBack(fmt.Errorf("commit: %w", coded(code))); got != want {
			t.Errorf("code %d: got %v, want %v", code, got, want)
		}
	}
}

func TestATransactionIsWholeOrNothing(t *testing.T) {
	c := conn(t, open(t, filepath.Join(t.TempDir(), "x.db")))
	exec(t, c, "CREATE TABLE t (x)")
	insert := func(fail error) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.ExecContext(ctx, "INSERT INTO t VALUES (1)")
			return errors.Join(err, fail)
		}
	}
	if outcome, err := sqldb.Transact(t.Context(), sqldb.SQLite{}, c, insert(errors.New("no"))); outcome != sqldb.RolledBack || err == nil {
		t.Errorf("a failing transaction: %v, %v", outcome, err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = sqldb.Transact(t.Context(), sqldb.SQLite{}, c, func(ctx context.Context) error { panic(insert(nil)(ctx)) })
	}()
	if outcome, err := sqldb.Transact(t.Context(), sqldb.SQLite{}, c, insert(nil)); outcome != sqldb.Committed || err != nil {
		t.Errorf("a good transaction: %v, %v", outcome, err)
	}
	var n int
	if err := c.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil || n != 1 {
		t.Errorf("rows: %d, %v", n, err)
	}
}

func TestOnlyBusyIsRepeatedAndOnlyUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits []time.Duration
	b := sqldb.Backoff{First: time.Second, Longest: 3 * time.Second,
		Random: func() float64 { return 0.5 },
		Wait: func(ctx context.Context, d time.Duration) error {
			if waits = append(waits, d); len(waits) == 4 {
				cancel()
			}
			return ctx.Err()
		}}
	err := b.Retry(ctx, sqldb.SQLite{}, func(context.Context) error { return coded(5) })
	if !errors.Is(err, context.Canceled) || (sqldb.SQLite{}).Class(err) != sqldb.Busy {
		t.Errorf("the last error: %v", err)
	}
	if got, want := fmt.Sprint(waits), "[500ms 1s 1.5s 1.5s]"; got != want {
		t.Errorf("waits: got %s, want %s", got, want)
	}
	calls := 0
	if err := b.Retry(t.Context(), sqldb.SQLite{}, func(context.Context) error { calls++; return coded(19) }); calls != 1 || err == nil {
		t.Errorf("a constraint error: %d calls, %v", calls, err)
	}
	if err := b.Retry(ctx, sqldb.SQLite{}, func(context.Context) error { calls++; return nil }); calls != 1 || err == nil {
		t.Errorf("an ended context: %d calls, %v", calls, err)
	}
	if err := (sqldb.Backoff{}).Retry(t.Context(), sqldb.SQLite{}, func(context.Context) error {
		if calls++; calls < 5 {
			return coded(517)
		}
		return nil
	}); err != nil || calls != 5 {
		t.Errorf("busy at first: %d calls, %v", calls, err)
	}
}

// KF-38: several processes start at once; one creates, the others see it.
func TestMigrationsOfManyAtOnceAreDoneOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			db := open(t, path)
			err := (sqldb.Backoff{}).Retry(t.Context(), sqldb.SQLite{}, func(ctx context.Context) error {
				c, err := db.Conn(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				return sqldb.Migrate(ctx, sqldb.SQLite{}, c, schema)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var v int
	if err := open(t, path).QueryRowContext(t.Context(), "SELECT v FROM lastword_test").Scan(&v); err != nil || v != 2 {
		t.Errorf("the second step ran to %d, %v; want once, 2", v, err)
	}
}

func TestADatabaseThatIsNotOursIsRefusedAndNotTouched(t *testing.T) {
	for _, c := range []struct{ name, before, want string }{
		{"another program's", "CREATE TABLE places (x)", `table "places"`},
		{"a clash", "CREATE TABLE lastword_test (x)", "lastword_test exists"},
		{"a clash of the schema table", "CREATE TABLE lastword_schema (x)", "lastword_schema exists"},
		{"newer", "CREATE TABLE lastword_schema (name TEXT, version INTEGER); INSERT INTO lastword_schema VALUES ('test', 9)", "version 9"},
		{"a missing table", "CREATE TABLE lastword_schema (name TEXT, version INTEGER); INSERT INTO lastword_schema VALUES ('test', 2)", "is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := conn(t, open(t, filepath.Join(t.TempDir(), "x.db")))
			exec(t, db, c.before)
			before, _ := sqldb.SQLite{}.Tables(t.Context(), db)
			err := sqldb.Migrate(t.Context(), sqldb.SQLite{}, db, schema)
			var ours *lastword.Error
			if !errors.As(err, &ours) || ours.Code != lastword.CodeInvalid || ours.Hint == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if after, _ := (sqldb.SQLite{}).Tables(t.Context(), db); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("tables %v became %v", before, after)
			}
		})
	}
}

func TestAnOlderSchemaIsBroughtUpOnce(t *testing.T) {
	db := conn(t, open(t, filepath.Join(t.TempDir(), "x.db")))
	old := schema
	old.Steps = schema.Steps[:1]
	for _, s := range []sqldb.Schema{old, old, schema, schema} {
		if err := sqldb.Migrate(t.Context(), sqldb.SQLite{}, db, s); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := sqldb.Inspect(t.Context(), sqldb.SQLite{}, db, schema); v != 2 || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
	if err := sqldb.Migrate(t.Context(), sqldb.SQLite{}, db, old); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("older code on a newer schema: %v", err)
	}
}
