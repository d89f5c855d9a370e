package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/pgxfence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/postgrestest"
)

func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv(childEnv)]; ok {
		if err := child(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(postgrestest.Main(m))
}

const domain = "test"

const business = `CREATE TABLE doc (resource text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, resource text NOT NULL, operation text NOT NULL, value text NOT NULL)`

// database is the URL of a new database with the tables of the fence and of a business.
func database(tb postgrestest.TB) string {
	return postgrestest.New(tb, "fencesql", prepare)
}

func prepare(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, business); err != nil {
		return err
	}
	return sqlfence.Init(ctx, db)
}

// seal signs grants as an authority would, and says whom to believe.
type seal struct {
	signer   *grant.Signer
	verifier *grant.Verifier
}

func sealOf(key grant.Key) (*seal, error) {
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		return nil, err
	}
	bundle, err := signer.Bundle(grant.BundleInfo{Sequence: 1, CurrentEpoch: 3})
	if err != nil {
		return nil, err
	}
	verifier, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	return &seal{signer, verifier}, err
}

func newSeal(tb testing.TB) *seal {
	tb.Helper()
	key, err := grant.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	s, err := sealOf(key)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *seal) config() fence.Config {
	return fence.Config{Domain: domain, Verifier: s.verifier, Mode: fence.FenceOnly}
}

// holder is a lease as Apply sees it.
type holder struct {
	grant string
	mu    sync.Mutex
	seq   map[string]*lastword.Sequence
}

func (s *seal) holder(resource lastword.Resource, owner string, token lastword.Token) *holder {
	g, _, err := s.signer.Sign("", grant.Claims{
		Domain: domain, Resource: resource, Owner: owner, RequestID: "r", LeaseID: fmt.Sprintf("lease-%s-%s", owner, token),
		Fence: token, Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0),
	})
	if err != nil {
		panic(err) // the claims are constants of a test
	}
	return &holder{grant: g, seq: map[string]*lastword.Sequence{}}
}

func (h *holder) Grant() string               { return h.grant }
func (h *holder) State() lastword.HolderState { return lastword.HolderHeld }

func (h *holder) Sequence(_ context.Context, record string) (*lastword.Sequence, func(), error) {
	h.mu.Lock()
	if h.seq[record] == nil {
		h.seq[record] = &lastword.Sequence{}
	}
	return h.seq[record], h.mu.Unlock, nil
}

// exec runs a statement in a transaction, and says how many rows it has changed.
type exec func(query string, args ...any) (int64, error)

// guarded is one adapter at one database, through one pool.
type guarded struct {
	// apply makes a guarded write with a callback; nil if the form has none.
	apply   func(ctx context.Context, h lastword.Holder, operation string, payload []byte, effect func(context.Context, exec) error) (lastword.Receipt, error)
	write   func(ctx context.Context, h lastword.Holder, resource lastword.Resource, operation, value string) (lastword.Receipt, error)
	lookup  func(ctx context.Context, resource lastword.Resource, operation string) (lastword.Receipt, bool, error)
	advance func(ctx context.Context, resource lastword.Resource, h lastword.Holder) (fence.Record, error)
	resolve func(ctx context.Context, resource lastword.Resource, h lastword.Holder, operation string) (lastword.Receipt, bool, error)
	prune   func(ctx context.Context, key fence.Key, r fence.Retention) (int, error)
}

// client is a driver and a form of writing.
type client struct {
	name string
	open func(ctx context.Context, dsn string, cfg fence.Config, conns int) (*guarded, func(), error)
}

var clients = []client{{"database/sql", openSQL}, {"pgx apply", openApply}, {"pgx send", openSend}}

func (c client) guard(tb testing.TB, dsn string, s *seal, conns int) *guarded {
	tb.Helper()
	g, done, err := c.open(tb.Context(), dsn, s.config(), conns)
	if err != nil {
		tb.Fatalf("%s: %v", c.name, err)
	}
	tb.Cleanup(done)
	return g
}

const queryMode = "&default_query_exec_mode="

// withMode makes every statement go out with its text, so that a proxy can see it,
// unless the URL says otherwise.
func withMode(dsn string) string {
	if strings.Contains(dsn, queryMode) {
		return dsn
	}
	return dsn + queryMode + "exec"
}

const (
	upsert = `INSERT INTO doc VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`
	record = `INSERT INTO effect (resource, operation, value) VALUES ($1, $2, $3)`
)

func effect(resource lastword.Resource, operation, value string) func(context.Context, exec) error {
	return func(_ context.Context, run exec) error {
		if _, err := run(upsert, string(resource), value); err != nil {
			return err
		}
		_, err := run(record, string(resource), operation, value)
		return err
	}
}

func openSQL(ctx context.Context, dsn string, cfg fence.Config, conns int) (*guarded, func(), error) {
	db, err := sql.Open("pgx", withMode(dsn))
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	f, err := sqlfence.New(ctx, db, sqlfence.Config{Config: cfg})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	g := &guarded{lookup: f.Lookup, advance: f.Advance, resolve: f.Resolve, prune: f.Place().Prune}
	g.apply = func(ctx context.Context, h lastword.Holder, operation string, payload []byte, effect func(context.Context, exec) error) (lastword.Receipt, error) {
		return f.Apply(ctx, h, operation, payload, func(ctx context.Context, tx *sql.Tx) error {
			return effect(ctx, func(query string, args ...any) (int64, error) {
				r, err := tx.ExecContext(ctx, query, args...)
				if err != nil {
					return 0, err
				}
				return r.RowsAffected()
			})
		})
	}
	g.write = g.applied
	return g, func() { _ = f.Close(); _ = db.Close() }, nil
}

// applied is a write through the callback.
func (g *guarded) applied(ctx context.Context, h lastword.Holder, resource lastword.Resource, operation, value string) (lastword.Receipt, error) {
	return g.apply(ctx, h, operation, []byte(value), effect(resource, operation, value))
}

func openPgx(ctx context.Context, dsn string, cfg fence.Config, conns int) (*pgxfence.Fence, *guarded, func(), error) {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", withMode(dsn), conns))
	if err != nil {
		return nil, nil, nil, err
	}
	f, err := pgxfence.New(ctx, pool, pgxfence.Config{Config: cfg})
	if err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	return f, &guarded{lookup: f.Lookup, advance: f.Advance, resolve: f.Resolve, prune: f.Place().Prune}, pool.Close, nil
}

func openApply(ctx context.Context, dsn string, cfg fence.Config, conns int) (*guarded, func(), error) {
	f, g, done, err := openPgx(ctx, dsn, cfg, conns)
	if err != nil {
		return nil, nil, err
	}
	g.apply = func(ctx context.Context, h lastword.Holder, operation string, payload []byte, effect func(context.Context, exec) error) (lastword.Receipt, error) {
		return f.Apply(ctx, h, operation, payload, func(ctx context.Context, tx pgx.Tx) error {
			return effect(ctx, func(query string, args ...any) (int64, error) {
				tag, err := tx.Exec(ctx, query, args...)
				return tag.RowsAffected(), err
			})
		})
	}
	g.write = g.applied
	return g, done, nil
}

func openSend(ctx context.Context, dsn string, cfg fence.Config, conns int) (*guarded, func(), error) {
	f, g, done, err := openPgx(ctx, dsn, cfg, conns)
	if err != nil {
		return nil, nil, err
	}
	g.write = func(ctx context.Context, h lastword.Holder, resource lastword.Resource, operation, value string) (lastword.Receipt, error) {
		return f.Send(ctx, h, operation, []byte(value), pgxfence.Statement{SQL: upsert, Args: []any{string(resource), value}},
			pgxfence.Statement{SQL: record, Args: []any{string(resource), operation, value}})
	}
	return g, done, nil
}

// through is the same database behind another address.
func through(tb testing.TB, dsn, addr string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	u.Host = addr
	return u.String()
}

func openDB(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(tb testing.TB, db *sql.DB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func count(tb testing.TB, db *sql.DB, query string, args ...any) (n int) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(), query, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

func effects(tb testing.TB, db *sql.DB, operation string) int {
	tb.Helper()
	return count(tb, db, `SELECT count(*) FROM effect WHERE operation = $1`, operation)
}

// stories are what business rows, receipts and records must not tell together.
var stories = map[string]string{
	"an operation has two effects":                 `SELECT count(*) FROM (SELECT 1 FROM effect GROUP BY resource, operation HAVING count(*) > 1) x`,
	"an effect has no receipt":                     `SELECT count(*) FROM effect e LEFT JOIN lastword.receipt r USING (resource, operation) WHERE r.operation IS NULL`,
	"a receipt has no effect":                      `SELECT count(*) FROM lastword.receipt r LEFT JOIN effect e USING (resource, operation) WHERE e.operation IS NULL`,
	"a receipt is above its record's fence":        `SELECT count(*) FROM lastword.receipt r LEFT JOIN lastword.fence f USING (domain, resource) WHERE f.fence IS NULL OR r.fence > f.fence`,
	"a record's last operation is not its receipt": `SELECT count(*) FROM lastword.fence f WHERE last_seq > 0 AND NOT EXISTS (SELECT 1 FROM lastword.receipt r WHERE r.resource = f.resource AND r.operation = f.last_operation AND r.seq = f.last_seq AND r.fence = f.fence AND r.payload = f.last_payload AND r.lease_id = f.lease_id)`,
	"a tenure's numbers have a gap":                `SELECT count(*) FROM (SELECT 1 FROM lastword.receipt GROUP BY domain, resource, fence HAVING count(*) <> max(seq)) x`,
	"effects ran in another order than the fences": `SELECT count(*) FROM (SELECT r.fence, lag(r.fence) OVER (PARTITION BY e.resource ORDER BY e.id) AS before FROM effect e JOIN lastword.receipt r USING (resource, operation)) x WHERE before > fence`,
	"the business value is not the last write's":   `SELECT count(*) FROM doc d WHERE value <> (SELECT value FROM effect e WHERE e.resource = d.resource ORDER BY id DESC LIMIT 1)`,
}

func verify(tb testing.TB, db *sql.DB) {
	tb.Helper()
	for story, query := range stories {
		if n := count(tb, db, query); n != 0 {
			tb.Errorf("%s: %d times", story, n)
		}
	}
}

// postgresEmpty is the URL of a new database without any table.
func postgresEmpty(tb postgrestest.TB) string { return postgrestest.New(tb, "empty", nil) }

// initWith makes the tables through a driver.
func initWith(ctx context.Context, driver, dsn string) error {
	if driver == "database/sql" {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		return sqlfence.Init(ctx, db)
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pgxfence.Init(ctx, pool)
}

var wall = time.Unix(1_800_000_000, 0).UTC()
