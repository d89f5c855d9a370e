package identity

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
