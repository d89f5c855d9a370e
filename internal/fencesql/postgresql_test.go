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
