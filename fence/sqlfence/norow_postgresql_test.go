package sqlfence_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
)

const tablesOfNoResource = `CREATE TABLE doc (id text, body text);
CREATE TABLE ord (tenant text, nr int, state text, note text);
CREATE TABLE ordc (tenant text, nr int, state text, note text);
CREATE TABLE parts (tenant text, nr int, state text) PARTITION BY LIST (tenant);
CREATE TABLE parts_all PARTITION OF parts DEFAULT;
INSERT INTO doc VALUES (NULL, 'kept'), ('a', 'kept');
INSERT INTO ord VALUES ('x/y', 1, 'kept', 'n'), ('x', NULL, 'kept', 'n'), ('t', 1, 'kept', 'n');
INSERT INTO ordc VALUES ('x/y', 1, NULL, 'n'), ('x', NULL, NULL, 'n'), ('x/z', 1, 'kept', 'n'), ('t', 1, NULL, 'n');
INSERT INTO parts VALUES ('x/y', 1, 'kept')`

var protectionsOfNoResource = []sqlfence.Protection{
	{Table: "doc", Template: "doc/{id}"},
	{Table: "ord", Template: "order/{tenant}/{nr}"},
	{Table: "ordc", Template: "orderc/{tenant}/{nr}", Columns: []string{"state"}},
	{Table: "parts", Template: "part/{tenant}/{nr}"},
}

// statementsOfNoResource write rows that belong to no resource: each changes one row.
var statementsOfNoResource = []string{
	`INSERT INTO doc VALUES (NULL, 'unfenced')`,
	`UPDATE doc SET body = 'unfenced' WHERE id IS NULL`,
	`DELETE FROM doc WHERE id IS NULL`,
	`UPDATE doc SET id = NULL WHERE id = 'a'`,
	`MERGE INTO doc USING (VALUES (1)) AS v (x) ON FALSE WHEN NOT MATCHED THEN INSERT VALUES (NULL, 'merged')`,
	`INSERT INTO ord VALUES ('acme/eu', 1, 'PAID')`,
	`INSERT INTO ord VALUES ('acme', NULL, 'PAID')`,
	`INSERT INTO ord VALUES (NULL, 1, 'PAID')`,
	`MERGE INTO ord USING (VALUES ('m/m', 1)) AS v (t, n) ON tenant = t WHEN MATCHED THEN UPDATE SET state = 'x' WHEN NOT MATCHED THEN INSERT VALUES (t, n, 'merged')`,
	`UPDATE ord SET state = 'PAID' WHERE tenant = 'x/y'`,
	`UPDATE ord SET tenant = 'y/y' WHERE tenant = 'x/y'`,
	`UPDATE ord SET nr = NULL WHERE tenant = 'x/y'`,
	`DELETE FROM ord WHERE tenant = 'x/y'`,
	`UPDATE ord SET tenant = 't/t' WHERE tenant = 't'`,
	`INSERT INTO ordc VALUES ('acme/eu', 1, 'PAID', 'n')`,
	`INSERT INTO ordc VALUES (NULL, NULL, 'PAID', 'n')`,
	`UPDATE ordc SET state = 'PAID' WHERE tenant = 'x/y'`,
	`UPDATE ordc SET state = 'PAID', tenant = 'y/y' WHERE tenant = 'x/y'`,
	`UPDATE ordc SET state = 'PAID' WHERE nr IS NULL`,
	`UPDATE ordc SET state = NULL WHERE tenant = 'x/z'`,
	`DELETE FROM ordc WHERE tenant = 'x/z'`,
	`MERGE INTO ordc USING (VALUES ('x/y')) AS v (t) ON tenant = t WHEN MATCHED THEN UPDATE SET state = 'PAID'`,
	`INSERT INTO parts VALUES ('p/p', 1, 'PAID')`,
	`INSERT INTO parts_all VALUES ('p/p', 1, 'PAID')`,
	`UPDATE parts SET state = 'PAID' WHERE tenant = 'x/y'`,
}

var copiesOfNoResource = []string{
	"COPY doc FROM STDIN;\n\\N\tcopied\n\\.\n",
	"COPY ord (tenant, nr, state) FROM STDIN;\na/b\t7\tcopied\n\\.\n",
	"COPY ordc (tenant, nr, state) FROM STDIN;\na/b\t7\tcopied\n\\.\n",
}

// A row that belongs to no resource can be written by nobody: there is no lease on it.
func TestRowsOfNoResourceAreWrittenByNobody(t *testing.T) { // R16c, R17
	p := pgProtect(t, tablesOfNoResource, protectionsOfNoResource...)
	p.refused(statementsOfNoResource...)
	for _, input := range copiesOfNoResource {
		before := p.rows()
		cmd := exec.CommandContext(t.Context(), "psql", "-X", "-v", "ON_ERROR_STOP=1", strings.Replace(p.dsn, "postgres@", "worker@", 1))
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "FENCE_REQUIRED") {
			t.Errorf("%s: %v, %s", input, err, out)
		}
		if after := p.rows(); after != before {
			t.Errorf("%s changed the rows", input)
		}
	}
	for i, statement := range statementsOfNoResource { // nor under a lease on another one
		if err := p.through("doc/a", lastword.Token(i+1), statement); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			t.Errorf("%s under a lease: %v", statement, err)
		}
	}
	// Without a protected column in it, a row is anybody's.
	p.admitted(`INSERT INTO ordc VALUES ('f/f', 1, NULL, 'n')`, `UPDATE ordc SET note = 'm' WHERE tenant = 'f/f'`, `UPDATE ordc SET note = 'm' WHERE tenant = 'x/z'`, `DELETE FROM ordc WHERE tenant = 'f/f'`)
}

// In a roll-out every one of them is counted, once for each row and resource.
func TestRowsOfNoResourceAreCountedInARollout(t *testing.T) { // R18
	all := append([]sqlfence.Protection{}, protectionsOfNoResource...)
	for i := range all {
		all[i].Shadow = true
	}
	p := pgProtect(t, tablesOfNoResource, all...)
	mustExec(t, p.db, `GRANT INSERT ON lastword.bypass TO worker`)
	counted := func() int { return count(t, p.db, `SELECT count(*) FROM lastword.bypass`) }
	for _, statement := range statementsOfNoResource {
		tx, err := p.bypass.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
		if err := tx.Rollback(); err != nil { // so that the next one finds its row
			t.Fatal(err)
		}
	}
	if n := counted(); n != 0 {
		t.Fatalf("%d are counted", n)
	}
	for i, statement := range []string{
		`INSERT INTO doc VALUES (NULL, 'unfenced')`, `INSERT INTO ord VALUES ('acme/eu', 1, 'PAID')`, `INSERT INTO ordc VALUES ('acme/eu', 1, 'PAID', 'n')`,
		`UPDATE ordc SET state = 'PAID' WHERE tenant = 'x/y'`, `UPDATE ord SET state = 'PAID' WHERE tenant = 'x/y'`,
	} {
		p.admitted(statement)
		if n := counted(); n != i+1 {
			t.Errorf("%s: %d are counted", statement, n)
		}
	}
}

// A pass is a row of the fence's own table, and not of one that inherits from it.
func TestAnHeirOfTheTablesOfTheFenceOpensNothing(t *testing.T) { // R16c
	p := pgProtect(t, tablesOfNoResource, protectionsOfNoResource...)
	for heir, statement := range map[string]string{
		"pass":  `INSERT INTO heir VALUES ('` + domain + `', 'doc/new', pg_current_xact_id())`,
		"fence": `INSERT INTO heir SELECT (jsonb_populate_record(f, jsonb_build_object('resource', 'doc/new', 'passed', pg_current_xact_id()::text))).* FROM ONLY lastword.fence f`,
	} {
		if err := p.through("doc/a", 1, `SELECT 1`); err != nil { // a record to be copied
			t.Fatal(err)
		}
		conn, err := p.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.ExecContext(t.Context(), `BEGIN; CREATE TEMP TABLE heir () INHERITS (lastword.`+heir+`); `+statement)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), `INSERT INTO doc VALUES ('new', 'by an heir')`); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			t.Errorf("an heir of %s: %v", heir, err)
		}
		if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// KF-38: the functions that an older program has made of protected tables are made anew
// with everything else; what neither it nor this one has made stays for a person to see.
func TestInitMakesTheGuardsOfAnOlderProgramAnew(t *testing.T) {
	p := pgProtect(t, tablesOfNoResource, protectionsOfNoResource...)
	if _, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}"}, anna); err != nil {
		t.Fatal(err)
	}
	older := func(rest string) {
		t.Helper()
		mustExec(t, p.db, `DO $$ DECLARE f record; text text; BEGIN
FOR f IN SELECT oid, proname, prosrc FROM pg_proc WHERE pronamespace = 'lastword'::regnamespace AND proname LIKE 'guard\_%' LOOP
	text := regexp_replace(replace(f.prosrc, 'FROM ONLY lastword.', 'FROM lastword.'), '^\n-- columns [0-9 ]*', '');
	text := replace(replace(replace(replace(text, E'\tlooked boolean := FALSE;\n', ''), '; looked := TRUE;', ';'),
		'(NOT looked OR before IS DISTINCT FROM r)', 'before IS DISTINCT FROM r'), ' COLLATE "C", ''/'')', ', ''/'')') || '`+rest+`';
	EXECUTE format('CREATE OR REPLACE FUNCTION lastword.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', f.proname, text);
END LOOP; END $$`)
	}
	older("")
	if f := p.faults(); strings.Count(f, "was made by an older lastword") != 4 {
		t.Fatalf("faults %s", f)
	}
	p.admitted(`INSERT INTO ord VALUES ('older/program', 1, 'PAID')`) // as it was
	if _, err := sqlfence.New(t.Context(), p.db, p.seal.config()); err == nil || !strings.Contains(err.Error(), "older lastword") {
		t.Errorf("a fence over the functions of before: %v", err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if err := sqlfence.Init(t.Context(), p.db); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if f := p.faults(); f != "" {
		t.Fatalf("faults %s", f)
	}
	p.refused(statementsOfNoResource...)
	mustExec(t, p.db, `DO $$ DECLARE f record; BEGIN
FOR f IN SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'lastword'::regnamespace AND proname LIKE 'guard\_%' LOOP
	EXECUTE format('CREATE OR REPLACE FUNCTION lastword.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', f.proname,
		replace(regexp_replace(replace(f.prosrc, 'FROM ONLY lastword.', 'FROM lastword.'), '^\n-- columns [0-9 ]*', ''), ' COLLATE "C", ''/'')', ', ''/'')'));
END LOOP; END $$`) // a little older
	if err := sqlfence.Init(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	if f := p.faults(); f != "" {
		t.Fatalf("faults %s", f)
	}
	mustExec(t, p.db, `DO $$ DECLARE f record; BEGIN
FOR f IN SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'lastword'::regnamespace AND proname LIKE 'guard\_%' LOOP
	EXECUTE format('CREATE OR REPLACE FUNCTION lastword.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', f.proname,
		replace(f.prosrc, 'FROM ONLY lastword.', 'FROM lastword.'));
END LOOP; END $$`) // the last one before heirs counted for nothing
	if f := p.faults(); strings.Count(f, "was made by an older lastword") != 4 {
		t.Fatalf("faults %s", f)
	}
	if err := sqlfence.Init(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	if f := p.faults(); f != "" {
		t.Fatalf("faults %s", f)
	}
	older("-- and something else")
	if err := sqlfence.Init(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	if f := p.faults(); strings.Count(f, "is not what it has to be") != 4 {
		t.Errorf("faults %s", f)
	}
}

// A table knows its columns by number: one that has taken the name of another would put
// every row under other leases.
func TestAColumnThatTookTheNameOfAnotherIsNoticed(t *testing.T) { // R16c
	for name, change := range map[string]string{
		"swapped":              `ALTER TABLE doc RENAME id TO old_id; ALTER TABLE doc RENAME body TO id; ALTER TABLE doc RENAME old_id TO body`,
		"renamed and made":     `ALTER TABLE doc RENAME id TO old_id; ALTER TABLE doc ADD COLUMN id text`,
		"dropped and made":     `ALTER TABLE doc DROP COLUMN id; ALTER TABLE doc ADD COLUMN id text`,
		"a protected one made": `ALTER TABLE doc DROP COLUMN body; ALTER TABLE doc ADD COLUMN body text`,
	} {
		t.Run(name, func(t *testing.T) {
			p := pgProtect(t, pgDocuments, sqlfence.Protection{Table: "doc", Template: "doc/{id}", Columns: []string{"body"}})
			mustExec(t, p.db, change)
			if f := p.faults(); !strings.Contains(f, "is another one than when it was protected") {
				t.Errorf("faults %q", f)
			}
			if _, err := sqlfence.New(t.Context(), p.db, p.seal.config()); err == nil || !strings.Contains(err.Error(), "another one") {
				t.Errorf("a fence: %v", err)
			}
			if _, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "doc/{id}", Columns: []string{"body"}}, anna); err != nil {
				t.Fatal(err)
			}
			if f := p.faults(); f != "" {
				t.Errorf("faults after it was protected again: %s", f)
			}
		})
	}
}

// Two protections of one table would take the triggers of one another away.
func TestATableAndAPartOfItAreNotBothProtected(t *testing.T) { // R16c
	p := pgProtect(t, `CREATE TABLE top (id text, body text); CREATE TABLE heir (extra text) INHERITS (top); CREATE TABLE below () INHERITS (heir);
CREATE TABLE whole (id text, body text) PARTITION BY LIST (id); CREATE TABLE part PARTITION OF whole FOR VALUES IN ('a') PARTITION BY LIST (id); CREATE TABLE subpart PARTITION OF part DEFAULT;
CREATE TABLE other (id text, body text)`)
	try := func(table string) error {
		_, err := p.fence.Place().Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: table, Template: table + "/{id}"}, anna)
		return err
	}
	for _, c := range []struct {
		first   string
		refused []string
	}{
		{"heir", []string{"top", "below"}}, {"part", []string{"whole", "subpart"}},
	} {
		if err := try(c.first); err != nil {
			t.Fatal(err)
		}
		for _, table := range c.refused {
			oneLine(t, "protect "+table, try(table), lastword.CodeInvalid)
		}
		if err := try(c.first); err != nil { // again is no other protection
			t.Error(err)
		}
	}
	if f := p.faults(); f != "" {
		t.Errorf("faults %s", f)
	}
	p.refused(`INSERT INTO heir (id) VALUES ('a')`, `INSERT INTO below (id) VALUES ('a')`, `INSERT INTO whole (id) VALUES ('a')`)
	// Two that were protected by themselves and put together afterwards are noticed, and
	// there is a way out.
	if err := try("other"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, p.db, `CREATE TABLE late (id text, body text)`)
	if err := try("late"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, p.db, `ALTER TABLE late INHERIT other`)
	if f := p.faults(); !strings.Contains(f, "lastword_guard of public.late is not what it has to be") {
		t.Errorf("faults %s", f)
	}
	oneLine(t, "protect other over its heir", try("other"), lastword.CodeInvalid)
	mustExec(t, p.db, `ALTER TABLE late NO INHERIT other`)
	if f := p.faults(); f != "" {
		t.Errorf("faults %s", f)
	}
}

// A comparison of characters that the column's own collation does not know is made byte by
// byte.
func TestATableWithANondeterministicCollationIsProtected(t *testing.T) { // KF-28
	p := pgProtect(t, `CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE doc (tenant text COLLATE anycase, id text COLLATE anycase, body text); INSERT INTO doc VALUES ('t', 'a', 'x'), ('T', 'b', 'x');
CREATE TABLE one (id text COLLATE anycase PRIMARY KEY, body text); INSERT INTO one VALUES ('a', 'x')`,
		sqlfence.Protection{Table: "doc", Template: "doc/{tenant}/{id}"}, sqlfence.Protection{Table: "one", Template: "one/{id}"})
	p.refused(`UPDATE doc SET body = 'y'`, `INSERT INTO doc VALUES ('t/t', 'a', 'y')`, `UPDATE one SET body = 'y'`)
	p.mustThrough("doc/t/a", 1, `UPDATE doc SET body = 'y' WHERE id = 'a'`)
	p.mustThrough("one/a", 1, `UPDATE one SET body = 'y' WHERE id = 'a'`)
	for i, statement := range []string{`UPDATE doc SET tenant = 'T' WHERE id = 'a'`, `UPDATE doc SET body = 'z' WHERE tenant = 't'`} { // as bytes they differ
		if err := p.through("doc/t/a", lastword.Token(2+i), statement); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// Who was overtaken in a snapshot is told so as every driver knows it.
func TestAFirstWriteThatWasOvertakenIsASerializationFailure(t *testing.T) { // R16
	p := pgProtect(t, pgDocuments)
	apply := func(tx *sql.Tx, resource, owner string, fence int) error {
		_, err := tx.ExecContext(t.Context(), `SELECT lastword.apply('test', $1, $2, $3, $2, '', '', 1, $2, `+payloadOfTest+`, status_mode => 'fence-only')`, resource, owner, fence)
		return err
	}
	begin := func(level sql.IsolationLevel) *sql.Tx {
		tx, err := p.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		if _, err := tx.ExecContext(t.Context(), `SELECT count(*) FROM lastword.fence`); err != nil { // the snapshot
			t.Fatal(err)
		}
		return tx
	}
	for i, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable, sql.LevelReadCommitted} {
		for _, known := range []bool{false, true} {
			resource := fmt.Sprint("doc/", i, known)
			if known {
				tx := begin(sql.LevelReadCommitted)
				if err := errors.Join(apply(tx, resource, "before", 1), tx.Commit()); err != nil {
					t.Fatal(err)
				}
			}
			late, early := begin(level), begin(level)
			if err := errors.Join(apply(early, resource, "early", 2), early.Commit()); err != nil {
				t.Fatal(err)
			}
			err := apply(late, resource, "late", 3)
			_ = late.Rollback()
			var told *pgconn.PgError
			switch {
			case level == sql.LevelReadCommitted:
				if err != nil {
					t.Errorf("%s: %v", resource, err)
				}
			case !errors.As(err, &told) || told.Code != "40001":
				t.Errorf("%s at %s: got %v, want 40001", resource, level, err)
			}
		}
	}
}
