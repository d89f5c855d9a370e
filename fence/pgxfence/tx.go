package pgxfence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
)

// ErrRetryTransaction is wrapped by the error of [Fence.Within] when the caller's
// transaction has met a deadlock or a serialization failure (R16). Nothing was decided:
// roll back, and run the whole transaction again, with the same operation id.
var ErrRetryTransaction = fencesql.ErrRetryTransaction

// tables is what a transaction does with the tables of the fence.
type tables = fencesql.Tx

// Tx is one transaction at a [Place]. It implements fence.Tx. It is for one goroutine at
// a time. Where it is the place's own, it begins with its first statement, which is the
// check of the fence, and what it stores travels with COMMIT.
type Tx struct {
	*tables
	place  *Place
	conn   *pgx.Conn      // of the place's own; nil in a caller's
	sql    pgx.Tx         // nil: it has not begun
	unfit  error          // what is wrong with a protected table
	guess  *fencesql.Seen // what is remembered of the record; nil: it is to be locked
	waits  *fencesql.Step
	stored *fencesql.Seen
	early  string           // the transaction, if the receipt was stored before the effect
	opened bool             // the effect may have begun
	failed fencesql.Attempt // what is known of it, once fn was run
}

// effective reports whether an effect may have been run.
func (t *Tx) effective() bool { return t.opened && (t.guess == nil || t.stored != nil) }

func (p *Place) begin(c *pgx.Conn) *Tx {
	tx := &Tx{place: p, conn: c}
	tx.tables = fencesql.NewTx(engine, wire{tx}, false, false)
	return tx
}

// Join is a transaction that the caller began, for fence.Within.
func (p *Place) Join(sql pgx.Tx) *Tx {
	return &Tx{tables: fencesql.NewTx(engine, conn{sql}, true, false), place: p, sql: sql}
}

// Pgx is the transaction for business statements. Leave Commit and Rollback alone.
func (t *Tx) Pgx() pgx.Tx { return t.sql }

// Load begins the transaction, locks the record, opens the resource to the transaction
// and reads what is known of operation, in one round trip.
func (t *Tx) Load(ctx context.Context, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	if t.sql != nil {
		t.guess = nil
		return t.tables.Load(ctx, key, operation)
	}
	if t.guess != nil {
		return t.guess.Record, t.guess.Known(operation), nil
	}
	b := &pgx.Batch{}
	b.BeginTx(t.options())
	query, args := fencesql.LoadStatement(key, operation, true)
	b.Queue(query, args...)
	results := t.conn.SendBatch(ctx, b)
	t.sql = results.Tx()
	var rec fence.Record
	var known fence.Known
	_, err := results.Exec()
	if err == nil {
		rec, known, err = fencesql.Loaded(t.tables, results.QueryRow(), operation)
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return rec, known, t.place.fail("load", key, err)
}

func (t *Tx) options() pgx.TxOptions { return pgx.TxOptions{IsoLevel: t.place.level} }

// Store keeps the one conditional write of the record, and the receipt, for the round
// trip of COMMIT; in a transaction of the caller it is sent at once.
func (t *Tx) Store(ctx context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
	if t.conn == nil {
		return t.tables.Store(ctx, key, old, next, receipt)
	}
	if t.guess != nil && t.sql == nil {
		return t.place.fail("store", key, t.storeFirst(ctx, key, old, next, receipt))
	}
	err := t.flush(ctx) // of a second one in one transaction
	if err == nil {
		var step fencesql.Step
		step, err = fencesql.StepOf(t.tables, key, old, next, receipt)
		t.waits, t.stored = &step, step.After
	}
	return t.place.fail("store", key, err)
}

// storeFirst begins the transaction with the conditional write of the record: it locks
// it, and opens the resource to the transaction, if it is still what is remembered.
func (t *Tx) storeFirst(ctx context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
	step, err := fencesql.StepFrom(*t.guess, key, old, next, receipt)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.BeginTx(t.options())
	b.Queue(step.Query+fencesql.AndXact, step.Args...)
	results := t.conn.SendBatch(ctx, b)
	t.sql = results.Tx()
	if _, err = results.Exec(); err == nil {
		err = results.QueryRow().Scan(nil, &t.early)
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err == nil {
		t.stored = step.After
	}
	return fencesql.StoreError(err)
}

// StoresEarly is [fence.Early]'s.
func (t *Tx) StoresEarly() bool { return t.conn != nil && t.guess != nil && t.sql == nil }

// StoreResult is [fence.Early]'s.
func (t *Tx) StoreResult(ctx context.Context, key fence.Key, operation string, result []byte) error {
	err := fencesql.StoreResult(ctx, t.tables, key, operation, result)
	if errors.Is(err, fencesql.ErrChanged) && t.stored != nil { // or the effect has rolled back what was stored
		same := fencesql.SameStep(key, *t.stored)
		_, ended := t.sql.Exec(ctx, same.Query, same.Args...)
		if ended = fencesql.SameError(ended); errors.Is(ended, fencesql.ErrElsewhere) {
			return t.place.fail("store", key, ended)
		}
	}
	return err
}

// Receipt reads the receipt of an operation.
func (t *Tx) Receipt(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	if t.guess != nil && t.sql == nil {
		return lastword.Receipt{}, fencesql.ErrGuess
	}
	return t.tables.Receipt(ctx, key, operation)
}

// flush begins the transaction if it has not begun, and sends what waits for COMMIT,
// because something else comes before it.
func (t *Tx) flush(ctx context.Context) (err error) {
	if t.sql == nil {
		t.sql, err = t.conn.BeginTx(ctx, t.options())
	}
	if err != nil || t.waits == nil {
		return err
	}
	step := t.waits
	t.waits = nil
	_, err = t.sql.Exec(ctx, step.Query, step.Args...)
	return fencesql.StoreError(err)
}

// commit stores what waits and commits, in one round trip; what was stored before the
// effect has to be of the same transaction still.
func (t *Tx) commit(ctx context.Context, key fence.Key) (where, error) {
	b := &pgx.Batch{}
	if t.waits != nil {
		b.Queue(t.waits.Query, t.waits.Args...)
	}
	asks := t.guess != nil && t.stored != nil
	if asks {
		same := fencesql.SameStep(key, *t.stored)
		b.Queue(same.Query, same.Args...)
	}
	b.Queue("commit")
	return committed(t.conn.SendBatch(ctx, b), b.Len()-1, asks, nil)
}

// wire is the connection of a transaction of the place's own, for the tables.
type wire struct{ t *Tx }

// Exec is [fencesql.Conn]'s.
func (w wire) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := w.t.flush(ctx); err != nil {
		return 0, err
	}
	return conn{w.t.sql}.Exec(ctx, query, args...)
}

// Query is [fencesql.Conn]'s.
func (w wire) Query(ctx context.Context, query string, args ...any) (fencesql.Rows, error) {
	if err := w.t.flush(ctx); err != nil {
		return nil, err
	}
	return conn{w.t.sql}.Query(ctx, query, args...)
}

// Row is [fencesql.Conn]'s.
func (w wire) Row(ctx context.Context, query string, args ...any) fencesql.Row {
	if err := w.t.flush(ctx); err != nil {
		return failedRow{err}
	}
	return conn{w.t.sql}.Row(ctx, query, args...)
}

type failedRow struct{ err error }

// Scan is the error that kept the row away.
func (r failedRow) Scan(...any) error { return r.err }
