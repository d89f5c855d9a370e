package sqlfence_test

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword"
)

// call is a call of one of the functions by the names of its parameters.
type call struct {
	function string
	args     map[string]string // SQL
}

func (c call) with(name, value string) call {
	args := map[string]string{}
	for n, v := range c.args {
		args[n] = v
	}
	args[name] = value
	return call{c.function, args}
}

func (c call) text() string {
	var args []string
	for n, v := range c.args {
		args = append(args, n+" => "+v)
	}
	slices.Sort(args)
	return "SELECT " + c.function + "(" + strings.Join(args, ", ") + ")"
}

// do is the SQLSTATE of the call, "" if it raised nothing; nothing of it stays.
func (c call) do(t *testing.T, db *sql.DB) (state string) {
	t.Helper()
	undone(t, db, func(tx point) { state = c.state(t, tx) })
	return state
}

// state is that of the call within a transaction; nothing of it stays.
func (c call) state(t *testing.T, tx point) string {
	t.Helper()
	mustExecTx(t, tx.Tx, `SAVEPOINT call`)
	_, err := tx.Tx.ExecContext(t.Context(), c.text())
	mustExecTx(t, tx.Tx, `ROLLBACK TO call`)
	var told *pgconn.PgError
	if errors.As(err, &told) {
		return told.Code
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

var payloadOfTest = literal(lastword.DigestOf([]byte("v")).String())

// calls that are APPLIED, of each function that decides.
func admittedCalls() map[string]call {
	shared := map[string]string{
		"domain": "'test'", "resource": "'doc/a'", "owner": "'o'", "fence": "1", "lease_id": "'l'", "grant_digest": "''", "root": "''", "status_mode": "'fence-only'",
	}
	all := map[string]call{"apply": {"lastword.apply", shared}, "advance": {"lastword.advance", shared}, "decide": {"lastword.decide", shared}}
	for _, f := range []string{"apply", "decide"} {
		all[f] = all[f].with("seq", "1").with("operation", "'op'").with("payload", payloadOfTest)
	}
	all["decide"] = all["decide"].with("registers", "FALSE")
	all["check_arguments"] = call{"lastword.check_arguments", all["decide"].args}
	return all
}

// What a driver sends for None, undefined or nil is no value, and no comparison with it is
// one. Whatever parameters the functions have, NULL is never admitted, in whatever state
// the record is.
func TestNoParameterOfTheFunctionsMayBeNULL(t *testing.T) { // R14: nothing fails open
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { nullsAreRefused(t, tx, t.Errorf) })
}

func nullsAreRefused(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	for name, c := range admittedCalls() {
		if state := c.state(t, tx); state != "" {
			report("%s: the call without a NULL: %s", name, state)
		}
	}
	// As a service that asks the authority has left it.
	if _, err := tx.ExecContext(t.Context(), `SELECT lastword.apply('test', 'doc/kept', 'o', 1, 'l', '', '', 1, 'op', `+payloadOfTest+`, heard_mode => 'query', heard_state => 'HELD',
	after_look => TRUE, bundle_sequence => 7, policy_generation => 5, min_policy_generation => 5)`); err != nil {
		report("the record that is kept: %v", err)
	}
	kept := map[string]string{
		"resource": "'doc/kept'", "operation": "'op-2'", "seq": "2", "status_mode": "''", "heard_mode": "'query'", "heard_state": "'HELD'", "after_look": "TRUE",
		"bundle_sequence": "7", "policy_generation": "5", "min_policy_generation": "5",
	}
	for name, c := range admittedCalls() {
		for _, onKept := range []bool{false, true} {
			parameters := parametersOf(t, tx, name)
			if onKept {
				for n, v := range kept {
					if slices.Contains(parameters, n) {
						c = c.with(n, v)
					}
				}
				if state := c.state(t, tx); state != "" {
					report("%s of the kept record: %s", name, state)
				}
			}
			if len(parameters) < 20 {
				t.Fatalf("%s has the parameters %v", name, parameters)
			}
			for _, parameter := range parameters {
				if state := c.with(parameter, "NULL").state(t, tx); state != "LW020" {
					report("%s with %s => NULL: got %q, want LW020", name, parameter, state)
				}
			}
		}
	}
	if state := (call{"lastword.refused", map[string]string{"detail": "NULL"}}).state(t, tx); state != "LW020" {
		report("refused without a detail: %s", state)
	}
}

func parametersOf(t *testing.T, db asked, function string) []string {
	t.Helper()
	var all string
	err := db.QueryRowContext(t.Context(), `SELECT string_agg(n, ' ') FROM pg_proc p, unnest(p.proargnames, coalesce(p.proargmodes, array_fill('i'::"char", ARRAY[pronargs::int]))) AS a (n, mode)
WHERE p.pronamespace = 'lastword'::regnamespace AND p.proname = $1 AND mode = 'i'`, function).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(all)
}

// pieces of which odd names are made.
var namePieces = []string{
	"", "/", "//", ".", "..", "...", "a", "doc", "ä", "\u0085", "\u009f", "\u00a0", "\u007f", "\u0080", "\t", "\n", "\r", "\x01", "\x1f", " ", "\u2028", "\u202e", "\ufeff", "\U0001f512", "\ufffd",
	"%", "'", `\`, "\"", "*", "[", strings.Repeat("x", 100), strings.Repeat("é", 50), strings.Repeat("y", 254), "./", "/.", "../", "/..", "./.",
}

// The functions take the names that the Go packages take, and no others: a record with a
// name that Go refuses would be in everybody's way.
func TestTheFunctionsTakeTheNamesThatGoTakes(t *testing.T) { // R2, KF-28
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { namesAreTaken(t, tx, seed, t.Errorf) })
}

func namesAreTaken(t *testing.T, tx point, seed uint64, report func(string, ...any)) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	names := []string{"", "/doc/a", "doc/a/", "doc//../ bad", "doc//a", ".", "..", "a/..", "a/./b", strings.Repeat("x", 512), strings.Repeat("x", 513), strings.Repeat("é", 256), strings.Repeat("é", 257), "a\nb"}
	fixed := len(names)
	for range 800 {
		var b strings.Builder
		for range 1 + random.IntN(6) {
			b.WriteString(namePieces[random.IntN(len(namePieces))])
		}
		names = append(names, b.String())
	}
	taken := map[bool]int{}
	for i, name := range names {
		var id, resource bool
		if err := tx.QueryRowContext(t.Context(), `SELECT lastword.named($1, FALSE) IS NULL, lastword.named($1, TRUE) IS NULL`, name).Scan(&id, &resource); err != nil {
			report("%q: %v", name, err)
		}
		_, err := lastword.ParseResource(name)
		if want := err == nil; resource != want {
			report("the resource %q: taken %v, by Go %v", name, resource, want)
		}
		want := lastword.CheckID("name", name) == nil
		if id != want {
			report("the id %q: taken %v, by Go %v", name, id, want)
		}
		taken[resource]++
		if i >= fixed+10 {
			continue
		}
		for function, c := range admittedCalls() { // and each parameter that is a name is asked so
			for _, parameter := range []string{"domain", "resource", "owner", "lease_id", "caller", "operation"} {
				if !slices.Contains(parametersOf(t, tx, function), parameter) || parameter == "lease_id" && name == "" || parameter == "caller" && name == "" {
					continue // without a lease id there is no fence; a caller need not have a name
				}
				want := id
				if parameter == "resource" {
					want = resource
				}
				if state := c.with(parameter, literal(name)).state(t, tx); (state == "") != want || state != "" && state != "LW020" {
					report("%s with %s => %q: %q, want it taken: %v", function, parameter, name, state, want)
				}
			}
		}
	}
	if taken[true] < 100 || taken[false] < 100 {
		report("the names prove little: %v", taken)
	}
}

// Numbers and digests that Go could not read again, or would not write, are refused.
func TestTheFunctionsTakeTheNumbersThatGoTakes(t *testing.T) {
	undone(t, pgProtect(t, pgDocuments).db, func(tx point) { numbersAreTaken(t, tx, t.Errorf) })
}

func numbersAreTaken(t *testing.T, tx point, report func(string, ...any)) {
	t.Helper()
	noughts := "sha256:" + strings.Repeat("0", 64)
	apply := admittedCalls()["apply"].with("policy", "'latest'")
	for _, c := range []struct {
		parameter, value, state string
	}{
		{"seq", "9007199254740991", ""},
		{"seq", "9007199254740992", "LW020"},
		{"seq", "9223372036854775807", "LW020"},
		{"seq", "-1", "LW020"},
		{"seq", "0", ""},
		{"fence", "0", "LW108"}, // the rules say so
		{"fence", "-1", "LW108"},
		{"fence", "9007199254740992", "LW108"},
		{"step", "-1", "LW020"},
		{"next_fence", "-1", "LW020"},
		{"heard_epoch", "-1", "LW020"},
		{"heard_epoch", "4294967295", ""},
		{"heard_epoch", "4294967296", "LW020"},
		{"min_epoch", "-1", "LW020"},
		{"min_epoch", "4294967296", "LW020"},
		{"heard_revision", "-1", "LW020"},
		{"bundle_sequence", "-1", "LW020"},
		{"policy_generation", "-1", "LW020"},
		{"min_policy_generation", "-1", "LW020"},
		{"grant_digest", "'x'", "LW020"},
		{"root", "'sha256:x'", "LW020"},
		{"root", payloadOfTest, ""},
		{"grant_digest", payloadOfTest, ""},
		{"grant_digest", "'" + noughts + "'", ""},
		{"grant_digest", "'" + noughts + "0'", "LW020"},
		{"root", "'" + noughts + "'", ""},
		{"root", "'" + noughts + "0'", "LW020"},
		{"payload", "'" + noughts + "'", ""},
		{"payload", "'" + noughts + "0'", "LW020"},
		{"payload", "''", "LW020"},
		{"payload", "'sha256:" + strings.Repeat("A", 64) + "'", "LW020"},
		{"result", "convert_to(repeat('x', 16384), 'UTF8')", ""},
		{"result", "convert_to(repeat('x', 16385), 'UTF8')", "LW020"},
	} {
		if state := apply.with(c.parameter, c.value).state(t, tx); state != c.state {
			report("%s => %s: got %q, want %q", c.parameter, c.value, state, c.state)
		}
	}
}
