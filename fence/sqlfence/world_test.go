package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

const domain = "test"

// seal signs grants as an authority would, and says whom to believe.
type seal struct {
	signer   *grant.Signer
	verifier *grant.Verifier
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

func (s *seal) grant(resource lastword.Resource, owner string, token lastword.Token) string {
	g, _, err := s.signer.Sign("", grant.Claims{
		Domain: domain, Resource: resource, Owner: owner, RequestID: "r", LeaseID: fmt.Sprintf("lease-%s-%s", owner, token),
		Fence: token, Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0),
	})
	if err != nil {
		panic(err) // the claims are constants of a test
	}
	return g
}

func (s *seal) config() sqlfence.Config {
	return sqlfence.Config{Config: fence.Config{Domain: domain, Verifier: s.verifier, Mode: fence.FenceOnly}}
}

// holder is a lease as Apply sees it.
type holder struct {
	grant string
	mu    sync.Mutex
	seq   map[string]*lastword.Sequence
}

func (s *seal) holder(resource lastword.Resource, owner string, token lastword.Token) *holder {
	return &holder{grant: s.grant(resource, owner, token), seq: map[string]*lastword.Sequence{}}
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

const business = `CREATE TABLE doc (resource TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE effect (id INTEGER PRIMARY KEY, resource TEXT NOT NULL, operation TEXT NOT NULL, value TEXT NOT NULL) STRICT`

const durable = "_pragma=busy_timeout(2000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"

func dsn(path, options string) string { return "file:" + path + "?" + options }

func openDB(tb testing.TB, path, options string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", dsn(path, options))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// database is a new file with the tables of the fence and of a business.
func database(tb testing.TB) (db *sql.DB, path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "app.db")
	db = openDB(tb, path, durable)
	mustExec(tb, db, business)
	if err := sqlfence.Init(tb.Context(), db); err != nil {
		tb.Fatal(err)
	}
	return db, path
}

func mustExec(tb testing.TB, db *sql.DB, statement string) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), statement); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func guard(tb testing.TB, db *sql.DB, cfg sqlfence.Config) *sqlfence.Fence {
	tb.Helper()
	f, err := sqlfence.New(tb.Context(), db, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// write is the business effect of all tests.
func write(ctx context.Context, tx execer, resource lastword.Resource, operation, value string) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO doc VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2`, string(resource), value); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO effect (resource, operation, value) VALUES (?, ?, ?)`, string(resource), operation, value)
	return err
}

// put applies one write of value.
func put(ctx context.Context, f *sqlfence.Fence, h lastword.Holder, resource lastword.Resource, operation, value string) (lastword.Receipt, error) {
	return f.Apply(ctx, h, operation, []byte(value), func(ctx context.Context, tx *sql.Tx) error {
		return write(ctx, tx, resource, operation, value)
	})
}

func mustPut(tb testing.TB, f *sqlfence.Fence, h lastword.Holder, resource lastword.Resource, operation, value string) lastword.Receipt {
	tb.Helper()
	r, err := put(tb.Context(), f, h, resource, operation, value)
	if err != nil || r.Verdict != lastword.Applied {
		tb.Fatalf("apply %s on %s: %v %v", operation, resource, r.Verdict, err)
	}
	return r
}

func value(tb testing.TB, db *sql.DB, resource lastword.Resource) string {
	tb.Helper()
	var v string
	err := db.QueryRowContext(tb.Context(), `SELECT value FROM doc WHERE resource = ?`, string(resource)).Scan(&v)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		tb.Fatal(err)
	}
	return v
}

func count(tb testing.TB, db asked, query string, args ...any) (n int) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(), query, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// verify closes a test: business rows, receipts and records must tell one story.
func verify(tb testing.TB, db *sql.DB) {
	tb.Helper()
	for story, query := range map[string]string{
		"an operation has two effects":                   `SELECT count(*) FROM (SELECT 1 FROM effect GROUP BY resource, operation HAVING count(*) > 1)`,
		"an effect has no receipt":                       `SELECT count(*) FROM effect e LEFT JOIN lastword_receipt r USING (resource, operation) WHERE r.operation IS NULL`,
		"a receipt has no effect":                        `SELECT count(*) FROM lastword_receipt r LEFT JOIN effect e USING (resource, operation) WHERE e.operation IS NULL`,
		"a receipt is above its record's fence":          `SELECT count(*) FROM lastword_receipt r LEFT JOIN lastword_fence f USING (domain, resource) WHERE f.fence IS NULL OR r.fence > f.fence`,
		"a record's last operation is not its receipt":   `SELECT count(*) FROM lastword_fence f WHERE last_seq > 0 AND NOT EXISTS (SELECT 1 FROM lastword_receipt r WHERE r.resource = f.resource AND r.operation = f.last_operation AND r.seq = f.last_seq AND r.fence = f.fence AND r.payload = f.last_payload AND r.lease_id = f.lease_id)`,
		"a tenure's numbers have a gap":                  `SELECT count(*) FROM (SELECT 1 FROM lastword_receipt GROUP BY domain, resource, fence HAVING count(*) <> max(seq))`,
		"effects ran in another order than the fences":   `SELECT count(*) FROM (SELECT r.fence, lag(r.fence) OVER (PARTITION BY e.resource ORDER BY e.id) AS before FROM effect e JOIN lastword_receipt r USING (resource, operation)) WHERE before > fence`,
		"the business value is not the last write's":     `SELECT count(*) FROM doc d WHERE value <> (SELECT value FROM effect e WHERE e.resource = d.resource ORDER BY id DESC LIMIT 1)`,
		"the last effect is not the record's last write": `SELECT count(*) FROM lastword_fence f WHERE last_seq > 0 AND last_operation <> (SELECT operation FROM effect e WHERE e.resource = f.resource ORDER BY id DESC LIMIT 1)`,
	} {
		if n := count(tb, db, query); n != 0 {
			tb.Errorf("%s: %d times", story, n)
		}
	}
}

// wall is a wall clock that shows people something.
var wall = time.Unix(1_800_000_000, 0).UTC()

// dump is all rows of a query as text.
func dump(tb testing.TB, db asked, query string) string {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), query)
	if err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	values, targets := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	var all strings.Builder
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintf(&all, "%q\n", values)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all.String()
}
