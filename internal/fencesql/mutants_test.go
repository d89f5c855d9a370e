package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/postgrestest"
)

// broken is the adapter's own SQL with one condition forced.
type broken struct {
	where string
	mutant
	function string            // that is another one in the database
	texts    map[string]string // that are sent instead of others
	lite     bool
	sends    bool // through pgx, which decides before it asks
}

// first are the cases that notice most mutants.
var first = []string{"R15: a record that", "record: what was stored", "KF-28: resources", "P4, KF-32 (1)", "KF-28: operations", "R16b: refusals", "R16b: a conflict", "T16", "R19", "R20", "R18"}

// equivalent are mutants that change nothing that anybody could see, and why.
var equivalent = map[string]string{
	"lastword.load: attempt = 2 #1 becomes TRUE":  "without the lock by its name a record that two make at once is made by one, and the other is repeated: the insert decides",
	"lastword.load: in_open #1 becomes TRUE":      "what is open to whom is seen on protected tables only, by their own tests",
	"lastword.load: attempt = 2 #1 becomes FALSE": "the loop ends by itself after the second round; the lock is had already",
}

func TestTheKitNoticesEveryWrongConditionOfTheSQL(t *testing.T) {
	all := everyMutant()
	t.Logf("%d mutants", len(all))
	if os.Getenv("LASTWORD_MUTANTS") == "" { // `make mutants` takes them all; this is a sample of what R15 stands on
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		all = slices.DeleteFunc(all, func(m broken) bool { return !m.compares() })
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:min(len(all), 8)]
	}
	if os.Getenv("LASTWORD_MUTANTS") != "" { // what is noticed is noticed for a reason
		for _, whole := range []broken{{lite: true}, {}, {sends: true}} {
			if f, failed := fencetest.FirstFailure(t.Context(), fencetest.Harness{Open: whole.open}); failed {
				t.Fatalf("nothing is wrong, and yet: %+v", f)
			}
		}
	}
	killed := map[string]int{}
	for _, m := range all {
		name := fmt.Sprintf("%s: %s", m.where, m.mutant)
		f, noticed := fencetest.FirstFailure(t.Context(), fencetest.Harness{Open: m.open}, first...)
		why, known := equivalent[name]
		switch {
		case noticed && known:
			t.Errorf("%s is noticed, and listed as equivalent", name)
		case noticed:
			killed[f.Case]++
		case known:
			t.Logf("%s: %s", name, why)
		default:
			t.Errorf("nobody notices: %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(killed)) {
		t.Logf("%4d noticed by %s", killed[name], name)
	}
}

// operators are statements that no write needs: they have tests of their own.
var operators = []string{"Oldest", "DeleteReceipt", "Tombstone", "Watermark", "Dismiss", "DismissOne", "Domains", "Windows", "EndRollouts", "Pass", "Result"}

// compares reports whether the condition is one of those by which a record is still the one
// that was read.
func (m broken) compares() bool {
	return strings.HasPrefix(m.where, "lastword.store") && strings.Contains(m.condition, "= was_") || strings.HasPrefix(m.where, "SQLite Update")
}

func everyMutant() (all []broken) {
	for _, name := range slices.Sorted(maps.Keys(fencesql.Functions)) {
		for _, m := range mutants(fencesql.Functions[name]) {
			all = append(all, broken{where: "lastword." + name, mutant: m, function: m.text})
			if name == "store" { // pgx stores what it has not locked
				all = append(all, broken{where: "lastword.store of pgx", mutant: m, function: m.text, sends: true})
			}
		}
	}
	for _, e := range []fencesql.Engine{fencesql.SQLite{}, fencesql.PostgreSQL{}} {
		texts := fencesql.Statements(e)
		for _, name := range operators {
			delete(texts, name)
		}
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			for _, m := range mutants(texts[name]) {
				_, lite := e.(fencesql.SQLite)
				all = append(all, broken{where: e.Name() + " " + name, mutant: m, texts: map[string]string{texts[name]: m.text}, lite: lite})
			}
		}
	}
	return all
}

func (m broken) open(tb fencetest.TB) fencetest.Subject {
	if m.lite {
		return m.openLite(tb)
	}
	dsn := postgrestest.Lend(tb, "mutants", prepare, emptied)
	db, err := openRewriting("pgx", dsn, m.texts)
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
	s := plainSubject(tb, db, db, false)
	if m.sends {
		sending(tb, dsn, &s)
	}
	return s
}

func emptied(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `SET session_replication_role = replica; ALTER TABLE lastword.fence DISABLE TRIGGER USER; ALTER TABLE lastword.act DISABLE TRIGGER USER;
ALTER TABLE lastword.rollout DISABLE TRIGGER USER;
DELETE FROM doc; DELETE FROM effect; DELETE FROM lastword.fence; DELETE FROM lastword.receipt; DELETE FROM lastword.tombstone;
DELETE FROM lastword.refusal; DELETE FROM lastword.quarantine; DELETE FROM lastword.restored; DELETE FROM lastword.act;
DELETE FROM lastword.rollout; DELETE FROM lastword.pass; DELETE FROM lastword.bypass;
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
		db, err := openRewriting("sqlite", dsn, m.texts)
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

// sending makes the guarded writes of a subject with Send.
func sending(tb fencetest.TB, dsn string, s *fencetest.Subject) {
	pool, err := pgxpool.New(tb.Context(), dsn)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(pool.Close)
	place, err := pgxfence.OpenPlace(tb.Context(), pool, "")
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
