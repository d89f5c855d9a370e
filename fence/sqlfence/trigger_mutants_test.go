package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/lastword/lastword/internal/sqlmutants"
)

// sameTriggers are mutants that change nothing that anybody could see, and why.
var sameTriggers = map[string]string{
	"SQLite whole lastword_guard_update_over_doc: t.oid <> OLD.oid #1 becomes TRUE": ownPass,

	"SQLite rollout lastword_guard_update_over_doc: t.oid <> OLD.oid #1 becomes TRUE":                                                                                ownPass,
	`SQLite rollout lastword_guard_updated_doc: ('doc/' || '' || CAST(OLD."slug" AS TEXT)) IS ('doc/' || '' || CAST(NEW."slug" AS TEXT)) #2 becomes FALSE`:           justCounted,
	`SQLite rollout of columns lastword_guard_updated_task: ('task/' || '' || CAST(OLD."nr" AS TEXT)) IS ('task/' || '' || CAST(NEW."nr" AS TEXT)) #2 becomes FALSE`: justCounted,
	`SQLite rollout of columns lastword_guard_updated_task: OLD."result" IS NOT NULL #5 becomes FALSE`:                                                               justCounted,
	`SQLite rollout of columns lastword_guard_updated_task: OLD."state" IS NOT NULL #5 becomes FALSE`:                                                                justCounted,

	"PostgreSQL whole guard: TG_OP = 'TRUNCATE' #1 becomes FALSE":         noRow,
	"PostgreSQL rollout guard: TG_OP = 'TRUNCATE' #1 becomes FALSE":       noRow,
	"PostgreSQL whole guard: before IS DISTINCT FROM r #1 becomes TRUE":   lookedAtTwice,
	"PostgreSQL columns guard: before IS DISTINCT FROM r #1 becomes TRUE": lookedAtTwice,

	"PostgreSQL columns guard: TG_OP <> 'INSERT' #1 becomes TRUE":                               noSuchRow,
	"PostgreSQL columns guard: TG_OP = 'DELETE' #1 becomes FALSE":                               noSuchRow,
	"PostgreSQL columns guard: TG_OP <> 'DELETE' #1 becomes TRUE":                               noSuchRow,
	"PostgreSQL columns guard: TG_OP = 'INSERT' #1 becomes FALSE":                               noSuchRow,
	"PostgreSQL columns guard: strpos(OLD.\"nr\"::text COLLATE \"C\", '/') = 0 #1 becomes TRUE": "a number has no slash",
	"PostgreSQL columns guard: strpos(NEW.\"nr\"::text COLLATE \"C\", '/') = 0 #1 becomes TRUE": "a number has no slash",
}

const (
	ownPass       = "the row that is changed needs a pass of its own all the same"
	noRow         = "without a row there is no resource, and no pass for it"
	justCounted   = "the row with its old values has just been counted, so that the resource is there and is not inserted again"
	lookedAtTwice = "a row that stays with its resource is looked at twice; where it is counted it matters"
	noSuchRow     = "a row that is not there is NULL: nothing of it is protected, and all of it differs from what is"
)

// Each condition of the triggers is made wrong, one at a time, and a statement has to tell.
func TestEveryConditionOfTheTriggersIsNeeded(t *testing.T) { // R16c, R17, R18
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for engine, trials := range map[string][]guardTrial{"SQLite": liteTrials, "PostgreSQL": pgTrials} {
		for _, g := range trials {
			t.Run(engine+" "+g.name, func(t *testing.T) {
				db, texts := g.open(t, engine == "SQLite")
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				d := guardDrive{T: t, tx: tx, lite: engine == "SQLite", trial: g}
				for _, s := range g.setup {
					d.exec(s)
				}
				if told := d.differs(); told != "" {
					t.Fatalf("nothing is wrong, and yet: %s", told)
				}
				type wrong struct{ name, text, change string }
				var all []wrong
				for name, text := range texts {
					listed := map[string]bool{}
					for _, m := range sqlmutants.Of(text) {
						if !strings.Contains(m.Condition, g.only) {
							continue
						}
						all = append(all, wrong{name + ": " + m.String(), m.Text, name})
						listed[engine+" "+g.name+" "+name+": "+m.String()] = true
					}
					for same := range sameTriggers {
						if strings.HasPrefix(same, engine+" "+g.name+" "+name+": ") && !listed[same] {
							t.Errorf("%s is listed as the same, and there is no such mutant", same)
						}
					}
				}
				t.Logf("%d mutants, seed %d", len(all), seed)
				if os.Getenv("LASTWORD_MUTANTS") == "" { // a sample; make mutants takes them all
					random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
					all = all[:min(len(all), 10)]
				}
				for _, m := range all {
					d.exec("SAVEPOINT mutant")
					if d.lite {
						d.exec(`DROP TRIGGER "` + m.change + `"`)
					}
					d.exec(m.text)
					told := d.differs()
					d.exec("ROLLBACK TO mutant")
					why := sameTriggers[engine+" "+g.name+" "+m.name]
					switch {
					case told == "" && why == "":
						t.Errorf("nothing tells of %s", engine+" "+g.name+" "+m.name)
					case told != "" && why != "":
						t.Errorf("%s is noticed, and listed as the same: %s", m.name, told)
					}
				}
				if told := d.differs(); told != "" { // or they were noticed by what others left
					t.Errorf("nothing is wrong any more, and yet: %s", told)
				}
			})
		}
	}
}

// open is a database with the table of the trial, and the texts of its triggers.
func (g guardTrial) open(t *testing.T, lite bool) (*sql.DB, map[string]string) {
	t.Helper()
	var db *sql.DB
	query := `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'lastword_guard%'`
	if lite {
		db = protect(t, g.tables, g.protection).db
	} else {
		db = pgProtect(t, g.tables, g.protection).db
		query = `SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'lastword'::regnamespace AND (proname LIKE 'guard%' OR proname = 'bypassed')`
		if !g.protection.Shadow {
			query = strings.Replace(query, " OR proname = 'bypassed'", "", 1)
		}
	}
	texts := map[string]string{}
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "guard_") && !lite { // the name has a digest in it
			name = "guard"
		}
		texts[name] = text
	}
	if len(texts) == 0 || rows.Err() != nil {
		t.Fatal("no trigger", rows.Err())
	}
	return db, texts
}

// guardDrive puts the statements of a trial to the triggers as they are.
type guardDrive struct {
	*testing.T
	tx    *sql.Tx
	lite  bool
	trial guardTrial
}

func (d guardDrive) exec(statement string, args ...any) {
	d.Helper()
	if _, err := d.tx.ExecContext(d.Context(), statement, args...); err != nil {
		d.Fatalf("%s: %v", statement, err)
	}
}

// differs is the first statement with which the triggers do something else than they have
// to; "" if none.
func (d guardDrive) differs() string {
	d.Helper()
	for _, s := range d.trial.refused {
		if got := d.try("", "", s, nil); got != "refused" {
			return fmt.Sprintf("%s: %s", s, got)
		}
		for _, way := range d.ways() { // a pass of another domain is none, nor is one of another resource
			if got := d.try(way+" of another", "", s, nil); got != "refused" {
				return fmt.Sprintf("%s with passes of another domain: %s", s, got)
			}
			if got := d.try(way+" of before", "", s, nil); !d.lite && got != "refused" {
				return fmt.Sprintf("%s with passes of a transaction that has ended: %s", s, got)
			}
			if got := d.try(way, "unrelated", s, nil); got != "refused" {
				return fmt.Sprintf("%s with a pass of another resource: %s", s, got)
			}
		}
	}
	for _, s := range d.trial.admitted {
		if got := d.try("", "", s, nil); got != "" {
			return fmt.Sprintf("%s: %s", s, got)
		}
	}
	for _, s := range d.trial.opened {
		for _, way := range d.ways() {
			if got := d.try(way, s[0], s[1], nil); got != "" {
				return fmt.Sprintf("%s with a pass for %s (%s): %s", s[1], s[0], way, got)
			}
		}
	}
	for _, s := range d.trial.closed {
		for _, way := range d.ways() {
			if got := d.try(way, s[0], s[1], nil); got != "refused" {
				return fmt.Sprintf("%s with a pass for %s (%s): %s", s[1], s[0], way, got)
			}
			if got := d.try(way+" beside another", s[0], s[1], nil); got != "refused" {
				return fmt.Sprintf("%s with a pass for %s, and passes of another domain (%s): %s", s[1], s[0], way, got)
			}
		}
	}
	for _, c := range d.trial.counted {
		for _, way := range d.ways() {
			others := []string{way, way + " beside another"} // passes of another domain count for nothing
			if !d.lite && c[0] == "" {
				others = append(others, way+" of before")
			}
			for _, way := range others {
				if !d.lite { // no ROLLBACK takes a number back
					d.exec(`SELECT setval('lastword.bypass_number_seq', 1)`)
				}
				var counted string
				if got := d.try(way, c[0], c[1], &counted); got != "" || counted != c[2] {
					return fmt.Sprintf("%s with a pass for %q (%s): %s, counted %q, want %q", c[1], c[0], way, got, counted, c[2])
				}
			}
		}
	}
	return ""
}

// ways are how a pass is had.
func (d guardDrive) ways() []string {
	if d.lite {
		return []string{"pass"}
	}
	return []string{"pass", "record"}
}

// open makes passes of this transaction.
func (d guardDrive) open(domain, way, resources string) {
	d.Helper()
	for r := range strings.FieldsSeq(resources) {
		switch {
		case d.lite:
			d.exec(`INSERT INTO lastword_pass (domain, resource) VALUES (?, ?)`, domain, r)
		case way == "pass":
			d.exec(`INSERT INTO lastword.pass VALUES ($1, $2, pg_current_xact_id())`, domain, r)
		default:
			d.exec(`INSERT INTO lastword.fence VALUES ($1, $2, 5, '', '', '', 0, '', '', '', '', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0, 0, pg_current_xact_id())`, domain, r)
		}
	}
}

// try runs a statement and undoes it: "" if it was admitted, "refused", or another error.
func (d guardDrive) try(way, resource, statement string, counted *string) (became string) {
	d.Helper()
	d.exec("SAVEPOINT statement")
	defer d.exec("ROLLBACK TO statement")
	way, foreign := strings.CutSuffix(way, " of another")
	way, over := strings.CutSuffix(way, " of before")
	way, beside := strings.CutSuffix(way, " beside another")
	if foreign || beside {
		d.open("another", way, strings.Join(d.trial.resources, " "))
	}
	if over && !d.lite {
		d.open(domain, way, strings.Join(d.trial.resources, " "))
		d.exec(`UPDATE lastword.pass SET xact = '77'`)
		d.exec(`UPDATE lastword.fence SET passed = '77'`)
	}
	if !foreign && !over {
		d.open(domain, way, resource)
	}
	if _, err := d.tx.ExecContext(d.Context(), statement); err != nil {
		if strings.Contains(err.Error(), "FENCE_REQUIRED") {
			return "refused"
		}
		return err.Error()
	}
	if counted == nil {
		return ""
	}
	query := `SELECT coalesce(string_agg(resource || ' ' || weight, ', ' ORDER BY resource), '') FROM lastword.bypass`
	if d.lite {
		query = `SELECT coalesce(group_concat(line, ', '), '') FROM (SELECT resource || ' ' || times AS line FROM lastword_refusal
WHERE domain = 'test' AND verdict = 'SHADOW(FENCE_REQUIRED)' OR times <> 7 ORDER BY resource)`
	}
	if err := d.tx.QueryRowContext(context.WithoutCancel(d.Context()), query).Scan(counted); err != nil {
		return err.Error()
	}
	return ""
}
