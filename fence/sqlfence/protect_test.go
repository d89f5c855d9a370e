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

func TestOnlySomeColumnsAreProtected(t *testing.T) { // R17
	const tasks = `CREATE TABLE task (tenant TEXT, nr INTEGER, state TEXT, result TEXT COLLATE NOCASE, note TEXT, mail TEXT UNIQUE, PRIMARY KEY (tenant, nr)) WITHOUT ROWID;
INSERT INTO task VALUES ('t', 1, 'done', 'r', 'n', 'm1'), ('t', 2, NULL, NULL, 'n', 'm2')`
	p := protect(t, tasks, sqlfence.Protection{Table: "task", Template: "task/{tenant}/{nr}", Columns: []string{"state", "result"}})
	p.admitted(
		`INSERT INTO task (tenant, nr, note) VALUES ('t', 3, 'new work')`,
		`UPDATE task SET note = 'x'`,
		`UPDATE task SET note = 'y', state = state, tenant = tenant`,
		`UPDATE task SET nr = 9 WHERE nr = 3`,
		`INSERT OR REPLACE INTO task (tenant, nr, note) VALUES ('t', 9, 'again')`,
		`DELETE FROM task WHERE nr = 9`,
		`UPDATE OR REPLACE task SET mail = 'm2' WHERE nr = 2`,
	)
	p.refused(
		`UPDATE task SET state = 'x' WHERE nr = 1`,
		`UPDATE task SET state = NULL WHERE nr = 1`,
		`UPDATE task SET state = 'x' WHERE nr = 2`,
		`UPDATE task SET result = 'R' WHERE nr = 1`, // equal in the column's own collation
		`UPDATE task SET nr = 7 WHERE nr = 1`,
		`DELETE FROM task WHERE nr = 1`,
		`DELETE FROM task`,
		`INSERT INTO task (tenant, nr, state) VALUES ('t', 4, 'done')`,
		`INSERT OR REPLACE INTO task (tenant, nr, note) VALUES ('t', 1, 'x')`,
		`INSERT OR REPLACE INTO task (tenant, nr, mail) VALUES ('t', 4, 'm1')`,
		`UPDATE OR REPLACE task SET mail = 'm1' WHERE nr = 2`,
		`UPDATE OR REPLACE task SET nr = 1 WHERE nr = 2`,
	)
	p.mustThrough("task/t/1", 1, `UPDATE task SET state = 'redone' WHERE nr = 1`)
	p.mustThrough("task/t/2", 1, `UPDATE task SET state = 'done', result = 'r' WHERE nr = 2`)
	if err := p.through("task/t/1", 2, `UPDATE task SET state = 'x' WHERE nr = 2`); err == nil {
		t.Error("another task's result was changed")
	}
}

func TestTablesOfManyShapesAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		tables, template string
		refused          []string
		resource         lastword.Resource
		through          []string
	}{
		"a number that the engine chooses": {
			`CREATE TABLE doc (id INTEGER PRIMARY KEY, body TEXT); INSERT INTO doc VALUES (5, 'y')`, "doc/{id}",
			[]string{`INSERT INTO doc (body) VALUES ('z')`, `INSERT OR REPLACE INTO doc VALUES (5, 'z')`, `UPDATE doc SET rowid = 6 WHERE id = 5`, `UPDATE doc SET oid = 6`},
			"doc/6", []string{`INSERT INTO doc (body) VALUES ('z')`, `UPDATE doc SET body = 'zz' WHERE id = 6`},
		},
		"a generated key": {
			`CREATE TABLE doc (a TEXT, b TEXT, id TEXT GENERATED ALWAYS AS (a || '-' || b) STORED UNIQUE, body TEXT); INSERT INTO doc (a, b) VALUES ('1', '2')`, "doc/{id}",
			[]string{`UPDATE doc SET a = '3'`, `INSERT INTO doc (a, b) VALUES ('4', '5')`, `REPLACE INTO doc (a, b, body) VALUES ('1', '2', 'x')`},
			"doc/4-5", []string{`INSERT INTO doc (a, b) VALUES ('4', '5')`, `UPDATE doc SET body = 'x' WHERE a = '4'`},
		},
		"names that have to be quoted": {
			`CREATE TABLE doc ("Order ""Id""" TEXT PRIMARY KEY, "select" TEXT); INSERT INTO doc VALUES ('a', 'x')`, `doc/{Order "Id"}`,
			[]string{`UPDATE doc SET "select" = 'y'`, `DELETE FROM doc`}, "doc/a", []string{`UPDATE doc SET "select" = 'y'`},
		},
		"a partial unique index": {
			`CREATE TABLE doc (id TEXT, body TEXT, slug TEXT, gone INTEGER NOT NULL DEFAULT 0); CREATE UNIQUE INDEX "u (where)" ON doc (slug) /* WHERE */ WHERE gone = 0 AND slug <> 'it''s';
INSERT INTO doc (id, slug) VALUES ('a', 's'), ('b', 't'); INSERT INTO doc (id, slug, gone) VALUES ('c', 's', 1)`, "doc/{id}",
			[]string{`REPLACE INTO doc (id, slug) VALUES ('z', 's')`, `UPDATE OR REPLACE doc SET slug = 't' WHERE id = 'a'`},
			"doc/c", []string{`UPDATE doc SET body = 'x' WHERE id = 'c'`, `INSERT INTO doc (id, slug, gone) VALUES ('c', 's', 1)`},
		},
		"a unique index with a collation of its own": {
			`CREATE TABLE doc (id TEXT, slug TEXT); CREATE UNIQUE INDEX u ON doc (slug COLLATE NOCASE); INSERT INTO doc VALUES ('a', 's')`, "doc/{id}",
			[]string{`REPLACE INTO doc VALUES ('z', 'S')`}, "doc/b", []string{`INSERT INTO doc VALUES ('b', 't')`},
		},
		"a parent whose rows take others with them": {
			`CREATE TABLE folder (id TEXT PRIMARY KEY); CREATE TABLE doc (id TEXT PRIMARY KEY, folder TEXT REFERENCES folder ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO folder VALUES ('f'); INSERT INTO doc VALUES ('a', 'f')`, "doc/{id}",
			[]string{`PRAGMA foreign_keys = ON; DELETE FROM folder`, `PRAGMA foreign_keys = ON; UPDATE folder SET id = 'g'`}, "doc/a", []string{`DELETE FROM folder`},
		},
		"a column that is called rowid": {
			`CREATE TABLE doc (rowid TEXT, "_rowid_" TEXT UNIQUE, body TEXT); INSERT INTO doc VALUES ('a', 'x', 'y')`, "doc/{rowid}",
			[]string{`UPDATE doc SET body = 'z'`, `REPLACE INTO doc VALUES ('b', 'x', 'z')`, `INSERT OR REPLACE INTO doc (oid, rowid) VALUES (1, 'b')`}, "doc/a", []string{`UPDATE doc SET body = 'z'`},
		},
		"a strict table with a blob as key": {
			`CREATE TABLE doc (id BLOB PRIMARY KEY, body TEXT) STRICT; INSERT INTO doc VALUES (x'61', 'x')`, "doc/{id}",
			[]string{`UPDATE doc SET body = 'z'`, `INSERT INTO doc VALUES (x'6100', 'y')`}, "doc/a", []string{`UPDATE doc SET body = 'z'`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := protect(t, c.tables, sqlfence.Protection{Table: "doc", Template: c.template})
			p.refused(c.refused...)
			p.mustThrough(c.resource, 1, c.through...)
			if name != "a parent whose rows take others with them" { // it has taken them
				p.refused(c.through[len(c.through)-1])
			}
			if f := p.faults(); f != nil {
				t.Errorf("faults %q", f)
			}
		})
	}
}

// What SQLite writes is not always what BEFORE triggers see; a lease on doc/b reaches no
// other row by that.
func TestWhatIsWrittenOtherwiseThanATriggerSeesRemovesNoOtherRow(t *testing.T) { // R17
	for name, c := range map[string]struct {
		tables string
		reach  []string // doc/a
		keep   []string
	}{
		"a default in place of NULL": {
			`CREATE TABLE doc (id TEXT PRIMARY KEY, place INT NOT NULL DEFAULT '0' UNIQUE, who TEXT); INSERT INTO doc VALUES ('a', 0, 'anna'), ('b', 5, 'bert')`,
			[]string{`REPLACE INTO doc VALUES ('b', NULL, 'bert')`, `UPDATE OR REPLACE doc SET place = NULL WHERE id = 'b'`},
			[]string{`REPLACE INTO doc VALUES ('b', 6, 'bert')`, `UPDATE OR REPLACE doc SET place = 7 WHERE id = 'b'`},
		},
		"a default in place of NULL, in the table's own words": {
			`CREATE TABLE doc (id TEXT PRIMARY KEY, place TEXT NOT NULL ON CONFLICT REPLACE DEFAULT ('x' || 1) UNIQUE ON CONFLICT REPLACE); INSERT INTO doc VALUES ('a', 'x1'), ('b', 'y')`,
			[]string{`DELETE FROM doc WHERE id = 'b'; INSERT INTO doc VALUES ('b', NULL)`, `UPDATE doc SET place = NULL WHERE id = 'b'`},
			[]string{`UPDATE doc SET place = 'z' WHERE id = 'b'`},
		},
		"a generated column of such a one": {
			`CREATE TABLE doc (id TEXT PRIMARY KEY, place INT NOT NULL DEFAULT 0, g INT AS (place * 2) STORED UNIQUE); INSERT INTO doc VALUES ('a', 0), ('b', 5)`,
			[]string{`REPLACE INTO doc VALUES ('b', NULL)`, `UPDATE OR REPLACE doc SET place = NULL WHERE id = 'b'`},
			[]string{`UPDATE OR REPLACE doc SET place = 4 WHERE id = 'b'`},
		},
		"a condition on such a one": {
			`CREATE TABLE doc (id TEXT PRIMARY KEY, slug TEXT, live INT NOT NULL DEFAULT 1); CREATE UNIQUE INDEX u ON doc (slug) WHERE live; INSERT INTO doc VALUES ('a', 's', 1), ('b', 's', 0)`,
			[]string{`REPLACE INTO doc VALUES ('b', 's', NULL)`, `UPDATE OR REPLACE doc SET live = NULL WHERE id = 'b'`},
			[]string{`UPDATE doc SET live = 0 WHERE id = 'b'`, `REPLACE INTO doc VALUES ('b', 't', NULL)`},
		},
		"a condition that compares as the column does": {
			`CREATE TABLE doc (id TEXT PRIMARY KEY, slug TEXT, gone INT); CREATE UNIQUE INDEX u ON doc (slug) WHERE gone = '0'; INSERT INTO doc VALUES ('a', 's', 0), ('b', 's', 1)`,
			[]string{`REPLACE INTO doc VALUES ('b', 's', 0)`, `UPDATE OR REPLACE doc SET gone = 0 WHERE id = 'b'`},
			[]string{`UPDATE doc SET gone = 2 WHERE id = 'b'`},
		},
		"a condition on a value that CAST would change": {
			`CREATE TABLE doc (id TEXT PRIMARY KEY, slug TEXT, gone INT); CREATE UNIQUE INDEX u ON doc (slug) WHERE gone <> 0; INSERT INTO doc VALUES ('a', 's', 1), ('b', 's', 0)`,
			[]string{`UPDATE OR REPLACE doc SET gone = 'no' WHERE id = 'b'`},
			[]string{`UPDATE doc SET gone = 0 WHERE id = 'b'`},
		},
		"a generated column of what an UPDATE does not name": {
			`CREATE TABLE doc (id TEXT PRIMARY KEY, a TEXT, b TEXT, g TEXT AS (a || b) UNIQUE); INSERT INTO doc (id, a, b) VALUES ('a', '1', '2'), ('b', '1', '3')`,
			[]string{`UPDATE OR REPLACE doc SET b = '2' WHERE id = 'b'`},
			[]string{`UPDATE OR REPLACE doc SET b = '4' WHERE id = 'b'`},
		},
		"keys that are equal only as the columns are": {
			`CREATE TABLE doc (id TEXT COLLATE NOCASE, n INT UNIQUE, PRIMARY KEY (id COLLATE BINARY)) WITHOUT ROWID; INSERT INTO doc VALUES ('B', 1), ('b', 2)`,
			[]string{`UPDATE OR REPLACE doc SET n = 1 WHERE n = 2`},
			[]string{`UPDATE OR REPLACE doc SET n = 3 WHERE n = 2`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := protect(t, c.tables, whole)
			for i, statement := range c.reach {
				before := p.rows()
				if err := p.through("doc/b", lastword.Token(i+1), strings.Split(statement, "; ")...); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
					t.Errorf("%s: %v", statement, err)
				}
				if after := p.rows(); after != before {
					t.Errorf("%s changed\n%sto\n%s", statement, before, after)
				}
			}
			p.mustThrough("doc/b", 9, c.keep...)
		})
	}
}

func TestWhereOnlySomeColumnsAreProtectedADefaultRemovesNoProtectedRow(t *testing.T) { // R17
	p := protect(t, `CREATE TABLE doc (id TEXT PRIMARY KEY, slot INT NOT NULL DEFAULT 0 UNIQUE, state TEXT, note TEXT); INSERT INTO doc VALUES ('a', 0, 'DONE', 'x')`,
		sqlfence.Protection{Table: "doc", Template: "doc/{id}", Columns: []string{"state"}})
	p.refused(`REPLACE INTO doc VALUES ('q', NULL, NULL, 'n')`)
	p.admitted(`REPLACE INTO doc VALUES ('q', 1, NULL, 'n')`)
}

func TestWhatCannotBeClosedIsRefused(t *testing.T) { // R17
	p := protect(t, documents+`; CREATE VIEW view AS SELECT * FROM doc; CREATE TABLE expr (id TEXT, m TEXT); CREATE UNIQUE INDEX e ON expr (lower(m));
CREATE TABLE all3 (rowid, _rowid_, oid); CREATE VIRTUAL TABLE full USING fts5 (id);
CREATE TABLE num1 (id INTEGER PRIMARY KEY, slug TEXT); CREATE UNIQUE INDEX n1 ON num1 (slug) WHERE "id" > 10;
CREATE TABLE num2 (x TEXT, slug TEXT); CREATE UNIQUE INDEX n2 ON num2 (slug) WHERE rowid > 10;
CREATE TABLE num3 (id INTEGER PRIMARY KEY, h INT AS (g + 1) UNIQUE, g INT AS (id % 5));
CREATE TABLE num4 (id INTEGER PRIMARY KEY, a TEXT, b TEXT, g TEXT AS (a || b) UNIQUE, h TEXT AS (id || a));
CREATE TABLE trig1 (id TEXT, a INT, b INT, UNIQUE (a, b)); CREATE TRIGGER own1 UPDATE ON trig1 BEGIN UPDATE trig1 SET b = 2 WHERE id = NEW.id; END;
CREATE TABLE trig2 (id TEXT, a INT, b INT, UNIQUE (a, b)); CREATE TRIGGER own2 BEFORE UPDATE OF a ON trig2 BEGIN INSERT INTO trig2 (id) VALUES ('x'); END;
CREATE TABLE log (x); CREATE TABLE trig3 (id TEXT, a INT, b INT, UNIQUE (a, b)); CREATE TRIGGER own3 BEFORE UPDATE ON trig3 BEGIN SELECT RAISE(IGNORE) WHERE NEW.a = 7; INSERT INTO log VALUES (NEW.id); END;
CREATE TRIGGER own4 AFTER UPDATE ON trig3 BEGIN UPDATE trig3 SET b = 2 WHERE id = NEW.id AND b IS NOT 2; END`)
	for _, c := range []struct{ table, template, want string }{
		{"view", "doc/{id}", "is a view"},
		{"full", "doc/{id}", "is a virtual"},
		{"none", "doc/{id}", "no table none"},
		{"lastword_fence", "doc/{resource}", "not a table of the application"},
		{"expr", "doc/{id}", "is on an expression"},
		{"all3", "doc/{oid}", "cannot be told apart"},
		{"num1", "num/{id}", "the number that the engine gives"},
		{"num2", "num/{x}", "the number that the engine gives"},
		{"num3", "num/{id}", "the number that the engine gives"},
		{"trig1", "trig/{id}", "the trigger own1 may change"},
		{"trig2", "trig/{id}", "the trigger own2 may change"},
		{"doc", "doc/{nr}", "no column nr"},
		{"doc", "doc", "has no column"},
		{"doc", "doc/{id", "a { without a }"},
		{"doc", "doc/id}", "a } without a {"},
		{"doc", "doc/{}", "no column"},
		{"doc", "doc/{id}{body}", "two columns in one segment"},
		{"doc", "/{id}", "template"},
		{"doc", "doc//{id}", "template"},
		{"doc", "doc/../{id}", "template"},
	} {
		_, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: c.table, Template: c.template}, anna)
		if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %s: %v, want %q", c.table, c.template, err, c.want)
		}
	}
	if f := p.faults(); f != nil {
		t.Errorf("what was refused is listed: %q", f)
	}
	p.admitted(`UPDATE doc SET body = 'free'`)
	for _, table := range []string{"num4", "trig3"} { // what only looks like these
		if _, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: table, Template: table + "/{id}"}, anna); err != nil {
			t.Errorf("%s: %v", table, err)
		}
	}
}

func TestValuesWithASlashBelongToOneRowOnly(t *testing.T) {
	p := protect(t, `CREATE TABLE doc (a TEXT, b TEXT, body TEXT); INSERT INTO doc VALUES ('x/y', 'z', ''), ('x', 'y/z', ''), ('x', 'y', ''), (NULL, 'y', '')`)
	lost, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{a}/{b}"}, anna)
	if err != nil || lost != 3 {
		t.Fatalf("%d rows belong to nobody, %v; want 3", lost, err)
	}
	if err := p.through("doc/x/y/z", 1, `UPDATE doc SET body = 'x' WHERE a = 'x/y'`); err == nil {
		t.Error("a row whose resource could be another's was changed")
	}
	p.mustThrough("doc/x/y", 1, `UPDATE doc SET body = 'x' WHERE a = 'x' AND b = 'y'`)
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
