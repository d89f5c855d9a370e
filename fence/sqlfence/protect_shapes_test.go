package sqlfence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
)

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
