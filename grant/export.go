package grant

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lastword/lastword"
)

const opExport = "export bundle"

// Export writes the trust bundle to a file that everybody may read, atomically and
// durably. It replaces an earlier bundle of this domain or an empty file, also behind a
// symbolic link, and is [lastword.CodeInvalid] if anything else is there.
func (r *Ring) Export(path string) error {
	if err := r.Reload(); err != nil {
		return err
	}
	b, err := r.Bundle()
	if err != nil {
		return err
	}
	raw, err := b.Marshal()
	if err != nil {
		return err
	}
	target, err := exportTo(path, b.Domain())
	if err != nil {
		return err
	}
	if err := replaceFile(target, append(raw, '\n'), 0o644); err != nil {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: opExport, Message: path, Err: pathless(err)}
	}
	return nil
}

// exportTo is the file that is replaced, and refuses what is no bundle: a device, a key,
// a grant that was named by a slip.
func exportTo(path, domain string) (string, error) {
	refuse := func(why string) error {
		return &lastword.Error{
			Code: lastword.CodeInvalid, Op: opExport, Message: path + ": " + why,
			Hint: "name another file: only an earlier trust bundle of this domain is replaced",
		}
	}
	target, err := filepath.EvalSymlinks(path)
	switch {
	case path == "":
		return "", refuse("it names no file")
	case err != nil:
		if _, missing := os.Lstat(path); missing == nil {
			return "", refuse("it is a symbolic link to nothing")
		}
		return path, nil // it is made
	}
	b, err := readBounded(target)
	if err != nil {
		return "", refuse(err.Error())
	}
	if len(b) == 0 {
		return target, nil
	}
	there, err := ParseBundle(b)
	switch {
	case err != nil:
		return "", refuse("it exists, and is no trust bundle")
	case there.Domain() != domain:
		return "", refuse(fmt.Sprintf("it is the trust bundle of domain %q", there.Domain()))
	}
	return target, nil
}

// readBounded reads a file that may be anything.
func readBounded(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathless(err)
	}
	defer f.Close() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, pathless(err)
	case info.IsDir():
		return nil, errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxBundleBytes+1))
	if err != nil {
		return nil, pathless(err)
	}
	return b, nil
}
