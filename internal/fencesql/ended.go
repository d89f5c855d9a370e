package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// endedGrace bounds the question what became of a transaction that has failed, and
// endedPause is between two of them: a server may notice late that a connection is gone.
const (
	endedGrace = time.Second
	endedPause = 20 * time.Millisecond
)

const (
	// postgresFate is what became of a transaction: in progress, committed, aborted, or NULL.
	// What was prepared (PREPARE TRANSACTION) is in progress until somebody ends it.
	postgresFate = `SELECT coalesce(pg_catalog.pg_xact_status($1::text::xid8), '')`

	postgresCurrent = `SELECT coalesce(pg_catalog.pg_current_xact_id_if_assigned()::text, '')`
)

// Standing is what a connection of PostgreSQL says, before anything is rolled back, of a
// transaction in which something has failed.
type Standing int

const (
	// Unheard is of a connection that said nothing. It may be lost.
	Unheard Standing = iota
	// Ours is the transaction that was begun, still open, or one that has failed. Of the
	// latter nothing tells which it is.
	Ours
	// Gone says that there is none, or another one.
	Gone
)

// Stands asks c, which is in the transaction xact if nobody has ended that.
func Stands(ctx context.Context, c Conn, xact string) Standing {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endedGrace)
	defer cancel()
	var current string
	err := c.Row(ctx, postgresCurrent).Scan(&current)
	switch {
	case err == nil && current == xact, sqldb.SQLState(err) == "25P02": // in_failed_sql_transaction
		return Ours
	case err == nil, errors.Is(err, sql.ErrTxDone):
		return Gone
	}
	return Unheard
}

// AndXact is appended to the text of a [Step] whose record nobody has read: it tells which
// transaction has stored it.
const AndXact = `, pg_catalog.pg_current_xact_id()::text`

// Attempt is a transaction on PostgreSQL that has failed since its effect began.
type Attempt struct {
	Xact     string
	Recorded bool // the receipt was stored in it before the effect
	Standing Standing
}

// Ended is the error of such a transaction, which has failed with err and is over. Whoever
// may execute statements in a transaction may also end it, and then it is not rolled back
// any more: the server is asked what became of it. What the effect has committed by itself
// is never told as "nothing was changed" (P5): that takes a transaction that was aborted, and
// no sign that the session went on in another one.
func Ended(ctx context.Context, c Conn, a Attempt, key fence.Key, err error) error {
	gone := a.Standing == Gone || left(err)
	fate, heard := fateOf(ctx, c, a.Xact, !gone)
	switch {
	case fate == "committed" && a.Recorded:
		return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "effect", Resource: key.Resource, Err: err,
			Message: "the effect has ended its transaction by itself, and has committed it with its receipt",
			Hint:    "look the operation up, or apply it again with the same operation id: it is not run again"}
	case fate == "committed":
		return Unrecorded(key, "is", err)
	case gone:
		return Unrecorded(key, "may be", err)
	case fate == "aborted", !heard && a.Standing == Ours: // which was rolled back, or its connection closed
		return err
	}
	return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "effect", Resource: key.Resource, Err: err,
		Message: "the effect has failed, and the server does not say that its transaction was rolled back",
		Hint:    "look the operation up, or apply it again with the same operation id; if pg_prepared_xacts shows it, an effect has prepared it: end it there"}
}

// fateOf asks again, for a while, if passes says that what is heard may change: while the
// transaction is in progress, or nobody answers.
func fateOf(ctx context.Context, c Conn, xact string, passes bool) (fate string, heard bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endedGrace)
	defer cancel()
	for {
		now, err := fateNow(ctx, c, xact)
		if err == nil {
			fate, heard = now, true // which a later question without an answer does not take back
		}
		if err == nil && fate != "in progress" || !passes {
			return fate, heard
		}
		pause := time.NewTimer(endedPause) //nolint:forbidigo // it bounds a wait for a server and decides nothing
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fate, heard
		}
	}
}

// fateNow takes a transaction of which a crash has left nothing, not even its number, for
// aborted, unless the server is a replica that may hear of it yet.
func fateNow(ctx context.Context, c Conn, xact string) (fate string, err error) {
	err = c.Row(ctx, postgresFate, xact).Scan(&fate)
	if sqldb.SQLState(err) != "22023" { // it is in the future
		return fate, err
	}
	err = c.Row(ctx, `SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE 'aborted' END`).Scan(&fate)
	return fate, err
}

// Xact is the transaction in which t has read a record on PostgreSQL, "" if in none.
func Xact(t *Tx) string { return t.xact }

// EndedLite is [Ended] on SQLite, for a transaction of which is known that it had ended
// before the effect came back: by the engine, which rolls back by itself after some errors,
// or by the effect. Nothing tells which, nor what was committed: whatever error the effect
// brings, it may be of what it has done afterwards. So it is unknown, and not repeated.
func EndedLite(key fence.Key, err error) error {
	if _, ok := errors.AsType[contained](err); ok {
		return err
	}
	return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "effect", Resource: key.Resource, Err: err,
		Message: "the transaction was over before the effect came back: SQLite has rolled it back after an error, or the effect has ended it by itself; what it had executed may be committed, without a receipt",
		Hint:    "look the operation up; without a receipt reconcile the business data before it is applied again, and let the effect not end the transaction"}
}

// contained is an error of an effect that could not end its transaction by itself.
type contained struct{ error }

// Unwrap is the error.
func (c contained) Unwrap() error { return c.error }

// Contained is err of an effect all of whose statements were refused by SQLite itself if they
// began or ended a transaction, and that has executed none after the one that failed. If its
// transaction is over then, SQLite has rolled it back.
func Contained(err error) error {
	if err == nil {
		return nil
	}
	return contained{err}
}

// Unrecorded is the error of a write of which something is, or may be, committed without
// a receipt.
func Unrecorded(key fence.Key, is string, err error) error {
	return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "effect", Resource: key.Resource, Err: err,
		Message: "the effect has ended its transaction by itself; what it had executed " + is + " committed, without a receipt",
		Hint:    "look the operation up; without a receipt reconcile the business data before it is applied again, and let the effect not end the transaction"}
}

// left reports whether err says that the transaction had ended already.
func left(err error) bool { return errors.Is(err, ErrElsewhere) || errors.Is(err, sql.ErrTxDone) }
