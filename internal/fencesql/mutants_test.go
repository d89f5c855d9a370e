package fencesql_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/postgrestest"
	"github.com/lastword/lastword/internal/sqlmutants"
)

// broken is the adapter's own SQL with one condition wrong.
type broken struct {
	where string
	sqlmutants.Mutant
	function string            // that is another one in the database
	texts    map[string]string // that are sent instead of others
	counted  string            // a text of which the adapter hears that it has changed one row
	lite     bool
	sends    bool // through pgx, which decides before it asks
	// trials are what notices it beside the kit; alone: the kit has nothing to do with it.
	trials []trial
	alone  bool
}

func (m broken) name() string {
	if m.counted != "" {
		return m.where + ": one row"
	}
	return fmt.Sprintf("%s: %s", m.where, m.Mutant)
}

// first are the cases that notice most mutants.
var first = []string{"R15: a record that", "KF-28: what stands", "record: what was stored", "R18: of the prefixes", "R19: a watermark", "R20: a restore", "R19", "R20", "R13: the newest bundle is", "R16: the result", "R16b", "R14a"}

// equivalent are mutants that change nothing that anybody could see, and why.
var equivalent = map[string]string{
	"lastword.load: attempt = 2 #1 becomes TRUE":  whenTwoMeet,
	"lastword.load: is_there #1 becomes TRUE":     whenTwoMeet,
	"lastword.load: attempt = 2 #1 becomes FALSE": "the loop ends by itself after the second round; the lock is had already",
	"lastword.load: is_there #1 becomes FALSE":    "the lock by the name is taken once more than is needed",

	// Whether there is a roll-out at all is asked first, because it costs less than to ask
	// which of them counts. Who asks all the same hears that none does.
	"lastword.load: o.domain = in_domain #1 becomes TRUE":    onlySpares,
	"lastword.load: o.shadow = 1 #1 becomes TRUE":            onlySpares,
	"lastword.load: EXISTS #4 becomes TRUE":                  onlySpares,
	"lastword.load: shadow #1 becomes TRUE":                  onlySpares,
	"lastword.shadows: o.domain = in_domain #1 becomes TRUE": onlySpares,
	"lastword.shadows: o.shadow = 1 #1 becomes TRUE":         onlySpares,
	"lastword.shadows: EXISTS #1 becomes TRUE":               onlySpares,
	"SQLite Load: o.domain = ?1 #1 becomes TRUE":             onlySpares,
	"SQLite Load: o.shadow = 1 #1 becomes TRUE":              onlySpares,
	"SQLite Load: EXISTS #3 becomes TRUE":                    onlySpares,

	"PostgreSQL Same: domain = $1 #1 becomes TRUE":          itsOwnLease,
	"PostgreSQL Same: resource = $2 #1 becomes TRUE":        itsOwnLease,
	"SQLite Oldest: r.operation > ?4 #1 becomes TRUE":       onlyContinues,
	"PostgreSQL Oldest: r.operation > $4 #1 becomes TRUE":   onlyContinues,
	"PostgreSQL Forget: passed IS NOT NULL #1 becomes TRUE": "NULL instead of NULL: it spares the rows that have none",
	"SQLite InsertReceipt: one row":                         "an INSERT without ON CONFLICT adds one row or fails",
	"SQLite DeleteReceipt: one row":                         "the receipts were listed under the record's lock, in the same transaction",
}

const (
	// The only mutants that the kit notices in some runs and in others not.
	whenTwoMeet = "without the lock by its name of a record that two make at once the one who waited may see the receipts and not the record"

	itsOwnLease   = "lease, number and operation of the record tell it from every other one"
	onlySpares    = "it only spares the question which roll-out counts"
	onlyContinues = "what a page has listed is deleted before the next one is: it only spares the way past it"
)

func TestTheKitNoticesEveryWrongConditionOfTheSQL(t *testing.T) {
	all := everyMutant()
	only := os.Getenv("LASTWORD_MUTANTS")
	seed := rand.Uint64()
	t.Logf("%d mutants, seed %d", len(all), seed)
	switch only {
	case "": // `make mutants` takes them all; this is a sample
		random := rand.New(rand.NewPCG(seed, 1))
		all = slices.DeleteFunc(all, func(m broken) bool { return equivalent[m.name()] != "" })
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	case "1":
		nothingIsWrong(t)
	default: // a part of them, by name
		part := regexp.MustCompile(only)
		all = slices.DeleteFunc(all, func(m broken) bool { return !part.MatchString(m.name()) })
	}
	h := hunt{TB: t, began: time.Now(), total: len(all), caseTimeout: 20 * time.Second, killed: map[string]int{}, by: map[string]map[string]int{}}
	next := make(chan broken)
	var workers sync.WaitGroup
	for range 4 { // they wait for the disk most of the time
		workers.Go(func() {
			for m := range next {
				h.try(m)
			}
		})
	}
	for _, m := range all {
		if only == "" && time.Since(h.began) > sampleTime {
			break
		}
		next <- m
	}
	close(next)
	workers.Wait()
	t.Logf("%d tried in %s", h.tried, time.Since(h.began).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(h.killed)) {
		t.Logf("%4d noticed by %s", h.killed[name], name)
	}
	if only == "1" { // nor has a mutant left anything behind that others were noticed by
		nothingIsWrong(t)
	}
}

// sampleTime is for how long mutants are begun where not all of them are tried.
const sampleTime = 10 * time.Second

// nothingIsWrong: what is noticed is noticed for a reason.
func nothingIsWrong(t *testing.T) {
	t.Helper()
	for _, whole := range []broken{{lite: true}, {}, {sends: true}} {
		if f, failed := fencetest.FirstFailure(t.Context(), fencetest.Harness{Open: whole.open}); failed {
			t.Fatalf("nothing is wrong, and yet: %+v", f)
		}
	}
	for _, tr := range []trial{endedTransactions, changedRecords, lostCommits, openedTables, passesForgotten, bypassesCounted, slips} {
		if failed := tr.failed(t.Context(), broken{}); failed != "" {
			t.Fatalf("nothing is wrong, and yet %s: %s", tr.name, failed)
		}
	}
}

// hunt tries mutants, and learns which case notices those of a text.
type hunt struct {
	testing.TB
	began time.Time
	total int
	// caseTimeout ends a case that repeats for ever what a mutant always refuses.
	caseTimeout time.Duration

	mu     sync.Mutex
	tried  int
	killed map[string]int            // by case
	by     map[string]map[string]int // text, case
}

// text names what the mutant is of, on whichever engine.
func (m broken) text() string { return m.where[strings.LastIndex(m.where, " ")+1:] }

// likely are the cases in the order in which they noticed mutants of the same text.
func (h *hunt) likely(text string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.by[text]
	cases := slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b)) })
	return append(cases, first...)
}

// noSQL is what the databases say of a text that is no SQL: that is no wrong condition.
var noSQL = regexp.MustCompile(`SQLSTATE 42|syntax error|SQL logic error|no such column`)

func (h *hunt) try(m broken) {
	began := time.Now()
	by, message := m.noticed(h.Context(), h.caseTimeout, h.likely(m.text()))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried++
	if by != "" {
		h.killed[by]++
		if h.by[m.text()] == nil {
			h.by[m.text()] = map[string]int{}
		}
		h.by[m.text()][by]++
	}
	if strings.Contains(message, "deadline exceeded") { // because it was refused for ever, or because the machine is slow
		h.Logf("%s: %s", m.name(), message)
	}
	if os.Getenv("LASTWORD_MUTANTS") != "" {
		h.Logf("%4d/%d %5.0fs %4.1fs %s: %s", h.tried, h.total, time.Since(h.began).Seconds(), time.Since(began).Seconds(), m.name(), cmp.Or(by, "nobody"))
	}
	why := equivalent[m.name()]
	switch {
	case noSQL.MatchString(message):
		h.Errorf("%s is no SQL: %s", m.name(), message)
	case by != "" && why != "" && why != whenTwoMeet:
		h.Errorf("%s is noticed, by %s, and listed as equivalent: %s", m.name(), by, message)
	case why != "":
		h.Logf("%s: %s, noticed by %s", m.name(), why, cmp.Or(by, "nobody"))
	case by == "":
		h.Errorf("nobody notices: %s", m.name())
	}
}

// noticed is which trial or case notices the mutant, and how.
func (m broken) noticed(ctx context.Context, caseTimeout time.Duration, likely []string) (by, message string) {
	for _, t := range m.trials {
		if failed := t.failed(ctx, m); failed != "" {
			return t.name, failed
		}
	}
	if m.alone {
		return "", ""
	}
	f, _ := fencetest.FirstFailure(ctx, fencetest.Harness{Open: m.open, CaseTimeout: caseTimeout}, likely...)
	// The one long case may be cut off on a slow machine; what is known to be equivalent may
	// be so in any.
	if strings.Contains(f.Message, "deadline exceeded") && (strings.HasPrefix(f.Case, "R30") || equivalent[m.name()] != "") {
		f, _ = fencetest.FirstFailure(ctx, fencetest.Harness{Open: m.open}, likely...)
	}
	return f.Case, f.Message
}

// everyMutant is each condition that the adapters send, or that they have put into the
// database, forced to be true and to be false; and each count of rows, not looked at.
func everyMutant() (all []broken) {
	add := func(m broken, text string, change func(*broken)) {
		for _, one := range sqlmutants.Of(text) {
			made := m
			made.Mutant = one
			change(&made)
			all = append(all, made)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fencesql.Functions)) {
		m := broken{where: "lastword." + name}
		if name == "store" { // pgx stores what it has not locked, and all else is database/sql's
			m.sends = true
		}
		add(m, fencesql.Functions[name], func(m *broken) {
			m.function = m.Text
			for part, t := range map[string]trial{"in_open": openedTables, "in_xact": endedTransactions, "current_setting": lostCommits} {
				if strings.Contains(m.Condition, part) {
					m.trials = []trial{t}
				}
			}
		})
	}
	for _, e := range []fencesql.Engine{fencesql.SQLite{}, fencesql.PostgreSQL{}} {
		texts := fencesql.Statements(e)
		_, lite := e.(fencesql.SQLite)
		if lite {
			delete(texts, "Result") // pgx alone stores before the effect has a result
		}
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			text := texts[name]
			m := broken{where: e.Name() + " " + name, lite: lite, sends: !lite}
			switch name {
			case "Refusals":
				if !lite {
					m.trials = []trial{bypassesCounted}
				}
			case "Forget", "ForgetPasses":
				m.trials, m.alone = []trial{passesForgotten}, true
			}
			add(m, text, func(m *broken) {
				m.texts = map[string]string{text: m.Text}
				switch {
				case name != "Same":
				case strings.Contains(m.Condition, "current_setting"):
					m.trials = []trial{lostCommits}
				default:
					m.trials = []trial{changedRecords, endedTransactions}
				}
			})
			if slices.Contains(counts, name) && lite {
				m.texts, m.counted = nil, text
				m.Mutant = sqlmutants.Mutant{}
				all = append(all, m)
			}
		}
	}
	return append(all, everySchemaMutant()...)
}

// counts are the statements after which the number of rows decides.
var counts = []string{"Insert", "Update", "UpdateNumber", "InsertReceipt", "DeleteReceipt"}

func (m broken) open(tb fencetest.TB) fencetest.Subject {
	if m.lite {
		return m.openLite(tb)
	}
	dsn, db := m.database(tb)
	s := plainSubject(tb, db, db, false)
	if m.sends {
		m.sending(tb, dsn, &s)
	}
	return s
}

// database is one of PostgreSQL with the mutant in it.
func (m broken) database(tb fencetest.TB) (dsn string, db *sql.DB) {
	dsn = postgrestest.Lend(tb, "mutants", prepare, emptied)
	return dsn, m.enter(tb, dsn)
}

func (m broken) enter(tb fencetest.TB, dsn string) *sql.DB {
	db, err := openRewriting("pgx", dsn, m)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	for name, text := range fencesql.Functions {
		if m.function != "" && strings.HasPrefix(m.function, "CREATE FUNCTION lastword."+name+"(") {
			text = m.function
		}
		if _, err := db.ExecContext(tb.Context(), strings.Replace(text, "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	return db
}

func emptied(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `SET session_replication_role = replica; ALTER TABLE lastword.fence DISABLE TRIGGER USER; ALTER TABLE lastword.act DISABLE TRIGGER USER;
ALTER TABLE lastword.rollout DISABLE TRIGGER USER;
DELETE FROM doc; DELETE FROM effect; DELETE FROM lastword.fence; DELETE FROM lastword.receipt; DELETE FROM lastword.tombstone;
DELETE FROM lastword.refusal; DELETE FROM lastword.quarantine; DELETE FROM lastword.restored; DELETE FROM lastword.act;
DELETE FROM lastword.rollout; DELETE FROM lastword.pass; DELETE FROM lastword.bypass; DELETE FROM lastword.bundle;
ALTER TABLE lastword.fence ENABLE ALWAYS TRIGGER never_lowered, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated;
ALTER TABLE lastword.act ENABLE ALWAYS TRIGGER never_changed, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated;
ALTER TABLE lastword.rollout ENABLE ALWAYS TRIGGER one_way, ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_truncated`)
	return err
}

var files atomic.Int64

func (m broken) openLite(tb fencetest.TB) fencetest.Subject {
	dsn := "file:" + filepath.Join(tb.TempDir(), fmt.Sprintf("%d.db", files.Add(1))) + "?_pragma=busy_timeout(2000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(on)"
	var dbs [2]*sql.DB
	for i := range dbs {
		db, err := openRewriting("sqlite", dsn, m)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		tb.Cleanup(func() { _ = db.Close() })
		if dbs[i] = db; i == 0 {
			if _, err := db.ExecContext(tb.Context(), sqliteBusiness); err != nil {
				tb.Fatalf("%v", err)
			}
			if err := sqlfence.Init(tb.Context(), db); err != nil {
				tb.Fatalf("%v", err)
			}
		}
	}
	return plainSubject(tb, dbs[0], dbs[1], true)
}

// plainSubject is two handles at one place, through database/sql.
func plainSubject(tb fencetest.TB, db, other *sql.DB, lite bool) fencetest.Subject {
	say := func(query string) string {
		if lite {
			return strings.ReplaceAll(strings.ReplaceAll(query, "$", "?"), "lastword.", "lastword_")
		}
		return query
	}
	open := func(db *sql.DB) *sqlfence.Place {
		p, err := sqlfence.OpenPlace(tb.Context(), db, "")
		if err != nil {
			tb.Fatalf("open: %v", err)
		}
		tb.Cleanup(func() { _ = p.Close() })
		return p
	}
	place, second := open(db), open(other)
	act := fence.Act{Operator: "anna", Reason: "a roll-out", At: wall}
	return fencetest.Of(fencetest.Parts[*sqlfence.Tx]{
		Place: place, Second: second,
		Write: func(ctx context.Context, tx *sqlfence.Tx, resource lastword.Resource, operation, value string) error {
			return effect(resource, operation, value)(ctx, func(query string, args ...any) (int64, error) {
				_, err := tx.SQL().ExecContext(ctx, say(query), args...)
				return 0, err
			})
		},
		Read: func(ctx context.Context, resource lastword.Resource) (value string, effects []fencetest.Effect, err error) {
			err = db.QueryRowContext(ctx, say(`SELECT value FROM doc WHERE resource = $1`), string(resource)).Scan(&value)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return "", nil, err
			}
			rows, err := db.QueryContext(ctx, say(`SELECT operation, value FROM effect WHERE resource = $1 ORDER BY id`), string(resource))
			if err != nil {
				return "", nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var e fencetest.Effect
				if err := rows.Scan(&e.Operation, &e.Value); err != nil {
					return "", nil, err
				}
				effects = append(effects, e)
			}
			return value, effects, rows.Err()
		},
		Begin: func(ctx context.Context) (*sqlfence.Tx, func(bool) error, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, nil, err
			}
			return place.Join(tx), func(commit bool) error {
				if commit {
					return tx.Commit()
				}
				return tx.Rollback()
			}, nil
		},
		Prune: func(ctx context.Context, key fence.Key, operation string) error {
			_, err1 := db.ExecContext(ctx, say(`INSERT INTO lastword.tombstone VALUES ($1, $2, $3, '')`), key.Domain, string(key.Resource), lastword.DigestOf([]byte(operation)).String())
			_, err2 := db.ExecContext(ctx, say(`DELETE FROM lastword.receipt WHERE domain = $1 AND resource = $2 AND operation = $3`), key.Domain, string(key.Resource), operation)
			return errors.Join(err1, err2)
		},
		Lose: func(ctx context.Context, key fence.Key) error {
			drop := `ALTER TABLE lastword.fence DISABLE TRIGGER never_deleted`
			if lite {
				drop = `DROP TRIGGER IF EXISTS lastword_fence_never_deleted`
			}
			_, err1 := db.ExecContext(ctx, drop)
			_, err2 := db.ExecContext(ctx, say(`DELETE FROM lastword.fence WHERE domain = $1 AND resource = $2`), key.Domain, string(key.Resource))
			return errors.Join(err1, err2)
		},
		Shadow: func(ctx context.Context, key fence.Key) error {
			return place.Shadow(ctx, key.Domain, string(key.Resource), act)
		},
		Enforce: func(ctx context.Context, key fence.Key) error {
			_, err := place.Enforce(ctx, key.Domain, string(key.Resource), act)
			return err
		},
	})
}

// pool is one through which the mutant's texts are sent.
func (m broken) pool(tb fencetest.TB, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	cfg.ConnConfig.DialFunc = rewritingDial(m.texts)
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// sending makes the guarded writes of a subject with Send.
func (m broken) sending(tb fencetest.TB, dsn string, s *fencetest.Subject) {
	place, err := pgxfence.OpenPlace(tb.Context(), m.pool(tb, dsn, nil), "")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	s.Apply = func(ctx context.Context, g *fence.Gate, c fence.Call, w fencetest.Write) (lastword.Receipt, error) {
		if w.Then != nil || w.Result != nil { // Send has no callback
			return fence.Apply(ctx, g, place, c, func(ctx context.Context, tx *pgxfence.Tx) ([]byte, error) {
				err := effect(w.Resource, c.Mutation.Operation, w.Value)(ctx, func(query string, args ...any) (int64, error) {
					_, err := tx.Pgx().Exec(ctx, query, args...)
					return 0, err
				})
				if err == nil && w.Then != nil {
					err = w.Then(ctx)
				}
				return w.Result, err
			})
		}
		return pgxfence.Send(ctx, g, place, c, pgxfence.Statement{SQL: upsert, Args: []any{string(w.Resource), w.Value}},
			pgxfence.Statement{SQL: record, Args: []any{string(w.Resource), c.Mutation.Operation, w.Value}})
	}
}
