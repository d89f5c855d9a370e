package sqldb

import (
	"context"
	"database/sql"
)

// Class sorts the errors of an engine by what can be done about them.
type Class int

// The classes.
const (
	// Other is everything that is not understood.
	Other Class = iota
	// Busy: another transaction is in the way; repeat the whole transaction. It
	// covers locks, snapshots that grew stale, deadlocks, serialization failures.
	Busy
	// Constraint: a row breaks a rule of its table.
	Constraint
	// Full: there is no room left.
	Full
	// ReadOnly: the database cannot be written to by this process.
	ReadOnly
	// IO: the disk, or what stands for it, failed.
	IO
	// CannotOpen: the database cannot be opened, or access is denied.
	CannotOpen
	// NotADatabase: the file is not a database, or it is damaged.
	NotADatabase
	// Interrupted: the statement was stopped on the way.
	Interrupted
	// Unreachable: the server is not there, goes down, or takes no further connection.
	Unreachable
)

var classNames = [...]string{"other", "busy", "constraint", "full", "read-only", "i/o", "cannot open", "not a database", "interrupted", "unreachable"}

// String is the class in a word or two.
func (c Class) String() string {
	if c < 0 || int(c) >= len(classNames) {
		return classNames[Other]
	}
	return classNames[c]
}

// Querier is *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Dialect is what differs between database engines. Implementations are values
// without state.
type Dialect interface {
	// Name is the engine's name in messages.
	Name() string

	// Class sorts an error of the engine; of nil it is [Other].
	Class(err error) Class

	// Begin is the statement that starts a transaction that will write. Where the
	// engine can, it takes the write lock at once, so that no later statement
	// fails because somebody else wrote in between.
	Begin() string

	// Confirm is a statement that fails in a transaction which the engine has given
	// up, where COMMIT would succeed without having committed; "" where it would not.
	Confirm() string

	// RolledBack reports whether err, returned by COMMIT, proves that nothing of
	// the transaction was or will be written once the connection has been rolled
	// back. If in doubt it is false.
	RolledBack(err error) bool

	// Tables returns the names of all ordinary tables and views in the database, or in
	// the part of it that is ours.
	Tables(ctx context.Context, q Querier) ([]string, error)

	// Table is what a table of ours is called in a statement.
	Table(name string) string

	// Enter is done first in the transaction of a migration: it keeps others out until
	// the end of it, where the engine does not do so by itself.
	Enter(ctx context.Context, q Querier) error
}
