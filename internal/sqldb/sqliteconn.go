package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// SQLiteConfig says how connections to a SQLite file are set up.
type SQLiteConfig struct {
	// Driver is the name under which the driver is registered with database/sql.
	Driver string
	// Path of the file.
	Path string
	// Existing refuses to create the file.
	Existing bool
	// Untouched leaves out the journal mode, which is a property of the file: for
	// a look at a file that may be another program's.
	Untouched bool
	// Defensive lets no SQL write to pages or to shadow tables, nor to the schema, where
	// the driver is modernc.org/sqlite. Others do not know it.
	Defensive bool
	// Busy is how long one statement waits for another connection's lock; 0 means
	// 100 ms. [Backoff.Retry] waits longer than that; this bounds by how much a
	// call may outlast its context.
	Busy time.Duration
	// Checkpoint is SQLite's wal_autocheckpoint, in pages; 0 leaves the default (1000).
	Checkpoint int
	// Cache bounds how many bytes of pages a connection keeps; 0 leaves the default
	// (2 MB).
	Cache int
}

// OpenSQLite returns a pool in which every connection is set up for durable commits
// (WAL, synchronous=FULL), a busy time-out and enforced foreign keys, and asked for
// these settings after they were set. It opens no connection yet.
func OpenSQLite(cfg SQLiteConfig) (*sql.DB, error) {
	registered, err := sql.Open(cfg.Driver, "")
	if err != nil {
		return nil, fmt.Errorf("driver %q: %w", cfg.Driver, err)
	}
	defer registered.Close() // it has no connection; only its driver is wanted
	return sql.OpenDB(&sqliteConnector{driver: registered.Driver(), dsn: cfg.dsn(), pragmas: cfg.pragmas()}), nil
}

func (cfg SQLiteConfig) dsn() string {
	mode := "rwc"
	if cfg.Existing {
		mode = "rw"
	}
	options := url.Values{"mode": {mode}}
	if cfg.Defensive {
		options.Set("_defensive", "1")
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: cfg.Path, RawQuery: options.Encode()}
	return u.String()
}

type pragma struct{ name, value, want string }

func (cfg SQLiteConfig) pragmas() []pragma {
	busy := cfg.Busy
	if busy == 0 {
		busy = 100 * time.Millisecond
	}
	ms := strconv.FormatInt(max(1, busy.Milliseconds()), 10)
	all := []pragma{
		{"busy_timeout", ms, ms}, // first: the others may meet a lock
		{"synchronous", "FULL", "2"},
		{"foreign_keys", "ON", "1"},
	}
	if !cfg.Untouched {
		all = append(all, pragma{"journal_mode", "WAL", "wal"})
	}
	if cfg.Checkpoint > 0 {
		pages := strconv.Itoa(cfg.Checkpoint)
		all = append(all, pragma{"wal_autocheckpoint", pages, pages})
	}
	if cfg.Cache > 0 {
		kib := strconv.Itoa(-max(1, cfg.Cache>>10)) // negative: not a number of pages
		all = append(all, pragma{"cache_size", kib, kib})
	}
	return all
}

// sqliteConnector sets pragmas below database/sql, because the pool opens
// connections whenever it likes, and the ways to name them in a DSN are the driver's.
type sqliteConnector struct {
	driver  driver.Driver
	dsn     string
	pragmas []pragma
}

// Driver is the wrapped driver.
func (c *sqliteConnector) Driver() driver.Driver { return c.driver }

// Connect opens a connection, sets it up and reads the settings back.
func (c *sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	for _, p := range c.pragmas {
		if err := p.apply(conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func (p pragma) apply(conn driver.Conn) error {
	if _, err := ask(conn, fmt.Sprintf("PRAGMA %s = %s", p.name, p.value)); err != nil {
		return fmt.Errorf("set %s: %w", p.name, err)
	}
	got, err := ask(conn, "PRAGMA "+p.name)
	if err != nil {
		return fmt.Errorf("read %s: %w", p.name, err)
	}
	if got != p.want {
		return fmt.Errorf("%s is %q after it was set to %s", p.name, got, p.value)
	}
	return nil
}

// ask runs a statement and returns the first column of its first row, if any.
func ask(conn driver.Conn, query string) (answer string, err error) {
	stmt, err := conn.Prepare(query)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, stmt.Close()) }()
	rows, err := stmt.Query(nil) //nolint:staticcheck // the context form is optional for a driver
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, len(rows.Columns()))
	if len(row) == 0 {
		return "", nil
	}
	if err := rows.Next(row); err != nil {
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		return "", err
	}
	return strings.ToLower(text(row[0])), nil
}

func text(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
