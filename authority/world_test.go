package authority_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

const domain = "test"

// world is a store that survives, a key, and the authorities that run on them.
type world struct {
	t       *testing.T
	memory  *memstore.Memory
	witness authority.Witness
	signer  *grant.Signer
	opened  []*authority.Authority
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, memory: memstore.New(), witness: authority.NewMemoryWitness(), signer: signer}
}

// open starts an authority that ends with the test, or with close.
func (w *world) open(cfg authority.Config) *authority.Authority {
	w.t.Helper()
	return w.openOn(w.memory.Open(), cfg)
}

func (w *world) openOn(s store.Store, cfg authority.Config) *authority.Authority {
	w.t.Helper()
	cfg.Domain = domain
	if cfg.Witness == nil {
		cfg.Witness = w.witness
	}
	a, err := authority.Open(w.t.Context(), s, w.signer, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.opened = append(w.opened, a)
	return a
}

func (w *world) close() {
	for _, a := range w.opened {
		if err := a.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		f(t, w)
	})
}

func request(owner, id string, ttl time.Duration) lastword.AcquireRequest {
	return lastword.AcquireRequest{Resource: "jobs/nightly", Owner: owner, RequestID: id, TTL: ttl}
}

func mustAcquire(t *testing.T, a *authority.Authority, r lastword.AcquireRequest) lastword.Tenure {
	t.Helper()
	tenure, err := a.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("acquire %+v: %v", r, err)
	}
	return tenure
}

func wantCode(t *testing.T, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func verifyGrant(t *testing.T, a *authority.Authority, tenure lastword.Tenure) {
	t.Helper()
	raw, err := a.Bundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := grant.ParseBundle(raw)
	if err != nil {
		t.Fatal(err)
	}
	v, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := v.Open(t.Context(), tenure.Grant, grant.Want{Resource: tenure.Resource, Owner: tenure.Owner, Class: lastword.ClassWrite})
	if err != nil {
		t.Fatal(err)
	}
	if opened.Claims().Fence != tenure.Fence || opened.Digest() != tenure.GrantDigest {
		t.Fatalf("the grant says %+v, the tenure %+v", opened.Claims(), tenure)
	}
}

func waiting(owner, id string, ttl time.Duration) lastword.AcquireRequest {
	r := request(owner, id, ttl)
	r.Wait = time.Hour
	return r
}

// outcome is how an acquire that ran beside the test ended.
type outcome struct {
	tenure lastword.Tenure
	err    error
	at     time.Time
}

// background starts an acquire and waits until it is under way.
func background(ctx context.Context, a *authority.Authority, r lastword.AcquireRequest) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		t, err := a.Acquire(ctx, r)
		done <- outcome{t, err, time.Now()}
	}()
	synctest.Wait()
	return done
}

func status(t *testing.T, a *authority.Authority) lastword.Status {
	t.Helper()
	st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "jobs/nightly"})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func epoch(t *testing.T, a *authority.Authority) uint32 {
	t.Helper()
	e, err := a.Epoch()
	if err != nil {
		t.Fatal(err)
	}
	return e
}
