package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/lastword/lastword/grant"
)

// ringOf is the directory of the key ring that belongs to a key file: the file's key is
// the ring's first one.
func ringOf(keyFile string) string { return keyFile + ".ring" }

// haveKeys reports whether there is a key to sign with, in the key file or in its ring.
func (s *Server) haveKeys() bool {
	_, file := os.Lstat(s.files.Key)
	_, ring := os.Lstat(ringOf(s.files.Key))
	return file == nil || ring == nil
}

// signer opens the ring. Its first key is the key file's, which is made if there is
// neither; a ring that is there goes on without that file.
func (s *Server) signer() (*grant.Signer, error) {
	var first grant.Key
	_, fileErr := os.Lstat(s.files.Key)
	_, ringErr := os.Lstat(ringOf(s.files.Key))
	if fileErr == nil || errors.Is(ringErr, fs.ErrNotExist) {
		key, created, err := grant.LoadOrCreateKey(s.files.Key)
		if err != nil {
			return nil, err
		}
		if created {
			s.cfg.Logger.Info("made a signing key", "file", s.files.Key, "kid", key.ID())
		}
		first = key
	}
	ring, err := grant.OpenRing(grant.RingConfig{Dir: ringOf(s.files.Key), Domain: s.cfg.Domain, First: first})
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
