package main

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
)

func guardedDatabase(t *testing.T) *sql.DB {
	t.Helper()
	g, err := openDatabase(filepath.Join(t.TempDir(), "app.db"), false, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	if err := sqlfence.Init(t.Context(), g.db); err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.ExecContext(t.Context(), "CREATE TABLE doc (body TEXT); INSERT INTO doc VALUES ('old')"); err != nil {
		t.Fatal(err)
	}
	return g.db
}

func body(t *testing.T, db *sql.DB) string {
	t.Helper()
	var got string
	if err := db.QueryRowContext(t.Context(), "SELECT body FROM doc").Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

// If the guard were not there, nothing would run at all.
func TestWithoutItsGuardNoStatementRuns(t *testing.T) {
	t.Parallel()
	db := guardedDatabase(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&sqlGuard{}).run(t.Context(), tx, []string{"UPDATE doc SET body = 'new'; COMMIT"})
	if !errors.Is(err, lastword.ErrInternal) && !strings.Contains(err.Error(), "the guard of --sql is not on this connection") {
		t.Errorf("got %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got := body(t, db); got != "old" {
		t.Errorf("the value is %q", got)
	}
}

func TestTheGuardHoldsOnlyWhileStatementsRun(t *testing.T) {
	t.Parallel()
	db, guard := guardedDatabase(t), &sqlGuard{}
	if err := guard.arm(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := guard.run(t.Context(), tx, []string{"UPDATE doc SET body = 'new'", "SELECT 1"})
	if err != nil || string(rows) == "" {
		t.Fatalf("rows %s, %v", rows, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if got := body(t, db); got != "new" {
		t.Errorf("the value is %q", got)
	}
}

// A transaction that has failed in SQLite takes nothing with it.
func TestATransactionThatSQLiteEndedCommitsNothing(t *testing.T) {
	t.Parallel()
	db, guard := guardedDatabase(t), &sqlGuard{}
	if err := guard.arm(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"UPDATE doc SET body = 'new'; END", "COMMIT", "ROLLBACK", "BEGIN", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s",
		"ATTACH ':memory:' AS o", "DETACH o", "PRAGMA foreign_keys = OFF", "EXPLAIN COMMIT; UPDATE doc SET body = 'new'; COMMIT",
		"UPDATE doc SET body = 'new';;; -- ;\n/* ; */ commit",
		"CREATE TABLE lastword_x (a)", "SELECT load_extension('x')",
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = guard.run(t.Context(), tx, []string{text})
		if !errors.Is(err, lastword.ErrInvalid) && (err == nil || text != "SELECT load_extension('x')") {
			t.Errorf("%s: got %v, want INVALID", text, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Errorf("%s: the transaction was over: %v", text, err)
		}
		if got := body(t, db); got != "old" {
			t.Fatalf("%s: the value is %q", text, got)
		}
	}
}

// SQLite itself is asked what is in a text: the driver gives no result for nothing.
func TestATextWithoutAStatementIsNoneForSQLiteEither(t *testing.T) {
	t.Parallel()
	db := guardedDatabase(t)
	for text, want := range map[string]bool{
		"": false, ";": false, " ;;\t\f\r\n": false, "-- c": false, "-- c\n;": false, "/* */": false, "/* -- */ ; -- x\n/* y": false,
		"/*/ SELECT 1": false, "\ufeff;": false, "--": false,
		"SELECT 1": true, "-- c\nSELECT 1": true, "/* ; */SELECT 1": true, ";SELECT 1;": true, "\ufeffSELECT 1": true, "/**/SELECT 1": true,
		"EXPLAIN SELECT 1": true,
	} {
		if got := hasStatement(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		result, err := db.ExecContext(t.Context(), text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if there := hasResult(result); there != want {
			t.Errorf("%q: SQLite has a result: %v, want %v", text, there, want)
		}
	}
}

func hasResult(r sql.Result) (there bool) {
	defer func() { there = recover() == nil }()
	_, _ = r.RowsAffected()
	return true
}

func TestAGuardedTextWithoutAStatementIsAnError(t *testing.T) {
	t.Parallel()
	db, guard := guardedDatabase(t), &sqlGuard{}
	if err := guard.arm(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guard.run(t.Context(), tx, []string{"SELECT 1", ";"}); err == nil || !strings.Contains(err.Error(), "--sql number 2: it has no statement") {
		t.Errorf("got %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}
