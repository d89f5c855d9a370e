//go:build linux

package guard

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
)

func newTestPlace(t *testing.T) *place {
	t.Helper()
	p, err := newPlace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.remove)
	if err := p.write(lastword.TenureRef{Resource: "doc/a", Owner: "o", RequestID: "r", LeaseID: "l", Fence: 7}, "signed"); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatHappensToTheGrantFileIsPutRight(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(p *place) error{
		"removed":              func(p *place) error { return os.Remove(p.path()) },
		"emptied":              func(p *place) error { return os.Truncate(p.path(), 0) },
		"changed, and as long": func(p *place) error { return overwrite(p.path()) },
		"changed, and as old":  func(p *place) error { return overwriteAndHide(p.path()) },
		"readable by others":   func(p *place) error { return os.Chmod(p.path(), 0o644) },
		"replaced by a link": func(p *place) error {
			return replaced(p.path(), func() error { return os.Symlink("/dev/null", p.path()) })
		},
		"replaced by a directory": func(p *place) error {
			return replaced(p.path(), func() error { return os.MkdirAll(p.path()+"/x", 0o700) })
		},
		"in the way of a new one": func(p *place) error {
			return replaced(p.path(), func() error { return os.MkdirAll(filepath.Join(p.dir, newName, "x"), 0o700) })
		},
		"in a directory for all":    func(p *place) error { return os.Chmod(p.dir, 0o755) },
		"gone with its directory":   func(p *place) error { return os.RemoveAll(p.dir) },
		"moved with its directory":  func(p *place) error { return os.Rename(p.dir, p.dir+".moved") },
		"not harmed":                func(*place) error { return nil },
		"readable by its directory": func(p *place) error { return os.Chmod(p.dir, 0o711) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestPlace(t)
			var said bytes.Buffer
			log := slog.New(slog.NewTextHandler(&said, nil))
			if err := harm(p); err != nil {
				t.Fatal(err)
			}
			p.keep(log)
			b, err := os.ReadFile(p.path())
			if err != nil || !bytes.Equal(b, p.content) {
				t.Errorf("got %q, %v", b, err)
			}
			for path, want := range map[string]fs.FileMode{p.path(): 0o600, p.dir: 0o700 | fs.ModeDir} {
				if info, err := os.Lstat(path); err != nil || info.Mode() != want {
					t.Errorf("%s: %v, %v", filepath.Base(path), info, err)
				}
			}
			if said.Len() > 0 {
				t.Errorf("said %s", &said)
			}
			if _, err := os.Stat(p.dir + ".moved/" + grantName); err == nil {
				t.Error("the grant is left in the directory that was moved")
			}
			p.remove()
			if left, _ := filepath.Glob(filepath.Dir(p.dir) + "/*/*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if _, err := os.Stat(p.dir); err == nil {
				t.Error("the directory is left")
			}
		})
	}
}

func replaced(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}

// overwrite changes one byte in place.
func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = f.WriteAt([]byte("x"), 0)
	return err
}

func overwriteAndHide(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := overwrite(path); err != nil {
		return err
	}
	return os.Chtimes(path, time.Time{}, info.ModTime())
}

func TestWhatCannotBePutRightIsSaidOnceAndNotTouched(t *testing.T) {
	t.Parallel()
	p := newTestPlace(t)
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	if err := os.Rename(p.dir, p.dir+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.dir, 0o700); err != nil { // somebody else's
		t.Fatal(err)
	}
	theirs := filepath.Join(p.dir, "theirs")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p.keep(log)
	}
	if n := strings.Count(said.String(), "cannot be put back"); n != 1 {
		t.Errorf("said %d times: %s", n, &said)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	p.keep(log)
	if _, err := os.Stat(p.path()); err != nil {
		t.Errorf("not put back once that can be done: %v", err)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p.keep(log)
	if n := strings.Count(said.String(), "cannot be put back"); n != 2 {
		t.Errorf("said %d times, want once more: %s", n, &said)
	}
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.remove()
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("somebody else's directory was emptied: %v", err)
	}
}

// A reader at any moment sees a whole file: it is never written in its place.
func TestTheGrantFileIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	p := newTestPlace(t)
	open, err := os.Open(p.path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	before := bytes.Clone(p.content)
	if err := p.write(lastword.TenureRef{Resource: "doc/b", Owner: "o", RequestID: "r", LeaseID: "l", Fence: 8}, "other"); err != nil {
		t.Fatal(err)
	}
	old := make([]byte, len(before)+1)
	n, _ := open.Read(old)
	if !bytes.Equal(old[:n], before) {
		t.Errorf("who had it open reads %q", old[:n])
	}
	if b, err := os.ReadFile(p.path()); err != nil || bytes.Equal(b, before) {
		t.Errorf("got %q, %v", b, err)
	}
}
