package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// enforcing is what a program that uses protected tables opens its file with.
const enforcing = durable + "&_pragma=foreign_keys(1)"

var anna = fence.Act{Operator: "anna", Reason: "tables are closed", At: wall}

// protected is a database whose table doc is protected as doc/{id}, with some rows, and
// a second connection of a program that knows nothing of the fence.
type protected struct {
	*testing.T
	db     *sql.DB // of the program with the fence
	bypass *sql.DB // of another program
	seal   *seal
	fence  *sqlfence.Fence
	path   string
}

const documents = `CREATE TABLE doc (id TEXT PRIMARY KEY, body TEXT NOT NULL, mail TEXT UNIQUE, free TEXT);
INSERT INTO doc (id, body, mail) VALUES ('a', 'old', 'a@x'), ('b', 'old', 'b@x'), ('c', 'old', NULL)`

func protect(t *testing.T, tables string, all ...sqlfence.Protection) *protected {
	t.Helper()
	if raceOn {
		t.Skip("heavy: one goroutine, and SQLite is ten times slower under the race detector")
	}
	p := &protected{T: t, path: filepath.Join(t.TempDir(), "app.db"), seal: newSeal(t)}
	p.db = openDB(t, p.path, enforcing)
	p.bypass = openDB(t, p.path, "_pragma=busy_timeout(2000)")
	mustExec(t, p.bypass, tables)
	if err := sqlfence.Init(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	p.fence = guard(t, p.db, p.seal.config())
	for _, one := range all {
		if one.Domain == "" {
			one.Domain = domain
		}
		if _, err := p.fence.Place().Protect(t.Context(), one, anna); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

var whole = sqlfence.Protection{Table: "doc", Template: "doc/{id}"}

// refused runs statements of a program without the fence: each is refused and changes
// nothing.
func (p *protected) refused(statements ...string) {
	p.Helper()
	for _, statement := range statements {
		before := p.rows()
		_, err := p.bypass.ExecContext(p.Context(), statement)
		if err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			p.Errorf("%s: got %v, want FENCE_REQUIRED", statement, err)
		}
		if after := p.rows(); after != before {
			p.Errorf("%s changed the rows from\n%sto\n%s", statement, before, after)
		}
	}
}

func (p *protected) admitted(statements ...string) {
	p.Helper()
	for _, statement := range statements {
		if _, err := p.bypass.ExecContext(p.Context(), statement); err != nil {
			p.Errorf("%s: %v", statement, err)
		}
	}
}

// rows is every row of every table of the application.
func (p *protected) rows() string {
	p.Helper()
	var all strings.Builder
	names := strings.Fields(strings.NewReplacer(`"`, " ", "[", "", "]", "", "\n", " ").Replace(dump(p, p.db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'lastword%' AND name NOT LIKE 'sqlite%' ORDER BY 1`)))
	for _, name := range names {
		all.WriteString(dump(p, p.db, "SELECT * FROM "+name+" ORDER BY 1"))
	}
	return all.String()
}

// through runs statements in one write through the fence, under a lease on resource.
func (p *protected) through(resource lastword.Resource, token lastword.Token, statements ...string) error {
	h := p.seal.holder(resource, fmt.Sprint("w", token), token)
	_, err := p.fence.Apply(p.Context(), h, fmt.Sprint("op ", token, " ", statements), []byte(strings.Join(statements, ";")), func(ctx context.Context, tx *sql.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

func (p *protected) mustThrough(resource lastword.Resource, token lastword.Token, statements ...string) {
	p.Helper()
	if err := p.through(resource, token, statements...); err != nil {
		p.Errorf("%s under a lease on %s: %v", statements, resource, err)
	}
}

func (p *protected) faults() []string {
	p.Helper()
	tables, err := p.fence.Place().Protected(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	var all []string
	for _, t := range tables {
		if t.Open {
			all = append(all, t.Table+" is open")
		}
		all = append(all, t.Faults...)
	}
	return all
}

// KF-24: no mutation path without a fence is left.
func TestAProtectedTableRefusesEverybodyWhoBypassesTheFence(t *testing.T) { // R16c, R17
	p := protect(t, documents, whole)
	p.refused(
		`UPDATE doc SET body = 'x' WHERE id = 'a'`,
		`UPDATE doc SET body = body WHERE id = 'a'`,
		`UPDATE doc SET free = 'x'`,
		`UPDATE doc SET id = 'z' WHERE id = 'a'`,
		`UPDATE doc SET rowid = 77 WHERE id = 'a'`,
		`UPDATE OR REPLACE doc SET mail = 'b@x' WHERE id = 'a'`,
		`DELETE FROM doc WHERE id = 'a'`,
		`DELETE FROM doc`,
		`INSERT INTO doc (id, body) VALUES ('d', 'x')`,
		`INSERT OR IGNORE INTO doc (id, body) VALUES ('d', 'x')`,
		`INSERT OR IGNORE INTO doc (id, body) VALUES ('a', 'x')`,
		`INSERT OR REPLACE INTO doc (id, body) VALUES ('a', 'x')`,
		`INSERT OR ROLLBACK INTO doc (id, body) VALUES ('d', 'x')`,
		`INSERT OR FAIL INTO doc (id, body) VALUES ('d', 'x')`,
		`REPLACE INTO doc (id, body, mail) VALUES ('d', 'x', 'a@x')`,
		`INSERT INTO doc (id, body) VALUES ('a', 'x') ON CONFLICT (id) DO UPDATE SET body = 'x'`,
		`INSERT INTO doc (id, body) SELECT id || '2', body FROM doc`,
		`INSERT INTO doc (id, body) VALUES (NULL, 'x')`,
		`INSERT INTO doc (id, body) VALUES ('', 'x')`,
		`WITH x AS (SELECT 'a' AS i) UPDATE doc SET body = 'x' FROM x WHERE id = i`,
	)
	p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`)
	p.mustThrough("doc/a", 2, `DELETE FROM doc WHERE id = 'a'`, `INSERT INTO doc (id, body) VALUES ('a', 'again')`)
	p.mustThrough("doc/a", 3, `INSERT OR REPLACE INTO doc (id, body, mail) VALUES ('a', 'replaced', 'a@y')`)
	p.mustThrough("doc/d", 1, `INSERT INTO doc (id, body) VALUES ('d', 'made') ON CONFLICT (id) DO UPDATE SET body = 'x'`)
	if got := dump(t, p.db, `SELECT id, body FROM doc ORDER BY id`); got != "[\"a\" \"replaced\"]\n[\"b\" \"old\"]\n[\"c\" \"old\"]\n[\"d\" \"made\"]\n" {
		t.Errorf("the rows are\n%s", got)
	}
	if f := p.faults(); f != nil {
		t.Errorf("faults %q", f)
	}
}

func TestALeaseOnOneResourceDoesNotReachAnother(t *testing.T) { // R17
	p := protect(t, documents, whole)
	for i, statement := range []string{
		`UPDATE doc SET body = 'x' WHERE id = 'b'`,
		`UPDATE doc SET body = 'x'`,
		`UPDATE doc SET id = 'z' WHERE id = 'a'`,
		`UPDATE OR REPLACE doc SET mail = 'b@x' WHERE id = 'a'`,
		`UPDATE OR REPLACE doc SET id = 'b' WHERE id = 'a'`,
		`INSERT OR REPLACE INTO doc (id, body, mail) VALUES ('a', 'x', 'b@x')`,
		`INSERT OR REPLACE INTO doc (rowid, id, body) VALUES (2, 'a', 'x')`,
		`DELETE FROM doc WHERE id = 'b'`,
		`DELETE FROM doc`,
		`INSERT INTO doc (id, body) VALUES ('A', 'x')`,
		`INSERT INTO doc (id, body) VALUES ('a ', 'x')`,
		`INSERT INTO doc (id, body) VALUES ('a/b', 'x')`,
	} {
		before := p.rows()
		if err := p.through("doc/a", lastword.Token(i+1), statement); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			t.Errorf("%s: %v", statement, err)
		}
		if after := p.rows(); after != before {
			t.Errorf("%s changed\n%sto\n%s", statement, before, after)
		}
	}
}

func TestThePassEndsWithItsTransaction(t *testing.T) { // R16c
	p := protect(t, documents, whole)
	p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`)
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
	if n := count(t, p.db, `SELECT count(*) FROM lastword_pass`); n != 0 {
		t.Errorf("%d passes are left", n)
	}
	// A write that fails, and one that is refused, leave none either.
	if err := p.through("doc/a", 2, `UPDATE doc SET body = 'x' WHERE id = 'a'`, `NONSENSE`); err == nil {
		t.Error("nonsense was applied")
	}
	if err := p.through("doc/a", 1, `UPDATE doc SET body = 'x' WHERE id = 'a'`); err == nil {
		t.Error("another operation of an old number was applied")
	}
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
}

func TestAPassInACallersOwnTransaction(t *testing.T) { // R16c
	p := protect(t, documents, whole)
	begin := func(t *testing.T) *sql.Tx {
		t.Helper()
		tx, err := p.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	exec := func(tx *sql.Tx, statement string) error {
		_, err := tx.ExecContext(t.Context(), statement)
		return err
	}
	const change = `UPDATE doc SET body = 'within' WHERE id = 'a'`
	within := func(tx *sql.Tx, token lastword.Token, operation string) error {
		_, err := p.fence.Within(t.Context(), tx, p.seal.holder("doc/a", "w", token), operation, []byte("x"))
		return err
	}

	t.Run("closed before COMMIT", func(t *testing.T) {
		tx := begin(t)
		if err := exec(tx, change); err == nil {
			t.Error("it was open before Within")
		}
		if err := errors.Join(within(tx, 1, "op-1"), exec(tx, change), p.fence.ClosePass(t.Context(), tx)); err != nil {
			t.Fatal(err)
		}
		if err := exec(tx, change); err == nil {
			t.Error("it was open after ClosePass")
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	})
	t.Run("not closed: COMMIT fails", func(t *testing.T) {
		tx := begin(t)
		if err := errors.Join(within(tx, 2, "op-2"), exec(tx, change)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err == nil || !strings.Contains(err.Error(), "FOREIGN KEY") {
			t.Errorf("COMMIT with an open pass: %v", err)
		}
	})
	t.Run("rolled back to a savepoint", func(t *testing.T) {
		tx := begin(t)
		if err := errors.Join(exec(tx, `SAVEPOINT s`), within(tx, 3, "op-3"), exec(tx, change), exec(tx, `ROLLBACK TO s`)); err != nil {
			t.Fatal(err)
		}
		if err := exec(tx, change); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			t.Errorf("after ROLLBACK TO: %v", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		tx := begin(t)
		if err := within(tx, 5, "op-5"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.fence.ClosePass(t.Context(), tx), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		late := begin(t)
		if err := within(late, 4, "op-4"); !errors.Is(err, lastword.ErrStale) {
			t.Fatal(err)
		}
		if err := exec(late, change); err == nil {
			t.Error("a refused transaction has written")
		}
	})
}

// A trigger that is missing is noticed before anything is admitted (R16c).
func TestAMissingOrAlteredTriggerIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		break_, want string
	}{
		"dropped":         {`DROP TRIGGER lastword_guard_delete_doc`, "lastword_guard_delete_doc is missing"},
		"replaced":        {`DROP TRIGGER lastword_guard_delete_doc; CREATE TRIGGER lastword_guard_delete_doc BEFORE DELETE ON doc BEGIN SELECT 1; END`, "lastword_guard_delete_doc is not what it has to be"},
		"a new index":     {`CREATE UNIQUE INDEX late ON doc (free)`, "is not what it has to be"},
		"renamed column":  {`ALTER TABLE doc RENAME COLUMN id TO key`, "no column id"},
		"dropped table":   {`DROP TABLE doc`, "the table is gone"},
		"renamed table":   {`ALTER TABLE doc RENAME TO paper`, "the table is gone"},
		"new expression":  {`CREATE UNIQUE INDEX late ON doc (lower(free))`, "is on an expression"},
		"copied and back": {`CREATE TABLE d2 AS SELECT * FROM doc; DROP TABLE doc; ALTER TABLE d2 RENAME TO doc`, "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			p := protect(t, documents, whole)
			mustExec(t, p.bypass, `CREATE TABLE other (x)`)
			p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`)
			mustExec(t, p.bypass, c.break_)
			err := p.through("doc/a", 2, `INSERT INTO other VALUES (1)`)
			if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("apply: %v, want %q", err, c.want)
			}
			if n := count(t, p.db, `SELECT count(*) FROM other`); n != 0 {
				t.Error("it was admitted all the same")
			}
			if f := p.faults(); len(f) == 0 || !strings.Contains(strings.Join(f, "; "), c.want) {
				t.Errorf("status: %q, want %q", f, c.want)
			}
			if _, err := sqlfence.New(t.Context(), p.db, p.seal.config()); !errors.Is(err, lastword.ErrInvalid) {
				t.Errorf("a start: %v", err)
			}
		})
	}
	t.Run("mended", func(t *testing.T) {
		p := protect(t, documents, whole)
		mustExec(t, p.bypass, `DROP TRIGGER lastword_guard_delete_doc; CREATE UNIQUE INDEX late ON doc (free)`)
		if _, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}"}, anna); err != nil {
			t.Fatal(err)
		}
		p.refused(`DELETE FROM doc`)
		p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'new', free = 'f' WHERE id = 'a'`)
		p.refused(`REPLACE INTO doc (id, body, free) VALUES ('z', '', 'f')`)
	})
}

func TestAMigrationOpensTheTableAndNothingIsAdmittedMeanwhile(t *testing.T) {
	p := protect(t, documents, whole)
	place := p.fence.Place()
	if _, _, err := place.Unprotect(t.Context(), "doc", fence.Act{Operator: "anna", At: wall}); err == nil {
		t.Error("opened without a reason")
	}
	if _, _, err := place.Unprotect(t.Context(), "doc", anna); err != nil {
		t.Fatal(err)
	}
	p.admitted(`UPDATE doc SET free = 'filled'`, `ALTER TABLE doc ADD COLUMN more TEXT`)
	if err := p.through("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "open for a migration") {
		t.Errorf("a write through the fence meanwhile: %v", err)
	}
	if f := p.faults(); !slices.Equal(f, []string{"doc is open"}) {
		t.Errorf("status: %q", f)
	}
	if _, err := place.Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}"}, anna); err != nil {
		t.Fatal(err)
	}
	p.refused(`UPDATE doc SET free = 'x'`)
	p.mustThrough("doc/a", 1, `UPDATE doc SET more = 'new' WHERE id = 'a'`)
	// Once on it stays on: nothing loosens it but an act that says who and why.
	if _, err := place.Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}", Columns: []string{"body"}}, anna); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("protected otherwise: %v", err)
	}
	mustExec(t, p.bypass, `DROP TABLE doc`)
	if _, gone, err := place.Unprotect(t.Context(), "doc", anna); err != nil || !gone {
		t.Errorf("a table that is gone: %v, %v", gone, err)
	}
	if f := p.faults(); f != nil {
		t.Errorf("status: %q", f)
	}
	p.mustThrough("doc/a", 2, `CREATE TABLE paper (x)`)
	kinds := dump(t, p.db, `SELECT kind FROM lastword_act ORDER BY number`)
	if kinds != "[\"protect\"]\n[\"unprotect\"]\n[\"protect\"]\n[\"unprotect\"]\n" {
		t.Errorf("acts:\n%s", kinds)
	}
}

// Another process protects a table while this one runs.
func TestAProcessThatRunsLearnsOfAProtection(t *testing.T) {
	p := protect(t, documents)
	p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'one' WHERE id = 'a'`)
	other, err := sqlfence.OpenPlace(t.Context(), openDB(t, p.path, enforcing), "")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}"}, anna); err != nil {
		t.Fatal(err)
	}
	p.mustThrough("doc/a", 2, `UPDATE doc SET body = 'two' WHERE id = 'a'`)
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
}

func TestAConnectionThatWouldNotNoticeAnOpenPassIsRefused(t *testing.T) { // R16c
	p := protect(t, documents, whole)
	loose := guard(t, openDB(t, p.path, durable+"&_pragma=foreign_keys(0)"), p.seal.config())
	_, err := loose.Apply(t.Context(), p.seal.holder("doc/a", "w", 1), "op", []byte("x"), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE doc SET body = 'x' WHERE id = 'a'`)
		return err
	})
	if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "foreign_keys") {
		t.Errorf("got %v", err)
	}
}

func TestAPassThatSomebodyLeftOpenIsClosedAndTold(t *testing.T) { // R16c
	p := protect(t, documents, whole)
	mustExec(t, p.bypass, `PRAGMA foreign_keys = OFF; INSERT INTO lastword_pass (domain, resource) VALUES ('test', 'doc/a')`)
	p.admitted(`UPDATE doc SET body = 'through the gap' WHERE id = 'a'`)
	p.mustThrough("doc/b", 1, `UPDATE doc SET body = 'new' WHERE id = 'b'`)
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
	seen, err := p.fence.Inspect(t.Context(), "doc/a")
	if err != nil {
		t.Fatal(err)
	}
	if last := seen.Acts[len(seen.Acts)-1]; last.Kind != sqlfence.ActPassLeftOpen {
		t.Errorf("the last act is %+v", last)
	}
}

// What docs/protect.md says of those who mean to get past the fence.
func TestAPassByHandLeavesNoTrace(t *testing.T) {
	p := protect(t, documents, whole)
	p.admitted(`PRAGMA foreign_keys = ON; BEGIN; INSERT INTO lastword_pass (domain, resource) VALUES ('test', 'doc/a');
UPDATE doc SET body = 'by hand' WHERE id = 'a'; DELETE FROM lastword_pass; COMMIT`)
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
	p.mustThrough("doc/b", 1, `UPDATE doc SET body = 'new' WHERE id = 'b'`)
	if n := count(t, p.db, `SELECT count(*) FROM lastword_act WHERE kind = 'PASS_LEFT_OPEN'`); n != 0 {
		t.Errorf("%d alarms: say so in docs/protect.md", n)
	}
}

// R18: counted with verdicts, and one way.
func TestARolloutOfAProtectedTable(t *testing.T) {
	p := protect(t, documents, sqlfence.Protection{Table: "doc", Template: "doc/{id}", Shadow: true})
	place := p.fence.Place()
	p.admitted(
		`UPDATE doc SET body = 'x' WHERE id IN ('a', 'b')`,
		`REPLACE INTO doc (id, body, mail) VALUES ('a', 'y', 'b@x')`,
		`INSERT OR IGNORE INTO doc (id, body) VALUES ('d', 'x')`,
		`INSERT INTO doc (id, body) VALUES (NULL, 'x')`,
	)
	p.mustThrough("doc/c", 1, `UPDATE doc SET body = 'fenced' WHERE id = 'c'`)
	counted := `SELECT resource, times FROM lastword_refusal WHERE verdict = 'SHADOW(FENCE_REQUIRED)' ORDER BY resource`
	if got := dump(t, p.db, counted); got != "[\"\" '\\x01']\n[\"doc/a\" '\\x03']\n[\"doc/b\" '\\x02']\n[\"doc/d\" '\\x01']\n" {
		t.Errorf("counted:\n%s", got)
	}
	if _, err := place.Enforce(t.Context(), domain, "doc/a", anna); err != nil {
		t.Fatal(err)
	}
	p.refused(`UPDATE doc SET body = 'z' WHERE id = 'a'`, `UPDATE doc SET body = 'z'`)
	p.admitted(`UPDATE doc SET body = 'z' WHERE id = 'c'`)
	if n, err := place.Enforce(t.Context(), domain, "doc/", anna); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	p.refused(`UPDATE doc SET body = 'z' WHERE id = 'c'`)
	for _, prefix := range []string{"doc/", "doc/a", "doc/c", "doc/x/"} {
		if err := place.Shadow(t.Context(), domain, prefix, anna); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("the roll-out of %s begins again: %v", prefix, err)
		}
	}
	for _, slip := range []string{`UPDATE lastword_rollout SET shadow = 1`, `DELETE FROM lastword_rollout`} {
		if _, err := p.bypass.ExecContext(t.Context(), slip); err == nil || !strings.Contains(err.Error(), "does not begin again") {
			t.Errorf("%s: %v", slip, err)
		}
	}
	if f := p.faults(); f != nil {
		t.Errorf("faults %q", f)
	}
	if text := dump(t, p.db, `SELECT sql FROM sqlite_schema WHERE name = 'lastword_guard_inserted_doc'`); strings.Contains(text, "rollout") {
		t.Errorf("the triggers still count:\n%s", text)
	}
}

// A trigger without which everything is refused all the same would be there for nothing.
func TestEveryTriggerIsNeeded(t *testing.T) {
	for trigger, slips := range map[string]string{
		"insert_over": `REPLACE INTO doc (id, body, mail) VALUES (NULL, 'x', 'a@x')`,
		"inserted":    `INSERT INTO doc (id, body) VALUES ('d', 'x')`,
		"update_over": `UPDATE OR REPLACE doc SET mail = 'a@x' WHERE id = 'b'`,
		"updated":     `UPDATE doc SET body = 'x'`,
		"delete":      `DELETE FROM doc`,
	} {
		t.Run(trigger, func(t *testing.T) {
			p := protect(t, documents, sqlfence.Protection{Table: "doc", Template: "doc/{id}", Columns: []string{"body", "free"}})
			p.refused(slips)
			mustExec(t, p.bypass, `DROP TRIGGER lastword_guard_`+trigger+`_doc`)
			if trigger == "insert_over" { // the new row itself is refused as well, unless nothing of it is protected
				mustExec(t, p.bypass, `DROP TRIGGER lastword_guard_inserted_doc`)
			}
			p.admitted(slips)
		})
	}
}
