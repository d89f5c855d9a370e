package sqlstore

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// The lock file is removed while it is locked; whoever had opened it before must not
// take the file without a name for the lock.
func TestAFileThatWasRemovedIsNotTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	first, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	late, err := os.OpenFile(first.name, os.O_RDWR, 0) // as a second process does, before it locks
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := flock(late); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatalf("a held lock: %v", err)
	}
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	if err := flock(late); err != nil {
		t.Fatal(err)
	}
	if names(first.name, late) {
		t.Error("a file without a name counts as the lock")
	}
	third, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if names(first.name, late) {
		t.Error("a file whose name is another's counts as the lock")
	}
	if err := third.release(); err != nil {
		t.Fatal(err)
	}
}

func TestTheLockHasOneHolderWhileItComesAndGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	var holders, taken atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1500 {
				lock, err := lockFile(path)
				if err != nil {
					continue
				}
				taken.Add(1)
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				holders.Add(-1)
				if err := lock.release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if taken.Load() == 0 {
		t.Error("nobody got the lock")
	}
}
