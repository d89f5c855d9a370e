package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// again is how often a transaction is repeated, besides for a busy database, because
// its connection broke before COMMIT (as often as database/sql does) or because the
// record changed under it.
const again = 3

// Transact runs fn in one transaction that has the write lock from its first
// statement on. Busy errors, also those of fn, repeat the whole of it until ctx ends.
func (p *Place) Transact(ctx context.Context, key fence.Key, fn func(ctx context.Context, tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return p.fail("begin", key, err)
	}
	var undecided error
	err := sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) (err error) {
		for range again {
			err = p.attempt(ctx, key, fn)
			if open(err) { // whatever its cause, this is not done again
				undecided = err
				return nil
			}
			if ctx.Err() != nil || !lostConnection(err) && !errors.Is(err, errChanged) && !p.becameProtected(ctx, err) {
				return err
			}
		}
		return err
	})
	if undecided != nil {
		return undecided
	}
	if err != nil && ctx.Err() != nil && dialect.Class(err) == sqldb.Busy {
		// What stood in the way until the end may be fn's error, already explained.
		return p.fail("transact", key, &lastword.Error{Code: lastword.CodeUnavailable, Op: "transact", Err: err,
			Message: "the database was busy until the time was over", Hint: "nothing was written; try again"})
	}
	return err
}

// open reports whether err leaves the outcome open: then nothing may be repeated.
func open(err error) bool { return errors.Is(err, lastword.ErrUnknownOutcome) }

// attempt is one run. Its errors are fn's, unchanged, or explained.
func (p *Place) attempt(ctx context.Context, key fence.Key, fn func(ctx context.Context, tx *Tx) error) error {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return p.fail("begin", key, err)
	}
	defer conn.Close() // back to the pool
	// database/sql rolls a transaction back when its context ends, and a driver may
	// interrupt COMMIT for it: then nobody knows what happened. So the end of ctx
	// reaches the transaction only while it waits for its lock; after that it
	// reaches the statements alone.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	detach := context.AfterFunc(ctx, cancel)
	defer detach()
	sqlTx, err := conn.BeginTx(txCtx, nil)
	if err != nil {
		leave(ctx, conn)
		return p.fail("begin", key, err)
	}
	done := false
	defer func() {
		if !done { // an error, a panic or runtime.Goexit
			rollback(conn, sqlTx)
		}
	}()
	tx := &Tx{place: p, sql: sqlTx}
	if err := tx.lock(ctx); err != nil {
		return p.fail("begin", key, err)
	}
	if !detach() && ctx.Err() != nil {
		return p.fail("begin", key, ctx.Err())
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.closePasses(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // the last moment at which this is certain
		return p.fail("commit", key, err)
	}
	err = sqlTx.Commit()
	done = true
	if err == nil {
		return nil
	}
	return p.commitFailed(ctx, key, conn, err)
}

// commitFailed tells a COMMIT that certainly did not happen from one whose fate is
// open. BUSY (outside WAL: a reader is in the way) and a deferred constraint are
// found before anything is written, and leave the transaction open; see
// sqldb.SQLite.RolledBack. After everything else, a lost connection and a full disk
// among it, the log may hold the commit, and a crash could bring it to light: that
// is MUTATION_UNKNOWN, even where a look now would show nothing. Apply says so
// and does not look; [Fence.Lookup] may settle it, applying again does.
func (p *Place) commitFailed(ctx context.Context, key fence.Key, conn *sql.Conn, err error) error {
	if !dialect.RolledBack(err) {
		if !p.memory { // whose only connection is the data
			discard(conn)
		}
		return p.fail("commit", key, unknown(p.name, err))
	}
	leave(ctx, conn)
	if dialect.Class(err) == sqldb.Constraint {
		return p.fail("commit", key, &lastword.Error{Code: lastword.CodeInvalid, Op: "commit", Err: err,
			Message: "the effect breaks a constraint that is checked at COMMIT"})
	}
	return p.fail("commit", key, err)
}

// leave ends a transaction that database/sql believes to have ended, or never to
// have begun. Some drivers leave it open, others do not; the answer is an error if
// there was nothing to end.
func leave(ctx context.Context, conn *sql.Conn) {
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
}

// rollback undoes the transaction. An error of class Other says that there is none
// any more (SQLite ended it after an error, or the effect did). A connection that
// could not roll back is not used again: closing it does.
func rollback(conn *sql.Conn, tx *sql.Tx) {
	if err := tx.Rollback(); err != nil && dialect.Class(err) != sqldb.Other {
		discard(conn)
	}
}

// discard closes the connection instead of giving it back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
