package sqlfence

import (
	"context"
	"database/sql"

	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
)

// ErrRetryTransaction is wrapped by the error of [Fence.Within] when the caller's
// transaction has to be run again as a whole, with the same operation id, because
// another one was in its way (R16): on SQLite it did not get the write lock, since
// another one wrote after its first read or holds the lock; a transaction that is begun
// with BEGIN IMMEDIATE does not see it. On PostgreSQL it met a deadlock or a
// serialization failure. Nothing was decided: roll back first.
var ErrRetryTransaction = fencesql.ErrRetryTransaction

// tables is what a transaction does with the tables of the fence.
type tables = fencesql.Tx

// Tx is one transaction at a [Place]. It implements fence.Tx. It is for one
// goroutine at a time.
type Tx struct {
	*tables
	place  *Place
	sql    *sql.Tx
	theirs bool
	// passes are what this transaction has opened, on SQLite.
	passes map[fence.Key]bool
}

// SQL is the transaction for business statements. Leave COMMIT and ROLLBACK alone.
func (t *Tx) SQL() *sql.Tx { return t.sql }

// Join is a transaction that the caller began on the same pool, for fence.Within.
func (p *Place) Join(tx *sql.Tx) *Tx { return p.tx(tx, true) }

func (p *Place) tx(tx *sql.Tx, theirs bool) *Tx {
	return &Tx{tables: fencesql.NewTx(p.engine, p.conn(tx), theirs, p.memory), place: p, sql: tx, theirs: theirs}
}

// conn is a transaction in which the statements of every write are prepared.
func (p *Place) conn(tx *sql.Tx) fencesql.Conn {
	return &prepared{fencesql.Plain{Querier: tx}, tx, p.stmts}
}

// prepared takes the prepared statement on the transaction's connection, where there is
// one. database/sql prepares it there once and keeps it.
type prepared struct {
	fencesql.Plain
	tx    *sql.Tx
	stmts map[string]*sql.Stmt
}

// Exec is [fencesql.Conn]'s.
func (c *prepared) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if stmt := c.stmts[query]; stmt != nil {
		return fencesql.Counted(c.tx.StmtContext(ctx, stmt).ExecContext(ctx, args...))
	}
	return c.Plain.Exec(ctx, query, args...)
}

// Row is [fencesql.Conn]'s.
func (c *prepared) Row(ctx context.Context, query string, args ...any) fencesql.Row {
	if stmt := c.stmts[query]; stmt != nil {
		return c.tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...)
	}
	return c.Plain.Row(ctx, query, args...)
}
