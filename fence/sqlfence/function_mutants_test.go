package sqlfence_test

import (
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/internal/sqlmutants"
)

// functionMutants are a function with each condition forced, each comparison made another
// one, each word that something is compared with made another one, each pattern made one
// that fits all or nothing, each number one higher, and each two arguments that a wrapper
// hands on changed with each other. What is no SQL then was no condition.
func functionMutants(definition string) (all []wrongComparison) {
	begin := strings.Index(definition, "AS $function$") + len("AS $function$")
	head, body := definition[:begin], definition[begin:]
	around := func(from, to int) string {
		line := strings.LastIndexByte(body[:from], '\n') + 1
		end := to + strings.IndexByte(body[to:]+"\n", '\n')
		return strings.TrimSpace(body[line:from]) + " [" + body[from:to] + "] " + strings.TrimSpace(body[to:end])
	}
	swap := func(from, to int, by string) {
		all = append(all, wrongComparison{around(from, to) + " becomes " + by, head + body[:from] + by + body[to:]})
	}
	all = forced(definition)
	others := map[string][]string{
		"<": {"<=", ">"}, "<=": {"<"}, ">": {">=", "<"}, ">=": {">"}, "=": {"<>"}, "<>": {"="}, "AND": {"OR"}, "OR": {"AND"}, "~": {"!~"}, "!~": {"~"},
		"IN": {"NOT IN"}, "NOT": {""}, "TRUE": {"FALSE"}, "FALSE": {"TRUE"}, "greatest": {"least"}, "least": {"greatest"},
	}
	for _, m := range regexp.MustCompile(` (<=|>=|<>|<|>|=|!~|~|AND|OR|IN|NOT) |\b(TRUE|FALSE)\b|\b(least|greatest)\(`).FindAllStringSubmatchIndex(body, -1) {
		for i := 2; i < len(m); i += 2 {
			if m[i] >= 0 {
				for _, other := range others[body[m[i]:m[i+1]]] {
					swap(m[i], m[i+1], other)
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`'([A-Z_]+[0-9]*|fence-only|proof|query|on|off|object|first|last|first|attempt|verdict|why|domain|resource|owner|lease_id|fence|seq|operation|payload|receipt)'`).FindAllStringSubmatchIndex(body, -1) {
		swap(m[2], m[3], "no"+body[m[2]:m[3]])
	}
	for _, m := range regexp.MustCompile(` !?~ (E?'[^']*')`).FindAllStringSubmatchIndex(body, -1) {
		swap(m[2], m[3], "''")
		swap(m[2], m[3], "'$x'")
	}
	for _, m := range regexp.MustCompile(`\b[0-9]+\b`).FindAllStringIndex(body, -1) {
		if n, err := strconv.Atoi(body[m[0]:m[1]]); err == nil && body[m[0]-1] != '$' && !regexp.MustCompile(`(?:than|between|between \d+ and) $`).MatchString(body[max(0, m[0]-20):m[0]]) {
			swap(m[0], m[1], strconv.Itoa(n+1))
		}
	}
	if at := strings.Index(body, "lastword.decide("); at >= 0 {
		from := at + len("lastword.decide(")
		to := from + strings.IndexByte(body[from:], ')')
		args := strings.Split(body[from:to], ",")
		for i := 1; i < len(args); i++ {
			changed := slices.Clone(args)
			changed[i-1], changed[i] = changed[i], changed[i-1]
			all = append(all, wrongComparison{strings.TrimSpace(args[i-1]) + " and" + strings.TrimRight(args[i], " ") + " are changed", head + body[:from] + strings.Join(changed, ",") + body[to:]})
		}
	}
	return all
}

// forced are a function with each condition forced.
func forced(definition string) (all []wrongComparison) {
	begin := strings.Index(definition, "AS $function$")
	for _, m := range sqlmutants.Of(definition[begin:]) {
		all = append(all, wrongComparison{m.String(), definition[:begin] + m.Text})
	}
	return all
}

// sameFunctions are mutants that change nothing that anybody could see, and why.
var sameFunctions = map[string]string{
	"advance: '' and '' are changed": "an empty operation and an empty payload are alike",
	"advance: SELECT d.verdict FROM lastword.decide(TRUE, domain, resource, owner, fence, lease_id, grant_digest, root, [0] , '', '', becomes 1": "a registration has no seq, and nobody looks at it",
	"issued: THEN ('x' || left(replace(operation, '-', ''), [12] ))::bit(48)::bigint becomes 13":                                                 "of more than 48 bits the first 48 are taken",
	"refuse: 'receipt', CASE WHEN receipt IS NOT NULL [AND] receipt.operation IS NOT NULL THEN to_jsonb(receipt) END)::text, becomes OR":         allOrNothing,
	"refuse: receipt IS NOT NULL #1 becomes TRUE":           allOrNothing,
	"refuse: receipt.operation IS NOT NULL #1 becomes TRUE": allOrNothing,
	"check_arguments: IF NOT (SELECT coalesce(bool_and(has_function_privilege(p.oid, 'EXECUTE')), [FALSE] ) FROM pg_catalog.pg_proc p becomes TRUE": "what stands for a decision comes with the schema: there is always one",
	"decide: attempt = 2 #1 becomes FALSE":                       "the loop ends after two turns by itself",
	"decide: attempt = 2 #1 becomes TRUE":                        "it only waits for another first write, which is refused with LW001 otherwise: seen where two make a record at once",
	"decide: last > 0 #1 becomes TRUE":                           "without a write there is no last payload, and every payload is a digest",
	"decide: current_setting('fsync') <> 'on' #1 becomes FALSE":  "no session can set it: TestTheFunctionsRefuseAServerWithoutFsync has a server for it",
	"refused: current_setting('fsync') <> 'on' #1 becomes FALSE": "no session can set it: TestTheFunctionsRefuseAServerWithoutFsync has a server for it",
}

const allOrNothing = "every column of a receipt is NOT NULL: both say the same"

// Each condition of what other languages call is made wrong, one at a time, and a check
// has to tell.
func TestEveryConditionOfTheFunctionsIsNeeded(t *testing.T) { // R14, R16b, R30
	p, other := pgProtect(t, pgDocuments), pgProtect(t, pgDocuments)
	var inGo []string
	for _, w := range everyRefusal(t) {
		w.inGo(t, other)
		inGo = append(inGo, other.evidence(goResource))
	}
	page, err := os.ReadFile("../../docs/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(page), "needs these:\n\n```sql\n")
	rights, _, _ = strings.Cut(rights, "```")
	mustExec(t, p.db, strings.ReplaceAll(rights, "TO app;", "TO worker;"))
	seed := rand.Uint64()
	table := func(t *testing.T, tx point, report func(string, ...any)) {
		mustExecTx(t, tx.Tx, `ALTER TABLE lastword.fence DISABLE TRIGGER USER; ALTER TABLE lastword.rollout DISABLE TRIGGER USER`)
		driveTable(t, tx.Tx, report)
	}
	evidence := func(t *testing.T, tx point, report func(string, ...any)) { evidenceIsThatOfGo(t, tx, inGo, report) }
	type check = func(t *testing.T, tx point, report func(string, ...any))
	names := func(t *testing.T, tx point, report func(string, ...any)) { namesAreTaken(t, tx, seed, report) }
	issued := func(t *testing.T, tx point, report func(string, ...any)) { issueTimesAreRead(t, tx, seed, report) }
	checks := map[string][]check{ // those that are likely to tell first
		"issued":          {issued},
		"rank":            {ranksAreOrdered, table},
		"refuse":          {refusalsSayWhy, everyVerdictAsWorker, onlyRefusalsCount, evidence, table},
		"named":           {names},
		"check_arguments": {numbersAreTaken, everyVerdictAsWorker, rightsAreAsked, nullsAreRefused, names},
		"refused":         {noDetailIsRefused, detailsAreCounted, liesFreezeNothing, onlyRefusalsCount, evidence, lossyIsRefused},
		"apply":           {advanceHandsOn, numbersAreTaken, evidence, table},
		"decide":          {lossyIsRefused, whatIsGoneIsKnown, advanceHandsOn, evidence, table, nullsAreRefused},
		"advance":         {advanceHandsOn, table},
	}
	var all []wrongFunction
	for name, of := range checks {
		var definition string
		if err := p.db.QueryRowContext(t.Context(), `SELECT pg_get_functiondef(('lastword.' || $1)::regproc)`, name).Scan(&definition); err != nil {
			t.Fatal(err)
		}
		for _, check := range of {
			if os.Getenv("LASTWORD_MUTANTS") == "" { // each is a test of its own
				break
			}
			undone(t, p.db, func(tx point) {
				if told := firstTold(func(report func(string, ...any)) { check(t, tx, report) }); told != "" {
					t.Fatalf("nothing is wrong with %s, and yet: %s", name, told)
				}
			})
		}
		mutants := functionMutants(definition)
		if name == "decide" { // that its comparisons are needed has a test of its own
			mutants = forced(definition)
		}
		for _, m := range mutants {
			all = append(all, wrongFunction{name + ": " + m.what, m.text, of})
		}
	}
	slices.SortFunc(all, func(a, b wrongFunction) int { return strings.Compare(a.what, b.what) })
	t.Logf("%d mutants, seed %d", len(all), seed)
	if len(all) < 500 {
		t.Fatal("the generator does not find the conditions")
	}
	switch only := os.Getenv("LASTWORD_MUTANTS"); only {
	case "": // a sample; make mutants takes them all
		random := rand.New(rand.NewPCG(seed, 1))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:10]
	case "1":
	default: // a part of them, by name
		all = slices.DeleteFunc(all, func(m wrongFunction) bool { return !regexp.MustCompile(only).MatchString(m.what) })
	}
	killed, noSQL, listed := 0, 0, 0
	for _, m := range all {
		undone(t, p.db, func(tx point) {
			if _, err := tx.ExecContext(t.Context(), m.text); err != nil {
				if state := sqldb.SQLState(err); state != "42601" && state != "42883" {
					t.Errorf("%s: %v", m.what, err)
				}
				noSQL++
				return
			}
			told := m.toldBy(t, tx)
			switch why := sameFunctions[m.what]; {
			case told == "" && why == "":
				t.Errorf("nothing tells of %s", m.what)
			case told != "" && why != "":
				t.Errorf("%s is noticed, and listed as the same: %s", m.what, told)
			case told != "":
				killed++
			default:
				listed++
			}
		})
	}
	t.Logf("%d tried: %d noticed, %d change nothing, %d are no SQL", len(all), killed, listed, noSQL)
}

type wrongFunction struct {
	what, text string
	checks     []func(t *testing.T, tx point, report func(string, ...any))
}

// toldBy is the first difference that one of the checks reports.
func (m wrongFunction) toldBy(t *testing.T, tx point) (told string) {
	t.Helper()
	for _, check := range m.checks {
		mustExecTx(t, tx.Tx, `SAVEPOINT mutant`)
		told = firstTold(func(report func(string, ...any)) { check(t, tx, report) })
		mustExecTx(t, tx.Tx, `ROLLBACK TO mutant`)
		if told != "" {
			return told
		}
	}
	return ""
}
