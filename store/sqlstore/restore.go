package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/store"
)

// RestoreConfig says how to restore. Its zero value works with modernc.org/sqlite.
type RestoreConfig struct {
	// Driver is as in [Config].
	Driver string
	// reached is told of each step that was made; an error stops there, as a crash does.
	reached func(step string) error
}

// Restored tells what a restore put in place.
type Restored struct {
	Copy         // Store is the file that was put in place, File the backup
	Aside string // what was there before, "" if there was nothing
}

// Restore puts the backup in the file at from in the place of the store at path, which
// nobody may serve: it takes the lock of the store. The new file is a copy, whole,
// checked and on the disk before anything is moved, and it is marked as a copy, also if
// from is a raw one: an authority that is started on it finds a regression, which an
// operator has to confirm (R10). What was there is kept beside it, log included, as
// PATH.before-restore.N. No witness is touched.
//
// A restore that was interrupted leaves either the old store or PATH.restoring, with
// which nobody can open the store until a restore has been finished.
//
// Errors: [lastword.CodeInvalid] if from is no backup of a store of this domain;
// [lastword.CodeUnavailable] if the store is in use, or a file cannot be read or written.
func Restore(ctx context.Context, from, path string, cfg RestoreConfig) (Restored, error) {
	if cfg.reached == nil {
		cfg.reached = func(string) error { return nil }
	}
	r, err := restore(ctx, from, path, cfg)
	if err != nil {
		return Restored{}, explain("restore", path, err)
	}
	return r, nil
}

func restore(ctx context.Context, from, path string, cfg RestoreConfig) (r Restored, err error) {
	driver := Config{Driver: cfg.Driver}.withDefaults().Driver
	if !slices.Contains(sql.Drivers(), driver) {
		return r, refuse(lastword.CodeInvalid, fmt.Sprintf("no database driver %q is registered", driver), `import one, such as _ "modernc.org/sqlite"`)
	}
	real, err := resolve(path)
	if err != nil {
		return r, err
	}
	source, err := resolve(from)
	if err != nil {
		return r, err
	}
	if err := mayReplace(source, real); err != nil {
		return r, err
	}
	lock, err := lockFile(real)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	sweepRestores(real, source)
	r.Copy = Copy{Store: source}
	tmp, err := r.prepare(ctx, driver, real)
	if err != nil {
		return r, err
	}
	defer func() { _ = os.Remove(tmp) }() // of what went well there is nothing left
	r.Store, r.File = real, source
	if err := sameDomain(ctx, driver, real, r.Header); err != nil {
		return r, err
	}
	r.Aside, err = exchange(real, tmp, cfg.reached)
	return r, err
}

// unfinishedName begins the names of what a restore of this store makes on its way. It
// has the store's own name in it, of any length, because another store of the directory
// has another lock.
func unfinishedName(real string) string {
	name := sha256.Sum256([]byte(filepath.Base(real)))
	return fmt.Sprintf(".lastword-restore-%x-", name[:8])
}

// sweepRestores removes what restores of this store have left that were killed: whole
// copies. The store's lock is held, so that none is on its way. One that is to be
// restored now stays.
func sweepRestores(real, source string) {
	left, err := os.ReadDir(filepath.Dir(real))
	if err != nil {
		return
	}
	for _, e := range left {
		path := filepath.Join(filepath.Dir(real), e.Name())
		if strings.HasPrefix(e.Name(), unfinishedName(real)) && !strings.HasPrefix(path, source) {
			_ = os.Remove(path) // the next one tries again
		}
	}
}

// mayReplace refuses what cannot be a backup of the store.
func mayReplace(source, real string) error {
	info, err := os.Stat(source)
	if err != nil {
		return refuseErr(lastword.CodeInvalid, source+" is not there", "name the file that backup made", bare(err))
	}
	if there, err := os.Stat(real); err == nil && os.SameFile(info, there) {
		return refuse(lastword.CodeInvalid, source+" is the store itself", "name the file that backup made")
	}
	if rest, ok := strings.CutPrefix(source, real); ok && slices.Contains(beside, rest) {
		return refuse(lastword.CodeInvalid, source+" belongs to the store", "name the file that backup made")
	}
	return nil
}

// prepare makes the new file beside the place it will have: checked, marked, on the disk.
func (r *Restored) prepare(ctx context.Context, driver, real string) (made string, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(real), unfinishedName(real)+"*") // O_EXCL, 0600
	if err != nil {
		return "", refuseErr(lastword.CodeUnavailable, "the directory of "+real+" cannot be written to", "let this process write to it", bare(err))
	}
	name := tmp.Name()
	defer func() {
		err = errors.Join(err, tmp.Close())
		for _, more := range beside {
			_ = os.Remove(name + more)
		}
		if err != nil {
			_ = os.Remove(name)
		}
	}()
	var turns sqldb.Backoff
	err = turns.Retry(ctx, dialect, func(ctx context.Context) error {
		if err := tmp.Truncate(0); err != nil {
			return err
		}
		return copyStore(ctx, driver, r.Store, name)
	})
	var ours *lastword.Error
	if errors.As(err, &ours) || (sqldb.SQLite{}).Class(err) == sqldb.NotADatabase {
		err = explain("restore", r.Store, err) // it is about the backup, not about the store
	}
	if err != nil {
		return "", err
	}
	if err := r.seal(ctx, driver, name); err != nil {
		return "", err
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	r.Bytes = info.Size()
	// It may be another file by now than the one that was made: SQLite decides.
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	return name, errors.Join(file.Sync(), file.Close())
}

// sameDomain refuses a backup of another domain, as far as what is there can be read. A
// damaged store is what a restore is for; and one that was not closed is left alone, since
// SQLite would fold its log in, or drop it.
func sameDomain(ctx context.Context, driver, real string, backup store.Header) error {
	for _, more := range beside {
		if _, err := os.Lstat(real + more); err == nil {
			return nil
		}
	}
	h, err := peek(ctx, driver, real)
	if err != nil || !h.Exists || h.Domain == backup.Domain {
		return nil //nolint:nilerr // as above
	}
	return refuse(lastword.CodeInvalid, fmt.Sprintf("the backup is of domain %q, and the store of %q", backup.Domain, h.Domain), "name the backup of this store")
}

// Peek reads the header of the store in the file at path, while another process serves
// it or while none does. It does not need the lock of the store. Of a file that is not
// there, or empty, the header has Exists false.
func Peek(ctx context.Context, path string, cfg Config) (store.Header, error) {
	real, err := resolve(path)
	if err == nil {
		var h store.Header
		if h, err = peek(ctx, cfg.withDefaults().Driver, real); err == nil {
			return h, nil
		}
	}
	return store.Header{}, explain("look at store", path, err)
}

func peek(ctx context.Context, driver, real string) (h store.Header, err error) {
	info, err := os.Stat(real)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return h, nil
	}
	if err != nil {
		return h, refuseErr(lastword.CodeUnavailable, real+" cannot be reached", "check the path and its permissions", bare(err))
	}
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: driver, Path: real, Existing: true, Untouched: true})
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) error {
		version, err := sqldb.Inspect(ctx, dialect, db, schema)
		if err != nil || version == 0 {
			return err
		}
		h, err = scanHeader(db.QueryRowContext(ctx, sqlHeader))
		return err
	})
	return h, err
}

// beside are the ends of the names of what SQLite keeps beside a database.
var beside = []string{"-wal", "-shm", "-journal"}

// note is the file that says that a restore is under way.
func note(real string) string { return real + ".restoring" }

// unfinished refuses a store whose files may be of two stores.
func unfinished(real string) error {
	_, err := os.Lstat(note(real))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return refuseErr(lastword.CodeUnavailable, note(real)+" cannot be reached", "check its permissions", bare(err))
	}
	return refuse(lastword.CodeInvalid, "a restore of "+real+" was interrupted", "run 'lastword restore' again")
}

type restoring struct {
	Aside string `json:"aside"`
}

// exchange moves what is there aside and the new file into its place. Between its first
// and its last step note(real) is there. A second run goes on where the first one ended.
func exchange(real, next string, reached func(string) error) (aside string, err error) {
	dir := filepath.Dir(real)
	plan, err := begun(real)
	if err != nil {
		return "", err
	}
	if err := errors.Join(reached("note"), syncDirectory(dir)); err != nil {
		return "", err
	}
	for _, more := range append([]string{""}, beside...) {
		if _, err := os.Lstat(real + more); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if _, err := os.Lstat(plan.Aside + more); err == nil {
			// Moved by the run before; this one is what it had put in its place.
			if err := os.Remove(real + more); err != nil {
				return "", err
			}
			continue
		}
		if err := os.Rename(real+more, plan.Aside+more); err != nil {
			return "", err
		}
		if err := reached("aside" + more); err != nil {
			return "", err
		}
	}
	for _, step := range []func() error{
		func() error { return syncDirectory(dir) },
		func() error { return os.Rename(next, real) },
		func() error { return reached("placed") },
		func() error { return syncDirectory(dir) },
		func() error { return os.Remove(note(real)) },
		func() error { return reached("done") },
		func() error { return syncDirectory(dir) },
	} {
		if err := step(); err != nil {
			return "", err
		}
	}
	if _, err := os.Lstat(plan.Aside); err != nil {
		return "", nil //nolint:nilerr // there was nothing to keep
	}
	return plan.Aside, nil
}

// readNote reads a file that may be anything: it does not hang on a named pipe, nor read
// a device for ever. What is none of ours is empty.
func readNote(name string) ([]byte, error) {
	const most = 64 << 10
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was only read
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, most))
}

// begun is the plan of an interrupted restore, or a new one, which it writes down.
func begun(real string) (p restoring, err error) {
	b, err := readNote(note(real))
	if err == nil {
		if err := json.Unmarshal(b, &p); err != nil || !strings.HasPrefix(p.Aside, real+asideName) {
			return p, refuse(lastword.CodeInvalid, note(real)+" is damaged", "look at the files beside it, and remove it when it is sure which store is which")
		}
		return p, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return p, err
	}
	if p.Aside, err = free(real); err != nil {
		return p, err
	}
	if b, err = json.Marshal(p); err != nil {
		return p, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(real), unfinishedName(real)+"*")
	if err != nil {
		return p, err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // of what went well there is nothing left
	_, err = tmp.Write(append(b, '\n'))
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return p, err
	}
	return p, os.Rename(tmp.Name(), note(real))
}

const asideName = ".before-restore."

// free is the first name for what is there that nothing has yet.
func free(real string) (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprint(real, asideName, n)
		taken := false
		for _, more := range append([]string{""}, beside...) {
			_, err := os.Lstat(name + more)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return "", err
			}
			taken = taken || err == nil
		}
		if !taken {
			return name, nil
		}
	}
}
