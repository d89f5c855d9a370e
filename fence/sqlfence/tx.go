package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// Tx is one transaction at a [Place]. It implements fence.Tx. It is for one
// goroutine at a time.
type Tx struct {
	place *Place
	sql   *sql.Tx
	// locked says that this transaction has the write lock.
	locked bool
	// theirs says that the caller began it, and so has to repeat it.
	theirs bool
}

// SQL is the transaction for business statements. Leave COMMIT and ROLLBACK alone.
func (t *Tx) SQL() *sql.Tx { return t.sql }

// lock takes SQLite's write lock (see sqlLock).
func (t *Tx) lock(ctx context.Context) error {
	if t.locked {
		return nil
	}
	if _, err := t.stmt(ctx, t.place.stmts.lock).ExecContext(ctx); err != nil {
		return t.lockFailed(err)
	}
	t.locked = true
	return nil
}

func (t *Tx) lockFailed(err error) error {
	if t.theirs && dialect.Class(err) == sqldb.Busy {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: "within", Err: errors.Join(ErrRetryTransaction, err),
			Message: "the transaction did not get the write lock",
			Hint:    "roll it back and run it again as a whole; begin it with BEGIN IMMEDIATE (_txlock=immediate)"}
	}
	return err
}

// stmt is the prepared statement on this transaction's connection. database/sql
// prepares it there once and keeps it.
func (t *Tx) stmt(ctx context.Context, s *sql.Stmt) *sql.Stmt { return t.sql.StmtContext(ctx, s) }

// brief is ctx without its end, for statements that wait for nothing once the
// transaction has its lock: a driver starts a goroutine for every statement whose
// context can end. The end of ctx is looked at before COMMIT.
func brief(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// Load reads the record and what is known of operation, and refuses a connection
// that could lose the commit.
func (t *Tx) Load(ctx context.Context, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	if err := t.lock(ctx); err != nil {
		return fence.Record{}, fence.Known{}, t.fail("load", key, err)
	}
	ctx = brief(ctx)
	rec, known, settings, err := load(ctx, t.stmt(ctx, t.place.stmts.load), key, operation)
	if err == nil && !t.place.memory {
		err = checkDurable(settings.synchronous, settings.journal)
	}
	if err != nil {
		return fence.Record{}, fence.Known{}, t.fail("load", key, err)
	}
	return rec, known, nil
}

type settings struct {
	synchronous int
	journal     string
}

func load(ctx context.Context, stmt *sql.Stmt, key fence.Key, operation string) (fence.Record, fence.Known, settings, error) {
	var row recordRow
	var known fence.Known
	var s settings
	var payload string
	targets := append([]any{&s.synchronous, &s.journal}, row.targets()...)
	targets = append(targets, &known.Receipt, &payload, &known.Tombstone)
	err := stmt.QueryRowContext(ctx, key.Domain, string(key.Resource), operation, tombstone(operation)).Scan(targets...)
	if err != nil {
		return fence.Record{}, fence.Known{}, s, err
	}
	rec, err := row.record()
	if err != nil {
		return fence.Record{}, fence.Known{}, s, err
	}
	return rec, known, s, parseDigest(&known.Payload, payload)
}

// tombstone is what is kept of the id of an operation whose receipt was pruned (R19).
func tombstone(operation string) string { return lastword.DigestOf([]byte(operation)).String() }

// Receipt reads the receipt of an operation.
func (t *Tx) Receipt(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	ctx = brief(ctx)
	row := t.stmt(ctx, t.place.stmts.receipt).QueryRowContext(ctx, key.Domain, string(key.Resource), operation)
	receipt, err := scanReceipt(row, key, operation)
	if errors.Is(err, sql.ErrNoRows) {
		err = &lastword.Error{Code: lastword.CodeInternal, Message: fmt.Sprintf("the receipt of operation %q is missing", operation)}
	}
	return receipt, t.fail("receipt", key, err)
}

// Store writes the record, if it is still old, and the receipt, if there is none of
// its operation.
func (t *Tx) Store(ctx context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
	ctx = brief(ctx)
	err := t.stillOpen(ctx)
	if err == nil {
		err = t.store(ctx, key, old, next)
	}
	if err == nil && receipt != nil {
		err = t.storeReceipt(ctx, key, *receipt)
	}
	return t.fail("store", key, err)
}

// stillOpen notices that SQLite has rolled the transaction back by itself, because a
// statement of the effect failed or was interrupted and the effect went on. Record
// and receipt would then be committed one by one, for an effect that is gone. Only a
// second BEGIN can tell: inside a transaction it fails and changes nothing.
func (t *Tx) stillOpen(ctx context.Context) error {
	_, err := t.stmt(ctx, t.place.stmts.begin).ExecContext(ctx)
	if err != nil && dialect.Class(err) == sqldb.Other {
		return nil
	}
	if err == nil {
		_, err = t.sql.ExecContext(ctx, "ROLLBACK")
		return &lastword.Error{Code: lastword.CodeInternal, Op: "store", Err: err,
			Message: "the transaction was rolled back before the write was recorded; what was executed after that is not fenced",
			Hint:    "let the effect return the error of every statement, and not end the transaction"}
	}
	return err
}

func (t *Tx) store(ctx context.Context, key fence.Key, old, next fence.Record) error {
	if !next.Exists || old.Exists && next.Fence < old.Fence {
		return &lastword.Error{Code: lastword.CodeInternal, Fence: old.Fence,
			Message: fmt.Sprintf("a record with fence %s was to be replaced by one with %s", old.Fence, next.Fence)}
	}
	write, args, err := t.change(key, old, next)
	if err != nil {
		return err
	}
	result, err := t.stmt(ctx, write).ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	return one(result)
}

// change is the statement that makes old into next.
func (t *Tx) change(key fence.Key, old, next fence.Record) (*sql.Stmt, []any, error) {
	where := []any{key.Domain, string(key.Resource)}
	now, err := recordArgs(next)
	if err != nil {
		return nil, nil, err
	}
	if !old.Exists {
		return t.place.stmts.insert, slices.Concat(where, now), nil
	}
	before, err := recordArgs(old)
	if err != nil {
		return nil, nil, err
	}
	if onlyNumber(old, next) {
		number := []any{int64(next.LastSeq), next.LastOperation, next.LastPayload.String(), int64(next.Heard.Epoch), int64(next.Heard.Revision)}
		return t.place.stmts.updateNumber, slices.Concat(number, where, before), nil
	}
	return t.place.stmts.update, slices.Concat(where, now, before), nil
}

// onlyNumber reports whether nothing changes but what every write of a tenure changes.
func onlyNumber(old, next fence.Record) bool {
	old.LastSeq, old.LastOperation, old.LastPayload, old.Heard = next.LastSeq, next.LastOperation, next.LastPayload, next.Heard
	return old == next
}

func (t *Tx) storeReceipt(ctx context.Context, key fence.Key, receipt lastword.Receipt) error {
	args, err := receiptArgs(key, receipt)
	if err != nil {
		return err
	}
	result, err := t.stmt(ctx, t.place.stmts.insertReceipt).ExecContext(ctx, args...)
	if dialect.Class(err) == sqldb.Constraint {
		return errors.Join(errChanged, err)
	}
	if err != nil {
		return err
	}
	return one(result)
}

// one: the row count decides (R15). SQLite counts the rows that matched.
func one(result sql.Result) error {
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n != 1 {
		return errChanged
	}
	return nil
}

// fail names the record in an error.
func (t *Tx) fail(op string, key fence.Key, err error) error {
	return t.place.fail(op, key, err)
}
