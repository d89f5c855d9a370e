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

// The file itself is no table, in whatever words, and what AUTOINCREMENT counts is SQLite's.
// What SQLite does by itself to its own tables is admitted.
func TestNoStatementWritesToSQLitesOwnTables(t *testing.T) { // R16c
	t.Parallel()
	db, guard := guardedDatabase(t), &sqlGuard{}
	if err := guard.arm(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	run := func(texts ...string) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = guard.run(t.Context(), tx, texts)
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		return err
	}
	const page = ` SET data = zeroblob(4096) WHERE pgno = 2`
	for _, text := range []string{
		`UPDATE sqlite_dbpage` + page, `UPDATE "SQLite_DBPage"` + page, `UPDATE temp.sqlite_dbpage` + page, `UPDATE OR IGNORE main.sqlite_dbpage` + page,
		`INSERT INTO sqlite_dbpage (pgno, data) VALUES (2, zeroblob(4096))`, `REPLACE INTO sqlite_dbpage (pgno, data) VALUES (2, zeroblob(4096))`,
		`WITH x AS (SELECT 2) UPDATE sqlite_dbpage` + page, `DELETE FROM sqlite_dbpage`,
		`CREATE VIRTUAL TABLE pages USING sqlite_dbpage`, `CREATE VIRTUAL TABLE temp.pages USING sqlite_dbpage`, `CREATE VIRTUAL TABLE text USING fts5(body)`,
		`CREATE TABLE counted (n INTEGER PRIMARY KEY AUTOINCREMENT); UPDATE sqlite_sequence SET seq = 7`,
		`DELETE FROM sqlite_schema`, `UPDATE sqlite_master SET sql = ''`,
	} {
		err := run(text)
		if err == nil {
			t.Errorf("%s was admitted", text)
		} else if !errors.Is(err, lastword.ErrInvalid) && !strings.Contains(err.Error(), "may not be modified") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		`CREATE TABLE counted (n INTEGER PRIMARY KEY AUTOINCREMENT, s TEXT); INSERT INTO counted (s) VALUES ('x'); UPDATE counted SET s = 'y'; DELETE FROM counted; ALTER TABLE counted RENAME TO numbered; DROP TABLE numbered`,
		`CREATE TEMP TABLE t (x); CREATE INDEX temp.i ON t (x); DROP TABLE t`, `CREATE VIEW v AS SELECT 1; DROP VIEW v`, `ANALYZE doc`, `REINDEX doc`, `SELECT count(*) FROM sqlite_dbpage`,
	} {
		if err := run(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := db.ExecContext(t.Context(), `CREATE VIRTUAL TABLE text USING fts5(body)`); err != nil {
		t.Fatal(err)
	}
	if err := run(`DELETE FROM text_data`); err == nil {
		t.Error("a shadow table was written to")
	}
	// Without the guard the connection itself refuses.
	if _, err := db.ExecContext(t.Context(), `UPDATE sqlite_dbpage`+page); err == nil {
		t.Error("the connection writes to pages")
	}
	if _, err := db.ExecContext(t.Context(), `CREATE VIRTUAL TABLE pages USING sqlite_dbpage; UPDATE pages`+page); err == nil {
		t.Error("the connection writes to pages by another name")
	}
}
