package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lastword/lastword"
)

// On disk a ring is a directory of mode 0700: ring.json, which holds no secret, one PEM
// file of mode 0600 for each key, and a lock. ring.json decides. A key file is there
// before ring.json names it and goes after it does not any more, so that replacing this
// one file is the whole step.
const (
	ringName    = "ring.json"
	ringLock    = "lock"
	ringMode    = 0o700
	tempPrefix  = ".lastword-"
	ringVersion = 1
	// maxRingFile bounds what is read of a file that may be anything.
	maxRingFile = 1 << 20
	// loadAttempts bounds how often a ring that changes while it is read is read again.
	loadAttempts = 16
)

// ringFile is ring.json.
type ringFile struct {
	Version  int    `json:"version"`
	Domain   string `json:"domain"`
	Sequence uint64 `json:"sequence"`
	Current  uint32 `json:"current_epoch"`
	Minimum  uint32 `json:"minimum_epoch"`
	// NextMinimum is a minimum above the current epoch, and NextEpoch the epoch that
	// the authority has to reach; 0 is none.
	NextMinimum uint32    `json:"next_minimum_epoch,omitempty"`
	NextEpoch   uint32    `json:"next_epoch,omitempty"`
	Hint        int64     `json:"refresh_hint_seconds"`
	Signing     string    `json:"signing"`
	Keys        []ringKey `json:"keys"`
	Revoked     []string  `json:"revoked"`
	// Past are the ids of retired keys of which nothing verifies any more.
	Past []string `json:"past,omitempty"`
}

type ringKey struct {
	ID    string  `json:"kid"`
	Alg   string  `json:"alg"`
	First uint32  `json:"first_epoch"`
	Last  *uint32 `json:"last_epoch,omitempty"`
	Used  bool    `json:"used"`
}

func (f *ringFile) clone() ringFile {
	c := *f
	c.Keys, c.Revoked, c.Past = slices.Clone(f.Keys), slices.Clone(f.Revoked), slices.Clone(f.Past)
	return c
}

func (f *ringFile) find(kid string) *ringKey {
	if i := slices.IndexFunc(f.Keys, func(k ringKey) bool { return k.ID == kid }); i >= 0 {
		return &f.Keys[i]
	}
	return nil
}

// knows: the key is in the ring, or was and must not come back.
func (f *ringFile) knows(kid string) bool {
	return f.find(kid) != nil || slices.Contains(f.Revoked, kid) || slices.Contains(f.Past, kid)
}

// raise lifts the minimum epoch as far as the current one allows, and notes the rest.
func (f *ringFile) raise(minimum uint32) {
	f.Minimum = max(f.Minimum, min(minimum, f.Current))
	if minimum > f.Current {
		f.NextMinimum = max(f.NextMinimum, minimum)
	}
}

// succeed gives the signing to the newest key that is not retired, or to spare.
func (f *ringFile) succeed(spare Key, keys map[string]Key) {
	for i := len(f.Keys) - 1; i >= 0; i-- {
		if k := &f.Keys[i]; k.Last == nil {
			f.Signing, k.Used = k.ID, true
			return
		}
	}
	f.Keys = append(f.Keys, ringKey{ID: spare.ID(), Alg: spare.Algorithm(), First: f.Current, Used: true})
	f.Signing, keys[spare.ID()] = spare.ID(), spare
}

// forget drops the keys of which nothing verifies any more, and keeps their ids: the key
// file that the ring began with is none that it does not know.
func (f *ringFile) forget(keys map[string]Key) {
	f.Keys = slices.DeleteFunc(f.Keys, func(k ringKey) bool {
		past := k.Last != nil && *k.Last < f.Minimum && k.ID != f.Signing
		if past {
			f.Past = append(f.Past, k.ID)
		}
		return past
	})
	for kid := range keys {
		if f.find(kid) == nil {
			delete(keys, kid)
		}
	}
}

func (f *ringFile) check() error {
	if f.Version != ringVersion {
		return fmt.Errorf("version %d is not %d", f.Version, ringVersion)
	}
	if err := lastword.CheckID("domain", f.Domain); err != nil {
		return errors.New("it names no domain")
	}
	if f.Sequence == 0 || f.Sequence > MaxNumber || f.Hint < 0 || f.Hint > 1<<31 || len(f.Keys) == 0 {
		return errors.New("a number is out of range, or it has no keys")
	}
	for _, k := range f.Keys {
		if !isThumbprint(k.ID) {
			return errors.New("a kid is no thumbprint")
		}
	}
	return nil
}

// stamp tells one version of ring.json from another one.
type stamp struct{ info fs.FileInfo }

func (r *Ring) same(s stamp) bool {
	now, err := os.Stat(filepath.Join(r.dir, ringName))
	return err == nil && s.info != nil && os.SameFile(now, s.info) &&
		now.Size() == s.info.Size() && now.ModTime().Equal(s.info.ModTime())
}

// load reads the ring; nil if there is none. Keys that are known are not read again.
func (r *Ring) load(known map[string]Key) (*ringState, error) {
	for range loadAttempts {
		f, at, err := r.readFile()
		if f == nil || err != nil {
			return nil, err
		}
		keys := make(map[string]Key, len(f.Keys))
		for _, k := range f.Keys {
			if keys[k.ID] = known[k.ID]; keys[k.ID].k != nil {
				continue
			}
			key, err := loadKey(r.keyPath(k.ID))
			if err == nil && (key.ID() != k.ID || key.Algorithm() != k.Alg) {
				err = badKeyFile(r.keyPath(k.ID), "it holds another key than its name and the ring say", "put the right file back")
			}
			if err != nil && !r.same(at) {
				break // the ring changed meanwhile
			}
			if err != nil {
				return nil, err
			}
			keys[k.ID] = key
		}
		if slices.ContainsFunc(f.Keys, func(k ringKey) bool { return keys[k.ID].k == nil }) {
			continue
		}
		s, err := r.assemble(*f, keys)
		if err != nil {
			return nil, err
		}
		s.saved, s.stamp = true, at
		return s, nil
	}
	return nil, r.failed("read", errors.New("it changes all the time"))
}

func (r *Ring) keyPath(kid string) string { return filepath.Join(r.dir, kid+".pem") }

func (r *Ring) readFile() (*ringFile, stamp, error) {
	dir, err := os.Stat(r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, stamp{}, nil
	case err != nil:
		return nil, stamp{}, r.failed("read", err)
	case !dir.IsDir():
		return nil, stamp{}, r.bad("it is not a directory", "name a directory")
	case dir.Mode().Perm()&0o077 != 0:
		return nil, stamp{}, r.bad(fmt.Sprintf("its mode %04o lets others reach it", dir.Mode().Perm()),
			"chmod 700 it, and replace the keys if others may have read them")
	}
	file, err := os.OpenFile(filepath.Join(r.dir, ringName), os.O_RDONLY|syscall.O_NONBLOCK, 0) // not to hang on a named pipe
	if errors.Is(err, fs.ErrNotExist) {
		return nil, stamp{}, nil
	}
	if err != nil {
		return nil, stamp{}, r.failed("read", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, stamp{}, r.failed("read", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || info.Size() > maxRingFile {
		return nil, stamp{}, r.bad(ringName+" is no regular file, is too large, or others can write it", "chmod 600 it, if its content is right")
	}
	b, err := io.ReadAll(io.LimitReader(file, maxRingFile))
	if err != nil {
		return nil, stamp{}, r.failed("read", err)
	}
	var f ringFile
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // a later version's, which this one would lose
	if err := d.Decode(&f); err != nil {
		return nil, stamp{}, r.bad(ringName+" is not the JSON of a ring", "put the newest copy of the ring back, or update this program")
	}
	if err := f.check(); err != nil {
		return nil, stamp{}, r.bad(ringName+": "+err.Error(), "put the newest copy of the ring back, or update this program")
	}
	return &f, stamp{info}, nil
}

// lock excludes other processes, by a lock that the kernel drops with its process. It
// makes the directory.
func (r *Ring) lock() (unlock func(), err error) {
	if err := os.Mkdir(r.dir, ringMode); err == nil {
		err = errors.Join(os.Chmod(r.dir, ringMode), syncDir(filepath.Dir(r.dir)))
		if err != nil {
			return nil, r.failed("make", err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, r.failed("make", err)
	}
	f, err := os.OpenFile(filepath.Join(r.dir, ringLock), os.O_CREATE|os.O_RDWR, keyMode)
	if err != nil {
		return nil, r.failed("lock", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, r.failed("lock", err)
	}
	return func() { _ = f.Close() }, nil
}

// save makes next durable: new key files, then ring.json, then old key files go.
func (r *Ring) save(next, old *ringState) error {
	for kid, k := range next.keys {
		if _, there := old.keys[kid]; there && old.saved {
			continue
		}
		// A file that a change left behind which never got as far as ring.json.
		if err := os.Remove(r.keyPath(kid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := writeKey(r.keyPath(kid), k); err != nil {
			return err
		}
	}
	next.file.Version = ringVersion
	if next.file.Revoked == nil {
		next.file.Revoked = []string{}
	}
	b, err := json.MarshalIndent(next.file, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, ringName)
	if err := replaceFile(path, append(b, '\n'), keyMode); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	next.saved, next.stamp = true, stamp{info}
	r.sweep(next)
	return nil
}

// sweep removes key files that the ring does not name, and what a process left that died
// while it wrote. What could not be removed goes with the next change.
func (r *Ring) sweep(s *ringState) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		kid, isKey := strings.CutSuffix(e.Name(), ".pem")
		unnamed := isKey && isThumbprint(kid) && s.file.find(kid) == nil
		if unnamed || strings.HasPrefix(e.Name(), tempPrefix) {
			_ = os.Remove(filepath.Join(r.dir, e.Name()))
		}
	}
}

// replaceFile puts content at path durably: the file, then its name, then the directory.
func replaceFile(path string, content []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// notWritable reports whether the place of the ring is one that this process can only
// read.
func notWritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func (r *Ring) bad(why, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: opRing, Message: fmt.Sprintf("%s: %s", r.dir, why), Hint: hint}
}

func (r *Ring) failed(what string, err error) error {
	hint := ""
	switch {
	case notWritable(err):
		hint = "run as the user that owns the ring, where this user can write"
	case errors.Is(err, fs.ErrNotExist):
		hint = "make the directory around it first"
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Op: opRing, Message: r.dir + ": it could not be " + map[string]string{
		"read": "read", "make": "made", "lock": "locked", "change": "changed",
	}[what], Hint: hint, Err: pathless(err)}
}
