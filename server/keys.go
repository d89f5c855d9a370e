package server

import (
	"context"
	"os"
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

// openRing opens the ring with the keys that are there, and makes none.
func openRing(keyFile, domain string) (*grant.Ring, error) {
	cfg := grant.RingConfig{Dir: ringOf(keyFile), Domain: domain}
	if _, err := os.Lstat(keyFile); err == nil {
		if cfg.First, err = grant.LoadKey(keyFile); err != nil {
			return nil, err
		}
	}
	return grant.OpenRing(cfg)
}

// signer opens the ring. Its first key is the key file's, which is made if there is
// neither; a ring that is there goes on without that file.
func (s *Server) signer() (*grant.Signer, error) {
	if !haveKeys(s.files.Key) {
		key, created, err := grant.LoadOrCreateKey(s.files.Key)
		if err != nil {
			return nil, err
		}
		if created {
			s.cfg.Logger.Info("made a signing key", "file", s.files.Key, "kid", key.ID())
		}
	}
	ring, err := openRing(s.files.Key, s.cfg.Domain)
	if err != nil {
		return nil, err
	}
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
