package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
)

// fitting are functions that fit what the fence calls better than those of pg_catalog do.
const fitting = `DO $$ DECLARE types text; BEGIN
	SELECT string_agg(format_type(t, NULL), ', ') FROM pg_proc p, unnest(p.proargtypes) t WHERE p.oid = 'lastword.check_arguments'::regproc INTO types;
	EXECUTE 'CREATE FUNCTION public.num_nulls(' || types || ') RETURNS int LANGUAGE sql AS ''SELECT 0''';
END $$;
CREATE FUNCTION public.sqrt(int) RETURNS float8 LANGUAGE sql AS 'SELECT 1::float8';
CREATE FUNCTION public.ln(bigint) RETURNS float8 LANGUAGE sql AS 'SELECT 1::float8';
CREATE FUNCTION public.hashtextextended(text, int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'another function was called'; END $$`

func TestNoFunctionOfASearchPathIsCalled(t *testing.T) { // R14: nothing fails open
	p := pgProtect(t, pgDocuments)
	mustExec(t, p.db, fitting)
	for name, c := range admittedCalls() {
		if state := c.do(t, p.db); state != "" {
			t.Errorf("%s: %s", name, state)
		}
		if state := c.with("heard_state", "NULL").do(t, p.db); state != "LW020" {
			t.Errorf("%s of NULL: %q", name, state)
		}
	}
	e := &ended{false, p.db, p.seal, p.fence, nil, ``, ``}
	e.write = func(ctx context.Context, tx execer, _ lastword.Resource, _, value string) error {
		_, err := tx.ExecContext(ctx, `UPDATE doc SET body = $1 WHERE id = 'a'`, value)
		return err
	}
	h := p.seal.holder("doc/a", "a", 1)
	e.put(t, h, "first") // a new record is locked by its name
	for meddling, want := range map[string]string{
		`SET LOCAL synchronous_commit = off`:       "could be lost",
		`UPDATE lastword.fence SET last_seq = 700`: "not what this transaction has stored",
	} {
		operation := "op " + meddling
		_, err := p.fence.Apply(t.Context(), h, operation, []byte("v"), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, meddling)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", meddling, err)
		}
		if _, err := p.fence.Apply(t.Context(), h, operation, []byte("v"), func(context.Context, *sql.Tx) error { return nil }); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// A backslash in a template or a domain is one whatever the writer's session has set, and
// Init makes the function of an older program anew, for which it was not.
func TestAGuardReadsItsTemplateAlikeInEverySession(t *testing.T) { // R16c
	p := pgProtect(t, `CREATE TABLE e (id text, body text); INSERT INTO e VALUES ('1', 'old')`,
		sqlfence.Protection{Table: "e", Template: `x\\y/{id}`})
	if f := p.faults(); f != "" {
		t.Fatalf("faults %s", f)
	}
	update := func(resource lastword.Resource, setting string) error {
		tx, err := p.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := p.fence.Within(t.Context(), tx, p.seal.holder(resource, "a", 1), "op", []byte("v")); err != nil {
			t.Fatal(err)
		}
		_, err = tx.ExecContext(t.Context(), `SET LOCAL standard_conforming_strings = `+setting+`; UPDATE e SET body = 'new' WHERE id = '1'`)
		return err
	}
	look := func() {
		t.Helper()
		for _, setting := range []string{"on", "off"} {
			if err := update(`x\\y/1`, setting); err != nil {
				t.Errorf("%s: its own: %v", setting, err)
			}
			if err := update(`x\y/1`, setting); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
				t.Errorf("%s: another's: %v", setting, err)
			}
		}
	}
	look()
	mustExec(t, p.db, `DO $$ DECLARE f record; BEGIN
FOR f IN SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'lastword'::regnamespace AND proname LIKE 'guard\_%' LOOP
	EXECUTE format('CREATE OR REPLACE FUNCTION lastword.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', f.proname,
		replace(replace(replace(f.prosrc, ' E''', ''''), E'\\\\\\\\', E'\\\\'), 'FROM ONLY lastword.', 'FROM lastword.'));
END LOOP; END $$`)
	if err := update(`x\y/1`, "off"); err != nil {
		t.Fatalf("it is not what it was: %v", err)
	}
	if f := p.faults(); !strings.Contains(f, "was made by an older lastword") {
		t.Errorf("faults %s", f)
	}
	if err := sqlfence.Init(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	if f := p.faults(); f != "" {
		t.Errorf("faults %s", f)
	}
	look()
}

// What is written through a function is as durable as what is written in Go.
func TestTheFunctionsRefuseACommitThatCouldBeLost(t *testing.T) { // durable before visible
	p := pgProtect(t, pgDocuments)
	calls := map[string]string{
		"refused": `SELECT lastword.refused('{"verdict": "STALE_OWNER", "why": "", "domain": "test", "resource": "doc/a", "attempt":
	{"owner": "o", "fence": "1", "lease_id": "l", "operation": "op", "seq": "1", "payload": ""}}')`,
	}
	for name, c := range admittedCalls() {
		if name != "check_arguments" {
			calls[name] = c.text()
		}
	}
	for name, query := range calls {
		for setting, want := range map[string]string{"on": "", "local": "", "off": "LW004"} {
			tx, err := p.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "SET LOCAL synchronous_commit = "+setting); err != nil {
				t.Fatal(err)
			}
			_, err = tx.ExecContext(t.Context(), query)
			var told *pgconn.PgError
			if errors.As(err, &told) && told.Code != want || (err == nil) != (want == "") {
				t.Errorf("%s, %s: %v", name, setting, err)
			}
			_ = tx.Rollback()
		}
	}
}
