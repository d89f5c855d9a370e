package sqlfence_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/postgrestest"
)

// try is one write, which Go makes at doc/go and the function at doc/sql.
type try struct {
	owner, lease string
	token        lastword.Token
	root         string
	seq          uint64
	operation    string
	content      []byte
	want         lastword.Verdict
	frozen       bool // by this one
}

const (
	goResource  = lastword.Resource("doc/go")
	sqlResource = lastword.Resource("doc/sql")
)

// inGo makes the write through the adapter.
func (w try) inGo(t *testing.T, p *pgProtected) {
	t.Helper()
	c := grant.Claims{
		Domain: domain, Resource: goResource, Owner: w.owner, RequestID: "r", LeaseID: w.lease, Fence: w.token,
		Root: lastword.DigestOf([]byte(w.root)), Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0),
	}
	g, _, err := p.seal.signer.Sign("", c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := fence.Apply(t.Context(), p.fence.Gate(), p.fence.Place(), fence.Call{
		Resource: goResource, Content: w.content, Mutation: lastword.Mutation{Grant: g, Operation: w.operation, Seq: w.seq},
	}, func(context.Context, *sqlfence.Tx) ([]byte, error) { return nil, nil })
	if said(r, err) != w.want {
		t.Errorf("%+v in Go: %v, %v", w, r.Verdict, err)
	}
}

// inSQL makes it through the function, as a worker does: roll back, and hand the detail on.
func (w try) inSQL(t *testing.T, p *pgProtected) {
	t.Helper()
	w.inFunction(t, p.db, t.Errorf)
}

func (w try) inFunction(t *testing.T, db asked, report func(string, ...any)) {
	t.Helper()
	detail, code := w.detail(t, db)
	if code == "" {
		if w.want != lastword.Applied {
			report("%+v in SQL was applied", w)
		}
		return
	}
	if told := (functionRefusal{}); json.Unmarshal([]byte(detail), &told) != nil || told.Verdict != string(w.want) {
		report("%+v in SQL: %s", w, detail)
	}
	counted, frozen := refusedOf(t, db, detail, w.content, report)
	if counted != (w.want != lastword.Replayed) || frozen != w.frozen {
		report("%+v: counted %v, frozen %v", w, counted, frozen)
	}
}

// detail is that of the function's error, "" if it has applied the write.
func (w try) detail(t *testing.T, db asked) (detail, code string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `SELECT lastword.apply($1, $2, owner => $3, fence => $4, lease_id => $5, grant_digest => '', root => $6,
	seq => $7, operation => $8, payload => $9, status_mode => 'fence-only')`, domain, string(sqlResource), w.owner, int64(w.token), w.lease,
		lastword.DigestOf([]byte(w.root)).String(), int64(w.seq), w.operation, lastword.DigestOf(w.content).String())
	var told *pgconn.PgError
	if err != nil && !errors.As(err, &told) {
		t.Fatal(err)
	}
	if err == nil {
		return "", ""
	}
	return told.Detail, told.Code
}

func refused(t *testing.T, db asked, detail string, content []byte) (counted, frozen bool) {
	t.Helper()
	return refusedOf(t, db, detail, content, t.Fatalf)
}

func refusedOf(t *testing.T, db asked, detail string, content []byte, report func(string, ...any)) (counted, frozen bool) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT counted, frozen FROM lastword.refused($1, $2)`, detail, content).Scan(&counted, &frozen); err != nil {
		report("%s: %v", detail, err)
	}
	return counted, frozen
}

var anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`)

// evidence is what is kept of a resource, without the times.
func (p *pgProtected) evidence(r lastword.Resource) string {
	p.Helper()
	return evidenceOf(p, p.db, r)
}

func evidenceOf(tb testing.TB, db asked, r lastword.Resource) string {
	tb.Helper()
	var all strings.Builder
	for _, query := range []string{
		`SELECT domain, verdict, times, last_why, last_fence, last_lease_id, last_claimant, last_at FROM lastword.refusal WHERE resource = '%s' ORDER BY verdict`,
		`SELECT domain, claimant, place, times, verdict, why, fence, lease_id, operation, seq, payload, length(content), sha256(content), noted_at FROM lastword.quarantine WHERE resource = '%s' ORDER BY claimant, place`,
		`SELECT domain, fence, lease_id, root, last_seq, last_operation, last_payload, policy, frozen, restored FROM lastword.fence WHERE resource = '%s'`,
	} {
		all.WriteString(anyTime.ReplaceAllString(dump(tb, db, fmt.Sprintf(query, r)), "AT"))
	}
	return all.String()
}

// everyRefusal are writes that are refused for every reason that an attempt alone has.
func everyRefusal(t *testing.T) []try {
	t.Helper()
	long := []byte(strings.Repeat("long ", 2000))
	if len(long) <= fence.MaxQuarantineBytes {
		t.Fatal("not long enough")
	}
	return []try{
		{owner: "a", lease: "l42", token: 42, seq: 1, operation: "op-1", content: []byte("one"), want: lastword.Applied},
		{owner: "a", lease: "l42", token: 42, seq: 1, operation: "op-1", content: []byte("one"), want: lastword.Replayed},
		{owner: "b", lease: "l41", token: 41, seq: 1, operation: "op-2", content: []byte("late"), want: lastword.StaleOwner},
		{owner: "c", lease: "l40", token: 40, seq: 1, operation: "op-2", content: []byte("later"), want: lastword.StaleOwner},
		{owner: "a", lease: "l42", token: 42, seq: 7, operation: "op-3", content: []byte("far"), want: lastword.OutOfOrder},
		{owner: "a", lease: "l42", token: 42, root: "another", seq: 2, operation: "op-3", content: []byte("x"), want: lastword.RootMismatch},
		{owner: "d", lease: "far", token: 42 + fence.DefaultStep + 1, seq: 1, operation: "op-3", content: []byte("x"), want: lastword.FenceJump},
		{owner: "a", lease: "l42", token: 42, seq: 1, operation: "op-1", content: []byte("first"), want: lastword.Conflict},
		{owner: "a", lease: "l42", token: 42, seq: 1, operation: "op-4", content: []byte("between"), want: lastword.Conflict},
		{owner: "a", lease: "l42", token: 42, seq: 1, operation: "op-5", content: long, want: lastword.Conflict},
		{owner: "b", lease: "l41", token: 41, seq: 3, operation: "op-1", content: []byte("once"), want: lastword.Conflict},
		{owner: "e", lease: "other", token: 42, seq: 2, operation: "op-6", content: []byte("x"), want: lastword.FenceRegression, frozen: true},
		{owner: "e", lease: "other", token: 42, seq: 2, operation: "op-6", content: []byte("x"), want: lastword.FenceRegression},
	}
}

// R16b: what a refusal leaves behind is the same whether Go or the function refused.
func TestTheFunctionsRefusalsLeaveTheEvidenceThatGoLeaves(t *testing.T) {
	p := pgProtect(t, pgDocuments)
	steps := everyRefusal(t)
	for i, w := range steps {
		w.inGo(t, p)
		w.inSQL(t, p)
		if inGo, inSQL := p.evidence(goResource), p.evidence(sqlResource); inGo != inSQL {
			t.Fatalf("after step %d (%s) Go has left\n%sand the function\n%s", i, w.want, inGo, inSQL)
		}
	}
	// All of it was seen: refusals of each kind, three rows in quarantine, a frozen record.
	got := p.evidence(sqlResource)
	if n := count(t, p.db, `SELECT count(*) FROM lastword.quarantine WHERE resource = 'doc/sql'`); n != 3 || strings.Count(got, `"AT"`) != 6+3 ||
		count(t, p.db, `SELECT count(*) FROM lastword.fence WHERE frozen AND resource = 'doc/sql'`) != 1 {
		t.Errorf("the evidence is\n%s", got)
	}
	// Go reads what the function has written.
	in, err := p.fence.Inspect(t.Context(), sqlResource)
	if err != nil || in.Refusals[lastword.Conflict] != 4 || in.Refusals[lastword.FenceRegression] != 2 || len(in.Quarantine) != 3 || !in.Record.Frozen ||
		string(in.Quarantine[0].Quarantine.Content) != "first" || len(in.Quarantine[1].Quarantine.Content) != fence.MaxQuarantineBytes {
		t.Errorf("%+v, %v", in, err)
	}
}

// A refusal that is told twice counts twice: whoever has lost the answer of COMMIT may
// count too much, and never too little.
func TestARefusalThatIsToldTwiceCountsTwice(t *testing.T) {
	p := pgProtect(t, pgDocuments)
	w := try{owner: "a", lease: "l", token: 2, seq: 1, operation: "op", content: []byte("v"), want: lastword.Applied}
	w.inSQL(t, p)
	w.content = []byte("w")
	detail, code := w.detail(t, p.db)
	if code != "LW101" {
		t.Fatal(detail, code)
	}
	for range 2 {
		refused(t, p.db, detail, nil)
	}
	if n := count(t, p.db, `SELECT times FROM lastword.refusal WHERE verdict = 'CONFLICT'`); n != 2 {
		t.Errorf("%d times", n)
	}
	if n := count(t, p.db, `SELECT count(*) FROM lastword.quarantine WHERE content = ''`); n != 2 {
		t.Errorf("%d rows in quarantine", n)
	}
}

// A record is frozen for what it shows under its lock, and for nothing that is only said.
func TestALieAboutARecordFreezesNothing(t *testing.T) { // R16b, P1
	p := pgProtect(t, pgDocuments, whole)
	record := func() string {
		return dump(t, p.db, `SELECT to_jsonb(f)::text FROM lastword.fence f ORDER BY resource`)
	}
	w := try{owner: "a", lease: "l42", token: 42, seq: 1, operation: "op-1", content: []byte("one"), want: lastword.Applied}
	w.inSQL(t, p)
	mustExec(t, p.db, `SELECT lastword.apply('another', 'doc/sql', 'a', 42, 'l42', '', '', 1, 'op', '`+lastword.DigestOf(nil).String()+`', status_mode => 'fence-only')`)
	if _, err := p.fence.Advance(t.Context(), "doc/closed", p.seal.holder("doc/closed", "a", 42)); err != nil {
		t.Fatal(err)
	}
	mustExec(t, p.db, `UPDATE lastword.fence SET lease_id = '' WHERE resource = 'doc/closed'`)
	said := func(change func(told, attempt map[string]any)) string { return otherLease(t, change) }
	before := record()
	for name, detail := range liesOf(said) {
		if counted, frozen := refused(t, p.db, detail, nil); !counted || frozen || record() != before {
			t.Errorf("%s: counted %v, frozen %v:\n%s", name, counted, frozen, record())
		}
	}
	// What was so when it was refused, and is not any more.
	late := said(func(map[string]any, map[string]any) {})
	w.token, w.lease, w.operation = 43, "l43", "op-2"
	w.inSQL(t, p)
	before = record()
	if _, frozen := refused(t, p.db, late, nil); frozen || record() != before {
		t.Errorf("the record has moved on and was changed:\n%s", record())
	}
	// The truth freezes, opens nothing to its transaction, and takes nothing back.
	truth := said(func(_, a map[string]any) { a["fence"] = "43" })
	tx, err := p.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT lastword.refused($1)`, truth); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO doc VALUES ('sql', 'bypass')`); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
		t.Errorf("a write behind it: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, frozen := refused(t, p.db, truth, nil); frozen != (i == 0) {
			t.Errorf("call %d: frozen %v", i, frozen)
		}
	}
	if n := count(t, p.db, `SELECT count(*) FROM lastword.fence WHERE frozen AND resource = 'doc/sql' AND domain = 'test' AND fence = 43`); n != 1 {
		t.Errorf("the record is\n%s", record())
	}
}

// What is to be asked again, and what has had its effect before, Go does not count either.
func TestWhatGoDoesNotCountTheFunctionDoesNotCount(t *testing.T) {
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { onlyRefusalsCount(t, tx, t.Errorf) })
}

func onlyRefusalsCount(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	for _, c := range []struct {
		args, verdict, why string
		counted            bool
	}{
		{`1, 'l', '', '', 1, 'op', 'D', status_mode => 'query'`, "STATUS_UNAVAILABLE", "", false},
		{`1, 'l', '', '', 1, 'op', 'D', status_mode => 'fence-only', bundle_sequence => 5`, "", "", false},
		{`1, 'l', '', '', 1, 'op', 'D', status_mode => 'fence-only', bundle_sequence => 4`, "UNVERIFIED", "OUTDATED", false},
		{`1, 'l', '', '', 1, 'op', 'D', status_mode => 'fence-only', bundle_sequence => 5`, "REPLAYED", "", false},
		{`0, 'l', '', '', 1, 'op', 'D', status_mode => 'fence-only'`, "UNVERIFIED", "NO_FENCE", true},
		{`2, 'l', '', '', 0, 'op2', 'D', bundle_sequence => 5, heard_mode => 'query', heard_state => 'RELEASED'`, "UNVERIFIED", "NOT_HELD", true},
	} {
		_, err := tx.ExecContext(t.Context(), `SELECT lastword.apply('test', 'doc/sql', 'o', `+strings.Replace(c.args, "'D'", "'"+lastword.DigestOf([]byte("v")).String()+"'", 1)+`)`)
		told := refusalOf(err)
		if told.Verdict != c.verdict || told.Why != c.why {
			report("%s: %v", c.args, err)
		}
		if c.verdict == "" {
			continue
		}
		if counted, frozen := refusedOf(t, tx, detailOf(err), nil, report); counted != c.counted || frozen {
			report("%s %s: counted %v, frozen %v", c.verdict, c.why, counted, frozen)
		}
	}
	if got := dump(t, tx, `SELECT verdict, times, last_why FROM lastword.refusal`); got != "[\"UNVERIFIED\" '\\x02' \"NOT_HELD\"]\n" {
		report("counted: %s", got)
	}
}

func detailOf(err error) string {
	var told *pgconn.PgError
	if !errors.As(err, &told) {
		return ""
	}
	return told.Detail
}

// The rights that docs/postgresql.md lists for a worker are enough, and without them it
// can neither write nor count.
func TestAWorkersRightsAreEnoughForItsEvidence(t *testing.T) {
	p := pgProtect(t, pgDocuments, whole)
	page, err := os.ReadFile("../../docs/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	w := try{owner: "a", lease: "l1", token: 1, seq: 1, operation: "op", content: []byte("v")}
	if _, code := w.detail(t, p.bypass); code != "42501" {
		t.Errorf("apply without rights: %s", code)
	}
	_, err = p.bypass.ExecContext(t.Context(), `SELECT lastword.refused('{}')`)
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("refused without rights: %v", err)
	}
	_, list, _ := strings.Cut(string(page), "needs these:\n\n```sql\n")
	list, _, _ = strings.Cut(list, "```")
	if !strings.Contains(list, "lastword.refused") {
		t.Fatalf("the page lists %q", list)
	}
	mustExec(t, p.db, strings.ReplaceAll(list, "TO app;", "TO worker;"))
	if _, code := w.detail(t, p.bypass); code != "" {
		t.Fatalf("apply: %s", code)
	}
	for _, again := range []try{
		{owner: "a", lease: "l1", token: 1, seq: 1, operation: "op", content: []byte("w")},
		{owner: "b", lease: "l2", token: 1, seq: 2, operation: "op-2", content: []byte("w"), frozen: true},
	} {
		for i := range 2 {
			detail, _ := again.detail(t, p.bypass)
			if counted, frozen := refused(t, p.bypass, detail, again.content); !counted || frozen != (again.frozen && i == 0) {
				t.Errorf("%s: counted %v, frozen %v", detail, counted, frozen)
			}
		}
	}
}

// With these rights alone each verdict comes with its own SQLSTATE, and the right to call
// what stands for a decision is what admits, not the right to call what it calls.
func TestAWorkersRightsAreEnoughForEveryVerdict(t *testing.T) { // R16
	p := pgProtect(t, pgDocuments, whole)
	page, err := os.ReadFile("../../docs/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "needs these:\n\n```sql\n")
	list, _, _ = strings.Cut(list, "```")
	tables, execute, found := strings.Cut(strings.ReplaceAll(list, "TO app;", "TO worker;"), "GRANT EXECUTE")
	if !found {
		t.Fatalf("the page lists %q", list)
	}
	calls := admittedCalls()
	mustExec(t, p.db, tables)
	for name, c := range calls {
		if state := c.do(t, p.bypass); state != "42501" {
			t.Errorf("%s without EXECUTE: %q", name, state)
		}
	}
	mustExec(t, p.db, "GRANT EXECUTE"+execute)
	if state := calls["advance"].do(t, p.bypass); state != "42501" {
		t.Errorf("advance, which was not granted: %q", state)
	}
	if state := calls["decide"].with("registers", "TRUE").do(t, p.bypass); state != "42501" {
		t.Errorf("advance by way of what it calls: %q", state)
	}
	mustExec(t, p.db, `GRANT EXECUTE ON FUNCTION lastword.advance TO worker`)
	if state := calls["advance"].do(t, p.bypass); state != "" {
		t.Errorf("advance: %q", state)
	}
	undone(t, p.db, func(tx point) {
		mustExecTx(t, tx.Tx, `SET LOCAL ROLE worker`)
		everyVerdictHasAState(t, tx, t.Errorf)
	})
}

// everyVerdictHasAState, in a transaction that runs as the worker.
func everyVerdictHasAState(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), `SELECT lastword.apply('test', 'doc/a', 'o', 2, 'l', '', '', 1, 'op', `+payloadOfTest+`, status_mode => 'fence-only', bundle_sequence => 1)`); err != nil {
		report("the first write: %v", err)
	}
	mustExecTx(t, tx.Tx, `RESET ROLE; INSERT INTO lastword.tombstone VALUES ('test', 'doc/a', '`+lastword.DigestOf([]byte("pruned")).String()+`', ''); SET ROLE worker`)
	again := admittedCalls()["apply"].with("fence", "2").with("bundle_sequence", "1").with("seq", "2").with("operation", "'op-2'")
	for code, c := range map[string]call{
		"":      again,
		"LW100": again.with("operation", "'op'"),
		"LW101": again.with("operation", "'op'").with("payload", literal(lastword.DigestOf([]byte("other")).String())),
		"LW102": again.with("fence", "1"),
		"LW103": again.with("operation", "'pruned'"),
		"LW104": again.with("seq", "9"),
		"LW105": again.with("root", payloadOfTest),
		"LW106": again.with("lease_id", "'l2'"),
		"LW107": again.with("fence", "2000000").with("seq", "1"),
		"LW108": again.with("bundle_sequence", "0"),
		"LW109": again.with("status_mode", "'query'"),
		"LW020": again.with("seq", "NULL"),
	} {
		if state := c.state(t, tx); state != code {
			report("%v: got %q, want %q", c.args, state, code)
		}
	}
}

// KF-38 (1): testdata/protect1.sql was written by the program of before lastword.refused:
// a protected table, a record at fence 42 and a worker with the right to call
// lastword.apply.
func TestTheFunctionsOfBeforeAreUpgradedAndKeepTheirRights(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: a database of its own; runs without the race detector")
	}
	old, err := os.ReadFile("testdata/protect1.sql")
	if err != nil {
		t.Fatal(err)
	}
	dsn := postgrestest.New(t, "before", func(ctx context.Context, db *sql.DB) error {
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
	loading := open(dsn)
	mustExec(t, loading, string(old)) // it changes the session
	if err := loading.Close(); err != nil {
		t.Fatal(err)
	}
	p := &pgProtected{T: t, dsn: dsn, db: open(dsn), bypass: open(strings.Replace(dsn, "postgres@", "worker@", 1)), seal: newSeal(t)}
	_, err = sqlfence.New(t.Context(), p.db, p.seal.config())
	oneLine(t, "the functions of before", err, lastword.CodeInvalid)
	w := try{owner: "a", lease: "l42", token: 42, seq: 1, operation: "op", content: []byte("v")}
	if detail, code := w.detail(t, p.bypass); code != "" {
		t.Fatalf("before the upgrade: %s", detail)
	}
	w.token, w.operation = 41, "late"
	if detail, code := w.detail(t, p.bypass); code != "LW102" || strings.Contains(detail, "attempt") {
		t.Fatalf("before the upgrade: %s %s", code, detail)
	}
	// What that one let in, and nobody could read again.
	mustExec(t, p.db, `SELECT lastword.apply('test', 'doc/damaged', 'o', 7, 'l', 'a digest', 'a root', 1, 'op', `+payloadOfTest+`, status_mode => 'fence-only')`)
	const rows = `SELECT to_jsonb(f)::text FROM lastword.fence f WHERE resource <> 'doc/damaged' UNION ALL SELECT to_jsonb(r)::text FROM lastword.receipt r WHERE resource <> 'doc/damaged' UNION ALL SELECT to_jsonb(p)::text FROM lastword.protected p`
	before := dump(t, p.db, rows)
	for range 2 {
		if err := sqlfence.Init(t.Context(), p.db); err != nil {
			t.Fatal(err)
		}
	}
	if after := dump(t, p.db, rows); after != before || len(before) < 500 {
		t.Errorf("the upgrade changed\n%s\nto\n%s", before, after)
	}
	mustExec(t, p.db, `REVOKE EXECUTE ON FUNCTION lastword.decide FROM worker`) // what is called needs no grant any more
	// Who had the right to write has it still, in the session that it had; to count it has
	// to be given.
	detail, code := w.detail(t, p.bypass)
	if code != "LW102" || !strings.Contains(detail, `"attempt"`) {
		t.Errorf("after the upgrade: %s %s", code, detail)
	}
	if _, err := p.bypass.ExecContext(t.Context(), `SELECT lastword.refused($1)`, detail); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("refused without the right: %v", err)
	}
	mustExec(t, p.db, `GRANT EXECUTE ON FUNCTION lastword.refused TO worker`)
	if counted, _ := refused(t, p.bypass, detail, nil); !counted {
		t.Error("nothing was counted")
	}
	p.fence = guard(t, p.db, p.seal.config())
	p.mustThrough("doc/a", 43, `UPDATE doc SET body = 'new' WHERE id = 'a'`)
	p.refused(`UPDATE doc SET body = 'bypass' WHERE id = 'a'`)
	if f := p.faults(); f != "" {
		t.Errorf("faults %s", f)
	}
	damaged := fence.Key{Domain: domain, Resource: "doc/damaged"}
	if in, err := p.fence.Place().Inspect(t.Context(), damaged); err != nil || in.Record.Fence != 7 || in.Record.LeaseID != "" {
		t.Errorf("the damaged record: %+v, %v", in.Record, err)
	}
	if r, found, err := p.fence.Place().Find(t.Context(), damaged, "op"); err != nil || !found || !r.GrantDigest.IsZero() {
		t.Errorf("the damaged receipt: %+v, %v", r, err)
	}
}
