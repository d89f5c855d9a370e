package server_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/server"
)

// R13, T27: a key ring that is lost, or put back from an old copy, does not bring back
// what was revoked: neither a key nor an epoch. The way out begins a ring above it.
func TestAKeyRingThatWentBackIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		witness func(dir string) string
		revoke  func(o server.Operator, kid string) (grant.RingInfo, error)
		lose    func(dir string) error
	}{
		"lost after a revoked key": {beside, revokeKey, loseRing},
		"old copy after a revoked key": {beside, revokeKey, func(dir string) error {
			return errors.Join(loseRing(dir), os.CopyFS(filepath.Join(dir, "s.db.key.ring"), os.DirFS(filepath.Join(dir, "copy"))), closed(filepath.Join(dir, "s.db.key.ring")))
		}},
		"lost, and the old key file is put back": {beside, revokeKey, func(dir string) error {
			return errors.Join(loseRing(dir), os.Rename(filepath.Join(dir, "old.key"), filepath.Join(dir, "s.db.key")))
		}},
		"lost after revoked epochs, SQLite witness": {
			func(dir string) string { return "sqlite:" + filepath.Join(dir, "w.db") },
			func(o server.Operator, _ string) (grant.RingInfo, error) {
				return o.RevokeEpochs(context.Background(), 1)
			},
			loseRing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cfg := config(dir)
			cfg.Witness = test.witness(dir)
			s := start(t, cfg)
			keyFile := filepath.Join(dir, "s.db.key")
			kid := signingOf(t, keyFile)
			old, err := os.ReadFile(keyFile)
			if err == nil {
				err = errors.Join(os.CopyFS(filepath.Join(dir, "copy"), os.DirFS(keyFile+".ring")), os.WriteFile(filepath.Join(dir, "old.key"), old, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			s.end(t)
			o := server.Operator{Store: cfg.Store, Witness: cfg.Witness, Name: "ann", Reason: "test"}
			revoked, err := test.revoke(o, kid)
			if err != nil {
				t.Fatal(err)
			}
			if len(revoked.Revoked) > 0 {
				if _, err := os.Lstat(keyFile); err == nil {
					t.Error("the key file still holds the key that was revoked")
				}
			}
			s = start(t, cfg) // with the ring as it is
			before := bundleOf(t, s)
			s.end(t)

			if err := test.lose(dir); err != nil {
				t.Fatal(err)
			}
			_, err = server.Open(t.Context(), cfg)
			checkRefusal(t, err, lastword.CodeFenceRegression, "the key ring ")
			if _, err := o.Keys(); !errors.Is(err, lastword.ErrRegression) {
				t.Errorf("an operator's command: %v", err)
			}
			again := cfg
			again.NewKey = true
			s = start(t, again)
			b := bundleOf(t, s)
			if b.Sequence() <= before.Sequence() || b.MinimumEpoch() < before.MinimumEpoch() || before.MinimumEpoch() == 0 {
				t.Errorf("sequence %d after %d, minimum epoch %d after %d", b.Sequence(), before.Sequence(), b.MinimumEpoch(), before.MinimumEpoch())
			}
			if now := signingOf(t, keyFile); now == kid {
				t.Error("the old key signs again")
			}
			if _, err := s.Authority().Acquire(t.Context(), lastword.AcquireRequest{Resource: "doc/a", RequestID: "r1", Owner: "w1", TTL: time.Minute}); err != nil {
				t.Error(err)
			}
			s.end(t)
			log, err := os.ReadFile(filepath.Join(dir, "s.db.audit"))
			if err != nil || !strings.Contains(string(log), server.ActionNewRing) {
				t.Errorf("the audit log does not say it: %v", err)
			}
			start(t, cfg).end(t)
		})
	}
}

func beside(string) string { return "" }

func revokeKey(o server.Operator, kid string) (grant.RingInfo, error) {
	return o.RevokeKey(context.Background(), kid)
}

func loseRing(dir string) error { return os.RemoveAll(filepath.Join(dir, "s.db.key.ring")) }

// closed gives a ring that was copied the modes it needs.
func closed(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Chmod(filepath.Join(dir, e.Name()), 0o600))
	}
	return errors.Join(err, os.Chmod(dir, 0o700))
}

func signingOf(t *testing.T, keyFile string) string {
	t.Helper()
	ring, err := grant.OpenRing(grant.RingConfig{Dir: keyFile + ".ring"})
	if err != nil {
		t.Fatal(err)
	}
	keys := ring.Info().Keys
	return keys[slices.IndexFunc(keys, func(k grant.KeyInfo) bool { return k.Signing })].ID
}

// A witness that is moved takes along what is remembered of the ring; files of before,
// without it, are taken as they are.
func TestWhatIsRememberedOfARingMovesWithTheWitness(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config(dir)
	start(t, cfg).end(t)
	if err := os.Remove(filepath.Join(dir, "s.db.witness.keys")); err != nil { // as an older version left it
		t.Fatal(err)
	}
	start(t, cfg).end(t)
	o := server.Operator{Store: cfg.Store, Witness: "sqlite:" + filepath.Join(dir, "w.db"), Name: "ann", Reason: "test"}
	if _, _, err := o.InitWitness(t.Context(), "file:"+filepath.Join(dir, "s.db.witness")); err != nil {
		t.Fatal(err)
	}
	if err := loseRing(dir); err != nil {
		t.Fatal(err)
	}
	cfg.Witness = o.Witness
	_, err := server.Open(t.Context(), cfg)
	checkRefusal(t, err, lastword.CodeFenceRegression, "the key ring is gone")
}
