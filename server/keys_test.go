package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/server"
)

func bundleOf(t *testing.T, r *running) grant.Bundle {
	t.Helper()
	raw, err := r.Authority().Bundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := grant.ParseBundle(raw)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// R13: the key file of before becomes the first key of the ring, a running server takes
// in what another process does to the ring, and a start goes on with it.
func TestAServerFollowsItsKeyRing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "s.db.key")
	first, _, err := grant.LoadOrCreateKey(keyFile) // as an older version left it
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, config(dir))
	if b := bundleOf(t, s); b.Sequence() != 1 {
		t.Fatalf("sequence %d, want 1: nothing but the ring is new", b.Sequence())
	}
	ring, err := grant.OpenRing(grant.RingConfig{Dir: keyFile + ".ring", Domain: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	if ring.Signer().KeyID() != first.ID() {
		t.Fatal("the ring does not begin with the key file's key")
	}
	tenure, err := s.Authority().Acquire(t.Context(), lastword.AcquireRequest{Resource: "doc/a", RequestID: "r1", Owner: "w1", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	// A thief has the key: revoked, without a restart, and all that follows from it.
	if err := ring.Revoke(first.ID()); err != nil {
		t.Fatal(err)
	}
	if b := bundleOf(t, s); b.Sequence() != 2 {
		t.Fatalf("the bundle does not show it at once: sequence %d", b.Sequence())
	}
	began := time.Now()
	var next lastword.Tenure
	for next.Fence == 0 { // until the server has ended the tenure of the revoked key
		if time.Since(began) > 20*time.Second {
			t.Fatalf("still not granted: %v", err)
		}
		next, err = s.Authority().Acquire(t.Context(), lastword.AcquireRequest{Resource: "doc/a", RequestID: "r2", Owner: "w2", TTL: time.Minute, Wait: time.Second})
	}
	t.Logf("from revocation to the next grant: %v", time.Since(began).Round(time.Millisecond))
	if next.Fence.Epoch() <= tenure.Fence.Epoch() {
		t.Fatalf("fence %s after %s", next.Fence.Text(), tenure.Fence.Text())
	}
	sequence := bundleOf(t, s).Sequence()
	s.end(t)

	if _, err := os.Lstat(keyFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key file still holds the revoked key: %v", err)
	}
	s = start(t, config(dir))
	b := bundleOf(t, s)
	if b.Sequence() <= sequence || b.MinimumEpoch() <= tenure.Fence.Epoch() || b.MinimumEpoch() > next.Fence.Epoch() {
		t.Fatalf("sequence %d after %d, minimum %d", b.Sequence(), sequence, b.MinimumEpoch())
	}
	if err := ring.Reload(); err != nil || ring.Signer().Has(first.ID()) {
		t.Fatalf("the revoked key came back: %v", err)
	}
	s.end(t)

	// Another key in the file than the ring knows is a mistake that somebody has to see.
	if _, _, err := grant.LoadOrCreateKey(keyFile); err != nil {
		t.Fatal(err)
	}
	_, err = server.Open(t.Context(), config(dir))
	checkRefusal(t, err, lastword.CodeInvalid, "move the key file away")
}

// One file is one thing, whatever it is called: an audit log that is appended to a store,
// its log or a key would damage it.
func TestNoFileIsTwoThings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, config(dir))
	s.end(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Symlink(at("s.db"), at("link")), os.Link(at("s.db.key"), at("hard"))); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*server.Config){
		"the store as the audit log":             func(c *server.Config) { c.Audit = at("s.db") },
		"the store by another path":              func(c *server.Config) { c.Audit = dir + "/./s.db" },
		"the store by a link":                    func(c *server.Config) { c.Audit = at("link") },
		"the store as the witness":               func(c *server.Config) { c.Witness = "file:" + dir + "//s.db" },
		"the key by a hard link":                 func(c *server.Config) { c.Audit = at("hard") },
		"the store's log":                        func(c *server.Config) { c.Audit = at("s.db-wal") },
		"the store's lock as the key":            func(c *server.Config) { c.KeyFile = at("s.db.lock") },
		"the note of a restore":                  func(c *server.Config) { c.Witness = "sqlite:" + at("s.db.restoring") },
		"the lock of the witness":                func(c *server.Config) { c.Audit = at("s.db.witness.lock") },
		"the journal of the witness":             func(c *server.Config) { c.Witness, c.Audit = "sqlite:"+at("w"), at("w-wal") },
		"a file of the key ring":                 func(c *server.Config) { c.Audit = at("s.db.key.ring/ring.json") },
		"the key ring as the store":              func(c *server.Config) { c.Store, c.KeyFile = "sqlite:"+at("s.db.key.ring/lock"), at("s.db.key") },
		"the generation of the policy":           func(c *server.Config) { c.Audit = at("s.db.policy") },
		"a store beside whose witness it stands": func(c *server.Config) { c.Witness, c.KeyFile = "sqlite:"+at("x"), at("x-shm") },
	} {
		cfg := config(dir)
		change(&cfg)
		if _, err := server.Open(t.Context(), cfg); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "cannot be") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s = start(t, config(dir)) // nothing was damaged
	s.end(t)
}

// R13: rotations that run at the same time, and one that died between its steps, leave one
// key that signs, and none beside it that is believed in later epochs.
func TestRotationsAtTheSameTimeLeaveOneKeyThatSigns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, config(dir))
	o := server.Operator{Store: config(dir).Store, Name: "ann", Reason: "test"}
	ring, err := o.Keys()
	if err != nil {
		t.Fatal(err)
	}
	died, err := ring.Add(grant.Key{})
	if err == nil {
		err = ring.Use(died.ID) // and nothing was retired
	}
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if err := o.RotateKey(t.Context(), 0, func(string, grant.KeyInfo) {}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := ring.Reload(); err != nil {
		t.Fatal(err)
	}
	signs := 0
	for _, k := range ring.Info().Keys {
		switch {
		case k.Signing:
			signs++
		case k.Epochs.Last == nil && k.Used:
			t.Errorf("the key %s has signed, and is believed in later epochs", k.ID)
		}
	}
	if signs != 1 {
		t.Errorf("%d keys sign", signs)
	}
	s.end(t)
}
