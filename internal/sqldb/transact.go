package sqldb

import (
	"context"
	"database/sql"
	"errors"
)

// Outcome says what became of a transaction.
type Outcome int

// The outcomes. The zero value is the harmless one.
const (
	// RolledBack: certainly nothing was written.
	RolledBack Outcome = iota
	// Committed: the engine acknowledged it.
	Committed
	// Unknown: COMMIT failed in a way that leaves it open, also for the time
	// after a crash. The connection should not be used any more.
	Unknown
)

// Execer runs statements on one connection: a *sql.Conn, or what has prepared the few
// that begin and end a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Transact runs fn inside one writing transaction on conn, and commits if fn
// returns nil. The connection must not be in a transaction; after [RolledBack] and
// [Committed] it is not in one either, unless the connection itself broke.
//
// ctx must not end while the transaction runs: a driver that is interrupted in
// COMMIT cannot say what happened. Pass one that has no end
// ([context.WithoutCancel]); the statements' own waiting is bounded by the engine's
// lock time-out.
func Transact(ctx context.Context, d Dialect, conn Execer, fn func(context.Context) error) (Outcome, error) {
	if _, err := conn.ExecContext(ctx, d.Begin()); err != nil {
		_ = rollback(ctx, conn) // a driver may report an error for a BEGIN that worked
		return RolledBack, err
	}
	done := false
	defer func() {
		if !done { // fn panicked
			_ = rollback(ctx, conn)
		}
	}()
	err := fn(ctx)
	if err == nil {
		if _, err = conn.ExecContext(ctx, "COMMIT"); err == nil {
			done = true
			return Committed, nil
		}
		if !d.RolledBack(err) {
			done = true
			_ = rollback(ctx, conn)
			return Unknown, err
		}
	}
	done = true
	if e := rollback(ctx, conn); e != nil && d.Class(err) == Other {
		err = errors.Join(err, e)
	}
	return RolledBack, err
}

// rollback's own error seldom matters: some errors end the transaction by
// themselves, and a lost connection ends it too.
func rollback(ctx context.Context, conn Execer) error {
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	return err
}
