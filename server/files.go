package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lastword/lastword"
)

// role is a file and what it is for. A directory is one with all that is in it.
type role struct {
	of, what  string // whose it is; the same owner may name a file twice
	path      string
	directory bool
}

// roles are the files that a server has, with those that it, SQLite and locks make beside
// them.
func (f Files) roles() []role {
	const store, key, witness, audit = "the store", "the signing key", "the witness", "the audit log"
	return []role{
		{of: store, what: store, path: f.Store},
		{of: store, what: "the store's log", path: f.Store + "-wal"},
		{of: store, what: "the index of the store's log", path: f.Store + "-shm"},
		{of: store, what: "the store's journal", path: f.Store + "-journal"},
		{of: store, what: "the store's lock", path: f.Store + ".lock"},
		{of: store, what: "the note of a restore", path: f.Store + ".restoring"},
		{of: "the policy", what: "for the generation of the policy", path: f.Policy},
		{of: key, what: key, path: f.Key},
		{of: key, what: "the key ring", path: ringOf(f.Key), directory: true},
		{of: witness, what: witness, path: f.Witness},
		{of: witness, what: "the witness's lock", path: f.Witness + ".lock"},
		{of: witness, what: "the witness on its way", path: f.Witness + ".new"},
		{of: witness, what: "the witness's log", path: f.Witness + "-wal"},
		{of: witness, what: "the index of the witness's log", path: f.Witness + "-shm"},
		{of: witness, what: "the witness's journal", path: f.Witness + "-journal"},
		{of: witness, what: "what is remembered of the key ring", path: ringMemory(f.Witness)},
		{of: witness, what: "the lock of what is remembered of the key ring", path: ringMemory(f.Witness) + ".lock"},
		{of: "the policy", what: "for the generation of the policy", path: policyMemory(f.Witness)},
		{of: audit, what: audit, path: f.Audit},
	}
}

// distinct: one file cannot be two things, whatever it is called.
func (f Files) distinct() error {
	all := f.roles()
	for i := range all {
		all[i].path = canonical(all[i].path)
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.of == b.of || !a.meets(b) && !b.meets(a) {
				continue
			}
			return invalid("%s is %s, and cannot be %s: name another file", b.path, a.what, b.what)
		}
	}
	return nil
}

func (a role) meets(b role) bool {
	return a.path == b.path || sameFile(a.path, b.path) || a.directory && strings.HasPrefix(b.path, a.path+string(filepath.Separator))
}

// sameFile finds two names of one file. What is not there is none.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// canonical is path without links, as far as it is there.
func canonical(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// resolved is the file behind a path that is a symbolic link: what stands beside it, such
// as its lock, stands beside the real file then, and replacing it keeps the link. Any
// other path stays as it is. A link that leads nowhere is refused.
func resolved(path string) (string, error) {
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil //nolint:nilerr // what cannot be reached is for who opens it
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		e := invalid("%s is a symbolic link to a file that does not exist", path)
		e.Hint = "remove the link, or make its target's directory and name the target itself"
		return "", e
	}
	if err != nil {
		return "", &lastword.Error{Code: lastword.CodeUnavailable, Message: path + " cannot be reached", Err: err, Hint: "check the path and its permissions"}
	}
	return real, nil
}

// resolvedStore is resolved, and refuses a link beside which an earlier version has left
// what belongs beside the real file: it would be missed without a word.
func resolvedStore(path string) (string, error) {
	real, err := resolved(path)
	if err != nil || real == path {
		return real, err
	}
	for _, more := range []string{".key", ".key.ring", ".witness", ".policy", ".audit"} {
		if exists(path+more) && !exists(real+more) {
			e := invalid("%s is a link to %s, and %s is beside the link", path, real, path+more)
			e.Hint = "move it to " + real + more
			return "", e
		}
	}
	return real, nil
}
