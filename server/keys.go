package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// ringOf is the directory of the key ring that belongs to a key file: the file's key is
// the ring's first one.
func ringOf(keyFile string) string { return keyFile + ".ring" }

// there refuses a store that is not there: an operator means one that is.
func there(store string) error {
	info, err := os.Stat(store)
	switch {
	case err != nil:
		return &lastword.Error{Code: lastword.CodeInvalid, Message: store + " is not there", Hint: "name the file of the store, or restore it first"}
	case info.Mode().IsRegular() && info.Size() == 0:
		return &lastword.Error{Code: lastword.CodeInvalid, Message: store + " is an empty file", Hint: "restore it first, or let 'lastword serve' make a store of it"}
	}
	return nil
}

// haveKeys reports whether there is a key to sign with, in the key file or in its ring.
func haveKeys(keyFile string) bool {
	_, file := os.Lstat(keyFile)
	_, ring := os.Lstat(ringOf(keyFile))
	return file == nil || ring == nil
}

// ringMemory is the file beside a witness that remembers what the key ring must not go
// back behind, whatever form the witness has.
func ringMemory(witness string) string { return witness + ".keys" }

// memory is that file. A process that was told of no witness, where there is none at the
// usual place, does not begin one there.
func (f Files) memory(named bool) string {
	memory := ringMemory(f.Witness)
	if named || exists(memory) || exists(f.Witness) {
		return memory
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ringConfig is the ring with the keys that are there.
func ringConfig(keyFile, memory, domain string) (cfg grant.RingConfig, err error) {
	cfg = grant.RingConfig{Dir: ringOf(keyFile), Domain: domain, Memory: memory}
	if exists(keyFile) {
		cfg.First, err = grant.LoadKey(keyFile)
	}
	return cfg, err
}

// openRing opens the ring with the keys that are there, and makes none.
func openRing(keyFile, memory, domain string) (*grant.Ring, error) {
	cfg, err := ringConfig(keyFile, memory, domain)
	if err != nil {
		return nil, err
	}
	ring, err := grant.OpenRing(cfg)
	if err != nil {
		return nil, err
	}
	return ring, dropRevoked(keyFile, ring.Info())
}

// dropRevoked removes the key file if its key was revoked: the ring goes on without it,
// and nobody can begin a ring with it again.
func dropRevoked(keyFile string, info grant.RingInfo) error {
	if len(info.Revoked) == 0 || !exists(keyFile) {
		return nil
	}
	key, err := grant.LoadKey(keyFile)
	if err != nil || !slices.Contains(info.Revoked, key.ID()) {
		return nil //nolint:nilerr // what is no key is none that was revoked
	}
	if err := os.Remove(keyFile); err != nil {
		return &lastword.Error{Code: lastword.CodeUnavailable, Message: keyFile + " holds a key that was revoked, and cannot be removed", Err: err, Hint: "remove it"}
	}
	dir, err := os.Open(filepath.Dir(keyFile))
	if err != nil {
		return nil //nolint:nilerr // it is removed; the next start looks again
	}
	_ = dir.Sync() // as above
	return dir.Close()
}

// beginRing begins a ring anew, as --new-key says, over one that is lost or went back.
func (s *Server) beginRing(ctx context.Context, found error) (*grant.Ring, error) {
	cfg, err := ringConfig(s.files.Key, ringMemory(s.files.Witness), s.cfg.Domain)
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.Warn("beginning a new key ring: grants of before stop verifying", "found", found.Error())
	var ring *grant.Ring
	o := Operator{Name: "--new-key", Reason: "the key ring is gone or went back"}
	err = o.kept(ctx, s.files.Audit, ActionNewRing, map[string]string{"found": found.Error()}, func() (string, error) {
		if ring, err = grant.BeginRing(cfg); err != nil {
			return "", err
		}
		info := ring.Info()
		return fmt.Sprintf("bundle sequence %d, minimum epoch %d", info.Sequence, info.MinimumEpoch), nil
	})
	if err != nil {
		return nil, err
	}
	return ring, dropRevoked(s.files.Key, ring.Info())
}

// signer opens the ring. Its first key is the key file's, which is made if there is
// neither; a ring that is there goes on without that file.
func (s *Server) signer(ctx context.Context) (*grant.Signer, error) {
	memory := ringMemory(s.files.Witness)
	if !haveKeys(s.files.Key) && !exists(memory) {
		key, created, err := grant.LoadOrCreateKey(s.files.Key)
		if err != nil {
			return nil, err
		}
		if created {
			s.cfg.Logger.Info("made a signing key", "file", s.files.Key, "kid", key.ID())
		}
	}
	ring, err := openRing(s.files.Key, memory, s.cfg.Domain)
	if s.cfg.NewKey && errors.Is(err, lastword.ErrRegression) {
		ring, err = s.beginRing(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	s.ring = ring
	return ring.Signer(), nil
}

// reloadEvery is how soon a change of the key ring is taken in. The trust bundle shows
// it at once.
const reloadEvery = time.Second

// followKeys takes in changes of the key ring until the returned function is called.
func (s *Server) followKeys(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(reloadEvery) //nolint:forbidigo // how often to look; nothing is decided by it
		defer ticker.Stop()
		var last string
		for {
			text := ""
			if err := s.authority.Reload(ctx); err != nil && ctx.Err() == nil {
				text = err.Error()
			} else if err := dropRevoked(s.files.Key, s.ring.Info()); err != nil {
				text = err.Error()
			}
			if text != last && text != "" { // said once, not every second
				s.cfg.Logger.Error("the key ring could not be taken in", "error", text)
			}
			last = text
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
