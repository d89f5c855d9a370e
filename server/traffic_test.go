package server_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// resource is a guarded database that fetches the trust bundle as it goes.
type resource struct {
	fence  *sqlfence.Fence
	source grant.BundleSource
	count  func(ctx context.Context) (operations, effects int, err error)
}

func guarded(t *testing.T, c *rpc.Client) *resource {
	t.Helper()
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: "sqlite", Path: filepath.Join(t.TempDir(), "app.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := sqlfence.Init(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE effect (operation TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	source := grant.FetchBundle(c.Bundle)
	v, err := grant.NewVerifier("demo", source, grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	// fence-only: the seal alone has to refuse what was revoked.
	f, err := sqlfence.New(t.Context(), db, sqlfence.Config{Config: fence.Config{Domain: "demo", Verifier: v, Mode: fence.FenceOnly, Status: c}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &resource{f, source, func(ctx context.Context) (operations, effects int, err error) {
		err = db.QueryRowContext(ctx, "SELECT count(DISTINCT operation), count(*) FROM effect").Scan(&operations, &effects)
		return operations, effects, err
	}}
}

func (r *resource) apply(ctx context.Context, held lastword.Tenure, operation string) error {
	call := fence.Call{Resource: held.Resource, Content: []byte(operation), Mutation: lastword.Mutation{Grant: held.Grant, Operation: operation}}
	_, err := fence.Apply(ctx, r.fence.Gate(), r.fence.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
		_, err := tx.SQL().ExecContext(ctx, "INSERT INTO effect VALUES (?)", operation)
		return nil, err
	})
	return err
}

// law is what was revoked, and when.
type law struct {
	mu       sync.Mutex
	revoked  map[string]time.Time // keys
	minimum  []epochLaw
	grace    time.Duration
	breaches atomic.Int64
}

type epochLaw struct {
	epoch uint32
	at    time.Time
}

// admits reports whether a write that began at the time may have been applied.
func (l *law) admits(held lastword.Tenure, kid string, began time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.revoked[kid]; ok && began.After(at.Add(l.grace)) {
		return false
	}
	for _, m := range l.minimum {
		if held.Fence.Epoch() < m.epoch && began.After(m.at.Add(l.grace)) {
			return false
		}
	}
	return true
}

// worker does operation after operation, each until it has had its effect, and as many
// under one tenure as keep allows.
func worker(ctx context.Context, c *rpc.Client, r *resource, l *law, name string, keep int, refused *atomic.Int64) (done int, err error) {
	var held lastword.Tenure
	var kid string
	attempt, used := 0, 0
	take := func() (again bool, err error) {
		attempt++
		held, err = c.Acquire(context.WithoutCancel(ctx), lastword.AcquireRequest{
			Resource: lastword.Resource("doc/" + name), Owner: name, RequestID: fmt.Sprint(attempt), TTL: time.Minute, Class: lastword.ClassWrite, Wait: patience,
		})
		if errors.Is(err, lastword.ErrTenureEnded) || errors.Is(err, lastword.ErrNotHolder) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("acquire: %w", err)
		}
		u, err := grant.Inspect(held.Grant)
		kid, used = u.KeyID, 0
		return false, err
	}
	give := func() error {
		err := c.Release(context.WithoutCancel(ctx), held.TenureRef)
		held = lastword.Tenure{}
		if err != nil && !errors.Is(err, lastword.ErrNotHolder) {
			return fmt.Errorf("release: %w", err)
		}
		return nil
	}
	for ctx.Err() == nil {
		if held.Fence == 0 {
			if again, err := take(); again || err != nil {
				refused.Add(1)
				if err != nil {
					return done, err
				}
				continue
			}
		}
		began := time.Now()
		err := r.apply(context.WithoutCancel(ctx), held, fmt.Sprint(name, "-", done))
		switch {
		case err == nil:
			if !l.admits(held, kid, began) {
				l.breaches.Add(1)
			}
			done++
			used++
		case errors.Is(err, lastword.ErrUnverified) || errors.Is(err, lastword.ErrStale):
			refused.Add(1)
		default:
			return done, fmt.Errorf("apply: %w", err)
		}
		if err != nil || used >= keep {
			if err := give(); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// R13, T20, T26, T27: keys are rotated and revoked, epochs begun and revoked, in mid-traffic.
// Every operation has its effect exactly once, nothing that was revoked is admitted once
// twice the refresh hint has gone by, and a canary from before is refused within it.
func TestRotationAndRevocationInMidTrafficLoseNothingAndAdmitNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: it goes on for as long as trust bundles take to spread")
	}
	t.Parallel()
	const hint = time.Second
	dir := t.TempDir()
	cfg := config(dir)
	cfg.Authority.RefreshHint = hint
	s := start(t, cfg)
	r := guarded(t, s.client)
	l := &law{revoked: map[string]time.Time{}, grace: 2 * hint}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	var done, refused atomic.Int64
	for n := range 4 {
		all.Go(func() {
			keep := []int{1, 10_000}[n%2]
			d, err := worker(ctx, s.client, r, l, fmt.Sprint("w", n), keep, &refused)
			if err != nil {
				t.Errorf("worker %d: %v", n, err)
			}
			done.Add(int64(d))
		})
	}
	o := server.Operator{Store: cfg.Store, Name: "ann", Reason: "test"}
	signing := func() string {
		ring, err := o.Keys()
		if err != nil {
			t.Fatal(err)
		}
		return ring.Signer().KeyID()
	}
	canaries := 0
	// refusedAfter does something, and measures until a grant from before is refused.
	refusedAfter := func(what string, do func()) {
		canaries++
		canary, err := s.client.Acquire(t.Context(), lastword.AcquireRequest{
			Resource: lastword.Resource(fmt.Sprint("canary/", canaries)), Owner: "canary", RequestID: fmt.Sprint(canaries), TTL: time.Minute, Class: lastword.ClassWrite,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.apply(t.Context(), canary, fmt.Sprint("canary-", canaries)); err != nil {
			t.Fatal(err)
		}
		do()
		began, tries := time.Now(), 0
		for {
			tries++
			sent := time.Now()
			err := r.apply(t.Context(), canary, fmt.Sprint("canary-", canaries, "-", tries))
			if errors.Is(err, lastword.ErrUnverified) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if since := sent.Sub(began); since > 2*hint {
				t.Fatalf("%s: still admitted %v later", what, since)
			}
		}
		took := time.Since(began)
		t.Logf("%s: refused %v later (bound: %v)", what, took.Round(time.Millisecond), 2*hint)
	}
	rotate := func() {
		if err := o.RotateKey(t.Context(), 2*hint, func(string, grant.KeyInfo) {}); err != nil {
			t.Fatal(err)
		}
	}
	rotate()
	if n := refused.Load(); n != 0 {
		t.Errorf("a rotation refused %d writes", n)
	}
	ring, err := o.Keys()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range ring.Info().Keys {
		if !k.Signing { // the retired one, of which tenures may still be alive
			if _, err := o.RevokeKey(t.Context(), k.ID); err != nil {
				t.Fatal(err)
			}
			l.mu.Lock()
			l.revoked[k.ID] = time.Now()
			l.mu.Unlock()
		}
	}
	refusedAfter("the key that signs was revoked", func() {
		kid := signing()
		if _, err := o.RevokeKey(t.Context(), kid); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.revoked[kid] = time.Now()
		l.mu.Unlock()
	})
	epoch, err := o.RequestEpoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refusedAfter("epochs were revoked", func() {
		now, err := o.RequestEpoch(t.Context())
		if err != nil || now <= epoch {
			t.Fatalf("epoch %d after %d, %v", now, epoch, err)
		}
		if _, err := o.RevokeEpochs(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.minimum = append(l.minimum, epochLaw{now, time.Now()})
		l.mu.Unlock()
	})
	rotate()
	stop()
	all.Wait()
	operations, effects, err := r.count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	extra := effects - operations
	if extra != 0 || operations < int(done.Load()) || done.Load() < 20 {
		t.Errorf("%d operations of workers are done, %d operations have %d effects", done.Load(), operations, effects)
	}
	if refused.Load() == 0 {
		t.Error("nothing was refused on the way: there was no traffic that a revocation meets")
	}
	if n := l.breaches.Load(); n != 0 {
		t.Errorf("%d writes were admitted with what had been revoked for longer than %v", n, l.grace)
	}
	t.Logf("%d operations, each once; %d attempts were refused on the way", done.Load(), refused.Load())
	path, err := o.AuditLog()
	if err != nil || !strings.HasSuffix(path, "s.db.audit") {
		t.Error(path, err)
	}
	s.end(t)
}
