package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

func refuse(code lastword.Code, message, hint string) *lastword.Error {
	return &lastword.Error{Code: code, Op: "open store", Message: message, Hint: hint}
}

func refuseErr(code lastword.Code, message, hint string, err error) *lastword.Error {
	e := refuse(code, message, hint)
	e.Err = err
	return e
}

// explain turns an error of the engine into one of ours, of [lastword.CodeUnavailable]
// unless the file itself is wrong.
func explain(op, path string, err error) *lastword.Error {
	var ours *lastword.Error
	if errors.As(err, &ours) {
		named := *ours
		named.Op = op
		if named.Message != "" && ours.Op == "" {
			named.Message = path + ": " + named.Message
		}
		return &named
	}
	e := &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Err: err}
	say := func(format, hint string) { e.Message, e.Hint = fmt.Sprintf(format, path), hint }
	switch (sqldb.SQLite{}).Class(err) {
	case sqldb.Busy:
		say("another program has %s locked", "close that program, or wait longer")
	case sqldb.Full:
		say("there is no space left for %s", "free some space and try again")
	case sqldb.ReadOnly:
		say("%s cannot be written to", "let this process write to the file and its directory")
	case sqldb.IO:
		say("the disk of %s fails", "check the disk and the system's log")
	case sqldb.CannotOpen:
		say("%s cannot be opened", "let this process write to the file and its directory")
	case sqldb.NotADatabase:
		say("%s is no SQLite database, or it is damaged", "name another file, or restore this one from a backup")
		e.Code = lastword.CodeInvalid
	default:
		say("%s", "")
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			e.Message = "nothing was done"
		}
	}
	return e
}
