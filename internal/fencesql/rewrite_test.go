package fencesql_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"net"
)

// rewriting sends other texts to a database than it is asked to.
type rewriting struct {
	inner   driver.Driver
	dsn     string
	texts   map[string]string
	counted string // a text that is said to have changed one row, if it had no error
}

func openRewriting(name, dsn string, m broken) (*sql.DB, error) {
	plain, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	defer plain.Close() // only its driver is wanted
	return sql.OpenDB(&rewriting{inner: plain.Driver(), dsn: dsn, texts: m.texts, counted: m.counted}), nil
}

func (r *rewriting) text(query string) string {
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
	stmt, err := c.fullConn.PrepareContext(ctx, c.r.text(query))
	if full, ok := stmt.(fullStmt); ok && err == nil && query == c.r.counted {
		return countedStmt{full}, nil
	}
	return stmt, err
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// countedStmt says that it has changed one row.
type countedStmt struct{ fullStmt }

func (s countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	r, err := s.fullStmt.ExecContext(ctx, args)
	if err == nil {
		r = driver.RowsAffected(1)
	}
	return r, err
}

func (c *rewritingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.fullConn.ExecContext(ctx, c.r.text(query), args)
	if err == nil && query == c.r.counted {
		r = driver.RowsAffected(1)
	}
	return r, err
}

func (c *rewritingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.fullConn.QueryContext(ctx, c.r.text(query), args)
}

// rewritingDial is a connection to PostgreSQL on which other texts are sent, for a driver
// that writes whole messages.
func rewritingDial(texts map[string]string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil || len(texts) == 0 {
			return c, err
		}
		return &rewritingWire{Conn: c, texts: texts}, nil
	}
}

type rewritingWire struct {
	net.Conn
	texts map[string]string
	begun bool // the first message has no type
}

var errHalfMessage = errors.New("half a message was written at once")

func (w *rewritingWire) Write(b []byte) (int, error) {
	if !w.begun {
		w.begun = true
		return w.Conn.Write(b)
	}
	var out []byte
	for rest := b; len(rest) > 0; {
		if len(rest) < 5 {
			return 0, errHalfMessage
		}
		size := 1 + int(binary.BigEndian.Uint32(rest[1:]))
		if len(rest) < size {
			return 0, errHalfMessage
		}
		out = append(out, w.message(rest[:size])...)
		rest = rest[size:]
	}
	if _, err := w.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// message is Parse, or Query, with another text.
func (w *rewritingWire) message(m []byte) []byte {
	name := []byte{}
	body := m[5:]
	switch m[0] {
	case 'P':
		end := bytes.IndexByte(body, 0) + 1
		name, body = body[:end], body[end:]
	case 'Q':
	default:
		return m
	}
	text, rest, _ := bytes.Cut(body, []byte{0})
	other, ok := w.texts[string(text)]
	if !ok {
		return m
	}
	body = append(append(append(bytes.Clone(name), other...), 0), rest...)
	return append(binary.BigEndian.AppendUint32([]byte{m[0]}, uint32(4+len(body))), body...)
}
