package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// ErrRetryTransaction is wrapped by the error of a Within when the caller's
// transaction has to be run again as a whole.
var ErrRetryTransaction = errors.New("the transaction must be run again as a whole")

// ErrChanged says that the conditional write met something else than what was read. Under the
// record's lock that takes an effect that meddles with our tables.
var ErrChanged = errors.New("the record is not what this transaction read, or the operation has a receipt already")

// ErrElsewhere says that the transaction that read the record is not the one that is to store it.
var ErrElsewhere = errors.New("the transaction was ended before the write was recorded")

// ErrGuess ends a decision that memory is not enough for.
var ErrGuess = errors.New("what is remembered is not enough")

// Fail is the one line for an error of the engine, with the resource in it.
func Fail(e Engine, op string, key fence.Key, err error) error {
	err = Explain(e, op, err)
	var ours *lastword.Error
	if errors.As(err, &ours) && ours.Resource == "" && ours.Op != "" {
		ours.Resource = key.Resource
	}
	return err
}

// Explain turns an error of the engine that certainly left nothing behind into one
// clear line. Errors that are ours already stay as they are.
func Explain(engine Engine, op string, err error) error {
	var known *lastword.Error
	if err == nil || errors.As(err, &known) {
		return named(op, err)
	}
	e := &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Err: err}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Message = "the time was over before anything was written"
		return e
	}
	switch {
	case errors.Is(err, ErrElsewhere):
		e.Code, e.Message = lastword.CodeInternal, "the transaction had ended before the write was recorded: nothing of the write was stored, and what was executed after that is not fenced"
		e.Hint = "let the effect return the error of every statement, and not end the transaction"
		return e
	case errors.Is(err, ErrChanged):
		e.Code, e.Message = lastword.CodeInternal, "something else is there"
		e.Hint = "an effect must not write to the tables of the fence"
		return e
	case errors.Is(err, sql.ErrTxDone):
		e.Code, e.Message, e.Hint = lastword.CodeInvalid, "the transaction has ended", "begin another one"
		return e
	case unnamed(err, "sql: Tx.Stmt: statement from different database used"):
		e.Code, e.Message, e.Hint = lastword.CodeInvalid, "the transaction is another pool's", "begin it on the *sql.DB that the fence was made with"
		return e
	case unnamed(err, "sql: database is closed"), unnamed(err, "closed pool"):
		e.Message, e.Hint = "the pool is closed", "close it after its last use"
		return e
	}
	class := engine.Class(err)
	h := engine.hint(class)
	switch state := sqldb.SQLState(err); {
	case strings.HasPrefix(state, "28"): // also a role that does not exist
		h = hint{"the server does not let this user in", "look at the user and the password, and at pg_hba.conf of the server"}
	case state == "3D000":
		h = hint{"there is no such database", "make it first, or name another"}
	case h.message == "":
		h.message = "the database refused"
	}
	e.Message, e.Hint = h.message, h.hint
	if class == sqldb.NotADatabase {
		e.Code = lastword.CodeInvalid
	}
	return e
}

// named says what was tried in an error that does not say it yet.
func named(op string, err error) error {
	known, ok := err.(*lastword.Error) //nolint:errorlint // a wrapped one is somebody else's line
	if !ok || known.Op != "" {
		return err
	}
	out := *known
	out.Op = op
	return &out
}

// Opening is err of a connection that was looked at when a fence was opened.
func Opening(err error) error {
	known, ok := err.(*lastword.Error) //nolint:errorlint // a wrapped one is somebody else's line
	if !ok || known.Op != opApply {
		return err
	}
	out := *known
	out.Op = "open fence"
	return &out
}

// opApply is what a connection that is not fit is wanted for.
const opApply = "apply"

// unnamed recognises an error of database/sql that has no name but its text.
func unnamed(err error, text string) bool { return strings.Contains(err.Error(), text) }

// Unknown is the answer when COMMIT failed in a way that leaves its fate open.
func Unknown(place string, err error) error {
	return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "commit", Err: err,
		Message: fmt.Sprintf("COMMIT failed on %s, and it may or may not have happened", place),
		Hint:    "look the operation up, or apply it again with the same operation id"}
}

// Open reports whether err leaves the outcome open: then nothing may be repeated.
func Open(err error) bool { return errors.Is(err, lastword.ErrUnknownOutcome) }

func unfit(message, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: opApply, Message: message, Hint: hint}
}
