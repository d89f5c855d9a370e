package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/postgrestest"
)

// X21: the database goes back to what pg_dump has written; the authority, and who holds
// its grants, do not. Once that is declared the old grants are refused, although the rows
// say otherwise, and the table is as closed as it was.
func TestAPostgreSQLThatWasRestoredFromADumpRefusesTheGrantsOfBefore(t *testing.T) { // R20, P1
	p := pgProtect(t, pgDocuments, whole)
	p.mustThrough("doc/a", 40, `UPDATE doc SET body = 'forty' WHERE id = 'a'`)
	backup := filepath.Join(t.TempDir(), "backup")
	postgresTool(t, "pg_dump", "--format=custom", "--file="+backup, p.dsn)
	p.mustThrough("doc/a", 45, `UPDATE doc SET body = 'forty-five' WHERE id = 'a'`)
	p.mustThrough("doc/new", 7, `INSERT INTO doc (id, body) VALUES ('new', '')`) // a record that the restore loses

	p.restoreFrom(backup)
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`, `TRUNCATE doc`)
	next := map[lastword.Resource]lastword.Token{"doc/a": 46}
	raised, err := fence.DeclareRestored(t.Context(), p.fence.Place(), fence.Restore{
		Domain: domain, Until: wall, Act: anna,
		NextFence: func(_ context.Context, r lastword.Resource) (lastword.Token, error) { return next[r], nil },
	})
	if err != nil || raised != 1 {
		t.Fatalf("raised %d records: %v", raised, err)
	}
	for _, old := range []struct {
		resource lastword.Resource
		token    lastword.Token
		want     error
	}{
		{"doc/a", 40, lastword.ErrStale}, // the rows say that it is the newest
		{"doc/a", 44, lastword.ErrStale},
		{"doc/a", 45, lastword.ErrStale},              // whose writes the restore has lost
		{"doc/new", 7, lastword.ErrStatusUnavailable}, // a record begins with an answer of the authority only
	} {
		if err := p.through(old.resource, old.token, `UPDATE doc SET body = 'late' WHERE id = 'a'`); !errors.Is(err, old.want) {
			t.Errorf("fence %s of %s: got %v, want %v", old.token, old.resource, err, old.want)
		}
	}
	// The next tenure is admitted; what was issued before the restore, it may have done.
	if err := p.through("doc/a", 46, `UPDATE doc SET body = 'forty-six' WHERE id = 'a'`); !errors.Is(err, lastword.ErrReceiptExpired) {
		t.Errorf("an operation that may have had its effect: %v", err)
	}
	if _, err := fence.Reopen(t.Context(), p.fence.Place(), domain, "", anna); err != nil {
		t.Fatal(err)
	}
	p.mustThrough("doc/a", 46, `UPDATE doc SET body = 'forty-six' WHERE id = 'a'`)
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
	if f := p.faults(); f != "" {
		t.Errorf("faults %q", f)
	}
}

// restoreFrom puts a backup into an empty database, and p in front of that.
func (p *pgProtected) restoreFrom(backup string) {
	p.Helper()
	p.dsn = postgrestest.New(p.T, "empty", nil)
	postgresTool(p.T, "pg_restore", "--exit-on-error", "--dbname="+p.dsn, backup)
	for _, db := range []struct {
		to  **sql.DB
		dsn string
	}{{&p.db, p.dsn}, {&p.bypass, strings.Replace(p.dsn, "postgres@", "worker@", 1)}} {
		opened, err := sql.Open("pgx", db.dsn)
		if err != nil {
			p.Fatal(err)
		}
		p.Cleanup(func() { _ = opened.Close() })
		*db.to = opened
	}
	p.fence = guard(p.T, p.db, p.seal.config())
}

// postgresTool runs a program of the newest PostgreSQL that is installed.
func postgresTool(t *testing.T, name string, args ...string) {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s is not there: apt-get install postgresql-client", name)
	}
	if out, err := exec.CommandContext(t.Context(), found[len(found)-1], args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
