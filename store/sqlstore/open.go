package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
	"github.com/lastword/lastword/store"
)

// Config says how to open a store. Its zero value works with modernc.org/sqlite.
type Config struct {
	// Driver is the name under which a SQLite driver is registered with
	// database/sql; "" means "sqlite". Its errors must have a method Code() int with
	// SQLite's result code.
	Driver string
	// CacheRecords bounds how many records are kept in memory for reading; 0 means
	// 65,536, a negative number none.
	CacheRecords int
	// CacheBytes bounds their size in bytes, roughly; 0 means 128 MiB.
	CacheBytes int
}

func (c Config) withDefaults() Config {
	if c.Driver == "" {
		c.Driver = "sqlite"
	}
	if c.CacheRecords == 0 {
		c.CacheRecords = 64 << 10
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 128 << 20
	}
	return c
}

var dialect sqldb.SQLite

// checkpointPages is after how many pages the log is folded into the file: 32 MiB. A
// page that was written often is then copied once, and the two syncs are rarer.
const checkpointPages = 8000

// pageCache is how many bytes of pages a connection keeps: what a busy store writes
// to again and again is not to be read again, too.
const pageCache = 32 << 20

// Store is the only handle on one SQLite file. It is safe for concurrent use.
type Store struct {
	path  string
	lock  *fileLock
	file  os.FileInfo // of the open file, to notice that the path names another one
	db    *sql.DB
	turns sqldb.Backoff

	// writing is held for everything on the writer, and while a snapshot of the
	// reader is opened: so that whoever holds it sees what the cache shows.
	writing semaphore
	writer  *sql.Conn
	write   writeStatements
	version int64 // PRAGMA data_version: changes when somebody else has written
	closed  bool  // set with both semaphores held, read with either
	broken  error // why nothing can be done any more

	reading semaphore
	reader  *sql.Conn

	cache *cache
}

var _ store.Sole = (*Store)(nil)

// Sole implements [store.Sole]: a second process is refused.
func (s *Store) Sole() bool { return true }

// semaphore is a mutex that a context can give up on.
type semaphore chan struct{}

func (s semaphore) lock(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s semaphore) unlock() { <-s }

// Open opens the store in the SQLite file at path and makes it, with mode 0600, if there
// is none; the mode of one that is there stays. Its directory must exist. While another program has the file locked it waits until ctx
// ends.
//
// Errors: [lastword.CodeInvalid] if the path or the file cannot be a store (a
// directory, another program's database, no database, a newer schema);
// [lastword.CodeUnavailable] if it is in use by another store, or cannot be opened,
// read or written to. After an error nothing is locked, and a file that was not ours
// is as it was.
func Open(ctx context.Context, path string, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if !slices.Contains(sql.Drivers(), cfg.Driver) {
		return nil, refuse(lastword.CodeInvalid, fmt.Sprintf("no database driver %q is registered", cfg.Driver),
			`import one, such as _ "modernc.org/sqlite"`)
	}
	real, err := resolve(path)
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(real)
	if err != nil {
		return nil, err
	}
	if err := unfinished(real); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	s := &Store{path: real, lock: lock, writing: make(semaphore, 1), reading: make(semaphore, 1), cache: newCache(cfg.CacheRecords, cfg.CacheBytes)}
	err = s.turns.Retry(ctx, dialect, func(ctx context.Context) error {
		return s.open(context.WithoutCancel(ctx), cfg)
	})
	if err != nil {
		_ = lock.release() // the reason is the one above
		return nil, explain("open store", real, err)
	}
	return s, nil
}

// open is one attempt; after an error nothing of it is left.
func (s *Store) open(ctx context.Context, cfg Config) (err error) {
	if err := s.probe(ctx, cfg); err != nil {
		return err
	}
	if s.db, err = sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: cfg.Driver, Path: s.path, Checkpoint: checkpointPages, Cache: pageCache}); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = s.disconnect()
		}
	}()
	if s.writer, err = s.db.Conn(ctx); err != nil {
		return err
	}
	if err := sqldb.Migrate(ctx, dialect, s.writer, schema); err != nil {
		return err
	}
	if s.reader, err = s.db.Conn(ctx); err != nil {
		return err
	}
	if s.file, err = os.Stat(s.path); err != nil {
		return err
	}
	if err := s.write.prepare(ctx, s.writer); err != nil {
		return err
	}
	return s.refresh(ctx)
}

// probe looks at a file that exists before anything in it is changed, and that
// includes the mode of its journal. The lock is held, so that no handle of this
// process has the file open: closing a descriptor would drop SQLite's locks on it.
func (s *Store) probe(ctx context.Context, cfg Config) (err error) {
	if empty, err := s.begins(); err != nil || empty {
		return err
	}
	db, err := sqldb.OpenSQLite(sqldb.SQLiteConfig{Driver: cfg.Driver, Path: s.path, Existing: true, Untouched: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := sqldb.Inspect(ctx, dialect, db, schema); err != nil {
		return err
	}
	var encoding string
	if err := db.QueryRowContext(ctx, "PRAGMA encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF-8" {
		return refuse(lastword.CodeInvalid, s.path+" has the encoding "+encoding+", not UTF-8", "use a file of its own")
	}
	return nil
}

// magic is how every SQLite file begins.
const magic = "SQLite format 3\x00"

// begins reads the first bytes. SQLite itself takes a file that is shorter than a
// page, whatever is in it, and one whose log alone is left, for an empty database.
func (s *Store) begins() (empty bool, err error) {
	file, err := os.OpenFile(s.path, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := s.noLog(); err != nil {
			return false, err
		}
		return true, s.create()
	case err != nil:
		return false, refuseErr(lastword.CodeUnavailable, s.path+" cannot be written to", "let this process write to the file and its directory", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	begin := make([]byte, len(magic))
	switch n, err := io.ReadFull(file, begin); {
	case n == 0 && errors.Is(err, io.EOF):
		return true, s.noLog()
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return false, err
	}
	if string(begin) != magic {
		return false, refuse(lastword.CodeInvalid, s.path+" is no SQLite database", "name another file, or restore this one from a backup")
	}
	return false, nil
}

// create makes the file for this user alone, whatever the umask is: who reads it knows
// the ids of all tenures. SQLite gives the files beside it the same mode.
func (s *Store) create() error {
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return refuseErr(lastword.CodeUnavailable, s.path+" cannot be made", "let this process write to the directory", bare(err))
	}
	return file.Close()
}

func (s *Store) noLog() error {
	log, err := os.Stat(s.path + "-wal")
	if err != nil || log.Size() == 0 {
		return nil //nolint:nilerr // a log that is not there is what is wanted; one out of reach SQLite will name
	}
	return refuse(lastword.CodeInvalid, s.path+" is missing or empty, but its log "+s.path+"-wal is not",
		"put the file back beside its log, or remove the log to start anew")
}

func (s *Store) disconnect() error {
	err := s.write.close(s.writer)
	for _, conn := range []*sql.Conn{s.writer, s.reader} {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	s.writer, s.reader = nil, nil
	return errors.Join(err, s.db.Close())
}

// Close waits for the calls under way, folds the log into the file and gives the file
// free. Closing again does nothing.
func (s *Store) Close() error {
	ctx := context.Background()
	_ = s.reading.lock(ctx)
	defer s.reading.unlock()
	_ = s.writing.lock(ctx)
	defer s.writing.unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.cache.close()
	if err := errors.Join(s.disconnect(), s.lock.release()); err != nil {
		return explain("close store", s.path, err)
	}
	return nil
}

// usable is called with a semaphore held.
func (s *Store) usable(op string) error {
	if s.closed {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Message: "the store is closed"}
	}
	if s.broken != nil {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Message: s.path + " had to be given up",
			Hint: "start this process again", Err: s.broken}
	}
	return nil
}
