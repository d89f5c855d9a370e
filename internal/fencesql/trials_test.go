package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/fencetest"
	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/postgrestest"
	"github.com/lastword/lastword/internal/realservers"
	"github.com/lastword/lastword/internal/sqlmutants"
)

// trial is what the kit cannot try: it needs the database itself.
type trial struct {
	name string
	run  func(tb fencetest.TB, m broken)
}

// failed is how it went with a mutant: "" if well.
func (t trial) failed(ctx context.Context, m broken) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // what waits for ever has failed
	defer cancel()
	b := &bench{ctx: ctx, name: t.name}
	for _, part := range []func(){func() { t.run(b, m) }, b.cleanUp} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			part()
		}()
		<-done
	}
	return strings.Join(b.failures, "\n")
}

// bench is a test that may fail. One goroutine uses it.
type bench struct {
	ctx      context.Context
	name     string
	failures []string
	cleanups []func()
}

func (b *bench) Helper()                  {}
func (b *bench) Name() string             { return b.name }
func (b *bench) Context() context.Context { return b.ctx }
func (b *bench) Logf(string, ...any)      {}
func (b *bench) Cleanup(fn func())        { b.cleanups = append(b.cleanups, fn) }
func (b *bench) Errorf(format string, args ...any) {
	b.failures = append(b.failures, fmt.Sprintf(format, args...))
}

func (b *bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	runtime.Goexit()
}

func (b *bench) TempDir() string {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		b.Fatalf("%v", err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (b *bench) cleanUp() {
	for _, fn := range slices.Backward(b.cleanups) {
		fn()
	}
}

func must(tb fencetest.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%v", err)
	}
}

// guarding is a gate and its grants, for a trial.
func guarding(tb fencetest.TB) (*seal, *fence.Gate) {
	key, err := grant.NewKey()
	must(tb, err)
	s, err := sealOf(key)
	must(tb, err)
	g, err := fence.NewGate(s.config())
	must(tb, err)
	return s, g
}

func held(h *holder, operation string) fence.Call {
	return fence.Call{Holder: h, Content: []byte("v"), Mutation: lastword.Mutation{Operation: operation}}
}

// endedTransactions: an effect ends the transaction of the check, begins another one,
// passes the fence there for whatever else it likes, and goes on.
var endedTransactions = trial{"an effect that ends the transaction of the check", func(tb fencetest.TB, m broken) {
	dsn, db := m.database(tb)
	s, g := guarding(tb)
	place, err := sqlfence.OpenPlace(tb.Context(), db, "")
	must(tb, err)
	through, err := pgxfence.OpenPlace(tb.Context(), m.pool(tb, dsn, nil), "")
	must(tb, err)
	for _, other := range []fence.Key{{Domain: "another", Resource: "r"}, {Domain: domain, Resource: "beside"}} {
		_, err := db.ExecContext(tb.Context(), `INSERT INTO lastword.fence VALUES ($1, $2, 5, '', '', '', 0, '', '', '', '', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0)`, other.Domain, string(other.Resource))
		must(tb, err)
	}
	h := s.holder("r", "a", 1)
	ends := func(run exec, passes string) error {
		for _, statement := range []string{"ROLLBACK", "BEGIN", passes, `INSERT INTO doc VALUES ('r', 'x')`} {
			if _, err := run(statement); err != nil {
				return err
			}
		}
		return nil
	}
	ways := map[string]func(c fence.Call, effect func(exec) error) error{
		"database/sql": func(c fence.Call, effect func(exec) error) error {
			_, err := fence.Apply(tb.Context(), g, place, c, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
				return nil, effect(func(query string, args ...any) (int64, error) {
					_, err := tx.SQL().ExecContext(ctx, query, args...)
					return 0, err
				})
			})
			return err
		},
		"pgx": func(c fence.Call, effect func(exec) error) error {
			_, err := fence.Apply(tb.Context(), g, through, c, func(ctx context.Context, tx *pgxfence.Tx) ([]byte, error) {
				return nil, effect(func(query string, args ...any) (int64, error) {
					_, err := tx.Pgx().Exec(ctx, query, args...)
					return 0, err
				})
			})
			return err
		},
	}
	try := func(round, way string) {
		for _, passes := range []string{
			`SELECT 1`, `UPDATE lastword.fence SET passed = pg_current_xact_id() WHERE domain = 'another'`, `UPDATE lastword.fence SET passed = pg_current_xact_id() WHERE resource = 'beside'`,
		} {
			operation := round + way + passes
			err := ways[way](held(h, operation), func(run exec) error { return ends(run, passes) })
			_, found, looked := place.Find(tb.Context(), fence.Key{Domain: domain, Resource: "r"}, operation)
			if err == nil || found || looked != nil {
				tb.Fatalf("%s: %v; a receipt: %v, %v", operation, err, found, looked)
			}
			_, err = db.ExecContext(tb.Context(), `DELETE FROM doc`)
			must(tb, err)
		}
	}
	for way := range ways { // first with a record that nobody remembers, then with one that is
		try("first ", way)
		must(tb, ways[way](held(h, "between "+way), func(exec) error { return nil }))
		try("then ", way)
	}
}}

// lostCommits: after the place has looked at its connection, the server, or the
// connection, becomes one that may lose a COMMIT.
var lostCommits = trial{"a COMMIT that could be lost", func(tb fencetest.TB, m broken) {
	server, err := realservers.PostgreSQL(tb.Context(), realservers.Config{})
	must(tb, err)
	tb.Cleanup(func() { _ = server.Stop() })
	plain, err := sql.Open("pgx", server.DSN)
	must(tb, err)
	tb.Cleanup(func() { _ = plain.Close() })
	must(tb, prepare(tb.Context(), plain))
	m.enter(tb, server.DSN)
	s, g := guarding(tb)
	var unsafe atomic.Bool
	place, err := pgxfence.OpenPlace(tb.Context(), m.pool(tb, server.DSN, func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(ctx context.Context, c *pgx.Conn) (bool, error) {
			setting := "on"
			if unsafe.Load() {
				setting = "off"
			}
			_, err := c.Exec(ctx, "SET synchronous_commit = "+setting)
			return true, err
		}
	}), "")
	must(tb, err)
	h := s.holder("r", "a", 1)
	write := func(operation string) error {
		_, err := pgxfence.Send(tb.Context(), g, place, held(h, operation), pgxfence.Statement{SQL: record, Args: []any{"r", operation, "v"}})
		return err
	}
	refusedBy := func(operation string, write func(operation string) error) {
		if err := write(operation); err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
			tb.Errorf("%s: %v", operation, err)
		}
		var n int
		must(tb, plain.QueryRowContext(tb.Context(), `SELECT count(*) FROM effect WHERE operation = $1`, operation).Scan(&n))
		if n != 0 {
			tb.Errorf("%s had an effect", operation)
		}
	}
	refused := func(operation string) { refusedBy(operation, write) }
	// Where the record is remembered, it is stored before the effect that spoils the COMMIT.
	spoilt := func(place *pgxfence.Place, spoil func(ctx context.Context, tx *pgxfence.Tx) error) func(operation string) error {
		return func(operation string) error {
			_, err := fence.Apply(tb.Context(), g, place, held(h, operation), func(ctx context.Context, tx *pgxfence.Tx) ([]byte, error) {
				if _, err := tx.Pgx().Exec(ctx, record, "r", operation, "v"); err != nil {
					return nil, err
				}
				return nil, spoil(ctx, tx)
			})
			return err
		}
	}
	must(tb, write("op-1"))
	unsafe.Store(true)
	refused("with synchronous_commit off")
	unsafe.Store(false)
	must(tb, write("op-2"))
	cold := func() *pgxfence.Place { // which remembers nothing
		place, err := pgxfence.OpenPlace(tb.Context(), m.pool(tb, server.DSN, nil), "")
		must(tb, err)
		return place
	}
	lossy := func(ctx context.Context, tx *pgxfence.Tx) error {
		_, err := tx.Pgx().Exec(ctx, "SET LOCAL synchronous_commit = off")
		return err
	}
	refusedBy("that switches synchronous_commit off", spoilt(place, lossy))
	refusedBy("that switches synchronous_commit off", spoilt(cold(), lossy))
	again := func(operation string) {
		_, err := fence.Apply(tb.Context(), g, place, held(h, operation), func(context.Context, *pgxfence.Tx) ([]byte, error) { return nil, nil })
		must(tb, err)
	}
	again("that switches synchronous_commit off")
	volatile := func(ctx context.Context, tx *pgxfence.Tx) error {
		return withoutFsync(ctx, plain, func(fsync *string) error {
			return tx.Pgx().QueryRow(ctx, "SELECT current_setting('fsync')").Scan(fsync)
		})
	}
	refusedBy("that switches fsync off", spoilt(place, volatile))
	for _, statement := range []string{"ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"} {
		_, err := plain.ExecContext(tb.Context(), statement)
		must(tb, err)
	}
	for fsync := ""; fsync != "on"; { // every session that begins after the first one knows it
		fresh, err := sql.Open("pgx", server.DSN)
		must(tb, err)
		must(tb, fresh.QueryRowContext(tb.Context(), "SELECT current_setting('fsync')").Scan(&fsync))
		must(tb, fresh.Close())
	}
	refusedBy("that switches fsync off", spoilt(cold(), volatile))
	refused("with fsync off")
}}

// changedRecords: an effect changes what stands in the record of its own transaction.
var changedRecords = trial{"an effect that changes the record", func(tb fencetest.TB, m broken) {
	dsn, _ := m.database(tb)
	s, g := guarding(tb)
	place, err := pgxfence.OpenPlace(tb.Context(), m.pool(tb, dsn, nil), "")
	must(tb, err)
	h := s.holder("r", "a", 1)
	try := func(operation string, statements ...string) error {
		_, err := fence.Apply(tb.Context(), g, place, held(h, operation), func(ctx context.Context, tx *pgxfence.Tx) ([]byte, error) {
			for _, statement := range statements {
				if _, err := tx.Pgx().Exec(ctx, statement); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		return err
	}
	must(tb, try("first")) // from now on it is remembered
	for _, set := range []string{
		"fence = fence + 1", "lease_id = 'other'", "root = 'sha256:0f'", "last_seq = last_seq + 1", "last_operation = 'other'",
		"last_payload = 'other'", "policy = 'latest'", "status_mode = 'query'", "frozen = TRUE", "restored = 1",
	} {
		if err := try(set, "UPDATE lastword.fence SET "+set+" WHERE resource = 'r'"); err == nil {
			tb.Errorf("%s was not noticed", set)
			return
		}
		if err := try(set); err != nil { // nothing has become of it
			tb.Fatalf("after %s: %v", set, err)
		}
	}
	if err := try("committed", "COMMIT", "BEGIN"); err == nil {
		tb.Errorf("the transaction was another one, and nobody has noticed")
	}
}}

// withoutFsync switches fsync off, and waits until a session has heard of it.
func withoutFsync(ctx context.Context, db *sql.DB, heard func(fsync *string) error) error {
	for _, statement := range []string{"ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	fsync := ""
	for fsync != "off" {
		if err := heard(&fsync); err != nil {
			return err
		}
	}
	return nil
}

// openedTables: what a record opens is open to its own transaction, and only after the
// check.
var openedTables = trial{"a protected table", func(tb fencetest.TB, m broken) {
	dsn := postgrestest.New(tb, "mutants of protected tables", prepare)
	db := m.enter(tb, dsn)
	s, g := guarding(tb)
	place, err := sqlfence.OpenPlace(tb.Context(), db, "")
	must(tb, err)
	_, err = place.Protect(tb.Context(), sqlfence.Protection{Domain: domain, Table: "doc", Template: "{resource}"}, fence.Act{Operator: "anna", Reason: "a trial", At: wall})
	must(tb, err)
	older, h := s.holder("r", "a", 1), s.holder("r", "b", 2)
	for i, value := range []string{"one", "two"} {
		place, err := sqlfence.OpenPlace(tb.Context(), db, "") // which remembers nothing
		must(tb, err)
		_, err = fence.Apply(tb.Context(), g, place, held(h, value), func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
			_, err := tx.SQL().ExecContext(ctx, upsert, "r", value)
			return nil, err
		})
		if err != nil {
			tb.Fatalf("write %d through the fence: %v", i, err)
		}
	}
	tx, err := db.BeginTx(tb.Context(), nil)
	must(tb, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := fence.Within(tb.Context(), g, place, place.Join(tx), held(older, "late")); !errors.Is(err, lastword.ErrStale) {
		tb.Fatalf("an older fence: %v", err)
	}
	if _, err := tx.ExecContext(tb.Context(), upsert, "r", "late"); err == nil {
		tb.Errorf("a caller that goes on after a refusal has written")
	}
}}

// passesForgotten: a restored server forgets who had passed, of its own domain.
var passesForgotten = trial{"who had passed before a restore", func(tb fencetest.TB, m broken) {
	_, db := m.database(tb)
	place, err := sqlfence.OpenPlace(tb.Context(), db, "")
	must(tb, err)
	for _, d := range []string{domain, "another"} {
		_, err := db.ExecContext(tb.Context(), `INSERT INTO lastword.fence VALUES ($1, 'r', 5, '', '', '', 0, '', '', '', '', FALSE, 0, 0, 0, 0, FALSE, 0, 0, 0, 0, '77')`, d)
		must(tb, err)
		_, err = db.ExecContext(tb.Context(), `INSERT INTO lastword.pass VALUES ($1, 'r', '77')`, d)
		must(tb, err)
	}
	silent := errors.New("silent")
	_, err = fence.DeclareRestored(tb.Context(), place, fence.Restore{
		Domain: domain, Until: wall, Act: fence.Act{Operator: "anna", Reason: "a backup", At: wall},
		NextFence: func(context.Context, lastword.Resource) (lastword.Token, error) { return 0, silent },
	})
	if !errors.Is(err, silent) {
		tb.Fatalf("declared: %v", err)
	}
	for query, want := range map[string]string{
		`SELECT coalesce(string_agg(domain, ' '), '') FROM lastword.fence WHERE passed = '77'`: "another",
		`SELECT coalesce(string_agg(domain, ' '), '') FROM lastword.pass`:                      "another",
	} {
		var got string
		must(tb, db.QueryRowContext(tb.Context(), query).Scan(&got))
		if got != want {
			tb.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}}

// bypassesCounted: what the triggers have let pass in a roll-out is told of its resource.
var bypassesCounted = trial{"bypasses of a roll-out", func(tb fencetest.TB, m broken) {
	_, db := m.database(tb)
	place, err := sqlfence.OpenPlace(tb.Context(), db, "")
	must(tb, err)
	_, err = db.ExecContext(tb.Context(), `INSERT INTO lastword.bypass (domain, resource, relation, event, weight)
VALUES ($1, 'r', 'doc', 'UPDATE', 1), ($1, 'r', 'doc', 'UPDATE', 100), ('another', 'r', 'doc', 'UPDATE', 7), ($1, 'beside', 'doc', 'UPDATE', 7)`, domain)
	must(tb, err)
	seen, err := place.Inspect(tb.Context(), fence.Key{Domain: domain, Resource: "r"})
	if n := seen.Refusals[lastword.FenceRequired.Shadow()]; err != nil || n != 101 || len(seen.Refusals) != 1 {
		tb.Errorf("counted %v, %v, want 101", seen.Refusals, err)
	}
}}

// everySchemaMutant is the triggers of the tables, which refuse what no adapter does.
func everySchemaMutant() (all []broken) {
	for _, e := range []fencesql.Engine{fencesql.SQLite{}, fencesql.PostgreSQL{}} {
		_, lite := e.(fencesql.SQLite)
		for _, step := range e.Schema().Steps {
			for _, text := range step {
				if !strings.HasPrefix(text, "CREATE TRIGGER") {
					continue
				}
				for _, one := range sqlmutants.Of(text) {
					all = append(all, broken{
						where: e.Name() + " " + strings.Join(strings.Fields(text)[2:3], " "), Mutant: one, lite: lite,
						texts: map[string]string{text: one.Text}, trials: []trial{slips}, alone: true,
					})
				}
			}
		}
	}
	return all
}

// slips are what a person could do in a SQL shell, and what is nothing to refuse.
var slips = trial{"slips of the hand", func(tb fencetest.TB, m broken) {
	var db *sql.DB
	var err error
	say := func(s string) string { return s }
	if m.lite {
		say = func(s string) string { return strings.ReplaceAll(s, "lastword.", "lastword_") }
		db, err = openRewriting("sqlite", "file:"+filepath.Join(tb.TempDir(), "slips.db"), m)
	} else {
		db, err = openRewriting("pgx", postgresEmpty(tb), m)
	}
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	must(tb, sqlfence.Init(tb.Context(), db))
	for _, s := range []string{
		`INSERT INTO lastword.fence (domain, resource, fence, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy, status_mode, frozen, step,
	bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored) SELECT d, r, 5, '', '', '', 0, '', '', '', '', f, 0, 0, 0, 0, f, 0, 0, 0
	FROM (SELECT 'd' AS d, 'r' AS r, 1 = 2 AS f UNION SELECT 'd', 's', 1 = 2 UNION SELECT 'e', 'r', 1 = 2) AS given`,
		`INSERT INTO lastword.rollout VALUES ('d', 'r', 0, ''), ('d', 's', 1, ''), ('d', 't', 1, '')`,
		`INSERT INTO lastword.bundle VALUES ('d', 5, 5)`,
	} {
		_, err := db.ExecContext(tb.Context(), say(s))
		must(tb, err)
	}
	const where = ` WHERE domain = 'd' AND resource = 'r'`
	refused := []string{
		`UPDATE lastword.fence SET fence = 4` + where, `UPDATE lastword.fence SET domain = 'x'` + where, `UPDATE lastword.fence SET resource = 'x'` + where,
		`DELETE FROM lastword.fence`,
		`UPDATE lastword.rollout SET shadow = 1 WHERE prefix = 'r'`, `UPDATE lastword.rollout SET domain = 'x' WHERE prefix = 's'`, `UPDATE lastword.rollout SET prefix = 'x' WHERE prefix = 's'`,
		`DELETE FROM lastword.rollout WHERE prefix = 'r'`,
		`UPDATE lastword.bundle SET sequence = 4`, `UPDATE lastword.bundle SET min_epoch = 4`, `UPDATE lastword.bundle SET domain = 'x'`,
	}
	admitted := []string{
		`UPDATE lastword.fence SET fence = 6, resource = resource, domain = domain` + where,
		`UPDATE lastword.rollout SET shadow = 0, since = 'x' WHERE prefix = 's'`, `DELETE FROM lastword.rollout WHERE prefix = 't'`,
		`UPDATE lastword.bundle SET sequence = 6, min_epoch = 6`,
	}
	if m.lite {
		values := func(d, r string, fence int) string {
			return fmt.Sprintf(`REPLACE INTO lastword.fence SELECT '%s', '%s', %d, lease_id, grant_digest, root, last_seq, last_operation, last_payload, policy, status_mode, frozen, step,
	bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored, pruned FROM lastword.fence`+where, d, r, fence)
		}
		refused = append(refused, values("d", "r", 5)) // which is 6 by now
		admitted = append(admitted, values("d", "s", 5), values("d", "new", 1), values("new", "r", 1))
	}
	for _, s := range slices.Concat(admitted, refused) {
		_, err := db.ExecContext(tb.Context(), say(s))
		if wanted := slices.Contains(refused, s); wanted != (err != nil) {
			tb.Errorf("%s: %v", s, err)
		}
	}
}}
