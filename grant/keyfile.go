package grant

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lastword/lastword"
)

const (
	pemType = "PRIVATE KEY"
	// zonePEMType holds the 32 bytes of an HS256 key.
	zonePEMType = "LASTWORD ZONE KEY"
	// maxKeyFile bounds what is read of a file that may be anything.
	maxKeyFile = 16 << 10
	keyMode    = 0o600
)

var errNoLinks = errors.New("this file system has no hard links")

// LoadOrCreateKey reads the key file at path, or makes one if there is none
// (created). The file is PKCS#8 PEM of mode 0600. It appears whole and durable or
// not at all, and of several processes that create it at once one wins and all
// get its key. A file that group or others can reach, a directory, a link to
// nowhere and another kind of key are refused with [lastword.CodeInvalid]; what
// the file system refuses is [lastword.CodeUnavailable].
func LoadOrCreateKey(path string) (k Key, created bool, err error) {
	if path == "" {
		return Key{}, false, &lastword.Error{Code: lastword.CodeInvalid, Op: "load key file", Message: "no path"}
	}
	k, err = loadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, false, err
	}
	if _, err := os.Lstat(path); err == nil {
		return Key{}, false, badKeyFile(path, "it is a link to nowhere", "remove the link, or make the file that it names")
	}
	k, err = NewKey()
	if err != nil {
		return Key{}, false, err
	}
	err = writeKey(path, k)
	if errors.Is(err, fs.ErrExist) { // another process was first
		k, err = loadKey(path)
		return k, false, err
	}
	if err != nil {
		return Key{}, false, keyFileFailed("create key file", path, err)
	}
	return k, true, nil
}

// LoadKey reads a key file: PKCS#8 PEM of an Ed25519 key, or what [SaveKey] wrote. It
// fails as [LoadOrCreateKey] does, and with [lastword.CodeUnavailable] if there is no
// file.
func LoadKey(path string) (Key, error) { return loadKey(path) }

// SaveKey writes the key to a new file of mode 0600, durably. It never overwrites: an
// existing file is [lastword.CodeUnavailable].
func SaveKey(path string, k Key) error {
	if k.k == nil {
		return invalid("save key file", "", errors.New("the key is the zero value"))
	}
	if err := writeKey(path, k); err != nil {
		return keyFileFailed("save key file", path, err)
	}
	return nil
}

func loadKey(path string) (Key, error) {
	// Not to hang on a named pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Key{}, keyFileFailed("load key file", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Key{}, keyFileFailed("load key file", path, err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return Key{}, badKeyFile(path, "it is a directory", "name a file in it")
	case !mode.IsRegular():
		return Key{}, badKeyFile(path, "it is not a regular file", "")
	case mode.Perm()&0o077 != 0:
		return Key{}, badKeyFile(path, fmt.Sprintf("its mode %04o lets others reach it", mode.Perm()),
			"chmod 600 it, and replace the key if others may have read it")
	case info.Size() > maxKeyFile:
		return Key{}, badKeyFile(path, "it is too large for a key file", "")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return Key{}, keyFileFailed("load key file", path, err)
	}
	k, err := parseKey(b)
	if err != nil {
		return Key{}, badKeyFile(path, err.Error(), "name another file, or move this one away to get a new key")
	}
	return k, nil
}

// writeKey puts the key at path durably: content before name, name before return.
// It fails with fs.ErrExist if path exists; nothing is ever overwritten.
func writeKey(path string, k Key) error {
	b, err := k.k.pem()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".lastword-key-*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(fill(f, b), f.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, never replaces a file that another process made.
	switch err := os.Link(f.Name(), path); {
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported):
		return errNoLinks
	case err != nil:
		return err
	}
	return syncDir(dir)
}

func fill(f *os.File, b []byte) error {
	if err := f.Chmod(keyMode); err != nil { // whatever the umask took away
		return err
	}
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func badKeyFile(path, why, hint string) error {
	return &lastword.Error{
		Code: lastword.CodeInvalid, Op: "load key file",
		Message: fmt.Sprintf("%s: %s", path, why), Hint: hint,
	}
}

func keyFileFailed(op, path string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, errNoLinks):
		hint = "make the file with: openssl genpkey -algorithm ed25519"
	case errors.Is(err, fs.ErrPermission):
		hint = "run as the user that owns the key, in a directory that this user can write"
	case errors.Is(err, fs.ErrNotExist):
		hint = "make the directory first"
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Message: path, Hint: hint, Err: pathless(err)}
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
