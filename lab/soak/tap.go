package soak

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"sync"

	_ "modernc.org/sqlite" // the business database
)

// errLost is what a broken connection says.
var errLost = errors.New("the connection to the database was lost")

// openBusiness opens the business database with settings under which a commit survives.
func openBusiness(path string) (*sql.DB, error) { return sql.Open("sqlite", dsn(path)) }

func dsn(path string) string {
	q := url.Values{"_pragma": {"journal_mode(wal)", "synchronous(full)", "busy_timeout(5000)"}, "_txlock": {"immediate"}}
	return "file:" + path + "?" + q.Encode()
}

// tap is a driver that can be stopped before BEGIN and on both sides of COMMIT.
type tap struct {
	dsn   string
	inner driver.Driver

	mu     sync.Mutex
	begin  func()            // before the next BEGIN, once
	commit func(point) error // around the COMMIT of an armed transaction
}

func openTapped(path string) (*sql.DB, *tap, error) {
	plain, err := openBusiness(path)
	if err != nil {
		return nil, nil, err
	}
	t := &tap{dsn: dsn(path), inner: plain.Driver()}
	return sql.OpenDB(t), t, plain.Close()
}

// arm makes the next COMMIT pass through at. The effect of a write arms it, so that it
// is the commit of a write that was admitted.
func (t *tap) arm(at func(point) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commit = at
}

// atBegin makes the next BEGIN wait for wait.
func (t *tap) atBegin(wait func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin = wait
}

func (t *tap) takeBegin() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.begin
	t.begin = nil
	return f
}

func (t *tap) takeCommit() func(point) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.commit
	t.commit = nil
	return f
}

// Connect implements driver.Connector.
func (t *tap) Connect(context.Context) (driver.Conn, error) {
	c, err := t.inner.Open(t.dsn)
	if err != nil {
		return nil, err
	}
	full, ok := c.(sqliteConn)
	if !ok {
		return nil, errors.Join(errors.New("the SQLite driver has changed: a method is missing"), c.Close())
	}
	return &tappedConn{full, t}, nil
}

// Driver implements driver.Connector.
func (t *tap) Driver() driver.Driver { return t.inner }

// sqliteConn is what database/sql uses of the driver's connection.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type tappedConn struct {
	sqliteConn
	tap *tap
}

func (c *tappedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if wait := c.tap.takeBegin(); wait != nil {
		wait()
	}
	tx, err := c.sqliteConn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return &tappedTx{tx, c.tap}, nil
}

type tappedTx struct {
	driver.Tx
	tap *tap
}

func (t *tappedTx) Commit() error {
	at := t.tap.takeCommit()
	if at == nil {
		return t.Tx.Commit()
	}
	if err := at(beforeCommit); err != nil {
		return errors.Join(err, t.Rollback())
	}
	if err := t.Tx.Commit(); err != nil {
		return err
	}
	return at(afterCommit)
}
