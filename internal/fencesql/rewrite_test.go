package fencesql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
)

// rewriting sends other texts to a database than it is asked to.
type rewriting struct {
	inner driver.Driver
	dsn   string
	mu    sync.Mutex
	texts map[string]string
}

func openRewriting(name, dsn string, texts map[string]string) (*sql.DB, error) {
	plain, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	defer plain.Close() // only its driver is wanted
	return sql.OpenDB(&rewriting{inner: plain.Driver(), dsn: dsn, texts: texts}), nil
}

func (r *rewriting) text(query string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, ok := r.texts[query]; ok {
		return other
	}
	return query
}

func (r *rewriting) Driver() driver.Driver { return r.inner }

func (r *rewriting) Connect(context.Context) (driver.Conn, error) {
	c, err := r.inner.Open(r.dsn)
	if err != nil {
		return nil, err
	}
	return &rewritingConn{c.(fullConn), r}, nil
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type rewritingConn struct {
	fullConn
	r *rewriting
}

func (c *rewritingConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// IsValid is that of the driver, where it has one.
func (c *rewritingConn) IsValid() bool {
	v, ok := c.fullConn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *rewritingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.fullConn.PrepareContext(ctx, c.r.text(query))
}

func (c *rewritingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.fullConn.ExecContext(ctx, c.r.text(query), args)
}

func (c *rewritingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.fullConn.QueryContext(ctx, c.r.text(query), args)
}
