package server_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// incarnation is one life of a resource: what a process knows between two restarts.
type incarnation struct {
	db      *sql.DB
	fence   *sqlfence.Fence
	minimum uint64          // policy generation
	life    context.Context // ends with it, and with it every write under way
	kill    context.CancelFunc
}

// restartable is a resource whose process ends again and again, in the middle of writes.
type restartable struct {
	t    *testing.T
	path string
	mu   sync.RWMutex // held while there is no process
	now  *incarnation
}

func (r *restartable) open(source grant.BundleSource, minimum uint64) *incarnation {
	r.t.Helper()
	in := &incarnation{minimum: minimum}
	in.life, in.kill = context.WithCancel(context.Background())
	v, err := grant.NewVerifier("demo", source, grant.VerifierConfig{})
	if err == nil {
		in.db, err = sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: "sqlite", Path: r.path})
	}
	if err == nil {
		err = sqlfence.Init(r.t.Context(), in.db)
	}
	if err == nil {
		_, err = in.db.ExecContext(r.t.Context(), "CREATE TABLE IF NOT EXISTS effect (operation TEXT NOT NULL)")
	}
	if err == nil {
		in.fence, err = sqlfence.New(r.t.Context(), in.db, sqlfence.Config{Config: fence.Config{
			Domain: "demo", Verifier: v, Mode: fence.FenceOnly, MinPolicyGeneration: minimum,
		}})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return in
}

func (in *incarnation) end() {
	in.kill()
	_ = in.fence.Close()
	_ = in.db.Close()
}

// restart ends the process; between is what happens before there is another one.
func (r *restartable) restart(source grant.BundleSource, minimum uint64, between func()) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.end()
	between()
	r.now = r.open(source, minimum)
}

func (r *restartable) present() *incarnation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.now
}

func (in *incarnation) apply(held lastword.Tenure, operation string) error {
	call := fence.Call{Resource: held.Resource, Content: []byte(operation), Mutation: lastword.Mutation{Grant: held.Grant, Operation: operation}}
	_, err := fence.Apply(in.life, in.fence.Gate(), in.fence.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
		_, err := tx.SQL().ExecContext(ctx, "INSERT INTO effect VALUES (?)", operation)
		return nil, err
	})
	return err
}

// citizen works under a policy: operation after operation, each until it has had its
// effect, whatever happens to the resource, or until it may not acquire any more.
type citizen struct {
	name   string
	client *rpc.Client
	keep   int // operations under one tenure

	done, refused, interrupted, breaches atomic.Int64
	exiled                               atomic.Bool
}

func (c *citizen) work(ctx context.Context, r *restartable) error {
	background := context.WithoutCancel(ctx)
	var held lastword.Tenure
	for attempt, used := 0, 0; ctx.Err() == nil; {
		if held.Fence == 0 {
			attempt++
			t, err := c.client.Acquire(background, lastword.AcquireRequest{
				Resource: lastword.Resource("doc/" + c.name), RequestID: fmt.Sprint(attempt), TTL: time.Minute, Class: lastword.ClassWrite,
			})
			if errors.Is(err, lastword.ErrUnverified) {
				c.exiled.Store(true)
				return nil
			}
			if err != nil {
				return fmt.Errorf("acquire: %w", err)
			}
			held, used = t, 0
		}
		in := r.present()
		err := in.apply(held, fmt.Sprint(c.name, "-", c.done.Load()))
		switch {
		case err == nil:
			if held.PolicyGeneration < in.minimum {
				c.breaches.Add(1)
			}
			c.done.Add(1)
			used++
		case in.life.Err() != nil: // the process went away under it: the next one is asked
			c.interrupted.Add(1)
			continue
		case errors.Is(err, lastword.ErrUnverified):
			c.refused.Add(1)
		default:
			return fmt.Errorf("apply: %w", err)
		}
		if err != nil || used >= c.keep {
			if err := c.client.Release(background, held.TenureRef); err != nil {
				return fmt.Errorf("release: %w", err)
			}
			held = lastword.Tenure{}
		}
	}
	return nil
}

// R13, T25, T26, T27: the policy changes while everybody works, the minimum is raised at the
// resource, which is restarted again and again in the middle of writes, and in between is
// offered a trust bundle that was rolled back. Each operation has its effect exactly once,
// nothing of an earlier generation is admitted above the minimum, nobody who has the right
// is kept out, and who has lost it is.
func TestAPolicyChangeAndRestartsOfTheResourceInMidTrafficLoseNothingAndAdmitNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: it goes on for as long as trust bundles take to spread")
	}
	t.Parallel()
	const hint = time.Second
	dir := t.TempDir()
	cfg, _ := secured(t, dir)
	cfg.Authority.RefreshHint = hint
	const all, fewer = "rules: [{who: spiffe://lastword.test/, acquire: /}]\n",
		"rules: [{who: spiffe://lastword.test/loyal/, acquire: /}]\n"
	cfg.Policy = write(t, filepath.Join(dir, "policy.yaml"), "generation: 1\n"+all, 0o600)
	s := start(t, cfg)
	as := func(name string) *rpc.Client {
		t.Helper()
		i, err := identity.Issue(filepath.Join(dir, "pki"), "spiffe://lastword.test/"+name, identity.IssueConfig{})
		if err != nil {
			t.Fatal(err)
		}
		return dialAs(t, s, identity.Config{CertFile: i.CertFile, KeyFile: i.KeyFile, CAFiles: map[string]string{"": cfg.TLS.ClientCA[""]}})
	}
	watcher := as("loyal/watcher")
	r := &restartable{t: t, path: filepath.Join(dir, "app.db")}
	fresh := func() grant.BundleSource { return grant.FetchBundle(watcher.Bundle) }
	r.now = r.open(fresh(), 1)
	defer func() { r.now.end() }()

	people := []*citizen{
		{name: "loyal/one", keep: 1}, {name: "loyal/many", keep: 10_000}, {name: "exile/one", keep: 1}, {name: "exile/many", keep: 10_000},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	for _, c := range people {
		c.client = as(c.name)
		working.Go(func() {
			if err := c.work(ctx, r); err != nil {
				t.Errorf("%s: %v", c.name, err)
				stop()
			}
		})
	}
	// on waits until everybody who still works has done more.
	on := func() {
		t.Helper()
		for _, c := range people {
			from := c.done.Load()
			comesTrue(t, c.name+" goes on", func() bool { return ctx.Err() != nil || c.exiled.Load() || c.done.Load() >= from+5 })
		}
	}
	canary, err := watcher.Acquire(t.Context(), lastword.AcquireRequest{Resource: "canary", RequestID: "1", TTL: time.Minute, Class: lastword.ClassWrite})
	if err != nil || canary.PolicyGeneration != 1 {
		t.Fatalf("generation %d, %v", canary.PolicyGeneration, err)
	}
	old, err := watcher.Bundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	on()
	r.restart(fresh(), 1, func() {})
	on()
	o := server.Operator{Store: cfg.Store, Name: "ann", Reason: "test"}
	if err := o.RotateKey(t.Context(), 2*hint, func(string, grant.KeyInfo) {}); err != nil {
		t.Fatal(err)
	}
	r.restart(fresh(), 1, func() {
		in := r.open(fresh(), 1) // the record learns of the newer bundle
		if err := in.apply(canary, "canary-1"); err != nil {
			t.Fatal(err)
		}
		in.end()
		stale, err := grant.ParseBundle(old)
		if err != nil {
			t.Fatal(err)
		}
		in = r.open(grant.StaticBundle(stale), 1)
		defer in.end()
		if err := in.apply(canary, "canary-2"); grant.ReasonOf(err) != grant.ReasonBundleRollback {
			t.Errorf("a bundle that was rolled back, after a restart: %v", err)
		}
	})
	on()
	if n := people[0].refused.Load() + people[1].refused.Load() + people[2].refused.Load() + people[3].refused.Load(); n != 0 {
		t.Errorf("%d legal writes were refused before the policy changed", n)
	}

	began := time.Now()
	write(t, filepath.Join(dir, "new.yaml"), "generation: 2\n"+fewer, 0o600)
	if err := os.Rename(filepath.Join(dir, "new.yaml"), cfg.Policy); err != nil {
		t.Fatal(err)
	}
	comesTrue(t, "who has lost the right is refused", people[2].exiled.Load)
	took := time.Since(began)
	if took > 2*hint {
		t.Errorf("a right that was taken away was still good %v later", took)
	}
	on()
	raised := time.Now()
	r.restart(fresh(), 2, func() {})
	if err := r.present().apply(canary, "canary-3"); grant.ReasonOf(err) != grant.ReasonPolicyRevoked {
		t.Errorf("an earlier generation, above the minimum: %v", err)
	}
	t.Logf("acquires were refused %v after the policy file, writes %v after the minimum (restart included; bound: %v)",
		took.Round(time.Millisecond), time.Since(raised).Round(time.Millisecond), 2*hint)
	comesTrue(t, "who held a lease is refused, too", people[3].exiled.Load)
	on()
	r.restart(fresh(), 2, func() {})
	on()
	stop()
	working.Wait()

	var operations, effects int
	if err := r.now.db.QueryRowContext(t.Context(), "SELECT count(DISTINCT operation), count(*) FROM effect").Scan(&operations, &effects); err != nil {
		t.Fatal(err)
	}
	done, interrupted := 1, int64(0) // the canary's
	for i, c := range people {
		done += int(c.done.Load())
		interrupted += c.interrupted.Load()
		if n := c.breaches.Load(); n != 0 {
			t.Errorf("%s: %d writes of an earlier generation above the minimum", c.name, n)
		}
		if c.exiled.Load() != (i >= 2) {
			t.Errorf("%s: exiled %v", c.name, c.exiled.Load())
		}
	}
	if effects != operations || operations < done {
		t.Errorf("%d operations were done, %d operations have %d effects", done, operations, effects)
	}
	if people[1].refused.Load() == 0 || people[3].refused.Load() == 0 {
		t.Error("no write of an earlier generation has met the minimum: nothing was shown")
	}
	t.Logf("%d operations, each once; %d were interrupted by a restart and settled", done, interrupted)
	s.end(t)
}

// comesTrue waits for a condition that something else brings about.
func comesTrue(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come true that %s", what)
		}
	}
}
