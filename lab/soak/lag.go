package soak

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lastword/lastword/lab/history"
)

// watchLag measures, until the returned function is called, how late the machine itself
// is: a timer of two milliseconds and one write that is on the disk before the next. It
// is what a hand-over cannot be better than.
func watchLag(dir string) (stop func() []time.Duration) {
	const wait = 2 * time.Millisecond
	var found []time.Duration
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		f, err := os.Create(filepath.Join(dir, "lag"))
		if err != nil {
			return
		}
		defer f.Close()
		t := time.NewTicker(20 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-ended:
				return
			case <-t.C:
			}
			began := history.Clock()
			time.Sleep(wait)
			_, err := f.WriteAt([]byte{0}, 0)
			if err != nil || f.Sync() != nil {
				return
			}
			found = append(found, since(began)-wait)
		}
	})
	return func() []time.Duration {
		close(ended)
		running.Wait()
		return found
	}
}
