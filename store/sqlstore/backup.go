package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/store"
)

// BackupConfig says how to make a backup. Its zero value works with modernc.org/sqlite.
type BackupConfig struct {
	// Driver is as in [Config].
	Driver string
	// Force replaces a backup of the same domain that is there already and that nobody
	// has open. Nothing else is ever replaced: no other file or database, no store, no
	// backup of another domain.
	Force bool
}

// Copy tells what a backup holds.
type Copy struct {
	Store     string // the file it is a copy of, all links resolved
	File      string // the backup
	Header    store.Header
	Resources int
	Requests  int
	Bytes     int64
}

// Backup copies the store in the file at path to the file at target, while another
// process serves it or while none does. It does not need the lock of the store: SQLite
// gives it one consistent moment, in which everything is that was acknowledged before
// the call, and commits go on meanwhile. The log of the store grows until it is done.
//
// The copy is checked, has mode 0600, is on the disk and then gets its name; after an
// error there is nothing. It holds every record and request record, so whoever reads it
// knows the ids of all tenures; it holds no key, no grant and no witness. It is marked
// as a copy: an authority that is started on it finds a regression (R10), which an
// operator has to confirm, whatever run it is of. Its own identity is in the header
// still.
//
// Errors: [lastword.CodeInvalid] if path is no store, or target must not be written
// to; [lastword.CodeUnavailable] if one of them cannot be read or written.
func Backup(ctx context.Context, path, target string, cfg BackupConfig) (Copy, error) {
	c, err := backup(ctx, path, target, cfg)
	if err != nil {
		return Copy{}, explain("backup", path, err)
	}
	return c, nil
}

func backup(ctx context.Context, path, target string, cfg BackupConfig) (c Copy, err error) {
	driver := Config{Driver: cfg.Driver}.withDefaults().Driver
	if !slices.Contains(sql.Drivers(), driver) {
		return c, refuse(lastword.CodeInvalid, fmt.Sprintf("no database driver %q is registered", driver), `import one, such as _ "modernc.org/sqlite"`)
	}
	c.Store, err = resolve(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return c, err
	}
	if err == nil {
		_, err = os.Stat(c.Store)
	}
	if err != nil {
		return c, refuseErr(lastword.CodeInvalid, path+" is not there", "name the file of the store", bare(err))
	}
	if err := unfinished(c.Store); err != nil {
		return c, err
	}
	if err := mayBecome(c.Store, target, cfg.Force); err != nil {
		return c, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".lastword-backup-*") // O_EXCL, 0600
	if err != nil {
		return c, refuseErr(lastword.CodeUnavailable, "the directory of "+target+" cannot be written to", "name a file in another one", bare(err))
	}
	defer func() { // of what went well it is the name that is removed
		err = errors.Join(err, tmp.Close())
		for _, more := range []string{"", "-journal", "-wal", "-shm"} {
			_ = os.Remove(tmp.Name() + more)
		}
	}()
	var turns sqldb.Backoff
	err = turns.Retry(ctx, dialect, func(ctx context.Context) error {
		if err := tmp.Truncate(0); err != nil {
			return err
		}
		return copyStore(ctx, driver, c.Store, tmp.Name())
	})
	if (sqldb.SQLite{}).Class(err) == sqldb.Full { // reading takes no space
		return c, explain("backup", target, err)
	}
	if err != nil {
		return c, err
	}
	if err := c.seal(ctx, driver, tmp.Name()); err != nil {
		return c, explain("backup", target, err)
	}
	if c.File, err = filepath.Abs(target); err != nil {
		return c, err
	}
	return c, c.publish(ctx, driver, tmp, cfg.Force)
}

// copyStore makes the copy. Nothing here opens the file but SQLite: who closes another
// descriptor of it drops the locks that this process may have on it as the authority.
func copyStore(ctx context.Context, driver, from, to string) (err error) {
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: driver, Path: from, Existing: true, Untouched: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	version, err := sqldb.Inspect(ctx, dialect, db, schema)
	if err != nil {
		return err
	}
	if version == 0 {
		return refuse(lastword.CodeInvalid, from+" has nothing that an authority has made", "name another file")
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	return err
}

// seal marks the copy as one, checks it and counts what is in it.
func (c *Copy) seal(ctx context.Context, driver, file string) (err error) {
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: driver, Path: file, Existing: true, Untouched: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if c.Header, err = scanHeader(db.QueryRowContext(ctx, sqlHeader)); err != nil {
		return err
	}
	if !c.Header.Exists {
		return refuse(lastword.CodeInvalid, c.Store+" is an empty store: no authority has ever been started on it", "name the file of the store")
	}
	h := c.Header.Copied()
	args := append(headerArgs(&h), int64(h.Epoch), int64(h.Tick))
	if _, err := db.ExecContext(ctx, sqlUpdateHeader, args...); err != nil {
		return err
	}
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return refuse(lastword.CodeInvalid, c.Store+" is damaged: "+strings.ReplaceAll(verdict, "\n", "; "), "restore it from an earlier backup")
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM lastword_record").Scan(&c.Resources); err != nil {
		return err
	}
	return db.QueryRowContext(ctx, "SELECT count(*) FROM lastword_request").Scan(&c.Requests)
}

// publish makes the copy durable, and then gives it its name.
func (c *Copy) publish(ctx context.Context, driver string, tmp *os.File, force bool) error {
	if err := tmp.Sync(); err != nil {
		return refuseErr(lastword.CodeUnavailable, c.File+" cannot be put on the disk", "name a file on another one", bare(err))
	}
	info, err := tmp.Stat()
	if err != nil {
		return err
	}
	c.Bytes = info.Size()
	if force {
		err = c.replace(ctx, driver, tmp.Name())
	} else {
		err = os.Link(tmp.Name(), c.File) // unlike a rename it replaces nothing
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) {
			err = os.Rename(tmp.Name(), c.File) // a file system without links
		}
	}
	if _, ours := errors.AsType[*lastword.Error](err); ours {
		return err
	}
	if err != nil {
		return refuseErr(lastword.CodeUnavailable, c.File+" cannot be made", "is it there by now?", bare(err))
	}
	dir, err := os.Open(filepath.Dir(c.File))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// mayBecome refuses a target that must not be written to. A backup put beside the log
// of another database would be taken for that one.
func mayBecome(from, target string, force bool) error {
	no := func(why, hint string) error { return refuse(lastword.CodeInvalid, target+": "+why, hint) }
	info, err := os.Lstat(target)
	switch {
	case target == "" || strings.HasSuffix(target, "/") || strings.ContainsRune(target, 0):
		return no("it names no file", "name the file that the backup goes into")
	case err == nil && info.IsDir():
		return no("it is a directory", "name a file in it")
	case err == nil && !info.Mode().IsRegular():
		return no("it is not a regular file", "name another file")
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return refuseErr(lastword.CodeUnavailable, target+" cannot be reached", "check the path and its permissions", bare(err))
	}
	if source, serr := os.Stat(from); err == nil && serr == nil && os.SameFile(info, source) {
		return no("it is the store itself", "name another file")
	}
	for _, more := range []string{"-wal", "-shm", "-journal", ".lock"} {
		if strings.HasSuffix(target, more) && strings.TrimSuffix(target, more) == from {
			return no("it belongs to the store", "name another file")
		}
		if _, err := os.Lstat(target + more); err == nil {
			return no(target+more+" is beside it: it is a database in use, or one that was not closed", "name another file")
		}
	}
	there := err == nil
	if there && !force {
		return no("it exists", "name another file, or replace an old backup with --force")
	}
	if there {
		return looksLikeABackup(target, no)
	}
	return nil
}

// bare is err without the path, which the message names already.
func bare(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}
