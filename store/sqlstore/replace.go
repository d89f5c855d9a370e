package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/store"
)

// looksLikeABackup is the cheap part of [Copy.replaceable], before a copy is made.
func looksLikeABackup(target string, no func(why, hint string) error) error {
	file, err := os.Open(target)
	if err != nil {
		return refuseErr(lastword.CodeUnavailable, target+" cannot be read", "name another file", bare(err))
	}
	defer func() { _ = file.Close() }()
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(file, begin); err != nil || string(begin) != magic {
		return no("it is no backup, and only a backup is replaced", "name another file, or remove this one")
	}
	return nil
}

// replace gives the copy its name although there is something of that name: a backup of
// the same domain that nobody uses, and nothing else. No authority can start on it
// between the look and the replacement.
func (c *Copy) replace(ctx context.Context, driver, tmp string) (err error) {
	if _, err := os.Lstat(c.File); errors.Is(err, os.ErrNotExist) {
		return os.Rename(tmp, c.File)
	}
	lock, err := lockFile(c.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	if err := c.replaceable(ctx, driver); err != nil {
		return err
	}
	return os.Rename(tmp, c.File)
}

// replaceable refuses to replace what is no backup of the same domain.
func (c *Copy) replaceable(ctx context.Context, driver string) error {
	no := func(why, hint string) error { return refuse(lastword.CodeInvalid, c.File+": "+why, hint) }
	old, err := headerAt(ctx, driver, c.File)
	if err != nil {
		return refuseErr(lastword.CodeInvalid, c.File+": it is no backup, and only a backup is replaced", "name another file, or remove this one", err)
	}
	_, copied := old.Original()
	switch {
	case !copied:
		return no(fmt.Sprintf("it is the store of the domain %q and no backup, and only a backup is replaced", old.Domain), "name another file")
	case old.Domain != c.Header.Domain:
		return no(fmt.Sprintf("it is a backup of the domain %q, and this one is of %q", old.Domain, c.Header.Domain), "name another file")
	}
	return unused(ctx, driver, c.File)
}

// headerAt reads the header of the store at path, and leaves no trace there, whatever
// the file is. Nobody may have it open.
func headerAt(ctx context.Context, driver, path string) (h store.Header, err error) {
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "mode=ro&immutable=1"}
	db, err := sql.Open(driver, name.String())
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	version, err := sqldb.Inspect(ctx, dialect, db, schema)
	if err != nil {
		return h, err
	}
	if version == 0 {
		return h, errors.New("it has no tables of ours")
	}
	h, err = scanHeader(db.QueryRowContext(ctx, sqlHeader))
	if err == nil && !h.Exists {
		err = errors.New("it is an empty store")
	}
	return h, err
}

// unused asks for the lock that nobody gets while somebody else reads or writes.
func unused(ctx context.Context, driver, path string) (err error) {
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: driver, Path: path, Existing: true, Untouched: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		return refuseErr(lastword.CodeUnavailable, path+": another program has it open", "close that program, or name another file", err)
	}
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}
