package fencesql_test

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/realservers"
	"github.com/lastword/lastword/internal/sqldb"
)

func TestTheSchemaIsMadeOnARealPostgreSQL(t *testing.T) {
	server, err := realservers.PostgreSQL(t.Context(), realservers.Config{Settings: []string{"fsync=off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	db, err := sql.Open("pgx", server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for range 2 {
		if err := sqldb.Migrate(t.Context(), sqldb.PostgreSQL{}, conn, fencesql.PostgreSQL{}.Schema()); err != nil {
			t.Fatal(err)
		}
	}
	for _, refused := range []string{
		"UPDATE lastword.fence SET fence = fence - 1", "UPDATE lastword.fence SET resource = 'other'",
		"DELETE FROM lastword.fence", "TRUNCATE lastword.fence",
		"SET session_replication_role = replica; DELETE FROM lastword.fence",
		"DELETE FROM lastword.act", "UPDATE lastword.act SET reason = ''", "TRUNCATE lastword.act",
	} {
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{
			`INSERT INTO lastword.fence VALUES ('d', 'r', 5, '', '', '', 0, '', '', '', '', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0)`,
			`INSERT INTO lastword.act (domain, resource, kind, operator, reason, fence_before, fence_after, mark, at) VALUES ('d', 'r', '', '', '', 0, 0, 0, '')`,
		} {
			if _, err := tx.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tx.ExecContext(t.Context(), refused); sqldb.SQLState(err) != "LW000" {
			t.Errorf("%s: %v", refused, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// The tables of before the last step keep their rows, and what no row may say.
func TestNoNumberOfARecordIsOutOfItsRangeAlsoAfterAnUpgrade(t *testing.T) { // KF-38
	whole := fencesql.PostgreSQL{}.Schema()
	older := whole
	older.Steps = whole.Steps[:2]
	numbers := []string{"fence", "last_seq", "step", "bundle_sequence", "min_epoch", "min_policy_generation", "heard_epoch", "heard_revision", "restored", "pruned"}
	for _, schemas := range [][]sqldb.Schema{{whole}, {older}, {older, whole}} {
		db := openDB(t, postgresEmpty(t))
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, schema := range schemas {
			if err := sqldb.Migrate(t.Context(), sqldb.PostgreSQL{}, conn, schema); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				mustExec(t, db, `INSERT INTO lastword.fence VALUES ('d', 'r', 9007199254740991, '', '', '', 0, '', '', '', '', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0)`)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		for _, column := range numbers {
			drop := `ALTER TABLE lastword.fence DISABLE TRIGGER never_lowered; `
			if _, err := db.ExecContext(t.Context(), drop+`UPDATE lastword.fence SET `+column+` = -1`); sqldb.SQLState(err) != "23514" {
				t.Errorf("%d steps, %s below 0: %v", len(schemas[len(schemas)-1].Steps), column, err)
			}
		}
		if _, err := db.ExecContext(t.Context(), `UPDATE lastword.fence SET fence = fence + 1`); sqldb.SQLState(err) != "23514" {
			t.Errorf("a fence of 2^53: %v", err)
		}
		if n := count(t, db, `SELECT count(*) FROM lastword.fence WHERE fence = 9007199254740991`); n != 1 {
			t.Errorf("%d records", n)
		}
		want := map[bool]int{true: 1, false: 10}[len(schemas[len(schemas)-1].Steps) == len(whole.Steps)]
		if n := count(t, db, `SELECT count(*) FROM pg_constraint WHERE conrelid = 'lastword.fence'::regclass AND contype = 'c'`); n != want {
			t.Errorf("%d conditions, want %d", n, want)
		}
	}
}

// X14: no clock of the database decides anything. What a person may want to know is
// written down by the gate.
func TestNoStatementReadsTheClockOfTheDatabase(t *testing.T) {
	clock := regexp.MustCompile(`(?i)\b(now|current_timestamp|current_date|current_time|localtime|localtimestamp|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|age|interval|datetime|strftime|julianday|unixepoch)\b`)
	for _, step := range (fencesql.PostgreSQL{}).Schema().Steps {
		for _, statement := range step {
			if found := clock.FindString(statement); found != "" {
				t.Errorf("%q in %s", found, strings.SplitN(statement, "\n", 2)[0])
			}
		}
	}
	for _, reads := range []string{"WHERE at < now()", "SELECT CURRENT_TIMESTAMP"} {
		if !clock.MatchString(reads) {
			t.Errorf("%q is passed over", reads)
		}
	}
}
