package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// endedGrace bounds the question what became of a transaction that has failed.
const endedGrace = time.Second

// postgresFate is what became of a transaction: in progress, committed, aborted, or NULL.
const postgresFate = `SELECT coalesce(pg_xact_status($1::text::xid8), '')`

// AndXact is appended to the text of a [Step] whose record nobody has read: it tells which
// transaction has stored it.
const AndXact = `, pg_current_xact_id()::text`

// Ended is the error of a write on PostgreSQL that has failed with err since its effect
// began, once its transaction is over. Whoever may execute statements in a transaction may
// also end it, and then it is not rolled back any more: the server is asked what became of
// it. What the effect has committed by itself is never told as "nothing was changed" (P5).
// xact is the transaction; recorded says that the receipt was stored in it before the effect.
func Ended(ctx context.Context, c Conn, xact string, recorded bool, key fence.Key, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endedGrace)
	defer cancel()
	var fate string
	asked := c.Row(ctx, postgresFate, xact).Scan(&fate)
	switch {
	case fate == "committed" && recorded:
		return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "effect", Resource: key.Resource, Err: err,
			Message: "the effect has ended its transaction by itself, and has committed it with its receipt",
			Hint:    "look the operation up, or apply it again with the same operation id: it is not run again"}
	case fate == "committed":
		return Unrecorded(key, "is", err)
	case (asked != nil || fate != "aborted") && left(err):
		return Unrecorded(key, "may be", err)
	}
	return err
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
