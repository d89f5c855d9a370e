package sqlfence_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/internal/realservers"
)

// asked is a database, or a transaction.
type asked interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// point is a transaction that goes on after a statement that failed.
type point struct{ *sql.Tx }

func (p point) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if _, err := p.Tx.ExecContext(ctx, `SAVEPOINT point`); err != nil {
		return nil, err
	}
	r, err := p.Tx.ExecContext(ctx, query, args...)
	if err != nil {
		_, _ = p.Tx.ExecContext(ctx, `ROLLBACK TO point`)
	}
	return r, err
}

// undone does something in a transaction of which nothing stays.
func undone(t *testing.T, db *sql.DB, do func(tx point)) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	do(point{tx})
}

// lossyIsRefused: nothing is decided, or counted, where a crash could undo it.
func lossyIsRefused(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	detail := literal(otherLease(t, func(map[string]any, map[string]any) {}))
	calls := admittedCalls()
	calls["refused"] = call{"lastword.refused", map[string]string{"detail": detail}}
	delete(calls, "check_arguments")
	for setting, want := range map[string]string{"off": "LW004", "local": "", "on": ""} {
		mustExecTx(t, tx.Tx, `SET LOCAL synchronous_commit = `+setting)
		for name, c := range calls {
			if state := c.state(t, tx); state != want {
				report("%s with synchronous_commit = %s: %q, want %q", name, setting, state, want)
			}
		}
	}
	mustExecTx(t, tx.Tx, `SET LOCAL synchronous_commit = off`)
	for _, name := range []string{"refused", "apply"} {
		var told *pgconn.PgError
		_, err := tx.ExecContext(t.Context(), calls[name].text())
		if want := "Set synchronous_commit = on, or local, for the role or in the transaction, and fsync = on."; !errors.As(err, &told) || told.Hint != want {
			report("%s without synchronous_commit: %v, want the hint %q", name, err, want)
		}
	}
	mustExecTx(t, tx.Tx, `SET LOCAL synchronous_commit = on`)
}

// issueTimesAreRead: the function reads the issue times that Go reads.
func issueTimesAreRead(t *testing.T, tx point, seed uint64, report func(string, ...any)) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	ids := []string{
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "00000000-0000-7000-8000-000000000000", "FFFFFFFF-FFFF-7FFF-BFFF-FFFFFFFFFFFF",
		"01ARYZ6S41TSV4RRFFQ69G5FAV", "00000000000000000000000000", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "settle-4711", "",
	}
	for _, id := range ids[:6] {
		ids = append(ids, strings.ToLower(id), strings.ToUpper(id), id+"0", "0"+id, id[1:], id+"\n", strings.ReplaceAll(id, "-", ""))
		for i := range id { // each character is another one, of all those at an edge of what is one
			for _, c := range "0123456789:/-@AGHIJKLMNOPTUVWZ[`abfgz{ä" {
				ids = append(ids, id[:i]+string(c)+id[i+1:])
			}
		}
	}
	for range 200 {
		const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
		id := make([]byte, 26)
		for i := range id {
			id[i] = letters[random.IntN(len(letters))]
		}
		id[0] = letters[random.IntN(8)]
		ids = append(ids, string(id), fmt.Sprintf("%08x-%04x-7%03x-a%03x-%012x", random.Uint32(), random.Uint32()>>16, random.IntN(4096), random.IntN(4096), random.Uint64()>>16))
	}
	list, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := tx.QueryContext(t.Context(), `SELECT id, lastword.issued(id) FROM json_array_elements_text($1::json) id`, string(list))
	if err != nil {
		report("%v", err)
	}
	defer rows.Close()
	bound, n := 0, 0
	for ; rows.Next(); n++ {
		var id string
		var ms sql.NullInt64
		if err := rows.Scan(&id, &ms); err != nil {
			report("%v", err)
		}
		want, ok := core.IssueTime(id)
		if ms.Valid != ok || ok && uint64(ms.Int64) != want {
			report("%q was issued at %v, by Go at %d, %v", id, ms, want, ok)
		}
		if ok {
			bound++
		}
	}
	if rows.Err() != nil || n != len(ids) || bound < 1000 || n-bound < 1000 {
		report("%d of %d ids, %d with a time: %v", n, len(ids), bound, rows.Err())
	}
}

// R19, R20: an id that is bound to its time in one language is so in all.
func TestTheFunctionReadsTheIssueTimesThatGoReads(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { issueTimesAreRead(t, tx, seed, t.Errorf) })
}

// liesFreezeNothing: a record is frozen for what it shows, once, and for nothing else.
func liesFreezeNothing(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	for _, made := range []string{
		`SELECT lastword.apply('test', 'doc/sql', 'a', 42, 'l42', '', '', 1, 'op', ` + payloadOfTest + `, status_mode => 'fence-only')`,
		`SELECT lastword.apply('another', 'doc/sql', 'a', 42, 'l42', '', '', 1, 'op', ` + payloadOfTest + `, status_mode => 'fence-only')`,
		`SELECT lastword.advance('test', 'doc/closed', 'a', 42, 'l42', '', '', status_mode => 'fence-only')`,
		`UPDATE lastword.fence SET lease_id = '' WHERE resource = 'doc/closed'`,
	} {
		if _, err := tx.ExecContext(t.Context(), made); err != nil {
			report("%s: %v", made, err)
		}
	}
	record := func() string {
		return dump(t, tx, `SELECT to_jsonb(f)::text FROM lastword.fence f ORDER BY domain, resource`)
	}
	said := func(change func(told, attempt map[string]any)) string { return otherLease(t, change) }
	before := record()
	for name, detail := range liesOf(said) {
		if counted, frozen := refusedOf(t, tx, detail, nil, report); !counted || frozen || record() != before {
			report("%s: counted %v, frozen %v:\n%s", name, counted, frozen, record())
		}
	}
	for i := range 2 {
		if counted, frozen := refusedOf(t, tx, said(func(map[string]any, map[string]any) {}), nil, report); !counted || frozen != (i == 0) {
			report("the truth, call %d: counted %v, frozen %v", i, counted, frozen)
		}
	}
	if n := count(t, tx, `SELECT count(*) FROM lastword.fence WHERE frozen AND resource = 'doc/sql' AND domain = 'test'`); n != 1 || count(t, tx, `SELECT count(*) FROM lastword.fence WHERE frozen`) != 1 {
		report("frozen are\n%s", record())
	}
}

// evidenceIsThatOfGo: after each refusal it is what Go has left, step by step.
func evidenceIsThatOfGo(t *testing.T, tx point, inGo []string, report func(string, ...any)) {
	t.Helper()
	for i, w := range everyRefusal(t) {
		w.inFunction(t, tx, report)
		if got := evidenceOf(t, tx, sqlResource); got != inGo[i] {
			report("after step %d (%s) Go has left\n%sand the function\n%s", i, w.want, inGo[i], got)
		}
	}
}

// ranksAreOrdered as those of the rules are.
func ranksAreOrdered(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	var got string
	err := tx.QueryRowContext(t.Context(), `SELECT string_agg(m || ' ' || lastword.rank(m), ', ' ORDER BY n) FROM unnest(ARRAY['', 'x', 'fence-only', 'proof', 'query']) WITH ORDINALITY u (m, n)`).Scan(&got)
	if want := " -1, x -1, fence-only 0, proof 1, query 2"; err != nil || got != want {
		report("ranks %q, want %q: %v", got, want, err)
	}
}

func everyVerdictAsWorker(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	mustExecTx(t, tx.Tx, `SET LOCAL ROLE worker`)
	defer mustReset(t, tx)
	everyVerdictHasAState(t, tx, report)
}

// mustReset is for a defer, which a difference ends too.
func mustReset(t *testing.T, tx point) {
	t.Helper()
	_, _ = tx.Tx.ExecContext(t.Context(), `RESET ROLE`)
}

// rightsAreAsked: who may call decide needs the right to call what stands for it.
func rightsAreAsked(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	mustExecTx(t, tx.Tx, `SET LOCAL ROLE worker`)
	defer mustReset(t, tx)
	decide := admittedCalls()["decide"]
	for _, function := range []string{"apply", "advance", ""} {
		mustExecTx(t, tx.Tx, `RESET ROLE; REVOKE EXECUTE ON FUNCTION lastword.apply, lastword.advance FROM worker; SET LOCAL ROLE worker`)
		if function != "" {
			mustExecTx(t, tx.Tx, `RESET ROLE; GRANT EXECUTE ON FUNCTION lastword.`+function+` TO worker; SET LOCAL ROLE worker`)
		}
		for registers, stands := range map[string]string{"FALSE": "apply", "TRUE": "advance"} {
			want := "42501"
			if function == stands {
				want = ""
			}
			if state := decide.with("registers", registers).state(t, tx); state != want {
				report("registers %s with the right to call %q: %q, want %q", registers, function, state, want)
			}
		}
	}
}

// refusalsSayWhy: message, hint and detail are what a worker and its people read.
func refusalsSayWhy(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), `SELECT lastword.apply('test', 'doc/a', 'o', 2, 'l', '', '', 1, 'op', `+payloadOfTest+`, status_mode => 'fence-only')`); err != nil {
		report("the first write: %v", err)
	}
	first := admittedCalls()["apply"].with("fence", "2")
	for _, c := range []struct {
		call                   call
		message, hint, receipt string
	}{
		{first, "lastword: REPLAYED: doc/a", "It had its effect before: roll back, there is nothing left to do.", "op"},
		{first.with("payload", literal(lastword.DigestOf([]byte("other")).String())), "lastword: CONFLICT (OTHER_PAYLOAD): doc/a", "Roll back, and hand the detail to lastword.refused. Nothing was changed.", "op"},
		{first.with("fence", "1").with("operation", "'op-2'"), "lastword: STALE_OWNER: doc/a", "Roll back, and hand the detail to lastword.refused. Nothing was changed.", ""},
		{
			first.with("status_mode", "'query'").with("operation", "'op-2'"), "lastword: STATUS_UNAVAILABLE: doc/a",
			"The record wants to hear of the authority: say what it has answered, or make a new record with status_mode => 'fence-only'.", "",
		},
	} {
		_, err := tx.ExecContext(t.Context(), c.call.text())
		told := (*pgconn.PgError)(nil)
		if !errors.As(err, &told) || told.Message != c.message || told.Hint != c.hint {
			report("got %+v, want %q and %q", err, c.message, c.hint)
			continue
		}
		var detail map[string]any
		if err := json.Unmarshal([]byte(told.Detail), &detail); err != nil || detail["fence"] != "2" || detail["domain"] != "test" || detail["resource"] != "doc/a" {
			report("%s has the detail %s", c.message, told.Detail)
		}
		if receipt, _ := detail["receipt"].(map[string]any); c.receipt == "" && detail["receipt"] != nil || c.receipt != "" && receipt["operation"] != c.receipt {
			report("%s has the receipt %v, want that of %q", c.message, detail["receipt"], c.receipt)
		}
	}
}

func TestARefusalOfTheFunctionSaysWhyAndWhatToDo(t *testing.T) { // R16
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { refusalsSayWhy(t, tx, t.Errorf) })
}

// advanceHandsOn: each argument of advance ends where it belongs, of apply as well.
func advanceHandsOn(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	a, b := literal(lastword.DigestOf([]byte("a")).String()), literal(lastword.DigestOf([]byte("b")).String())
	shared := map[string]string{
		"domain": "'d'", "owner": "'o'", "fence": "25769803777", "lease_id": "'l'", "grant_digest": a, "root": b, "policy": "'latest'", "status_mode": "'query'",
		"step": "11", "imported": "FALSE", "heard_mode": "'query'", "heard_state": "'HELD'", "next_fence": "4", "after_look": "TRUE", "heard_epoch": "2", "heard_revision": "9",
		"bundle_sequence": "7", "min_epoch": "3", "policy_generation": "6", "min_policy_generation": "5",
	}
	want := fmt.Sprintf("[\"25769803777 l %s %s latest query 11 7 3 5 2 9 false\"]\n", strings.Trim(a, "'"), strings.Trim(b, "'"))
	advance := call{"lastword.advance", shared}.with("resource", "'r/advance'")
	apply := call{"lastword.apply", shared}.with("resource", "'r/apply'").with("operation", "'op'").with("payload", payloadOfTest).with("seq", "3").with("caller", "'c'").with("result", "'x'")
	for _, c := range []call{advance, apply} {
		if _, err := tx.ExecContext(t.Context(), c.text()); err != nil {
			report("%s: %v", c.text(), err)
		}
		if got := dump(t, tx, `SELECT concat_ws(' ', fence, lease_id, grant_digest, root, policy, status_mode, step, bundle_sequence, min_epoch, min_policy_generation, heard_epoch, heard_revision, imported::text)
FROM lastword.fence WHERE domain = 'd' AND resource = `+c.args["resource"]); got != want {
			report("%s has left\n%swant\n%s", c.function, got, want)
		}
		// A number that is outdated is so, whichever it is.
		for parameter, lower := range map[string]string{"bundle_sequence": "6", "policy_generation": "4", "fence": "17179869185"} {
			if state := c.with(parameter, lower).state(t, tx); state != "LW108" {
				report("%s with %s => %s: %q", c.function, parameter, lower, state)
			}
		}
	}
	got := dump(t, tx, `SELECT concat_ws(' ', operation, payload, fence, seq, lease_id, grant_digest, owner, caller, root, encode(result, 'escape')) FROM lastword.receipt WHERE domain = 'd' AND resource = 'r/apply'`)
	if want := fmt.Sprintf("[\"op %s 25769803777 3 l %s o c %s x\"]\n", strings.Trim(payloadOfTest, "'"), strings.Trim(a, "'"), strings.Trim(b, "'")); got != want {
		report("the receipt is\n%swant\n%s", got, want)
	}
}

func TestTheFunctionsHandOnEachArgumentAsItIs(t *testing.T) { // R14, R16
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { advanceHandsOn(t, tx, t.Errorf) })
}

// detailsAreCounted: what a refusal may say is counted as it is said.
func detailsAreCounted(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	said := func(verdict, why string, change func(told, attempt map[string]any)) string {
		return otherLease(t, func(told, attempt map[string]any) {
			told["verdict"], told["why"] = verdict, why
			if change != nil {
				change(told, attempt)
			}
		})
	}
	last := func(want string) {
		t.Helper()
		if got := dump(t, tx, `SELECT concat_ws(' ', verdict, last_why, last_fence, last_lease_id, last_claimant) FROM lastword.refusal WHERE resource = 'doc/sql'`); got != want {
			report("counted %s, want %s", got, want)
		}
		mustExecTx(t, tx.Tx, `DELETE FROM lastword.refusal`)
	}
	for _, verdict := range []string{"CONFLICT", "STALE_OWNER", "RECEIPT_EXPIRED", "OUT_OF_ORDER", "ROOT_MISMATCH", "FENCE_REGRESSION", "FENCE_JUMP", "UNVERIFIED"} {
		for _, why := range []string{"", "A_B", strings.Repeat("A", 64)} {
			if counted, frozen := refusedOf(t, tx, said(verdict, why, nil), nil, report); !counted || frozen {
				report("%s %s: counted %v, frozen %v", verdict, why, counted, frozen)
			}
			last(fmt.Sprintf("[%q]\n", fmt.Sprintf("%s %s 42 other liar", verdict, why)))
		}
	}
	if state := (call{"lastword.refused", map[string]string{"detail": literal(said("STALE_OWNER", strings.Repeat("A", 65), nil))}}).state(t, tx); state != "LW020" {
		report("a long reason: %q", state)
	}
	// Only of UNVERIFIED it means that the gate has to ask again.
	if counted, _ := refusedOf(t, tx, said("STALE_OWNER", "OUTDATED", nil), nil, report); !counted {
		report("STALE_OWNER OUTDATED is not counted")
	}
	// An advance has no operation and no payload.
	if counted, _ := refusedOf(t, tx, said("STALE_OWNER", "", func(_, a map[string]any) { a["operation"], a["payload"] = "", "" }), nil, report); !counted {
		report("a refusal of an advance is not counted")
	}
	mustExecTx(t, tx.Tx, `DELETE FROM lastword.refusal`)
	// Of the names only that of a resource has segments.
	refusedOf(t, tx, said("CONFLICT", "", func(told, a map[string]any) {
		told["domain"], a["owner"], a["lease_id"], a["operation"] = "a//b", "c/..", "/l", "./op"
	}), nil, report)
	last(`["CONFLICT  42 /l c/.."]` + "\n")
	// What is left out is 0, of both numbers.
	refusedOf(t, tx, said("CONFLICT", "", func(_, a map[string]any) { delete(a, "fence"); delete(a, "seq"); a["owner"] = "numberless" }), nil, report)
	last(`["CONFLICT  0 other numberless"]` + "\n")
	if n := count(t, tx, `SELECT count(*) FROM lastword.quarantine WHERE claimant = 'numberless' AND fence = 0 AND seq = 0`); n != 1 {
		report("%d rows in quarantine without numbers", n)
	}
}

func TestTheFunctionCountsWhatARefusalMaySay(t *testing.T) { // R16b
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { detailsAreCounted(t, tx, t.Errorf) })
}

// A server that does not wait for its disk decides nothing and counts nothing.
func TestTheFunctionsRefuseAServerWithoutFsync(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: a server of its own; runs without the race detector")
	}
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
	if err := sqlfence.Init(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	calls := admittedCalls()
	delete(calls, "check_arguments")
	calls["refused"] = call{"lastword.refused", map[string]string{"detail": literal(otherLease(t, func(map[string]any, map[string]any) {}))}}
	for name, c := range calls {
		if state := c.do(t, db); state != "LW004" {
			t.Errorf("%s: %q, want LW004", name, state)
		}
	}
}

// otherLease is the detail of an attempt with another lease at doc/sql's fence 42, changed.
func otherLease(t *testing.T, change func(told, attempt map[string]any)) string {
	t.Helper()
	attempt := map[string]any{"owner": "liar", "fence": "42", "lease_id": "other", "operation": "op-9", "seq": "1", "payload": lastword.DigestOf([]byte("x")).String()}
	told := map[string]any{"verdict": "FENCE_REGRESSION", "why": "OTHER_LEASE", "domain": domain, "resource": "doc/sql", "fence": "42", "attempt": attempt}
	change(told, attempt)
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// liesOf are details that a record does not bear out.
func liesOf(said func(func(told, attempt map[string]any)) string) map[string]string {
	return map[string]string{
		"a lower fence":          said(func(_, a map[string]any) { a["fence"] = "41" }),
		"a higher fence":         said(func(_, a map[string]any) { a["fence"] = "43" }),
		"the lease that it has":  said(func(_, a map[string]any) { a["lease_id"] = "l42" }),
		"no lease":               said(func(_, a map[string]any) { a["lease_id"] = "" }),
		"no fence":               said(func(_, a map[string]any) { delete(a, "fence") }),
		"a record that is not":   said(func(told, _ map[string]any) { told["resource"] = "doc/none" }),
		"a domain that is not":   said(func(told, _ map[string]any) { told["domain"] = "none" }),
		"a record that is shut":  said(func(told, _ map[string]any) { told["resource"] = "doc/closed" }),
		"frozen, it says":        said(func(told, _ map[string]any) { told["why"] = "FROZEN" }),
		"an authority behind":    said(func(told, _ map[string]any) { told["why"] = "NEXT_FENCE" }),
		"another verdict":        said(func(told, _ map[string]any) { told["verdict"] = "STALE_OWNER" }),
		"only the stored number": said(func(told, a map[string]any) { told["fence"], a["fence"] = "42", "1" }),
	}
}

func TestADetailThatIsNoneWritesNothing(t *testing.T) {
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { noDetailIsRefused(t, tx, t.Errorf) })
}

func noDetailIsRefused(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	good := `{"verdict": "CONFLICT", "why": "SEQ_TAKEN", "domain": "test", "resource": "doc/a", "fence": "1", "receipt": null,
	"attempt": {"owner": "o", "fence": "1", "lease_id": "l", "operation": "op", "seq": "1", "payload": "` + lastword.DigestOf([]byte("x")).String() + `"}}`
	swap := func(old, replacement string) string { return swapped(t, good, old, replacement) }
	long := strings.Repeat("x", lastword.MaxIDBytes+1)
	for name, c := range map[string]struct {
		detail  any
		content string
	}{
		"NULL": {nil, ""}, "empty": {"", ""}, "no JSON": {"verdict", ""}, "a list": {"[]", ""}, "a text": {`"x"`, ""},
		"deep": {strings.Repeat("[", 1_000_000), ""}, "NUL": {swap(`"op"`, `"o\u0000p"`), ""}, "control": {swap(`"op"`, `"o\np"`), ""},
		"no attempt": {swap("attempt", "other"), ""}, "attempt a list": {`{"verdict": "STALE_OWNER", "domain": "d", "resource": "r", "attempt": ["owner"]}`, ""},
		"no verdict": {swap("CONFLICT", ""), ""}, "applied": {swap("CONFLICT", "APPLIED"), ""}, "in shadow": {swap("CONFLICT", "SHADOW(CONFLICT)"), ""},
		"a resource that is not canonical": {swap(`"doc/a"`, `"doc/a/"`), ""}, "a control character": {swap(`"o"`, `"o\u0085"`), ""}, "no domain": {swap(`"domain": "test"`, `"domain": ""`), ""}, "no resource": {swap(`"doc/a"`, "null"), ""}, "no owner": {swap(`"o"`, `""`), ""},
		"no payload": {swap(lastword.DigestOf([]byte("x")).String(), ""), ""}, "no operation": {swap(`"op"`, `""`), ""}, "a long owner": {swap(`"o"`, `"`+long+`"`), ""}, "a long reason": {swap("SEQ_TAKEN", long), ""},
		"no number": {swap(`"fence": "1", "lease_id"`, `"fence": "one", "lease_id"`), ""}, "a huge number": {swap(`"fence": "1", "lease_id"`, `"fence": "99999999999999999999", "lease_id"`), ""},
		"a negative seq": {swap(`"seq": "1"`, `"seq": "-1"`), ""}, "no digest": {swap("sha256:", "md5:"), ""}, "another content": {good, "y"},
	} {
		_, err := tx.ExecContext(t.Context(), `SELECT lastword.refused($1, $2)`, c.detail, []byte(c.content))
		var told *pgconn.PgError
		if !errors.As(err, &told) || told.Code != "LW020" || !strings.Contains(told.Message, "INVALID") {
			report("%s: %v", name, err)
		}
	}
	if n := count(t, tx, `SELECT (SELECT count(*) FROM lastword.refusal) + (SELECT count(*) FROM lastword.quarantine) + (SELECT count(*) FROM lastword.fence)`); n != 0 {
		report("%d rows", n)
	}
	refusedOf(t, tx, good, []byte("x"), report)
	if n := count(t, tx, `SELECT count(*) FROM lastword.quarantine WHERE content = 'x'`); n != 1 {
		report("the good one: %d rows", n)
	}
}

// whatIsGoneIsKnown: of a lost record its tombstones tell, of a pruned receipt the mark,
// and what a record has taken once is told with the receipt of it.
func whatIsGoneIsKnown(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	other := literal(lastword.DigestOf([]byte("other")).String())
	for _, made := range []string{
		`INSERT INTO lastword.tombstone VALUES ('test', 'doc/lost', 'sha256:x', ''), ('a', 'doc/a', 'sha256:x', ''), ('test', 'a', 'sha256:x', '')`,
		`INSERT INTO lastword.receipt VALUES ('a', 'doc/once', 'op', 'sha256:x', 1, 1, '', '', '', '', '', '', ''), ('test', 'a', 'op', 'sha256:x', 1, 1, '', '', '', '', '', '', ''),
	('test', 'doc/once', 'a', 'sha256:x', 1, 1, '', '', '', '', '', '', '')`,
		`ALTER TABLE lastword.fence DISABLE TRIGGER USER`,
		`INSERT INTO lastword.fence (domain, resource, fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy, status_mode, frozen, step,
	bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored, pruned)
VALUES ('test', 'doc/once', 1, 'l', '', '', 1, 'op', ` + payloadOfTest + `, 'once', 'fence-only', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0, 0),
	('test', 'doc/pruned', 1, 'l', '', '', 0, '', '', 'ordered', 'fence-only', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0, 1469918176385),
	('test', 'doc/whole', 1, 'l', '', '', 0, '', '', 'ordered', 'fence-only', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0, 0)`,
		`INSERT INTO lastword.receipt VALUES ('test', 'doc/once', 'op', ` + payloadOfTest + `, 1, 1, 'l', '', '', '', '', '', '')`,
	} {
		if _, err := tx.ExecContext(t.Context(), made); err != nil {
			report("%s: %v", made, err)
		}
	}
	apply := admittedCalls()["apply"]
	for _, c := range []struct{ resource, operation, state string }{
		{"doc/lost", "op", "LW106"},
		{"doc/a", "op", ""}, // the tombstones are of others
		{"doc/pruned", "01ARYZ6S41TSV4RRFFQ69G5FAV", "LW103"},
		{"doc/pruned", "01ARYZ6S42TSV4RRFFQ69G5FAV", ""}, // a millisecond later
		{"doc/pruned", "op", ""},                         // without an issue time
		{"doc/whole", "00000000000000000000000000", ""},  // no mark is no time
		{"doc/whole", "01ARYZ6S41TSV4RRFFQ69G5FAV", ""},
	} {
		if state := apply.with("resource", literal(c.resource)).with("operation", literal(c.operation)).state(t, tx); state != c.state {
			report("%s at %s: got %q, want %q", c.operation, c.resource, state, c.state)
		}
	}
	once := apply.with("resource", "'doc/once'").with("operation", "'op-2'")
	_, err := tx.ExecContext(t.Context(), once.text())
	var detail struct {
		Receipt struct{ Domain, Resource, Operation string }
	}
	if json.Unmarshal([]byte(detailOf(err)), &detail) != nil || detail.Receipt != struct{ Domain, Resource, Operation string }{"test", "doc/once", "op"} {
		report("the same value again: %+v, %v", detail, err)
	}
	if state := once.with("payload", other).state(t, tx); state != "LW101" {
		report("another value: %q", state)
	}
}

func TestTheFunctionKnowsWhatIsGone(t *testing.T) { // R19, R20
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { whatIsGoneIsKnown(t, tx, t.Errorf) })
}
