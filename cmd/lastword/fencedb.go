package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/internal/sqldb"
)

// guarded is the database of a resource, opened for one command.
type guarded struct {
	path   string // or URL
	db     *sql.DB
	frozen fs.FileInfo // of a file that is read as one that nobody changes, else nil
	conns  connections // to a PostgreSQL
}

// databasePath reads the argument DSN: the path of a file, or the URL of a PostgreSQL.
func databasePath(cmd *cobra.Command, dsn string) (string, error) {
	if isPostgres(dsn) {
		return postgresURL(cmd, dsn)
	}
	scheme, path, ok := strings.Cut(dsn, ":")
	if !ok || !strings.EqualFold(scheme, "sqlite") {
		return "", usage(cmd, "database %q: this program knows sqlite:PATH and postgres://… only", clip(shown(dsn)))
	}
	if path == ":memory:" {
		return "", usage(cmd, "database %q: a database in memory is no file; it would be gone at once", clip(shown(dsn)))
	}
	if path == "" || strings.ContainsAny(path, "?#\x00") || strings.HasPrefix(path, "//") && strings.Contains(path, "@") {
		return "", usage(cmd, "database %q: want the path of a file, without ? and #", clip(shown(dsn)))
	}
	return path, nil
}

// lookAt refuses what cannot be a database file before anything is opened.
func lookAt(op, path string, create bool) (exists bool, err error) {
	if isPostgres(path) {
		return true, nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return false, badDatabase(op, path, "it is a directory", "name a file in it")
	case err == nil && !info.Mode().IsRegular():
		return false, badDatabase(op, path, "it is not a regular file", "")
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, badDatabase(op, path, pathless(err).Error(), "")
	case !create:
		return false, badDatabase(op, path, "there is no such file", "lastword fence init makes one")
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() {
		return false, badDatabase(op, path, "its directory is not there", "make it first")
	}
	return false, nil
}

func badDatabase(op, path, why, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: fmt.Sprintf("database %s: %s", shown(path), why), Hint: hint}
}

// openDatabase opens one connection: the guard of --sql belongs to it. untouched
// leaves the journal mode alone, which is a property of the file.
func openDatabase(path string, existing, untouched bool) (*guarded, error) {
	if isPostgres(path) {
		return openPostgres(path)
	}
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: "sqlite", Path: path, Existing: existing, Untouched: untouched, Defensive: true})
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return &guarded{path: path, db: db}, nil
}

// openToLook opens a database that is to be read alone. Who may write to it opens it as
// always, because SQLite then removes what it made beside the file. Who may not opens
// it read-only: with the log that is there, or, without one, as a file that nobody
// changes while it is read, which [guarded.unchanged] makes sure of afterwards.
func openToLook(path string) (*guarded, error) {
	if isPostgres(path) {
		return openPostgres(path)
	}
	const writable = 2 // W_OK
	if syscall.Access(path, writable) == nil && syscall.Access(filepath.Dir(path), writable) == nil {
		return openDatabase(path, true, true)
	}
	g, options := &guarded{path: path}, url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(100)"}}
	if _, err := os.Lstat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		if g.frozen, err = os.Stat(path); err != nil {
			return nil, badDatabase("", path, pathless(err).Error(), "")
		}
		options.Set("immutable", "1")
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: options.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	g.db = db
	return g, nil
}

// unchanged is nil if nobody wrote to a file that was read as one that nobody changes.
func (g *guarded) unchanged() error {
	if g.frozen == nil {
		return nil
	}
	now, err := os.Stat(g.path)
	_, log := os.Lstat(g.path + "-wal")
	if err == nil && errors.Is(log, fs.ErrNotExist) && os.SameFile(now, g.frozen) &&
		now.Size() == g.frozen.Size() && now.ModTime().Equal(g.frozen.ModTime()) {
		return nil
	}
	return &lastword.Error{
		Code: lastword.CodeUnavailable, Message: fmt.Sprintf("database %s: somebody wrote to it while it was read", g.path), Hint: "try again",
	}
}

// close closes the database; everything that counts was committed before.
func (g *guarded) close() {
	_ = g.db.Close()
	g.conns.cancelled()
}

// makeTables makes the fence's tables, and a file that is not there whole or not at
// all.
func makeTables(ctx context.Context, op, path string) (created bool, err error) {
	exists, err := lookAt(op, path, true)
	if err != nil {
		return false, err
	}
	if !exists {
		created, err = initialiseNew(ctx, path)
	}
	if err == nil && !created {
		err = initialise(ctx, path)
	}
	return created, inDatabase(err, path)
}

// inDatabase is err with the file in its message.
func inDatabase(err error, path string) error {
	e, ok := asError(err)
	if !ok || strings.Contains(e.Message, shown(path)) {
		return err
	}
	out := *e
	out.Message = strings.TrimSuffix(fmt.Sprintf("database %s: %s", shown(path), e.Message), ": ")
	return &out
}

// fenceInit is fence init.
func (a *app) fenceInit(ctx context.Context, path string) error {
	const op = "fence init"
	created, err := makeTables(ctx, op, path)
	if err != nil {
		return named(err, op, "")
	}
	made, journal := "", "wal"
	if created {
		made = "the file was made"
	}
	if isPostgres(path) {
		path, journal = shown(path), ""
	}
	return told(a.answer(struct {
		Initialized bool   `json:"initialized"`
		Database    string `json:"database"`
		Created     bool   `json:"created"`
		JournalMode string `json:"journal_mode"`
	}{true, path, created, journal}, row{"initialized", path}, row{"journal", journal}, row{"new", made}), "fence init: initialized %s", path)
}

// initialiseNew makes the database beside its place and then links it there, so that
// nobody sees half of it and nothing is replaced or removed that another process made
// meanwhile. created is false if there was one, or if there are no links here.
func initialiseNew(ctx context.Context, path string) (created bool, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".lastword-init-*")
	if err != nil {
		return false, badDatabase("fence init", path, "its directory cannot be written to: "+pathless(err).Error(), "")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tmp := filepath.Join(dir, "new.db")
	if err := initialise(ctx, tmp); err != nil {
		return false, err
	}
	if err := os.Link(tmp, path); err != nil {
		return false, nil // it is made in its place then
	}
	return true, syncDir(filepath.Dir(path))
}

// initialise makes the tables in a file. Only then is the journal mode changed: a file
// that is refused stays as it was.
func initialise(ctx context.Context, path string) error {
	first, err := openDatabase(path, false, true)
	if err != nil {
		return err
	}
	defer first.close()
	if err := sqlfence.Init(ctx, first.db); err != nil || isPostgres(path) {
		return err
	}
	first.close()
	second, err := openDatabase(path, true, false)
	if err != nil {
		return err
	}
	defer second.close()
	return sqldb.Backoff{}.Retry(ctx, sqldb.SQLite{}, second.db.PingContext)
}

// domainOf is the domain that the caller named, or the only one there is; "" if there
// is none.
func (g *guarded) domainOf(cmd *cobra.Command, p *sqlfence.Place, r lastword.Resource, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	all, err := p.Domains(cmd.Context(), r)
	switch {
	case err != nil:
		return "", err
	case len(all) == 0:
		return "", nil
	case len(all) > 1:
		return "", usage(cmd, "the database has %s in %d domains, %q: choose one with --domain", quoted(string(r)), len(all), all)
	}
	return all[0], nil
}
