package sqlfence

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"

	"github.com/lastword/lastword"
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
	// guess is what is remembered of the record, on PostgreSQL; nil: it is to be locked.
	guess  *fencesql.Seen
	stored *fencesql.Seen
	// early is the transaction, on PostgreSQL, if the receipt was stored before the effect.
	early string
	// opened: the effect may have begun. marked: the savepoint is set by which a
	// transaction on SQLite is known again. gone: it was not there any more.
	opened, marked, gone bool
	// standing is what became of the transaction before it was rolled back, on PostgreSQL.
	standing fencesql.Standing
}

// effective reports whether an effect may have been run.
func (t *Tx) effective() bool { return t.opened && !t.guessing() }

// A transaction of SQLite has no number. It has ended, and may be another one by now, when
// a savepoint from its beginning is gone. The statements end with the name of the place's
// savepoint.
const (
	sqlMark   = `SAVEPOINT `
	sqlMarked = `RELEASE `
)

// newSavepoint is a name that no effect has for a savepoint of its own. It is one name for
// each place, so that the statements stay prepared.
func newSavepoint() string { return "lastword_" + rand.Text() }

func (t *Tx) mark(ctx context.Context) error {
	if !t.place.lite() {
		return nil
	}
	_, err := t.place.conn(t.sql).Exec(t.place.engine.Calm(ctx), t.place.mark)
	t.marked = err == nil
	return err
}

// same refuses to go on in another transaction than the one that was begun.
func (t *Tx) same(ctx context.Context) error {
	if !t.marked {
		return nil
	}
	_, err := t.place.conn(t.sql).Exec(t.place.engine.Calm(ctx), t.place.marked)
	if err != nil && strings.Contains(err.Error(), "no such savepoint") {
		return errors.Join(fencesql.ErrElsewhere, err)
	}
	t.marked = err != nil
	return err
}

// look asks whether the transaction, in which something has failed, is still the one that
// was begun. One of SQLite of which that is not known has gone.
func (t *Tx) look(ctx context.Context) {
	if !t.place.lite() {
		t.standing = fencesql.Stands(ctx, fencesql.Plain{Querier: t.sql}, t.xact())
		return
	}
	t.gone = t.same(ctx) != nil
}

// xact is the transaction, on PostgreSQL.
func (t *Tx) xact() string { return cmp.Or(t.early, fencesql.Xact(t.tables)) }

// guessing reports whether the record is only remembered yet.
func (t *Tx) guessing() bool { return t.guess != nil && t.stored == nil }

// Load reads the record under its lock, or takes what is remembered of it.
func (t *Tx) Load(ctx context.Context, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	if t.guessing() {
		return t.guess.Record, t.guess.Known(operation), nil
	}
	return t.tables.Load(ctx, key, operation)
}

// Receipt reads the receipt of an operation.
func (t *Tx) Receipt(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	if t.guessing() {
		return lastword.Receipt{}, fencesql.ErrGuess
	}
	return t.tables.Receipt(ctx, key, operation)
}

// Store writes the record, if it is still old, and the receipt, if there is none of its
// operation.
func (t *Tx) Store(ctx context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
	if t.place.lite() || t.theirs {
		if err := t.same(ctx); err != nil {
			return t.place.fail("store", key, err)
		}
		err := t.tables.Store(ctx, key, old, next, receipt)
		t.stored = fencesql.Stored(t.tables)
		return err
	}
	var step fencesql.Step
	var err error
	if t.guessing() {
		if step, err = fencesql.StepFrom(*t.guess, key, old, next, receipt); err == nil {
			err = t.sql.QueryRowContext(ctx, step.Query+fencesql.AndXact, step.Args...).Scan(new(any), &t.early)
		}
	} else if step, err = fencesql.StepOf(t.tables, key, old, next, receipt); err == nil {
		_, err = t.sql.ExecContext(ctx, step.Query, step.Args...)
	}
	err = fencesql.StoreError(err)
	if err == nil {
		t.stored = step.After
	}
	return t.place.fail("store", key, err)
}

// stillOpen notices that the effect has ended the transaction in which the record was
// stored before it.
func (t *Tx) stillOpen(ctx context.Context, key fence.Key) error {
	if t.guess == nil || t.stored == nil {
		return nil
	}
	step := fencesql.SameStep(key, *t.stored)
	_, err := t.sql.ExecContext(ctx, step.Query, step.Args...)
	return fencesql.SameError(err)
}

// StoresEarly is [fence.Early]'s.
func (t *Tx) StoresEarly() bool { return t.guessing() }

// StoreResult is [fence.Early]'s.
func (t *Tx) StoreResult(ctx context.Context, key fence.Key, operation string, result []byte) error {
	err := fencesql.StoreResult(ctx, t.tables, key, operation, result)
	if errors.Is(err, fencesql.ErrChanged) { // or the effect has rolled back what was stored
		if ended := t.stillOpen(ctx, key); errors.Is(ended, fencesql.ErrElsewhere) {
			return t.place.fail("store", key, ended)
		}
	}
	return err
}

// SQL is the transaction for business statements. Leave COMMIT and ROLLBACK alone.
func (t *Tx) SQL() *sql.Tx { return t.sql }

// Join is a transaction that the caller began on the same pool, for fence.Within.
func (p *Place) Join(tx *sql.Tx) *Tx { return p.tx(tx, true) }

func (p *Place) tx(tx *sql.Tx, theirs bool) *Tx {
	t := &Tx{tables: fencesql.NewTx(p.engine, p.conn(tx), theirs, p.memory), place: p, sql: tx, theirs: theirs}
	if p.lite() {
		fencesql.Remember(t.tables, &p.seen)
	}
	return t
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
