package pgxfence

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/sqldb"
)

// commitGrace is how long a COMMIT that is under way may outlast its context: what is
// abandoned is unknown, and most come to their end.
const commitGrace = time.Second

// rollbackGrace is how long a roll-back may take before the connection is closed
// instead.
const rollbackGrace = time.Second

// Transact runs fn in one transaction. Deadlocks and serialization failures, also those
// of fn, repeat the whole of it until ctx ends.
//
// What is remembered of the record is tried first: if fn stores a step from there, the
// transaction begins with that step, whose condition says whether it is still so. Whatever
// else fn comes to is decided once more, on the record under its lock.
func (p *Place) Transact(ctx context.Context, key fence.Key, fn func(ctx context.Context, tx *Tx) error) error {
	return fencesql.Repeat(ctx, engine, key, func(ctx context.Context) error {
		if guess, ok := p.seen.Get(key); ok && !guess.Record.Shadow {
			stored, err := p.attempt(ctx, key, &guess, fn)
			if stored || fencesql.Open(err) {
				return err
			}
			p.seen.Drop(key)
		}
		_, err := p.attempt(ctx, key, nil, fn)
		return err
	})
}

// RaiseBundle makes durable that a trust bundle was brought to this database (R13).
func (p *Place) RaiseBundle(ctx context.Context, domain string, seen fence.BundleFloor) error {
	return p.locked(ctx, fence.Key{Domain: domain}, func(ctx context.Context, tx *Tx) error {
		return fencesql.RaiseBundle(ctx, tx.tables, domain, seen)
	})
}

// Note counts a refusal, keeps the refused operation and freezes the record, as the
// evidence asks, in a transaction of its own (R16b).
func (p *Place) Note(ctx context.Context, key fence.Key, e fence.Evidence) error {
	return p.locked(ctx, key, func(ctx context.Context, tx *Tx) error { return fencesql.Note(ctx, tx.tables, key, e) })
}

// locked is Transact for what stores no step of the record.
func (p *Place) locked(ctx context.Context, key fence.Key, fn func(ctx context.Context, tx *Tx) error) error {
	return fencesql.Repeat(ctx, engine, key, func(ctx context.Context) error {
		_, err := p.attempt(ctx, key, nil, fn)
		return err
	})
}

// attempt is one run. Its errors are fn's, unchanged, or explained. stored reports that
// the record was stored, whatever became of the transaction after that.
func (p *Place) attempt(ctx context.Context, key fence.Key, guess *fencesql.Seen, fn func(ctx context.Context, tx *Tx) error) (stored bool, err error) {
	var tx *Tx
	stored, err = p.run(ctx, key, guess, func(ctx context.Context, t *Tx) error {
		tx = t
		err := fn(ctx, t)
		t.failed = fencesql.Attempt{Xact: cmp.Or(t.early, fencesql.Xact(t.tables)), Recorded: t.early != "", Standing: fencesql.Ours}
		if err != nil && t.effective() {
			t.failed.Standing = stands(ctx, t.conn, t.failed.Xact)
		}
		return err
	})
	if err == nil || tx == nil || !tx.effective() || fencesql.Open(err) {
		return stored, err
	}
	return stored, fencesql.Ended(ctx, conn{p.pool}, tx.failed, key, err)
}

func (p *Place) run(ctx context.Context, key fence.Key, guess *fencesql.Seen, fn func(ctx context.Context, tx *Tx) error) (stored bool, err error) {
	unfit := p.look(ctx)
	c, err := p.pool.Acquire(ctx)
	if err != nil {
		return true, p.fail("begin", key, err)
	}
	defer c.Release() // which closes it if it is still in a transaction
	tx := p.begin(c.Conn())
	tx.unfit, tx.guess = unfit, guess
	open := true
	defer func() {
		if open { // an error, a panic or runtime.Goexit
			rollback(ctx, tx.conn)
		}
	}()
	if err := fn(ctx, tx); err != nil || guess != nil && tx.stored == nil {
		return tx.stored != nil, err
	}
	if err := ctx.Err(); err != nil { // the last moment at which this is certain
		return true, p.fail("commit", key, err)
	}
	if tx.sql == nil { // nothing was asked, nothing was begun
		return true, nil
	}
	err = p.finish(ctx, key, tx.conn, tx.stored, func(ctx context.Context) (where, error) { return tx.commit(ctx, key) })
	open = err != nil && !fencesql.Open(err)
	return true, err
}

// finish sends what ends with COMMIT, and says what became of it.
func (p *Place) finish(ctx context.Context, key fence.Key, c *pgx.Conn, stored *fencesql.Seen, send func(context.Context) (where, error)) error {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer fencesql.AfterEnd(ctx, commitGrace, cancel)()
	failed, err := send(sending)
	switch {
	case err == nil:
		if stored != nil {
			p.seen.Put(key, *stored)
		}
		return nil
	case failed == failedBefore:
		p.seen.Drop(key)
		return p.fail("store", key, err)
	}
	p.seen.Drop(key)
	err = p.commitFailed(key, err)
	if fencesql.Open(err) {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackGrace)
		defer cancel()
		_ = c.Close(closing)
	}
	return err
}

// stands is what the connection says of the transaction xact, before anything is rolled back.
func stands(ctx context.Context, c *pgx.Conn, xact string) fencesql.Standing {
	if c.IsClosed() {
		return fencesql.Unheard
	}
	switch c.PgConn().TxStatus() {
	case 'I':
		return fencesql.Gone
	case 'E':
		return fencesql.Ours
	}
	return fencesql.Stands(ctx, conn{c}, xact)
}

// rollback undoes a transaction, or closes the connection, which does so too.
func rollback(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackGrace)
	defer cancel()
	if c.IsClosed() || c.PgConn().TxStatus() == 'I' {
		return
	}
	if _, err := c.Exec(ctx, "rollback"); err != nil {
		_ = c.Close(ctx)
	}
}

// commitFailed tells a COMMIT that certainly did not happen from one whose fate is open;
// what proves the first is said at sqldb.PostgreSQL.
func (p *Place) commitFailed(key fence.Key, err error) error {
	if !engine.RolledBack(err) {
		return p.fail("commit", key, fencesql.Unknown(p.name, err))
	}
	if engine.Class(err) == sqldb.Constraint {
		return p.fail("commit", key, &lastword.Error{Code: lastword.CodeInvalid, Op: "commit", Err: err,
			Message: "the effect breaks a constraint that is checked at COMMIT"})
	}
	return p.fail("commit", key, err)
}

// where says at which statement of the last round trip something failed.
type where int

const (
	nowhere      where = iota
	failedBefore       // the server said so before it came to COMMIT: it has not happened
	failedCommit       // at COMMIT, or nothing was heard
)

// committed reads the answers of a batch: so many, and that of COMMIT. The last one before
// it may be that of a [fencesql.SameStep]. early, if given, takes the transaction that the step
// behind BEGIN has told. counts, if given, take the numbers of rows of the
// ones before that.
func committed(results pgx.BatchResults, before int, same bool, early *string, counts ...*int64) (failed where, err error) {
	defer func() {
		if closed := results.Close(); err == nil && closed != nil {
			failed, err = failedCommit, closed
		}
	}()
	asked := before
	if same {
		asked--
	}
	for i := range before {
		var tag pgconn.CommandTag
		var err error
		if i == 1 && early != nil {
			err = results.QueryRow().Scan(nil, early)
		} else {
			tag, err = results.Exec()
		}
		if err != nil && i == asked {
			err = fencesql.SameError(err)
		}
		if err != nil {
			return skipped(err)
		}
		if n := i - (asked - len(counts)); n >= 0 && n < len(counts) && counts[n] != nil {
			*counts[n] = tag.RowsAffected()
		}
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if err != nil {
		return failedCommit, err
	}
	return nowhere, nil
}

// skipped says what an error in the place of an answer before COMMIT proves. The server
// skips everything behind a statement that fails, up to the end of the batch, and it
// answers in order: what it says there is about a statement before COMMIT, whatever has
// become of the connection since. If nothing is heard, all of it may have been done.
func skipped(err error) (where, error) {
	var said *pgconn.PgError
	if errors.As(err, &said) || pgconn.SafeToRetry(err) {
		return failedBefore, fencesql.StoreError(err)
	}
	return failedCommit, err
}
