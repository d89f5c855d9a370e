package sqlstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store/sqlstore"
)

// asNobody runs f without root's rights to files, if the test has them.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		const nobody = 65534
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	f()
}

// KF-38: missing rights are said at the start, not at the first release.
func TestMissingRightsAreSaidAtTheStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "authority.db")
	s := open(t, path, sqlstore.Config{})
	commit(t, s, first)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, dir, filepath.Dir(dir)} {
		if err := os.Chmod(p, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	asNobody(t, func() {
		refused(t, path, lastword.CodeUnavailable, path, "write to the directory")
		refused(t, filepath.Join(dir, "new.db"), lastword.CodeUnavailable, "write to the directory")
	})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() { refused(t, path, lastword.CodeUnavailable, path, "cannot be written to") })
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	commit(t, open(t, path, sqlstore.Config{}), version("doc", 1))
}

// Who reads the store knows the ids of all tenures, and can act in their holders' places.
func TestANewStoreIsForItsUserAlone(t *testing.T) {
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "authority.db")
	s := open(t, path, sqlstore.Config{})
	commit(t, s, first)
	mode := func(want os.FileMode) {
		t.Helper()
		for _, more := range []string{"", "-wal", "-shm"} {
			if info, err := os.Stat(path + more); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v, want mode %o", path+more, info.Mode(), err, want)
			}
		}
	}
	mode(0o600)
	if err := errors.Join(s.Close(), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	commit(t, open(t, path, sqlstore.Config{}), version("doc", 1)) // whoever chose another mode has it
	mode(0o640)
}

// smallDisk is a directory with room for so much.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		if os.Getuid() == 0 {
			t.Fatalf("root cannot mount a small disk here: %v", err)
		}
		t.Skipf("not run: a small disk needs the right to mount one (%v)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// KF-38: it is the disk of the backup that is full, and not the one of the store.
func TestABackupOnAFullDiskNamesTheBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.db")
	a, err := issue(t, path, newSigner(t), authority.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := a.Acquire(t.Context(), backupRequest("o", fmt.Sprintf("doc/%d", i), i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []string{"4k", "16k", "40k"} {
		disk := smallDisk(t, size)
		target := filepath.Join(disk, "copy.db")
		_, err = sqlstore.Backup(t.Context(), path, target, sqlstore.BackupConfig{})
		if !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), target) || strings.Contains(err.Error(), path) {
			t.Errorf("a disk of %s: %v", size, err)
		}
		if left, err := os.ReadDir(disk); err != nil || len(left) != 0 {
			t.Errorf("a disk of %s: %v is left, %v", size, left, err)
		}
	}
}

// KF-38: a full disk is said, and nothing is half done.
func TestAFullDiskIsSaidAndNothingIsHalfDone(t *testing.T) {
	disk := smallDisk(t, "400k")
	fill := filepath.Join(disk, "fill")
	full := func() {
		t.Helper()
		b := make([]byte, 512<<10)
		if err := os.WriteFile(fill, b, 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk does not get full: %v", err)
		}
	}
	path := filepath.Join(disk, "authority.db")
	full()
	refused(t, path, lastword.CodeUnavailable, path)
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}

	s := open(t, path, sqlstore.Config{})
	commit(t, s, first, version("doc", 1))
	full()
	n := uint64(1)
	var err error
	for err == nil && n < 1000 { // what is left of the log's last blocks
		var applied []bool
		if applied, err = s.Commit(t.Context(), version("doc", n+1)); err == nil && applied[0] {
			n++
		}
	}
	if !errors.Is(err, lastword.ErrUnknownOutcome) && !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a commit on a full disk: %v", err)
	}
	if got := revision(t, s, "doc"); got != n {
		t.Errorf("revision %d on the full disk, acknowledged %d", got, n)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	commit(t, s, version("doc", n+1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path, sqlstore.Config{})
	if got := revision(t, again, "doc"); got != n+1 {
		t.Errorf("revision %d after it, want %d", got, n+1)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
