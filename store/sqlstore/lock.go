package sqlstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/lastword/lastword"
)

// resolve is the one name of the file behind path: absolute, with every symbolic
// link followed, so that all spellings meet at the same lock. The file need not
// exist yet, its directory must.
func resolve(path string) (string, error) {
	switch {
	case path == "":
		return "", refuse(lastword.CodeInvalid, "no file is named", "name the SQLite file of the store")
	case path == ":memory:":
		return "", refuse(lastword.CodeInvalid, "a store in memory is no file", "use memstore")
	case strings.ContainsRune(path, 0):
		return "", refuse(lastword.CodeInvalid, fmt.Sprintf("the path %q has a zero byte", path), "name another file")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", refuseErr(lastword.CodeUnavailable, path+" cannot be resolved", "name the file by its full path", err)
	}
	real, err := filepath.EvalSymlinks(absolute)
	if err == nil {
		return real, regular(real)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", refuseErr(lastword.CodeUnavailable, path+" cannot be reached", "check the path and its permissions", err)
	}
	// Only a link that is there still leads nowhere: a file that is there now has been made
	// meanwhile by another one that starts.
	if info, err := os.Lstat(absolute); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return "", refuse(lastword.CodeInvalid, path+" is a symbolic link to a file that does not exist", "remove the link, or create its target's directory and name the target itself")
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(absolute))
	if err != nil {
		return "", refuseErr(lastword.CodeUnavailable, "the directory of "+path+" cannot be reached", "create the directory first", err)
	}
	return filepath.Join(dir, filepath.Base(absolute)), nil
}

// regular refuses what is no plain file with one name. SQLite derives the name of the
// log from the name of the file, so that two hard links would be two logs.
func regular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return refuseErr(lastword.CodeUnavailable, path+" cannot be reached", "check the path and its permissions", err)
	}
	if info.IsDir() {
		return refuse(lastword.CodeInvalid, path+" is a directory", "name a file in it")
	}
	if !info.Mode().IsRegular() {
		return refuse(lastword.CodeInvalid, path+" is not a regular file", "name another file")
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return refuse(lastword.CodeInvalid, fmt.Sprintf("%s has %d hard links; a database must have one name", path, stat.Nlink), "remove the other names")
	}
	return nil
}

// fileLock is an advisory lock that the kernel releases with the process.
type fileLock struct {
	file *os.File
	name string
}

// lockFile takes the lock of the store at path, or says who has it.
func lockFile(path string) (*fileLock, error) {
	name := path + ".lock"
	for {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, refuseErr(lastword.CodeUnavailable, "the lock of "+path+" cannot be made",
				"let this process write to the directory, or name a file in another one", err)
		}
		if err := flock(file); err != nil {
			defer file.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, refuse(lastword.CodeUnavailable, fmt.Sprintf("%s is in use by %s", path, holder(file)),
					"stop it, or give this one a file of its own")
			}
			return nil, refuseErr(lastword.CodeUnavailable, path+" cannot be locked", "use a file system that has locks", err)
		}
		if names(name, file) {
			// The number is a courtesy to the next one: a full disk must not matter.
			if file.Truncate(0) == nil {
				_, _ = file.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
			}
			return &fileLock{file, name}, nil
		}
		_ = file.Close() // its holder removed it between our opening and our locking
	}
}

func flock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// names reports whether name is still the name of file.
func names(name string, file *os.File) bool {
	named, err := os.Stat(name)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(named, opened)
}

// release removes the lock file while it is still locked: whoever opened it before
// finds that it has no name any more, and makes a new one.
func (l *fileLock) release() error {
	var err error
	if names(l.name, l.file) {
		err = os.Remove(l.name)
	}
	return errors.Join(err, l.file.Close())
}

// InUse names the process that has the store in the file at path, "" if none has.
func InUse(path string) (by string, err error) {
	real, err := resolve(path)
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(real+".lock", os.O_RDONLY|syscall.O_NONBLOCK, 0) // not to hang on a named pipe
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", refuseErr(lastword.CodeUnavailable, "the lock of "+path+" cannot be read", "check its permissions", bare(err))
	}
	defer file.Close()
	switch err := flock(file); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return holder(file), nil
	case err != nil:
		return "", refuseErr(lastword.CodeUnavailable, path+" cannot be locked", "use a file system that has locks", err)
	}
	return "", nil
}

func holder(file *os.File) string {
	b := make([]byte, 20)
	n, _ := file.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	switch {
	case err != nil:
		return "another process"
	case pid == os.Getpid():
		return fmt.Sprintf("process %d, this one", pid)
	}
	return fmt.Sprintf("process %d", pid)
}
