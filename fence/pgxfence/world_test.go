package pgxfence_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/pgxfence"
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

func (s *seal) config() pgxfence.Config {
	return pgxfence.Config{Config: fence.Config{Domain: domain, Verifier: s.verifier, Mode: fence.FenceOnly}}
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

func guard(tb testing.TB, pool *pgxpool.Pool, cfg pgxfence.Config) *pgxfence.Fence {
	tb.Helper()
	f, err := pgxfence.New(tb.Context(), pool, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// through is the same database behind another address, with settings of pgxpool.
func through(tb testing.TB, dsn, addr, settings string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	u.Host = addr
	u.RawQuery += settings
	return u.String()
}

func mustExec(tb testing.TB, pool *pgxpool.Pool, statement string) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), statement); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func count(tb testing.TB, pool *pgxpool.Pool, query string, args ...any) (n int) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), query, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// verify closes a test: business rows, receipts and records must tell one story.
func verify(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	for story, query := range map[string]string{
		"an operation has two effects":                 `SELECT count(*) FROM (SELECT 1 FROM effect GROUP BY resource, operation HAVING count(*) > 1) x`,
		"an effect has no receipt":                     `SELECT count(*) FROM effect e LEFT JOIN lastword.receipt r USING (resource, operation) WHERE r.operation IS NULL`,
		"a receipt has no effect":                      `SELECT count(*) FROM lastword.receipt r LEFT JOIN effect e USING (resource, operation) WHERE e.operation IS NULL`,
		"a receipt is above its record's fence":        `SELECT count(*) FROM lastword.receipt r LEFT JOIN lastword.fence f USING (domain, resource) WHERE f.fence IS NULL OR r.fence > f.fence`,
		"a record's last operation is not its receipt": `SELECT count(*) FROM lastword.fence f WHERE last_seq > 0 AND NOT EXISTS (SELECT 1 FROM lastword.receipt r WHERE r.resource = f.resource AND r.operation = f.last_operation AND r.seq = f.last_seq AND r.fence = f.fence AND r.payload = f.last_payload AND r.lease_id = f.lease_id)`,
		"a tenure's numbers have a gap":                `SELECT count(*) FROM (SELECT 1 FROM lastword.receipt GROUP BY domain, resource, fence HAVING count(*) <> max(seq)) x`,
		"effects ran in another order than the fences": `SELECT count(*) FROM (SELECT r.fence, lag(r.fence) OVER (PARTITION BY e.resource ORDER BY e.id) AS before FROM effect e JOIN lastword.receipt r USING (resource, operation)) x WHERE before > fence`,
		"the business value is not the last write's":   `SELECT count(*) FROM doc d WHERE value <> (SELECT value FROM effect e WHERE e.resource = d.resource ORDER BY id DESC LIMIT 1)`,
	} {
		if n := count(tb, pool, query); n != 0 {
			tb.Errorf("%s: %d times", story, n)
		}
	}
}
