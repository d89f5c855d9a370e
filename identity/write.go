package identity

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lastword/lastword"
)

// newFile makes a file of mode 0600, whole and durable or not at all. It overwrites
// nothing: an existing one is fs.ErrExist.
func newFile(path string, b []byte) error { return placeFile(path, b, os.Link) }

// replaceFile is newFile that replaces what is there.
func replaceFile(path string, b []byte) error { return placeFile(path, b, os.Rename) }

func placeFile(path string, b []byte, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".lastword-*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // what a link leaves, or a failure
	_, err = f.Write(b)
	if err := errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// lockDir excludes others who issue here: certificate and key are two files, and have to
// be of one pair. The kernel drops the lock with its process. A directory that is not
// there, or is none, is for the caller to find.
func lockDir(dir string) (free func(), err error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return func() {}, nil //nolint:nilerr // as above
	}
	for {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = d.Close()
		return func() {}, &lastword.Error{Code: lastword.CodeUnavailable, Message: dir + " cannot be locked", Err: err}
	}
	return func() { _ = d.Close() }, nil
}

// pathless drops what the message says already.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}
