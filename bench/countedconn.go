package bench

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
)

// statementCounter counts what a driver is asked to do, BEGIN and COMMIT included. It
// stands on both sides of a comparison.
type statementCounter struct{ n atomic.Int64 }

// reset starts a count; the function it returns ends it.
func (c *statementCounter) reset() func() int64 {
	before := c.n.Load()
	return func() int64 { return c.n.Load() - before }
}

func (c *statementCounter) connector(dsn string) (*countedConnector, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	return &countedConnector{c, db.Driver(), dsn}, db.Close()
}

// countedConnector opens connections of a driver that are counted.
type countedConnector struct {
	counter *statementCounter
	driver  sqldriver.Driver
	dsn     string
}

// Driver is the one below.
func (c *countedConnector) Driver() sqldriver.Driver { return c.driver }

// Connect opens a connection.
func (c *countedConnector) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's connection %T lacks a method", conn), conn.Close())
	}
	return &countedConn{full, c.counter}, nil
}

// fullConn is what the driver's connections have, and database/sql asks for.
type fullConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.Pinger
	sqldriver.SessionResetter
	sqldriver.Validator
}

type countedConn struct {
	fullConn
	counter *statementCounter
}

// BeginTx counts one.
func (c *countedConn) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	c.counter.n.Add(1)
	tx, err := c.fullConn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return &countedTx{tx, c.counter}, nil
}

// ExecContext counts one.
func (c *countedConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.counter.n.Add(1)
	return c.fullConn.ExecContext(ctx, query, args)
}

// QueryContext counts one.
func (c *countedConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.counter.n.Add(1)
	return c.fullConn.QueryContext(ctx, query, args)
}

// PrepareContext counts nothing: it is done once.
func (c *countedConn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	full, ok := stmt.(fullStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's statement %T lacks a method", stmt), stmt.Close())
	}
	return &countedStmt{full, c.counter}, nil
}

type fullStmt interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

type countedStmt struct {
	fullStmt
	counter *statementCounter
}

// ExecContext counts one.
func (s *countedStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	s.counter.n.Add(1)
	return s.fullStmt.ExecContext(ctx, args)
}

// QueryContext counts one.
func (s *countedStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	s.counter.n.Add(1)
	return s.fullStmt.QueryContext(ctx, args)
}

type countedTx struct {
	sqldriver.Tx
	counter *statementCounter
}

// Commit counts one.
func (t *countedTx) Commit() error {
	t.counter.n.Add(1)
	return t.Tx.Commit()
}
