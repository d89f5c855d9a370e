package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/postgrestest"
)

// pgProtected is what protected is, on PostgreSQL. The other program has a role of its
// own, with all rights on the tables of the application and none on those of the fence.
type pgProtected struct {
	*testing.T
	dsn    string
	db     *sql.DB
	bypass *sql.DB
	seal   *seal
	fence  *sqlfence.Fence
}

const pgDocuments = `CREATE TABLE doc (id text PRIMARY KEY, body text NOT NULL, mail text UNIQUE, free jsonb);
INSERT INTO doc (id, body, mail) VALUES ('a', 'old', 'a@x'), ('b', 'old', 'b@x'), ('c', 'old', NULL);
CREATE TABLE other (x int)`

func pgProtect(t *testing.T, tables string, all ...sqlfence.Protection) *pgProtected {
	t.Helper()
	if testing.Short() {
		t.Skip("heavy: a database for each test; runs without the race detector")
	}
	p := &pgProtected{T: t, seal: newSeal(t)}
	p.dsn = postgrestest.New(t, "protect", func(ctx context.Context, db *sql.DB) error {
		if err := sqlfence.Init(ctx, db); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, `DO $$ BEGIN CREATE ROLE worker LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
		return err
	})
	open := func(dsn string) *sql.DB {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	p.db, p.bypass = open(p.dsn), open(strings.Replace(p.dsn, "postgres@", "worker@", 1))
	mustExec(t, p.db, tables+`; GRANT ALL ON ALL TABLES IN SCHEMA public TO worker; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO worker`)
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

func (p *pgProtected) refused(statements ...string) {
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

func (p *pgProtected) admitted(statements ...string) {
	p.Helper()
	for _, statement := range statements {
		if _, err := p.bypass.ExecContext(p.Context(), statement); err != nil {
			p.Errorf("%s: %v", statement, err)
		}
	}
}

// rows is every row of every table of the application.
func (p *pgProtected) rows() string {
	p.Helper()
	var all strings.Builder
	rows, err := p.db.QueryContext(p.Context(), `SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('lastword', 'information_schema') AND n.nspname NOT LIKE 'pg\_%' ORDER BY 1`)
	if err != nil {
		p.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			p.Fatal(err)
		}
		all.WriteString(dump(p, p.db, "SELECT to_jsonb(t)::text FROM ONLY "+name+" t ORDER BY 1"))
	}
	return all.String()
}

func (p *pgProtected) through(resource lastword.Resource, token lastword.Token, statements ...string) error {
	h := p.seal.holder(resource, fmt.Sprint("w", token), token)
	_, err := p.fence.Apply(p.Context(), h, lastword.DigestOf(fmt.Append(nil, token, statements)).String(), []byte(strings.Join(statements, ";")), func(ctx context.Context, tx *sql.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

func (p *pgProtected) mustThrough(resource lastword.Resource, token lastword.Token, statements ...string) {
	p.Helper()
	if err := p.through(resource, token, statements...); err != nil {
		p.Errorf("%s under a lease on %s: %v", statements, resource, err)
	}
}

func (p *pgProtected) faults() string {
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
	return strings.Join(all, "; ")
}

// KF-24: no mutation path without a fence is left.
func TestAProtectedTableOfPostgreSQLRefusesEverybodyWhoBypassesTheFence(t *testing.T) { // R16c, R17
	p := pgProtect(t, pgDocuments, whole)
	p.refused(
		`UPDATE doc SET body = 'x' WHERE id = 'a'`,
		`UPDATE doc SET body = body`,
		`UPDATE doc SET id = 'z' WHERE id = 'a'`,
		`DELETE FROM doc WHERE id = 'a'`,
		`DELETE FROM doc`,
		`TRUNCATE doc`,
		`TRUNCATE doc, other CASCADE`,
		`INSERT INTO doc (id, body) VALUES ('d', 'x')`,
		`INSERT INTO doc (id, body) VALUES ('a', 'x') ON CONFLICT (id) DO UPDATE SET body = 'x'`,
		`INSERT INTO doc (id, body) VALUES ('d', 'x') ON CONFLICT DO NOTHING`,
		`INSERT INTO doc (id, body) SELECT id || '2', body FROM doc`,
		`MERGE INTO doc USING (VALUES ('a')) AS v (i) ON id = i WHEN MATCHED THEN UPDATE SET body = 'x'`,
		`WITH x AS (DELETE FROM doc RETURNING *) INSERT INTO other SELECT 1 FROM x`,
		`DO $$ BEGIN UPDATE doc SET body = 'x'; EXCEPTION WHEN division_by_zero THEN NULL; END $$`,
	)
	p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`)
	p.mustThrough("doc/a", 2, `DELETE FROM doc WHERE id = 'a'`, `INSERT INTO doc (id, body) VALUES ('a', 'again')`)
	p.mustThrough("doc/d", 1, `INSERT INTO doc (id, body) VALUES ('d', 'made') ON CONFLICT (id) DO UPDATE SET body = 'x'`) // the first write of a record
	p.mustThrough("doc/d", 2, `UPDATE doc SET body = 'more' WHERE id = 'd'`)
	if f := p.faults(); f != "" {
		t.Errorf("faults %s", f)
	}
}

// psql is what people have at hand; with it, a superuser who replays another server's
// changes.
func TestPsqlIsRefused(t *testing.T) { // R17
	p := pgProtect(t, pgDocuments, whole)
	psql := func(dsn, input string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "psql", "-X", "-v", "ON_ERROR_STOP=1", dsn)
		cmd.Stdin, cmd.Env = strings.NewReader(input), append(os.Environ(), "PGOPTIONS=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	worker := strings.Replace(p.dsn, "postgres@", "worker@", 1)
	for _, c := range []struct{ dsn, input string }{
		{worker, "UPDATE doc SET body = 'x' WHERE id = 'a';"},
		{worker, "COPY doc (id, body) FROM STDIN;\nd\tx\n\\.\n"},
		{worker, "BEGIN; SAVEPOINT s; DELETE FROM doc; COMMIT;"},
		{worker, "SET search_path = pg_temp; CREATE TEMP TABLE fence (domain text, resource text, passed xid8); CREATE TEMP TABLE pass (x int); UPDATE public.doc SET body = 'x';"},
		{p.dsn, "SET session_replication_role = replica; UPDATE doc SET body = 'x';"},
		{p.dsn, "SET session_replication_role = replica; TRUNCATE doc;"},
	} {
		before := p.rows()
		out, err := psql(c.dsn, c.input)
		if err == nil || !strings.Contains(out, "FENCE_REQUIRED: the table doc is protected") && !strings.Contains(out, "FENCE_REQUIRED: the table public.doc is protected") {
			t.Errorf("%s: %v, %s", c.input, err, out)
		}
		if after := p.rows(); after != before {
			t.Errorf("%s changed the rows", c.input)
		}
	}
	out, err := psql(worker, "UPDATE doc SET body = 'x' WHERE id = 'a';")
	if err == nil || !strings.Contains(out, "DETAIL:  UPDATE without a pass for the resource 'doc/a' of the domain test") || !strings.Contains(out, "HINT:") {
		t.Errorf("a person is not told what to do: %s", out)
	}
	for _, statement := range []string{
		`INSERT INTO lastword.pass VALUES ('test', 'doc/a', pg_current_xact_id())`, `UPDATE lastword.fence SET passed = pg_current_xact_id()`,
		`UPDATE lastword.rollout SET shadow = 1`, `SELECT lastword.bypassed('test', 'a', '', 'doc', 'UPDATE')`,
	} {
		if _, err := p.bypass.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func TestOnPostgreSQLALeaseOnOneResourceDoesNotReachAnother(t *testing.T) { // R17
	p := pgProtect(t, pgDocuments, whole)
	for i, statement := range []string{
		`UPDATE doc SET body = 'x' WHERE id = 'b'`,
		`UPDATE doc SET body = 'x'`,
		`UPDATE doc SET id = 'z' WHERE id = 'a'`,
		`DELETE FROM doc`,
		`TRUNCATE doc`,
		`INSERT INTO doc (id, body) VALUES ('A', 'x')`,
		`INSERT INTO doc (id, body) VALUES ('a ', 'x')`,
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

func TestThePassOfPostgreSQLEndsWithItsTransaction(t *testing.T) { // R16c
	p := pgProtect(t, pgDocuments, whole)
	const change = `UPDATE doc SET body = 'within' WHERE id = 'a'`
	conn, err := p.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	exec := func(tx *sql.Tx, statement string) error {
		_, err := tx.ExecContext(t.Context(), statement)
		return err
	}
	operations := 0
	within := func(tx *sql.Tx, token lastword.Token) error {
		operations++
		_, err := p.fence.Within(t.Context(), tx, p.seal.holder("doc/a", "w", token), fmt.Sprint("op-", operations), []byte("x"))
		return err
	}
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	for i, statement := range []string{change, `INSERT INTO doc (id, body) VALUES ('a', 'x') ON CONFLICT (id) DO UPDATE SET body = 'x'`} {
		tx := begin()
		if err := errors.Join(within(tx, lastword.Token(i+1)), exec(tx, change), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			t.Errorf("%s, after COMMIT: %v", statement, err)
		}
	}
	tx := begin()
	if err := errors.Join(exec(tx, `SAVEPOINT s`), within(tx, 30), exec(tx, change), exec(tx, `ROLLBACK TO s`)); err != nil {
		t.Fatal(err)
	}
	if err := exec(tx, change); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
		t.Errorf("after ROLLBACK TO SAVEPOINT: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	tx = begin()
	if err := within(tx, 1); !errors.Is(err, lastword.ErrStale) {
		t.Fatal(err)
	}
	if err := exec(tx, change); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
		t.Errorf("after a refusal: %v", err)
	}
	_ = tx.Rollback()
}

func TestTablesOfPostgreSQLOfManyShapesAreClosed(t *testing.T) { // R17
	for name, c := range map[string]struct {
		tables, table, template string
		refused                 []string
		resource                lastword.Resource
		through                 []string
	}{
		"partitions": {
			`CREATE TABLE doc (id text, year int, body text, PRIMARY KEY (id, year)) PARTITION BY RANGE (year); CREATE TABLE doc1 PARTITION OF doc FOR VALUES FROM (1) TO (2000);
CREATE TABLE doc2 PARTITION OF doc FOR VALUES FROM (2000) TO (3000) PARTITION BY LIST (id); CREATE TABLE doc2a PARTITION OF doc2 DEFAULT;
INSERT INTO doc VALUES ('a', 1, 'x'), ('b', 2001, 'x')`, "doc", "doc/{id}",
			[]string{`UPDATE doc SET body = 'y'`, `UPDATE doc1 SET body = 'y'`, `DELETE FROM doc2a`, `TRUNCATE doc`, `TRUNCATE doc1`, `TRUNCATE doc2a`, `TRUNCATE doc2`, `INSERT INTO doc1 VALUES ('c', 3)`, `UPDATE doc SET year = 2002 WHERE id = 'a'`},
			"doc/a", []string{`UPDATE doc SET year = 2002 WHERE id = 'a'`, `INSERT INTO doc VALUES ('a', 5, 'v')`, `UPDATE doc2a SET body = 'z' WHERE id = 'a'`},
		},
		"inheritance": {
			`CREATE TABLE doc (id text, body text); CREATE TABLE memo (extra int) INHERITS (doc); CREATE TABLE note () INHERITS (memo); INSERT INTO doc VALUES ('a', 'x'); INSERT INTO note VALUES ('b', 'x')`, "doc", "doc/{id}",
			[]string{`UPDATE doc SET body = 'y'`, `UPDATE ONLY doc SET body = 'y'`, `UPDATE memo SET extra = 1`, `UPDATE note SET extra = 1`, `INSERT INTO memo VALUES ('c', 'x', 1)`, `TRUNCATE memo`, `TRUNCATE ONLY doc`},
			"doc/b", []string{`UPDATE doc SET body = 'y' WHERE id = 'b'`},
		},
		"names that have to be quoted, in another schema": {
			`CREATE SCHEMA "My Shop"; GRANT ALL ON SCHEMA "My Shop" TO worker; CREATE TABLE "My Shop"."Order ""x""" ("Order ""Id""" int PRIMARY KEY, "select" text); GRANT ALL ON ALL TABLES IN SCHEMA "My Shop" TO worker;
INSERT INTO "My Shop"."Order ""x""" VALUES (7, 'x')`, `"My Shop"."Order ""x"""`, `it's/{Order "Id"}`,
			[]string{`UPDATE "My Shop"."Order ""x""" SET "select" = 'y'`, `TRUNCATE "My Shop"."Order ""x"""`}, "it's/7", []string{`UPDATE "My Shop"."Order ""x""" SET "select" = 'y'`},
		},
		"a generated key": {
			`CREATE TABLE doc (a text, b text, id text GENERATED ALWAYS AS (a || '-' || b) STORED, body text); INSERT INTO doc (a, b) VALUES ('1', '2')`, "doc", "doc/{id}",
			[]string{`UPDATE doc SET a = '3'`, `INSERT INTO doc (a, b) VALUES ('4', '5')`}, "doc/4-5", []string{`INSERT INTO doc (a, b) VALUES ('4', '5')`, `UPDATE doc SET body = 'x' WHERE a = '4'`},
		},
		"a number that the engine chooses": {
			`CREATE TABLE doc (id bigint GENERATED ALWAYS AS IDENTITY, body text); INSERT INTO doc (body) VALUES ('x')`, "doc", "doc/{id}",
			[]string{`INSERT INTO doc (body) VALUES ('z')`}, "doc/3", []string{`INSERT INTO doc (body) VALUES ('z')`, `UPDATE doc SET body = 'zz' WHERE id = 3`},
		},
		"a trigger that changes the key": {
			`CREATE TABLE doc (id text, body text); INSERT INTO doc VALUES ('b', 'x'); CREATE FUNCTION swap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := 'b'; RETURN NEW; END $$;
CREATE TRIGGER zzz BEFORE INSERT OR UPDATE ON doc FOR EACH ROW EXECUTE FUNCTION swap()`, "doc", "doc/{id}",
			[]string{`INSERT INTO doc VALUES ('a', 'x')`}, "doc/b", []string{`INSERT INTO doc VALUES ('a', 'x')`, `UPDATE doc SET body = 'y'`},
		},
		"a composite key": {
			`CREATE TABLE doc (tenant uuid, nr int, body text); INSERT INTO doc VALUES ('7f3b0f6e-0000-4000-8000-000000000001', 1, 'x')`, "doc", "t/{tenant}/{nr}",
			[]string{`UPDATE doc SET nr = 2`, `DELETE FROM doc`}, "t/7f3b0f6e-0000-4000-8000-000000000001/1", []string{`UPDATE doc SET body = 'y'`},
		},
		"a parent whose rows take others with them": {
			`CREATE TABLE folder (id text PRIMARY KEY); CREATE TABLE doc (id text, folder text REFERENCES folder ON DELETE CASCADE ON UPDATE CASCADE); INSERT INTO folder VALUES ('f'); INSERT INTO doc VALUES ('a', 'f')`, "doc", "doc/{id}",
			[]string{`DELETE FROM folder`, `UPDATE folder SET id = 'g'`, `TRUNCATE folder CASCADE`}, "doc/a", []string{`UPDATE folder SET id = id || 'x'`},
		},
		"a domain over an enumeration": {
			`CREATE TYPE kind AS ENUM ('a', 'b'); CREATE DOMAIN kinds AS kind; CREATE TABLE doc (id kinds, body text); INSERT INTO doc VALUES ('a', 'x')`, "doc", "doc/{id}",
			[]string{`UPDATE doc SET id = 'b'`}, "doc/a", []string{`UPDATE doc SET body = 'y'`},
		},
		"a rule and a view": {
			`CREATE TABLE doc (id text, body text); INSERT INTO doc VALUES ('a', 'x'); CREATE VIEW shown AS SELECT * FROM doc; CREATE TABLE box (id text); CREATE RULE r AS ON INSERT TO box DO INSTEAD UPDATE doc SET body = 'r' WHERE id = NEW.id`, "doc", "doc/{id}",
			[]string{`UPDATE shown SET body = 'y'`, `INSERT INTO box VALUES ('a')`}, "doc/a", []string{`UPDATE shown SET body = 'y'`, `INSERT INTO box VALUES ('a')`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pgProtect(t, c.tables, sqlfence.Protection{Table: c.table, Template: c.template})
			p.refused(c.refused...)
			p.mustThrough(c.resource, 1, c.through...)
			p.refused(c.through[len(c.through)-1])
			if f := p.faults(); f != "" {
				t.Errorf("faults %q", f)
			}
		})
	}
}

func TestOnPostgreSQLOnlySomeColumnsAreProtected(t *testing.T) { // R17
	p := pgProtect(t, `CREATE TABLE task (tenant text, nr int, state text, result json, note text, PRIMARY KEY (tenant, nr));
INSERT INTO task VALUES ('t', 1, 'done', '{"r": 1}', 'n'), ('t', 2, NULL, NULL, 'n')`,
		sqlfence.Protection{Table: "task", Template: "task/{tenant}/{nr}", Columns: []string{"state", "result"}})
	p.admitted(
		`INSERT INTO task (tenant, nr, note) VALUES ('t', 3, 'new work')`,
		`UPDATE task SET note = 'x'`,
		`UPDATE task SET note = 'y', state = state, tenant = tenant`,
		`INSERT INTO task (tenant, nr) VALUES ('t', 1) ON CONFLICT (tenant, nr) DO UPDATE SET note = 'z'`,
		`UPDATE task SET nr = 9 WHERE nr = 3`,
		`DELETE FROM task WHERE nr = 9`,
	)
	p.refused(
		`UPDATE task SET state = 'x' WHERE nr = 1`,
		`UPDATE task SET result = NULL WHERE nr = 1`,
		`UPDATE task SET result = '{"r":1}' WHERE nr = 1`, // other bytes
		`UPDATE task SET state = 'x' WHERE nr = 2`,
		`UPDATE task SET nr = 7 WHERE nr = 1`,
		`DELETE FROM task WHERE nr = 1`,
		`TRUNCATE task`,
		`INSERT INTO task (tenant, nr, state) VALUES ('t', 4, 'done')`,
	)
	p.mustThrough("task/t/1", 1, `UPDATE task SET state = 'redone' WHERE nr = 1`)
	if err := p.through("task/t/1", 2, `UPDATE task SET state = 'x' WHERE nr = 2`); err == nil {
		t.Error("another task's result was changed")
	}
}

func TestWhatPostgreSQLCannotCloseIsRefused(t *testing.T) { // R17
	p := pgProtect(t, pgDocuments+`; CREATE VIEW shown AS SELECT * FROM doc; CREATE TABLE at (id timestamptz, n numeric); CREATE EXTENSION postgres_fdw; CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw;
CREATE TABLE far (id text); CREATE FOREIGN TABLE farther () INHERITS (far) SERVER s`)
	for _, c := range []struct{ table, template, want string }{
		{"shown", "doc/{id}", "not an ordinary table"},
		{"none", "doc/{id}", "no table none"},
		{"lastword.fence", "doc/{resource}", "not a table of the application"},
		{"pg_class", "doc/{relname}", "not a table of the application"},
		{"far", "doc/{id}", "is a foreign table"},
		{"at", "doc/{id}", "depends on the settings of a session"},
		{"at", "doc/{n}", "depends on the settings of a session"},
		{"doc", "doc/{ID}", "no column ID"},
	} {
		_, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: c.table, Template: c.template}, anna)
		if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %s: %v, want %q", c.table, c.template, err, c.want)
		}
	}
	p.admitted(`UPDATE doc SET body = 'free'`)
}

// A trigger that is missing, off or altered is noticed at the start and in the status.
func TestAMissingOrAlteredTriggerOfPostgreSQLIsNoticed(t *testing.T) { // R16c
	function := func(p *pgProtected) string {
		var name string
		if err := p.db.QueryRowContext(t.Context(), `SELECT tgfoid::regproc::text FROM pg_trigger WHERE tgname = 'lastword_guard'`).Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, c := range map[string]struct {
		damage func(p *pgProtected) string
		want   string
	}{
		"dropped":          {func(*pgProtected) string { return `DROP TRIGGER lastword_guard ON doc` }, "lastword_guard of public.doc is missing"},
		"disabled":         {func(*pgProtected) string { return `ALTER TABLE doc DISABLE TRIGGER ALL` }, "is not enabled always"},
		"enabled as usual": {func(*pgProtected) string { return `ALTER TABLE doc ENABLE TRIGGER lastword_guard` }, "is not enabled always"},
		"truncate":         {func(*pgProtected) string { return `DROP TRIGGER lastword_guard_truncate ON doc` }, "lastword_guard_truncate of public.doc is missing"},
		"for some columns": {func(p *pgProtected) string {
			return `DROP TRIGGER lastword_guard ON doc; CREATE TRIGGER lastword_guard AFTER INSERT OR UPDATE OF free OR DELETE ON doc FOR EACH ROW EXECUTE FUNCTION ` + function(p) + `(); ALTER TABLE doc ENABLE ALWAYS TRIGGER lastword_guard`
		}, "is not what it has to be"},
		"for some rows": {func(p *pgProtected) string {
			return `DROP TRIGGER lastword_guard ON doc; CREATE TRIGGER lastword_guard AFTER INSERT OR UPDATE OR DELETE ON doc FOR EACH ROW WHEN (FALSE) EXECUTE FUNCTION ` + function(p) + `(); ALTER TABLE doc ENABLE ALWAYS TRIGGER lastword_guard`
		}, "is not what it has to be"},
		"another function": {func(p *pgProtected) string {
			return `CREATE OR REPLACE FUNCTION ` + function(p) + `() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`
		}, "is not what it has to be"},
		"another owner's path": {func(p *pgProtected) string { return `ALTER FUNCTION ` + function(p) + `() RESET search_path` }, "is not what it has to be"},
		"a new heir":           {func(*pgProtected) string { return `CREATE TABLE memo () INHERITS (doc)` }, "lastword_guard of public.memo is missing"},
		"a renamed column":     {func(*pgProtected) string { return `ALTER TABLE doc RENAME id TO key` }, "no column id"},
		"a dropped table":      {func(*pgProtected) string { return `DROP TABLE doc` }, "the table is gone"},
		"a renamed table":      {func(*pgProtected) string { return `ALTER TABLE doc RENAME TO paper` }, "the table is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pgProtect(t, pgDocuments, whole)
			mustExec(t, p.db, c.damage(p))
			if f := p.faults(); !strings.Contains(f, c.want) {
				t.Errorf("status: %q, want %q", f, c.want)
			}
			if _, err := sqlfence.New(t.Context(), p.db, p.seal.config()); !errors.Is(err, lastword.ErrInvalid) {
				t.Errorf("a start: %v", err)
			}
		})
	}
	t.Run("a new partition has its rows closed and its TRUNCATE not", func(t *testing.T) {
		p := pgProtect(t, `CREATE TABLE doc (id text, y int) PARTITION BY LIST (y); CREATE TABLE doc1 PARTITION OF doc FOR VALUES IN (1)`, whole)
		mustExec(t, p.db, `CREATE TABLE doc2 PARTITION OF doc FOR VALUES IN (2); GRANT ALL ON doc2 TO worker`)
		p.refused(`INSERT INTO doc2 VALUES ('a', 2)`)
		if f := p.faults(); !strings.Contains(f, "lastword_guard_truncate of public.doc2 is missing") {
			t.Errorf("status: %q", f)
		}
		if _, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}"}, anna); err != nil {
			t.Fatal(err)
		}
		p.refused(`TRUNCATE doc2`, `INSERT INTO doc2 VALUES ('a', 2)`)
		if f := p.faults(); f != "" {
			t.Errorf("mended: %q", f)
		}
	})
}

func TestAMigrationOfAProtectedTableOfPostgreSQL(t *testing.T) {
	p := pgProtect(t, pgDocuments, whole)
	place := p.fence.Place()
	if _, _, err := place.Unprotect(t.Context(), "doc", anna); err != nil {
		t.Fatal(err)
	}
	p.admitted(`UPDATE doc SET free = '1'`)
	if f := p.faults(); f != "public.doc is open" {
		t.Errorf("status: %q", f)
	}
	if err := p.through("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a write through the fence meanwhile: %v", err)
	}
	if _, err := place.Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "public.doc", Template: "doc/{id}"}, anna); err != nil {
		t.Fatal(err)
	}
	p.refused(`UPDATE doc SET free = '2'`)
	p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`)
	if _, err := place.Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}", Columns: []string{"body"}}, anna); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("protected otherwise: %v", err)
	}
	mustExec(t, p.db, `DROP TABLE doc`)
	if _, gone, err := place.Unprotect(t.Context(), "public.doc", anna); err != nil || !gone {
		t.Errorf("a table that is gone: %v, %v", gone, err)
	}
}

// R18: counted with verdicts, and one way.
func TestARolloutOfAProtectedTableOfPostgreSQL(t *testing.T) {
	p := pgProtect(t, pgDocuments, sqlfence.Protection{Table: "doc", Template: "doc/{id}", Shadow: true})
	place := p.fence.Place()
	p.admitted(
		`UPDATE doc SET body = 'x' WHERE id IN ('a', 'b')`,
		`UPDATE doc SET id = 'd' WHERE id = 'b'`,
		`BEGIN; DELETE FROM doc; ROLLBACK`,
	)
	p.mustThrough("doc/c", 1, `UPDATE doc SET body = 'fenced' WHERE id = 'c'`)
	if got := dump(t, p.db, `SELECT resource, count(*)::text, min(login) FROM lastword.bypass GROUP BY 1 ORDER BY 1`); got != `["doc/a" "1" "worker"]
["doc/b" "2" "worker"]
["doc/d" "1" "worker"]
` {
		t.Errorf("counted:\n%s", got)
	}
	seen, err := p.fence.Inspect(t.Context(), "doc/b")
	if err != nil || seen.Refusals[lastword.FenceRequired.Shadow()] != 2 {
		t.Errorf("inspected: %v, %v", seen.Refusals, err)
	}
	if _, err := place.Enforce(t.Context(), domain, "doc/a", anna); err != nil {
		t.Fatal(err)
	}
	p.refused(`UPDATE doc SET body = 'z' WHERE id = 'a'`, `UPDATE doc SET body = 'z'`)
	p.admitted(`UPDATE doc SET body = 'z' WHERE id = 'c'`)
	if n, err := place.Enforce(t.Context(), domain, "doc/", anna); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	p.refused(`UPDATE doc SET body = 'z' WHERE id = 'c'`, `TRUNCATE doc`)
	for _, slip := range []string{`UPDATE lastword.rollout SET shadow = 1`, `DELETE FROM lastword.rollout`, `TRUNCATE lastword.rollout`} {
		if _, err := p.db.ExecContext(t.Context(), slip); err == nil || !strings.Contains(err.Error(), "does not begin again") {
			t.Errorf("%s: %v", slip, err)
		}
	}
	if f := p.faults(); f != "" {
		t.Errorf("faults %q", f)
	}
}

// In a restored server the numbers of transactions come again.
func TestARestoredPostgreSQLForgetsWhoHadPassed(t *testing.T) { // R20
	p := pgProtect(t, pgDocuments, whole)
	p.mustThrough("doc/a", 1, `UPDATE doc SET body = 'new' WHERE id = 'a'`)
	p.mustThrough("doc/new", 1, `INSERT INTO doc (id, body) VALUES ('new', '')`)
	_, err := fence.DeclareRestored(t.Context(), p.fence.Place(), fence.Restore{
		Domain: domain, Until: wall, Act: anna,
		NextFence: func(context.Context, lastword.Resource) (lastword.Token, error) { return 9, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, p.db, `SELECT (SELECT count(*) FROM lastword.pass) + (SELECT count(*) FROM lastword.fence WHERE pg_visible_in_snapshot(passed, pg_current_snapshot()) IS FALSE)`); n != 0 {
		t.Errorf("%d passes are left that could be somebody's again", n)
	}
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
}

// A row that belongs to no resource is open to nobody: a NULL, or a slash where a template
// has several columns.
func TestOnPostgreSQLARowOfNoResourceIsRefused(t *testing.T) { // R17
	p := pgProtect(t, `CREATE TABLE doc (n int PRIMARY KEY, id text, body text); INSERT INTO doc VALUES (1, NULL, 'old'), (2, 'b', 'old');
CREATE TABLE task (tenant text, nr int, state text, note text); INSERT INTO task VALUES ('t', 2, NULL, 'n')`,
		sqlfence.Protection{Table: "doc", Template: "doc/{id}"},
		sqlfence.Protection{Table: "task", Template: "task/{tenant}/{nr}", Columns: []string{"state"}})
	p.refused(
		`INSERT INTO doc VALUES (3, NULL, 'x')`,
		`UPDATE doc SET body = 'x' WHERE n = 1`,
		`UPDATE doc SET id = NULL WHERE n = 2`,
		`UPDATE doc SET id = 'c' WHERE n = 1`,
		`DELETE FROM doc WHERE n = 1`,
		`INSERT INTO task VALUES ('a/b', 1, 'done', 'n')`,
		`INSERT INTO task VALUES (NULL, 1, 'done', 'n')`,
		`UPDATE task SET tenant = 'a/b', state = 'done' WHERE nr = 2`,
	)
	p.admitted(`INSERT INTO task VALUES ('a/b', 1, NULL, 'n')`)
}
