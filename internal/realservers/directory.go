package realservers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// directory is a server's own. Its lock is held while its maker lives, so that
// others know when it is left over.
type directory struct {
	path string
	lock *os.File
}

const (
	dirPrefix = "lastword-server-"
	lockName  = "in-use"
)

// makeDirectory makes a server's directory, after removing those whose makers are
// dead. The owner can enter it, also where the caller's other directories are private.
func makeDirectory(parent, name string, owner *syscall.Credential) (*directory, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	sweep(parent)
	path, err := os.MkdirTemp(parent, dirPrefix+name+"-")
	if err != nil {
		return nil, err
	}
	d := &directory{path: path}
	if err := d.take(); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	if owner != nil {
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, errors.Join(err, d.remove())
		}
	}
	return d, nil
}

// take makes the lock file, which has its name only once it is locked.
func (d *directory) take() error {
	path := filepath.Join(d.path, lockName)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	d.lock = f
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (d *directory) remove() error {
	err := os.RemoveAll(d.path)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}

// sweep removes what killed processes have left. What cannot be removed stays: it is
// somebody else's.
func sweep(parent string) {
	left, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left {
		f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = f.Close()
	}
}

// freePorts are ports of loopback that nobody listens on, below those that the kernel
// gives to connections.
func freePorts(n int) ([]int, error) {
	const lowest, count, tries = 10_000, 20_000, 1000
	var ports []int
	taken := map[int]bool{}
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := lowest + rand.IntN(count)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil || taken[port] {
			if err == nil {
				_ = l.Close()
			}
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		taken[port], ports = true, append(ports, port)
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d", n, lowest, lowest+count)
}
