package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"testing"
)

// event is one call that database/sql makes of a driver.
type event struct {
	op    string // open, begin, commit, rollback, exec, query
	query string
	after bool // the driver has done it, and did not fail
}

func (e event) is(op, part string) bool { return e.op == op && strings.Contains(e.query, part) }

// faulty puts a hook around every call of a driver. An error of the hook is what
// database/sql sees; before the call, the call is not made.
type faulty struct {
	dsn   string
	inner driver.Driver
	mu    sync.Mutex
	hook  func(event) error
	begun context.Context // of the last transaction
}

func openFaulty(tb testing.TB, path, options string) (*sql.DB, *faulty) {
	tb.Helper()
	plain, err := sql.Open("sqlite", dsn(path, options))
	if err != nil {
		tb.Fatal(err)
	}
	f := &faulty{dsn: dsn(path, options), inner: plain.Driver()}
	db := sql.OpenDB(f)
	tb.Cleanup(func() { f.set(nil); _ = db.Close(); _ = plain.Close() })
	return db, f
}

func (f *faulty) set(hook func(event) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *faulty) around(op, query string, call func() error) error {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook == nil {
		return call()
	}
	if err := hook(event{op: op, query: query}); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return hook(event{op: op, query: query, after: true})
}

func (f *faulty) Driver() driver.Driver { return f.inner }

func (f *faulty) Connect(context.Context) (driver.Conn, error) {
	var c driver.Conn
	err := f.around("open", "", func() (err error) { c, err = f.inner.Open(f.dsn); return err })
	if err != nil {
		return nil, err
	}
	return &faultyConn{f, c}, nil
}

type faultyConn struct {
	f *faulty
	driver.Conn
}

func (c *faultyConn) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}
func (c *faultyConn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.f.mu.Lock()
	c.f.begun = ctx
	c.f.mu.Unlock()
	var tx driver.Tx
	err := c.f.around("begin", "", func() (err error) { tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts); return err })
	if err != nil {
		return nil, err
	}
	return &faultyTx{c.f, tx}, nil
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	err = c.f.around("exec", query, func() (err error) {
		r, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return r, err
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	err = c.f.around("query", query, func() (err error) {
		r, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	return r, err
}

func (c *faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &faultyStmt{c.f, s, query}, nil
}

type faultyTx struct {
	f     *faulty
	inner driver.Tx
}

func (t *faultyTx) Commit() error   { return t.f.around("commit", "", t.inner.Commit) }
func (t *faultyTx) Rollback() error { return t.f.around("rollback", "", t.inner.Rollback) }

type faultyStmt struct {
	f *faulty
	driver.Stmt
	query string
}

func (s *faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.f.around("exec", s.query, func() (err error) { r, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); return err })
	return r, err
}

func (s *faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.f.around("query", s.query, func() (err error) {
		r, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
		return err
	})
	return r, err
}

// engineError is an error as the driver reports it.
type engineError int

func (e engineError) Error() string { return "engine error" }
func (e engineError) Code() int     { return int(e) }
