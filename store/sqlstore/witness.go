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
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/store"
)

// Witness keeps the mark of a domain (R10) in a SQLite database of its own, which must
// not be the store's: put it on another volume, and never into the store's backup. It
// is safe for concurrent use by several processes; every write is one conditional
// statement in a transaction that was synced to the disk, and its row count decides.
//
// The file is made by the first Swap. One that is missing, or has no row, is a missing
// witness; one that was exchanged is read anew. It is made with the rights of the umask,
// since it holds no secret.
type Witness struct {
	path   string
	driver string
	turns  sqldb.Backoff

	mu   sync.Mutex // one call at a time
	db   *sql.DB
	conn *sql.Conn
	file os.FileInfo // of the open file
}

// WitnessConfig says how to open a witness. Its zero value works with
// modernc.org/sqlite.
type WitnessConfig struct {
	// Driver is as in [Config].
	Driver string
}

// NewWitness returns the witness in the SQLite file at path. It touches no file. It
// fails with [lastword.CodeInvalid] if the path names none or the driver is not
// registered.
func NewWitness(path string, cfg WitnessConfig) (*Witness, error) {
	driver := Config{Driver: cfg.Driver}.withDefaults().Driver
	if !slices.Contains(sql.Drivers(), driver) {
		return nil, refuse(lastword.CodeInvalid, fmt.Sprintf("no database driver %q is registered", driver), `import one, such as _ "modernc.org/sqlite"`)
	}
	if path == "" || path == ":memory:" || strings.ContainsAny(path, "?#\x00") {
		return nil, refuse(lastword.CodeInvalid, fmt.Sprintf("the witness %q names no file", path), "name a SQLite file of its own")
	}
	return &Witness{path: path, driver: driver}, nil
}

// witnessSchema holds one row. first and starting are 0 or 1.
var witnessSchema = sqldb.Schema{
	Name:   "witness",
	Tables: []string{"lastword_witness"},
	Alone:  true,
	Steps: [][]string{{`CREATE TABLE lastword_witness (
		one           INTEGER PRIMARY KEY CHECK (one = 1),
		store         TEXT    NOT NULL,
		current_epoch INTEGER NOT NULL CHECK (current_epoch BETWEEN 0 AND 1048575),
		pending_epoch INTEGER NOT NULL CHECK (pending_epoch BETWEEN 0 AND 1048575),
		starting      INTEGER NOT NULL,
		first_start   INTEGER NOT NULL,
		longest_ttl   INTEGER NOT NULL CHECK (longest_ttl >= 0)
	) STRICT`}},
}

const (
	markColumns   = `store, current_epoch, pending_epoch, starting, first_start, longest_ttl`
	whereMark     = ` WHERE one = 1 AND store = ? AND current_epoch = ? AND pending_epoch = ? AND starting = ? AND first_start = ? AND longest_ttl = ?`
	sqlMark       = `SELECT ` + markColumns + ` FROM lastword_witness WHERE one = 1`
	sqlFirstMark  = `INSERT INTO lastword_witness (one, ` + markColumns + `) VALUES (1, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	sqlSwapMark   = `UPDATE lastword_witness SET store = ?, current_epoch = ?, pending_epoch = ?, starting = ?, first_start = ?, longest_ttl = ?` + whereMark
	sqlRetireMark = `DELETE FROM lastword_witness` + whereMark
)

func markArgs(m store.Mark) []any {
	return []any{m.Store, int64(m.Current), int64(m.Pending), bit(m.Starting), bit(m.First), int64(m.Longest)}
}

// Load is the present mark, nil if there is none.
func (w *Witness) Load(ctx context.Context) (mark *store.Mark, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.turns.Retry(ctx, dialect, func(ctx context.Context) error {
		ctx = context.WithoutCancel(ctx)
		there, err := w.connect(ctx, false)
		if err != nil || !there {
			mark = nil
			return err
		}
		mark, err = w.read(ctx)
		return err
	})
	if err != nil {
		return nil, w.failed(err)
	}
	return mark, nil
}

func (w *Witness) read(ctx context.Context) (*store.Mark, error) {
	var m store.Mark
	var longest int64
	err := w.conn.QueryRowContext(ctx, sqlMark).Scan(&m.Store, &m.Current, &m.Pending, &m.Starting, &m.First, &longest)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m.Longest = store.Span(longest)
	return &m, nil
}

// Swap replaces old (nil: none) by next and reports whether old was there. It is durable
// when it returns true. An error of [lastword.CodeUnknown] leaves open whether next is
// there.
func (w *Witness) Swap(ctx context.Context, old *store.Mark, next store.Mark) (bool, error) {
	if old == nil {
		return w.change(ctx, sqlFirstMark, markArgs(next))
	}
	return w.change(ctx, sqlSwapMark, append(markArgs(next), markArgs(*old)...))
}

// Retire removes mark, after it was moved to another witness, and reports whether it was
// there. It is durable when it returns true.
func (w *Witness) Retire(ctx context.Context, mark store.Mark) (bool, error) {
	return w.change(ctx, sqlRetireMark, markArgs(mark))
}

// change runs one conditional statement in a transaction of its own.
func (w *Witness) change(ctx context.Context, query string, args []any) (done bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	outcome := sqldb.RolledBack
	err = w.turns.Retry(ctx, dialect, func(ctx context.Context) error {
		ctx = context.WithoutCancel(ctx)
		if _, err := w.connect(ctx, true); err != nil {
			return err
		}
		var err error
		outcome, err = sqldb.Transact(ctx, dialect, w.conn, func(ctx context.Context) error {
			result, err := w.conn.ExecContext(ctx, query, args...)
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			done = n == 1
			return err
		})
		return err
	})
	if err == nil {
		return done, nil
	}
	failed := w.failed(err)
	if outcome == sqldb.Unknown {
		failed.Code = lastword.CodeUnknown
		_ = w.disconnect() // only recovery can tell what stands in the log
	}
	return false, failed
}

// connect makes sure that the open file is the one that the path names. there is false
// for a file that is missing and not to be made, and for one that is empty.
func (w *Witness) connect(ctx context.Context, create bool) (there bool, err error) {
	info, err := os.Stat(w.path)
	switch {
	case err == nil && w.db != nil && os.SameFile(info, w.file):
		return true, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, refuseErr(lastword.CodeUnavailable, w.path+" cannot be reached", "check the path and its permissions", bare(err))
	}
	if err := w.disconnect(); err != nil {
		return false, err
	}
	empty := info == nil || info.Size() == 0
	if empty && !create {
		if info != nil && !info.Mode().IsRegular() { // a device has no size, and is no witness that is missing
			return false, refuse(lastword.CodeInvalid, w.path+" is not a regular file", "name another file")
		}
		return false, nil
	}
	real, err := resolve(w.path)
	if err != nil {
		return false, err
	}
	if !empty {
		if err := w.probe(ctx, real, info.Size()); err != nil {
			return false, err
		}
	}
	if err := w.open(ctx, real, empty); err != nil {
		return false, errors.Join(err, w.disconnect())
	}
	return true, nil
}

// probe looks at a file that exists before anything in it is changed.
func (w *Witness) probe(ctx context.Context, real string, size int64) (err error) {
	const smallest = 512 // a shorter file SQLite takes for an empty database, whatever is in it
	if size < smallest {
		return refuse(lastword.CodeInvalid, w.path+" is no SQLite database", "name another file, or put the right one back")
	}
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: w.driver, Path: real, Existing: true, Untouched: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = sqldb.Inspect(ctx, dialect, db, witnessSchema)
	return err
}

func (w *Witness) open(ctx context.Context, real string, created bool) (err error) {
	if w.db, err = sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: w.driver, Path: real}); err != nil {
		return err
	}
	if w.conn, err = w.db.Conn(ctx); err != nil {
		return err
	}
	if err := sqldb.Migrate(ctx, dialect, w.conn, witnessSchema); err != nil {
		return err
	}
	if created {
		if err := syncDirectory(filepath.Dir(real)); err != nil {
			return err
		}
	}
	w.file, err = os.Stat(real)
	return err
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (w *Witness) disconnect() error {
	var errs []error
	if w.conn != nil {
		errs = append(errs, w.conn.Close())
	}
	if w.db != nil {
		errs = append(errs, w.db.Close())
	}
	w.conn, w.db, w.file = nil, nil, nil
	return errors.Join(errs...)
}

// Close ends this handle. The witness stays, and a later call opens it again.
func (w *Witness) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.disconnect(); err != nil {
		return w.failed(err)
	}
	return nil
}

func (w *Witness) failed(err error) *lastword.Error {
	e := explain("witness", w.path, err)
	if !strings.Contains(e.Message, w.path) {
		e.Message = w.path + ": " + e.Message
	}
	if e.Op = ""; strings.HasPrefix(e.Message, w.path) || strings.HasPrefix(e.Message, "/") {
		e.Message = "the witness " + e.Message
	} else {
		e.Message = "the witness: " + e.Message
	}
	return e
}
