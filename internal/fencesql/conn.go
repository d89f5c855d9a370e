package fencesql

import (
	"context"
	"database/sql"

	"github.com/lastword/lastword/internal/sqldb"
)

// Conn is a transaction, or a connection, of whatever driver.
type Conn interface {
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	Row(ctx context.Context, query string, args ...any) Row
}

// Row is *sql.Row, or one row of [Rows]. Where there is none, Scan's error is
// [sql.ErrNoRows].
type Row interface{ Scan(targets ...any) error }

// Rows is *sql.Rows.
type Rows interface {
	Row
	Next() bool
	Err() error
	Close() error
}

// Plain is a [Conn] over database/sql.
type Plain struct{ sqldb.Querier }

// Exec returns the number of rows that matched.
func (p Plain) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return Counted(p.ExecContext(ctx, query, args...))
}

// Counted is the number of rows of a result.
func Counted(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Query returns the rows.
func (p Plain) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := p.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller's
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Row returns the first row.
func (p Plain) Row(ctx context.Context, query string, args ...any) Row {
	return p.QueryRowContext(ctx, query, args...)
}
