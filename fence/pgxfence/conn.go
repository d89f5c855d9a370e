package pgxfence

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword/internal/fencesql"
)

// querier is a pgx.Tx or a *pgx.Conn.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// conn is pgx as the tables of the fence want it.
type conn struct{ querier }

// Exec is [fencesql.Conn]'s.
func (c conn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := c.querier.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

// Query is [fencesql.Conn]'s.
func (c conn) Query(ctx context.Context, query string, args ...any) (fencesql.Rows, error) {
	found, err := c.querier.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return rows{found}, nil
}

// Row is [fencesql.Conn]'s.
func (c conn) Row(ctx context.Context, query string, args ...any) fencesql.Row {
	return c.QueryRow(ctx, query, args...)
}

type rows struct{ pgx.Rows }

// Close is [fencesql.Rows]'s.
func (r rows) Close() error {
	r.Rows.Close()
	return r.Err()
}
