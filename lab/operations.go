package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/server"
)

// Operations is what the script of R32 gave.
type Operations struct {
	Experiment string      `json:"experiment"`
	Policy     string      `json:"policy"`
	Steps      []Operation `json:"steps"`
	Effects    int         `json:"effects"` // counted in the business table
}

// Operation is one write of the script.
type Operation struct {
	Tenure    int    `json:"tenure"`
	Fence     string `json:"fence"`
	Seq       uint64 `json:"seq"`
	Operation string `json:"operation"`
	Content   string `json:"content"`
	Verdict   string `json:"verdict"`
	Outcome   string `json:"outcome"` // in one word
}

// script is R32: one key twice over two tenures, with the same and with other
// content, and a new key with a number of the first tenure.
var script = []struct {
	tenure             int
	seq                uint64
	operation, content string
}{
	{1, 1, "op-1", "first"},
	{1, 2, "op-2", "second"},
	{2, 1, "op-2", "second"},
	{2, 1, "op-2", "something else"},
	{1, 1, "op-3", "third"},
}

// RunOperations runs the script of R32 against an authority and a resource on
// SQLite, with policy latest.
func RunOperations(ctx context.Context) (o Operations, err error) {
	dir, err := os.MkdirTemp("", "lastword-lab-")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := server.Open(ctx, server.Config{Store: "sqlite:" + filepath.Join(dir, "authority.db"), Domain: Domain, GRPC: "127.0.0.1:0"})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := newBusiness(ctx, filepath.Join(dir, "business.db"), docTakeover)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if _, err := b.db.ExecContext(ctx, `CREATE TABLE effect (content TEXT NOT NULL) STRICT`); err != nil {
		return o, err
	}
	f, err := openFence(ctx, s, b.db)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return runScript(ctx, s, b.db, f)
}

func openFence(ctx context.Context, s *server.Server, db *sql.DB) (*sqlfence.Fence, error) {
	v, err := grant.NewVerifier(Domain, grant.FetchBundle(s.Authority().Bundle), grant.VerifierConfig{})
	if err != nil {
		return nil, err
	}
	return sqlfence.New(ctx, db, sqlfence.Config{Config: fence.Config{
		Domain: Domain, Verifier: v, Mode: fence.FenceOnly, Policy: fence.Latest,
	}})
}

func runScript(ctx context.Context, s *server.Server, db *sql.DB, f *sqlfence.Fence) (Operations, error) {
	o := Operations{Experiment: "operations", Policy: string(fence.Latest)}
	tenures := map[int]lastword.Tenure{}
	for _, step := range script {
		t, ok := tenures[step.tenure]
		if !ok {
			var err error
			if t, err = nextTenure(ctx, s, tenures, step.tenure); err != nil {
				return o, err
			}
			tenures[step.tenure] = t
		}
		done, err := writeStep(ctx, f, t, step.seq, step.operation, step.content)
		if err != nil {
			return o, err
		}
		done.Tenure = step.tenure
		o.Steps = append(o.Steps, done)
	}
	err := db.QueryRowContext(ctx, `SELECT count(*) FROM effect`).Scan(&o.Effects)
	return o, err
}

// nextTenure releases the tenure before, if there is one, and acquires.
func nextTenure(ctx context.Context, s *server.Server, tenures map[int]lastword.Tenure, n int) (lastword.Tenure, error) {
	if before, ok := tenures[n-1]; ok {
		if err := s.Authority().Release(ctx, before.TenureRef); err != nil {
			return lastword.Tenure{}, err
		}
	}
	return s.Authority().Acquire(ctx, lastword.AcquireRequest{
		Resource: docTakeover, RequestID: fmt.Sprint(n), Owner: fmt.Sprint("worker-", n), TTL: time.Minute,
	})
}

func writeStep(ctx context.Context, f *sqlfence.Fence, t lastword.Tenure, seq uint64, operation, content string) (Operation, error) {
	m := lastword.Mutation{Grant: t.Grant, Seq: seq, Operation: operation, Payload: lastword.DigestOf([]byte(content))}
	receipt, err := f.ApplyMutation(ctx, t.Resource, m, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO effect VALUES (?)`, content)
		return err
	})
	done := Operation{Fence: t.Fence.String(), Seq: seq, Operation: operation, Content: content, Verdict: string(receipt.Verdict)}
	var refused *lastword.Error
	switch {
	case errors.As(err, &refused):
		done.Verdict = string(refused.Code)
	case err != nil:
		return done, err
	}
	done.Outcome = outcome(lastword.Verdict(done.Verdict))
	return done, nil
}

// outcome is the word that the script's expected list has for a verdict.
func outcome(v lastword.Verdict) string {
	switch v {
	case lastword.Applied:
		return "applied"
	case lastword.Replayed:
		return "duplicate"
	case lastword.Conflict:
		return "conflict"
	case lastword.StaleOwner, lastword.OutOfOrder:
		return "stale"
	case lastword.ReceiptExpired, lastword.RootMismatch, lastword.FenceRegression, lastword.FenceJump,
		lastword.Unverified, lastword.StatusUnavailable, lastword.FenceRequired, lastword.MutationUnknown:
	}
	return string(v)
}
