package sqlstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store/sqlstore"
)

// refused wants one line that names what was wrong and the way out, and no lock.
func refused(t *testing.T, path string, code lastword.Code, want ...string) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), path, sqlstore.Config{})
	if err == nil {
		_ = s.Close()
		t.Fatalf("%s was opened", path)
	}
	var ours *lastword.Error
	if !errors.As(err, &ours) || ours.Code != code || ours.Op != "open store" || ours.Hint == "" {
		t.Errorf("got %#v, want code %s with an operation and a way out", err, code)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if _, err := os.Stat(path + ".lock"); path != "" && err == nil {
		t.Errorf("%s.lock was left behind", path)
	}
	t.Log(err)
}

func TestAPathThatCannotBeAStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(at("nowhere"), at("dangling")))
	must(os.WriteFile(at("one"), nil, 0o600))
	must(os.Link(at("one"), at("two")))
	must(syscall.Mkfifo(at("pipe"), 0o600))

	refused(t, "", lastword.CodeInvalid, "no file is named")
	refused(t, ":memory:", lastword.CodeInvalid, "memstore")
	refused(t, dir, lastword.CodeInvalid, dir, "is a directory")
	refused(t, at("dangling"), lastword.CodeInvalid, "symbolic link")
	refused(t, at("two"), lastword.CodeInvalid, "2 hard links")
	refused(t, at("pipe"), lastword.CodeInvalid, "not a regular file")
	refused(t, at("no/such/dir.db"), lastword.CodeUnavailable, "directory", "create")
	refused(t, "/proc/authority.db", lastword.CodeUnavailable, "/proc/authority.db", "write to the directory")
	if _, err := sqlstore.Open(t.Context(), at("x.db"), sqlstore.Config{Driver: "none"}); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a driver that is not there: %v", err)
	}
}

func TestAFileThatIsNotOursIsRefusedAndNotTouched(t *testing.T) {
	ours := func(path string) {
		s := open(t, path, sqlstore.Config{})
		commit(t, s, first, version("doc", 1))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		make func(path string)
		want string
	}{
		{"another program's database", func(path string) { run(t, other(t, path), "CREATE TABLE moz_places (x)") }, `table "moz_places"`},
		{"a table of that name", func(path string) { run(t, other(t, path), "CREATE TABLE lastword_record (x)") }, "no lastword has made it"},
		{"garbage", func(path string) { _ = os.WriteFile(path, bytes.Repeat([]byte("garbage\n"), 2000), 0o600) }, "no SQLite database"},
		{"a few bytes", func(path string) { _ = os.WriteFile(path, []byte("x"), 0o600) }, "no SQLite database"},
		{"the log alone", func(path string) {
			_ = os.WriteFile(path, nil, 0o600)
			_ = os.WriteFile(path+"-wal", []byte("frames"), 0o600)
		}, "but its log"},
		{"another encoding", func(path string) {
			run(t, other(t, path), "PRAGMA encoding = 'UTF-16le'; CREATE TABLE lastword_schema (name VARCHAR(64) NOT NULL PRIMARY KEY, version INTEGER NOT NULL)")
		}, "UTF-16le"},
		{"another part of lastword", func(path string) { run(t, other(t, path), "CREATE TABLE lastword_fence (x)") }, "lastword_fence"},
		{"cut short", func(path string) { ours(path); _ = os.Truncate(path, 8192) }, "damaged"},
		{"a newer schema", func(path string) {
			ours(path)
			run(t, other(t, path), "UPDATE lastword_schema SET version = 9")
		}, "version 9"},
		{"a table less", func(path string) { ours(path); run(t, other(t, path), "DROP TABLE lastword_request") }, "lastword_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "some.db")
			c.make(path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, path, lastword.CodeInvalid, path, c.want)
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

func TestAnEmptyFileBecomesAStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	commit(t, open(t, path, sqlstore.Config{}), first)
}

func TestASecondStoreOnOneFileIsRefusedWhateverItIsCalled(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "authority.db")
	s := open(t, path, sqlstore.Config{})
	commit(t, s, first)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	dirLink := filepath.Join(t.TempDir(), "dir")
	if err := os.Symlink(dir, dirLink); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{path, link, filepath.Join(dirLink, "authority.db"), "authority.db", "./x/../authority.db", dir + "//authority.db"} {
		_, err := sqlstore.Open(t.Context(), name, sqlstore.Config{})
		if !errors.Is(err, lastword.ErrUnavailable) || !strings.Contains(err.Error(), path+" is in use by process "+fmt.Sprint(os.Getpid())) {
			t.Errorf("%s: %v", name, err)
		}
	}
	commit(t, s, version("doc", 1)) // it is not disturbed
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if got := revision(t, open(t, link, sqlstore.Config{}), "doc"); got != 1 {
		t.Errorf("revision %d through the link, want 1", got)
	}
}
