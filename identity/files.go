package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/lastword/lastword"
)

// maxFileBytes bounds what is read of a file that may be anything.
const maxFileBytes = 1 << 20

// stamp tells one content of a file from the next without reading it.
type stamp struct {
	size, modified int64
	inode          uint64
}

func stampsOf(paths []string) ([]stamp, error) {
	stamps := make([]stamp, len(paths))
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		stamps[i] = stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			stamps[i].inode = sys.Ino
		}
	}
	return stamps, nil
}

// readAll reads files; secret is the one that nobody else may reach.
func readAll(paths []string, secret string) ([][]byte, error) {
	texts := make([][]byte, len(paths))
	for i, path := range paths {
		b, err := readFile(path, path == secret)
		if err != nil {
			return nil, err
		}
		texts[i] = b
	}
	return texts, nil
}

func readFile(path string, secret bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // not to hang on a named pipe
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, unreadable(path, err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, invalid("%s: it is a directory", path)
	case !mode.IsRegular():
		return nil, invalid("%s: it is not a regular file", path)
	case secret && mode.Perm()&0o077 != 0:
		e := invalid("%s: its mode %04o lets others reach it", path, mode.Perm())
		e.Hint = "chmod 600 it, and replace what is in it if others may have read it"
		return nil, e
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	if len(b) > maxFileBytes {
		return nil, invalid("%s: it has more than %d bytes", path, maxFileBytes)
	}
	return b, nil
}

func unreadable(path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: fmt.Sprintf("cannot read %s", path), Err: err}
}
