package server_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/server"
)

// A store, key or witness that is named by a link: what stands beside it stands beside
// the real file, and the link stays.
func TestFilesThatAreLinksStayLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, sub := range []string{"real", "links"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, "real", name) }
	link := func(name string) string { return filepath.Join(dir, "links", name) }
	cfg := config(dir)
	cfg.Store, cfg.KeyFile, cfg.Witness = "sqlite:"+at("s.db"), at("key"), "file:"+at("w")
	start(t, cfg).end(t)
	for _, name := range []string{"s.db", "key", "w"} {
		if err := os.Symlink(at(name), link(name)); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Store, cfg.KeyFile, cfg.Witness = "sqlite:"+link("s.db"), link("key"), "file:"+link("w")
	start(t, cfg).end(t)
	found, err := os.ReadDir(filepath.Join(dir, "links"))
	if err != nil || len(found) != 3 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, e := range found {
		if e.Type()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", e.Name())
		}
	}

	// What an earlier version has left beside a link is not missed without a word.
	if err := errors.Join(os.Rename(at("s.db.audit"), link("s.db.audit"))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(link("s.db.witness"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = server.Open(t.Context(), cfg)
	checkRefusal(t, err, lastword.CodeInvalid, "is beside the link")

	if err := errors.Join(os.Remove(link("s.db.witness")), os.Remove(link("w")), os.Symlink(at("nothing"), link("w"))); err != nil {
		t.Fatal(err)
	}
	_, err = server.Open(t.Context(), cfg)
	checkRefusal(t, err, lastword.CodeInvalid, "a symbolic link to a file that does not exist")
}
