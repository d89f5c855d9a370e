package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/grantfile"
)

// badFile is one clear line about a file that the caller named.
func badFile(op, path, why, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: fmt.Sprintf("grant file %s: %s", path, why), Hint: hint}
}

const makeGrantFile = "lastword acquire RESOURCE --grant FILE makes one"

func readGrantFile(op, path string) (grantfile.File, error) {
	b, err := readSmall(path, grantfile.MaxBytes)
	if err != nil {
		return grantfile.File{}, badFile(op, path, err.Error(), makeGrantFile)
	}
	f, err := grantfile.Parse(b)
	if err != nil {
		return grantfile.File{}, badFile(op, path, err.Error(), makeGrantFile)
	}
	return f, nil
}

// readSmall reads a regular file of at most limit bytes. It does not hang on a pipe.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathless(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, pathless(err)
	case info.IsDir():
		return nil, errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	return limited(f, limit)
}

func limited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, pathless(err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return b, nil
}

// pathless drops the path, which the line about it names already.
func pathless(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}

// grantWriter is a grant file on its way: a temporary file that was opened before
// anything was acquired, so that a lease which nobody could use is not taken.
type grantWriter struct {
	path  string
	force bool
	tmp   *os.File
}

// reserveGrantFile checks that the file at path can be made and opens what will
// become it. Nothing stands at path until commit.
func reserveGrantFile(path string, force bool) (*grantWriter, error) {
	const op = "acquire"
	info, err := os.Lstat(path)
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return nil, badFile(op, path, "it names no file", "")
	case err == nil && info.IsDir():
		return nil, badFile(op, path, "it is a directory", "name a file in it")
	case err == nil && !force:
		return nil, badFile(op, path, "it exists, and may hold the only grant of a lease", "release it and remove the file, or overwrite it with --force")
	case err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		return nil, badFile(op, path, "it is not a regular file", "")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, badFile(op, path, pathless(err).Error(), "")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lastword-grant-*") // O_EXCL, 0600
	if err != nil {
		return nil, badFile(op, path, "its directory cannot be written to: "+pathless(err).Error(), "")
	}
	return &grantWriter{path: path, force: force, tmp: tmp}, nil
}

// commit makes the file, whole and durable, or leaves nothing.
func (w *grantWriter) commit(f grantfile.File) error {
	b, err := f.Marshal()
	if err == nil {
		_, err = w.tmp.Write(b)
	}
	if err == nil {
		err = w.tmp.Sync()
	}
	if err == nil {
		err = w.name()
	}
	if err == nil {
		err = syncDir(filepath.Dir(w.path))
	}
	if err != nil {
		return fmt.Errorf("grant file %s: %w", w.path, pathless(err))
	}
	return nil
}

// name gives the file its name. A link, unlike a rename, replaces nothing that came
// there meanwhile.
func (w *grantWriter) name() error {
	if w.force {
		return os.Rename(w.tmp.Name(), w.path)
	}
	err := os.Link(w.tmp.Name(), w.path)
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// No links here: claim the name, then replace what was claimed.
	claim, err := os.OpenFile(w.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(claim.Close(), os.Rename(w.tmp.Name(), w.path))
}

// discard removes what is left of the temporary file.
func (w *grantWriter) discard() {
	_ = w.tmp.Close()
	_ = os.Remove(w.tmp.Name())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
