package sqlfence_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// The function decides as the rules do: every row of their table is put to it, from the
// stored state that the row names, also from those that no engine gets to by itself.
func TestTheFunctionDecidesEveryRowOfTheVerdictTable(t *testing.T) { // R30
	p := pgProtect(t, pgDocuments)
	mustExec(t, p.db, `ALTER TABLE lastword.fence DISABLE TRIGGER USER; ALTER TABLE lastword.rollout DISABLE TRIGGER USER`)
	tx, err := p.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	driveTable(t, tx, t.Errorf)
}

// driveTable puts every row to the function as it is in the transaction.
func driveTable(t *testing.T, tx *sql.Tx, report func(format string, args ...any)) {
	t.Helper()
	rows, err := core.VerdictTable()
	if err != nil {
		t.Fatal(err)
	}
	driven := 0
	for n, row := range rows {
		if row.Attempt.Fence > 1<<63-1 { // the driver has no such number
			continue
		}
		driven++
		r := functionRow{T: t, tx: tx, row: row, domain: fmt.Sprint("d", n), report: report}
		r.store()
		r.decide()
		r.bystanders()
	}
	if driven < len(rows)-1 {
		t.Fatalf("%d of %d rows were driven", driven, len(rows))
	}
}

// A table that never disagrees proves nothing: each comparison of the function is made
// wrong, one at a time, and a row has to tell.
func TestTheTableNoticesEveryWrongComparisonOfTheFunction(t *testing.T) {
	p := pgProtect(t, pgDocuments)
	mustExec(t, p.db, `ALTER TABLE lastword.fence DISABLE TRIGGER USER; ALTER TABLE lastword.rollout DISABLE TRIGGER USER`)
	var definition string
	if err := p.db.QueryRowContext(t.Context(), `SELECT pg_get_functiondef('lastword.decide'::regproc)`).Scan(&definition); err != nil {
		t.Fatal(err)
	}
	all := wrongComparisons(definition)
	if len(all) < 80 {
		t.Fatalf("%d mutants", len(all))
	}
	seed := rand.Uint64()
	t.Logf("%d mutants, seed %d", len(all), seed)
	if os.Getenv("LASTWORD_MUTANTS") == "" { // a sample; make mutants takes them all
		random := rand.New(rand.NewPCG(seed, 1))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:5]
	}
	for _, m := range all {
		if why, known := sameFunction[m.what]; known {
			t.Logf("%s: %s", m.what, why)
			continue
		}
		if !noticed(t, p.db, m) {
			t.Errorf("no row notices: %s", m.what)
		}
	}
}

// sameFunction are mutants that change nothing that anybody could see, and why.
var sameFunction = map[string]string{
	"EXIT WHEN there OR attempt [=] 2;": "the loop ends after two turns by itself",
	"EXIT WHEN there [OR] attempt = 2;": "as above, and the lock is taken once more than is needed",
	"ELSIF status_mode <> '' AND lastword.rank(wanted_mode) >= 0 AND (lastword.rank(status_mode) < 0 OR lastword.rank(status_mode) [>] lastword.rank(wanted_mode)) THEN": "of two equal modes it does not matter which",
	"WHEN step [<] coalesce(nullif(rec.step, 0), 1048576) THEN step ELSE rec.step END;":                                                                                  "of two equal steps it does not matter which",
	"IF (rec.heard_epoch, rec.heard_revision) [<] (heard_epoch, heard_revision) THEN":                                                                                    "of two equal marks it does not matter which",
	"IF last [>] 0 AND payload = rec.last_payload THEN":                                                                                                                  "without a write there is no last payload, and every payload is a digest",
}

type wrongComparison struct{ what, text string }

// wrongComparisons are a function's text with each comparison, AND and OR of its
// conditions made another one.
func wrongComparisons(text string) (all []wrongComparison) {
	others := map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "=", "AND": "OR", "OR": "AND"}
	word := regexp.MustCompile(` (<=|>=|<>|<|>|=|AND|OR) `)
	body := strings.Index(text, "DECLARE")
	for _, m := range word.FindAllStringSubmatchIndex(text, -1) {
		from, to := m[2], m[3]
		begin, end := strings.LastIndex(text[:from], "\n")+1, from+strings.Index(text[from:], "\n")
		line := strings.TrimSpace(text[begin:end])
		// An assignment of UPDATE is no condition.
		if from < body || strings.HasPrefix(line, "UPDATE ") || strings.HasPrefix(line, "ON CONFLICT") || strings.HasPrefix(line, "RAISE ") || strings.HasPrefix(line, "USING ") || strings.Contains(line, "= rec.") && !strings.HasPrefix(line, "ELSIF") && !strings.HasPrefix(line, "IF") && !strings.HasPrefix(line, "THEN") {
			continue
		}
		all = append(all, wrongComparison{
			strings.TrimSpace(text[begin:from] + "[" + text[from:to] + "]" + text[to:end]), text[:from] + others[text[from:to]] + text[to:],
		})
	}
	return all
}

// noticed reports whether a row tells of another function.
func noticed(t *testing.T, db *sql.DB, m wrongComparison) (told bool) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), m.text); err != nil {
		t.Fatalf("%s: %v", m.what, err)
	}
	return firstTold(func(report func(string, ...any)) {
		lossyIsRefused(t, point{tx}, report)
		driveTable(t, tx, report)
	}) != ""
}

// firstTold is the first difference that a check reports; "" if none.
func firstTold(check func(report func(string, ...any))) (told string) {
	type difference string
	defer func() {
		if p := recover(); p != nil {
			d, ok := p.(difference)
			if !ok {
				panic(p)
			}
			told = string(d)
		}
	}()
	check(func(format string, args ...any) { panic(difference(fmt.Sprintf(format, args...))) })
	return ""
}

type functionRow struct {
	*testing.T
	tx     *sql.Tx
	row    core.VerdictRow
	domain string
	report func(format string, args ...any)
}

const tableResource = "table/r"

func (r functionRow) exec(query string, args ...any) {
	r.Helper()
	if _, err := r.tx.ExecContext(r.Context(), query, args...); err != nil {
		r.report("row %q: %s: %v", r.row.Name, query, err)
	}
}

// store makes what the row has stored, and what is known of its operation.
func (r functionRow) store() {
	r.Helper()
	rec, a := r.row.Stored, r.row.Attempt
	// What is another resource's, or another domain's, is nobody's business here.
	for _, other := range [][2]string{{r.domain, "table/other"}, {"of another", tableResource}} {
		domain := other[0] + map[bool]string{true: r.domain}[other[0] != r.domain]
		r.exec(`INSERT INTO lastword.fence VALUES ($1, $2, 9007199254740991, 'x', '', '', 7, 'x', '', 'once', 'query', TRUE, 1, 9, 9, 9, TRUE, 9, 9, 9)`, domain, other[1])
		r.exec(`INSERT INTO lastword.receipt VALUES ($1, $2, $3, 'sha256:x', 1, 1, '', '', '', '', '', '', '2027-01-15T08:02:03.456789Z')`, domain, other[1], a.Operation)
		r.exec(`INSERT INTO lastword.tombstone VALUES ($1, $2, $3, '')`, domain, other[1], lastword.DigestOf([]byte(a.Operation)).String())
	}
	r.exec(`INSERT INTO lastword.restored VALUES ($1, 1)`, "of another"+r.domain)
	receipt := func(operation string, payload lastword.Digest) {
		r.exec(`INSERT INTO lastword.receipt VALUES ($1, $2, $3, $4, 1, 1, '', '', '', '', '', '', '2027-01-15T08:02:03.456789Z')`, r.domain, tableResource, operation, payload.String())
	}
	if rec.Exists {
		r.exec(`INSERT INTO lastword.fence VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`,
			r.domain, tableResource, int64(rec.Fence), rec.LeaseID, rec.GrantDigest.String(), rec.Root.String(), int64(rec.LastSeq), rec.LastOperation, rec.LastPayload.String(),
			string(rec.Policy), string(rec.Status), rec.Frozen, int64(rec.Step), int64(rec.BundleSequence), int64(rec.MinEpoch), int64(rec.MinPolicyGeneration),
			rec.Imported, int64(rec.Heard.Epoch), int64(rec.Heard.Revision), int64(rec.Restored))
		if rec.LastOperation != "" && rec.LastOperation != a.Operation {
			receipt(rec.LastOperation, rec.LastPayload)
		}
	}
	if mark := rec.Restored; !rec.Exists && mark > 0 || rec.Unraised {
		r.exec(`INSERT INTO lastword.restored VALUES ($1, $2)`, r.domain, int64(max(mark, 1)))
	}
	if rec.Shadow {
		r.exec(`INSERT INTO lastword.rollout VALUES ($1, 'table/', 1, '2027-01-15T08:02:03.456789Z')`, r.domain)
	}
	if rec.Lost {
		receipt("of another operation", lastword.DigestOf([]byte("x")))
	}
	if r.row.Known.Receipt {
		receipt(a.Operation, r.row.Known.Payload)
	}
	if r.row.Known.Tombstone {
		r.exec(`INSERT INTO lastword.tombstone VALUES ($1, $2, $3, '')`, r.domain, tableResource, lastword.DigestOf([]byte(a.Operation)).String())
	}
}

// decide calls the function and compares verdict, reason, number and the record after.
func (r functionRow) decide() {
	r.Helper()
	a, want := r.row.Attempt, r.row.Want
	shared := `policy => $8, status_mode => $9, step => $10, imported => $11, heard_mode => $12, heard_state => $13, next_fence => $14, after_look => $15,
	heard_epoch => $16, heard_revision => $17, bundle_sequence => $18, min_epoch => $19, policy_generation => $20, min_policy_generation => $21`
	args := []any{
		r.domain, tableResource, "owner", int64(a.Fence), a.LeaseID, a.GrantDigest.String(), a.Root.String(),
		string(a.Policy), string(a.Status), int64(a.Step), a.Imported, string(a.Heard.Mode), string(a.Heard.State), int64(a.Heard.NextFence), a.Heard.AfterLook,
		int64(a.Heard.Mark.Epoch), int64(a.Heard.Mark.Revision), int64(a.BundleSequence), int64(a.MinEpoch), int64(a.PolicyGeneration), int64(a.MinPolicyGeneration),
	}
	query := `SELECT lastword.advance($1, $2, $3, $4, $5, $6, $7, ` + shared + `), 0`
	if !r.row.Advance {
		query = `SELECT verdict, coalesce(number, 0) FROM lastword.apply($1, $2, $3, $4, $5, $6, $7, seq => $22, operation => $23, payload => $24, ` + shared + `)`
		args = append(args, int64(a.Seq), a.Operation, a.Payload.String())
	}
	before := r.record()
	r.exec(`SAVEPOINT before`)
	var verdict string
	var number int64
	err := r.tx.QueryRowContext(r.Context(), query, args...).Scan(&verdict, &number)
	told := refusalOf(err)
	if err != nil {
		r.exec(`ROLLBACK TO SAVEPOINT before`)
	}
	expected, why := string(want.Verdict), want.Why
	switch want.Again {
	case core.AgainVerify:
		expected, why = "UNVERIFIED", "OUTDATED"
	case core.AgainAsk:
		expected = "STATUS_UNAVAILABLE"
	}
	if want.Shadow {
		expected, why = string(want.Verdict.Shadow()), ""
	}
	if !r.row.Advance && (a.Operation == "" || a.Payload.IsZero()) { // of which no gate makes an attempt either
		if e := (*pgconn.PgError)(nil); !errors.As(err, &e) || e.Code != "LW020" {
			r.report("row %q: an attempt without an operation or a payload: %v", r.row.Name, err)
		}
		return
	}
	got := verdict
	if err != nil {
		got = told.Verdict
	}
	if got != expected || told.Why != why || uint64(number) != want.Seq {
		r.report("row %q (%s): got %s %s %d, %v; want %s %s %d", r.row.Name, r.row.Rule, got, told.Why, number, err, expected, why, want.Seq)
		return
	}
	if want.ReplayOf != "" && told.Receipt.Operation != want.ReplayOf {
		r.report("row %q: the receipt in the detail is of %q, want %q", r.row.Name, told.Receipt.Operation, want.ReplayOf)
	}
	if !want.Write {
		if after := r.record(); after != before {
			r.report("row %q: %s changed the record from\n%sto\n%s", r.row.Name, got, before, after)
		}
		return
	}
	rec := want.Record
	if after, wanted := r.record(), fmt.Sprintf("[%q]\n", strings.Join([]string{
		rec.Fence.String(), rec.LeaseID, rec.GrantDigest.String(), rec.Root.String(), fmt.Sprint(rec.LastSeq), rec.LastOperation, rec.LastPayload.String(),
		string(rec.Policy), string(rec.Status), fmt.Sprint(rec.Frozen), fmt.Sprint(rec.Step), fmt.Sprint(rec.BundleSequence), fmt.Sprint(rec.MinEpoch),
		fmt.Sprint(rec.MinPolicyGeneration), fmt.Sprint(rec.Imported), fmt.Sprint(rec.Heard.Epoch), fmt.Sprint(rec.Heard.Revision), fmt.Sprint(rec.Restored),
	}, "|")); after != wanted {
		r.report("row %q: the record after is\n%swant\n%s", r.row.Name, after, wanted)
	}
}

// bystanders are as they were.
func (r functionRow) bystanders() {
	r.Helper()
	var n int
	err := r.tx.QueryRowContext(r.Context(), `SELECT count(*) FROM lastword.fence WHERE (domain = $1 AND resource = 'table/other' OR domain = $2) AND fence = 9007199254740991 AND lease_id = 'x'`,
		r.domain, "of another"+r.domain).Scan(&n)
	if err != nil || n != 2 {
		r.report("row %q: records of others were changed: %d, %v", r.row.Name, n, err)
	}
}

func (r functionRow) record() string {
	r.Helper()
	var text sql.NullString
	err := r.tx.QueryRowContext(r.Context(), `SELECT concat_ws('|', fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy, status_mode,
	frozen::text, step, bundle_sequence, min_epoch, min_policy_generation, imported::text, heard_epoch, heard_revision, restored) FROM lastword.fence
WHERE domain = $1 AND resource = $2`, r.domain, tableResource).Scan(&text)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		r.Fatal(err)
	}
	if !text.Valid {
		return ""
	}
	return fmt.Sprintf("[%q]\n", text.String)
}

// functionRefusal is the detail of the function's errors.
type functionRefusal struct {
	Verdict, Why, Resource, Fence string
	Receipt                       struct{ Operation string }
}

func refusalOf(err error) (told functionRefusal) {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		_ = json.Unmarshal([]byte(e.Detail), &told)
	}
	return told
}

// A worker in another language needs only its driver. This one is Python's psycopg2, as
// it is.
func TestAPythonWorkerWritesThroughTheFunction(t *testing.T) {
	p := pgProtect(t, pgDocuments, whole)
	mustExec(t, p.db, `GRANT USAGE ON SCHEMA lastword TO worker; GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA lastword TO worker; GRANT USAGE ON ALL SEQUENCES IN SCHEMA lastword TO worker;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lastword TO worker`)
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{"../../examples/worker-python/worker.py",
			strings.Replace(p.dsn, "postgres@", "worker@", 1)}, args...)...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for _, c := range []struct {
		fence, seq, operation, body, want string
	}{
		{"41", "1", "op-1", "one", "APPLIED 1"},
		{"41", "1", "op-1", "one", "REPLAYED op-1"},
		{"41", "1", "op-1", "other", "CONFLICT"},
		{"42", "1", "op-2", "two", "APPLIED 1"},
		{"41", "2", "op-3", "late", "STALE_OWNER"},
		{"42", "9", "op-4", "far", "OUT_OF_ORDER"},
		{"42", "2", "op-5", "five", "APPLIED 2"},
	} {
		out, err := run("doc/a", c.fence, "lease-"+c.fence, c.seq, c.operation, c.body)
		if out != c.want || (err == nil) != strings.HasPrefix(c.want, "APPLIED") && !strings.HasPrefix(c.want, "REPLAYED") {
			t.Errorf("%s: got %q, %v, want %q", c.operation, out, err, c.want)
		}
	}
	if got := dump(t, p.db, `SELECT body FROM doc WHERE id = 'a'`); got != "[\"five\"]\n" {
		t.Errorf("the document is %s", got)
	}
	p.refused(`UPDATE doc SET body = 'x' WHERE id = 'a'`)
	// Each refusal has left its evidence, in a transaction of its own (R16b).
	in, err := p.fence.Inspect(t.Context(), "doc/a")
	if r := in.Refusals; err != nil || len(r) != 3 || r[lastword.Conflict] != 1 || r[lastword.StaleOwner] != 1 || r[lastword.OutOfOrder] != 1 {
		t.Errorf("counted %v, %v", r, err)
	}
	if q := in.Quarantine; len(q) != 1 || q[0].Claimant != "python" || string(q[0].Quarantine.Content) != "other" || q[0].Quarantine.Operation != "op-1" {
		t.Errorf("in quarantine: %+v", q)
	}
	// Go reads what Python wrote, and goes on behind it.
	if r, found, err := p.fence.Lookup(t.Context(), "doc/a", "op-5"); err != nil || !found || r.Seq != 2 || r.AppliedAt.IsZero() {
		t.Errorf("looked up: %+v, %v, %v", r, found, err)
	}
	p.mustThrough("doc/a", 43, `UPDATE doc SET body = 'go' WHERE id = 'a'`)
}

// In PL/pgSQL, as psql runs it from a script, the sub-block is what is rolled back.
func TestPsqlCountsARefusal(t *testing.T) { // R16b
	p := pgProtect(t, pgDocuments, whole)
	mustExec(t, p.db, `SELECT lastword.apply('test', 'doc/a', 'o', 42, 'l', '', '', 1, 'op', '`+lastword.DigestOf(nil).String()+`', status_mode => 'fence-only')`)
	page, err := os.ReadFile("../../docs/protect.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```sql\nDO ")
	script, _, _ = strings.Cut(script, "```")
	script = strings.NewReplacer("'prod'", "'test'", "'lease-…'", "'lease'", "'sha256:…'", "'"+lastword.DigestOf([]byte("new")).String()+"'").Replace("DO " + script)
	cmd := exec.CommandContext(t.Context(), "psql", "-X", "-v", "ON_ERROR_STOP=1", p.dsn)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "lastword: STALE_OWNER: doc/a") {
		t.Errorf("%v: %s", err, out)
	}
	if got := dump(t, p.db, `SELECT resource, verdict, times, last_claimant, last_fence FROM lastword.refusal`); got != "[\"doc/a\" \"STALE_OWNER\" '\\x01' \"worker-7\" ')']\n" {
		t.Errorf("counted: %s", got)
	}
	if got := dump(t, p.db, `SELECT body FROM doc WHERE id = 'a'`); got != "[\"old\"]\n" {
		t.Errorf("the document is %s", got)
	}
}

// A worker that forgets to look cannot commit: psql goes on after an error, and COMMIT
// is a ROLLBACK then.
func TestPsqlWritesThroughTheFunction(t *testing.T) {
	p := pgProtect(t, pgDocuments, whole)
	call := func(fence int, operation string) string {
		digest := lastword.DigestOf([]byte(operation)).String()
		return fmt.Sprintf(`BEGIN; SELECT * FROM lastword.apply('test', 'doc/a', 'psql', %d, 'lease-%d', '', '', 1, '%s', '%s', status_mode => 'fence-only');
UPDATE doc SET body = '%s' WHERE id = 'a'; COMMIT;
`, fence, fence, operation, digest, operation)
	}
	cmd := exec.CommandContext(t.Context(), "psql", "-X", "-A", "-t", p.dsn)
	cmd.Stdin = strings.NewReader(call(42, "new") + call(41, "stale"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "APPLIED|1") || !strings.Contains(string(out), "lastword: STALE_OWNER: doc/a") || !strings.Contains(string(out), "ROLLBACK") {
		t.Errorf("%v: %s", err, out)
	}
	if got := dump(t, p.db, `SELECT body FROM doc WHERE id = 'a'`); got != "[\"new\"]\n" {
		t.Errorf("the document is %s", got)
	}
	if _, err := p.bypass.ExecContext(t.Context(), `SELECT lastword.apply('test', 'doc/a', 'x', 99, 'l', '', '', 1, 'o', 'p')`); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("called by a role without the right: %v", err)
	}
}
