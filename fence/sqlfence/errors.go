package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

// ErrRetryTransaction is wrapped by the error of [Fence.Within] when the caller's
// transaction cannot get the write lock any more, because another one wrote since
// its first read or holds the lock (R16). Nothing was decided: roll back, and run
// the whole transaction again, with the same operation id. A transaction that is
// begun with BEGIN IMMEDIATE does not see it.
var ErrRetryTransaction = errors.New("the transaction must be run again as a whole")

// errChanged: the conditional write met something else than what was read. Under
// the write lock that takes an effect that meddles with our tables.
var errChanged = errors.New("the record is not what this transaction read, or the operation has a receipt already")

// explain turns an error of the engine that certainly left nothing behind into one
// clear line. Errors that are ours already stay as they are.
func explain(op string, err error) error {
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
	case errors.Is(err, errChanged):
		e.Code, e.Message = lastword.CodeInternal, "something else is there"
		e.Hint = "an effect must not write to the tables lastword_…"
		return e
	case errors.Is(err, sql.ErrTxDone):
		e.Code, e.Message, e.Hint = lastword.CodeInvalid, "the transaction has ended", "begin another one"
		return e
	case unnamed(err, "sql: Tx.Stmt: statement from different database used"):
		e.Code, e.Message, e.Hint = lastword.CodeInvalid, "the transaction is another pool's", "begin it on the *sql.DB that the fence was made with"
		return e
	case unnamed(err, "sql: database is closed"):
		e.Message, e.Hint = "the pool is closed", "close it after its last use"
		return e
	}
	switch dialect.Class(err) {
	case sqldb.Busy:
		e.Message, e.Hint = "the database is busy", "try again"
	case sqldb.Full:
		e.Message, e.Hint = "there is no room left in the database", "free space, or raise max_page_count, and try again"
	case sqldb.ReadOnly:
		e.Message, e.Hint = "the database cannot be written to", "give this process write access to the file and to its directory, and open it without mode=ro"
	case sqldb.CannotOpen:
		e.Message, e.Hint = "the database cannot be opened", "check the path and the rights on the file and on its directory"
	case sqldb.NotADatabase:
		e.Code, e.Message, e.Hint = lastword.CodeInvalid, "the file is no SQLite database, or is damaged", "name another file, or restore it from a backup"
	case sqldb.IO:
		e.Message, e.Hint = "the disk failed", "look at the disk before anything else"
	default:
		e.Message = "the database refused"
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

// unnamed recognises an error of database/sql that has no name but its text.
func unnamed(err error, text string) bool { return strings.Contains(err.Error(), text) }

// unknown is the answer when COMMIT failed in a way that leaves its fate open.
func unknown(key string, err error) error {
	return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "commit", Err: err,
		Message: fmt.Sprintf("COMMIT failed on %s, and it may or may not have happened", key),
		Hint:    "look the operation up, or apply it again with the same operation id"}
}

func unfit(message, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: "apply", Message: message, Hint: hint}
}

// lostConnection: the pool's connection broke. Before COMMIT that proves that
// nothing happened.
func lostConnection(err error) bool { return errors.Is(err, driver.ErrBadConn) }
