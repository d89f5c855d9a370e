package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
	"github.com/lastword/lastword/internal/sqldb"
)

// commitGrace is how long a COMMIT that is under way may outlast its context, where it
// has to cross a network: what is abandoned is unknown, and most come to their end.
const commitGrace = time.Second

// Transact runs fn in one transaction. Errors of engines that are busy, also those of
// fn, repeat the whole of it until ctx ends. On SQLite it has the write lock from its
// first statement on.
//
// On PostgreSQL what is remembered of the record is tried first: if fn stores a step from
// there, its condition says whether it is still so. Whatever else fn comes to is decided
// once more, on the record under its lock.
func (p *Place) Transact(ctx context.Context, key fence.Key, fn func(ctx context.Context, tx *Tx) error) error {
	if p.lite() {
		return p.locked(ctx, key, fn)
	}
	return fencesql.Repeat(ctx, p.engine, key, func(ctx context.Context) error {
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

// locked is Transact on the record under its lock.
func (p *Place) locked(ctx context.Context, key fence.Key, fn func(ctx context.Context, tx *Tx) error) error {
	return fencesql.Repeat(ctx, p.engine, key, func(ctx context.Context) error {
		_, err := p.attempt(ctx, key, nil, fn)
		if !fencesql.Open(err) && p.becameProtected(ctx, err) {
			_, err = p.attempt(ctx, key, nil, fn)
		}
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

// attempt is one run. Its errors are fn's, unchanged, or explained. stored reports that
// a guess was good enough, whatever became of the transaction after that.
func (p *Place) attempt(ctx context.Context, key fence.Key, guess *fencesql.Seen, fn func(ctx context.Context, tx *Tx) error) (stored bool, err error) {
	var tx *Tx
	stored, err = p.run(ctx, key, guess, func(ctx context.Context, t *Tx) error {
		tx = t
		err := fn(ctx, t)
		if err != nil && t.effective() {
			t.look(ctx)
		}
		return err
	})
	if err == nil || tx == nil || !tx.effective() || fencesql.Open(err) {
		return stored, err
	}
	switch {
	case !p.lite():
		a := fencesql.Attempt{Xact: tx.xact(), Recorded: tx.early != "", Standing: tx.standing}
		err = fencesql.Ended(ctx, fencesql.Plain{Querier: p.db}, a, key, err)
	case tx.gone:
		err = fencesql.EndedLite(key, err)
	}
	return stored, err
}

func (p *Place) run(ctx context.Context, key fence.Key, guess *fencesql.Seen, fn func(ctx context.Context, tx *Tx) error) (stored bool, err error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return true, p.fail("begin", key, err)
	}
	defer conn.Close() // back to the pool
	// database/sql rolls a transaction back when its context ends, and a driver may
	// interrupt COMMIT for it: then nobody knows what happened. So the end of ctx
	// reaches the transaction only while it waits for its lock; after that it
	// reaches the statements alone, and COMMIT only where it could wait for ever.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	detach := context.AfterFunc(ctx, cancel)
	defer detach()
	sqlTx, err := conn.BeginTx(txCtx, &sql.TxOptions{Isolation: p.isolation})
	if err != nil {
		leave(ctx, conn)
		return false, p.fail("begin", key, err)
	}
	done := false
	defer func() {
		if !done { // an error, a panic or runtime.Goexit
			p.rollback(conn, sqlTx)
		}
	}()
	tx := p.tx(sqlTx, false)
	tx.standing = fencesql.Ours
	tx.guess = guess
	if err := fencesql.Lock(ctx, tx.tables); err != nil {
		return false, p.fail("begin", key, err)
	}
	if err := tx.mark(ctx); err != nil {
		return false, p.fail("begin", key, err)
	}
	if !detach() && ctx.Err() != nil {
		return true, p.fail("begin", key, ctx.Err())
	}
	if err := fn(ctx, tx); err != nil || tx.guessing() {
		return tx.stored != nil, err
	}
	if err := tx.closePasses(ctx); err != nil {
		return true, err
	}
	if err := tx.stillOpen(ctx, key); err != nil {
		return true, p.fail("store", key, err)
	}
	if err := ctx.Err(); err != nil { // the last moment at which this is certain
		return true, p.fail("commit", key, err)
	}
	defer p.bound(ctx, cancel)()
	err = sqlTx.Commit()
	done = true
	if err == nil {
		if tx.stored != nil {
			p.seen.Put(key, *tx.stored)
		}
		return true, nil
	}
	p.seen.Drop(key)
	return true, p.commitFailed(ctx, key, conn, err)
}

// bound ends a COMMIT that waits for a network some time after ctx has ended. It
// returns what takes that back.
func (p *Place) bound(ctx context.Context, cancel func()) (release func()) {
	if _, ok := p.engine.(fencesql.PostgreSQL); !ok {
		return func() {}
	}
	return fencesql.AfterEnd(ctx, commitGrace, cancel)
}

// commitFailed tells a COMMIT that certainly did not happen from one whose fate is
// open. What proves the roll-back is said at RolledBack of sqldb.SQLite and
// sqldb.PostgreSQL. After everything else, a lost connection and a full disk among it,
// the commit may have happened, or a crash could bring it to light: that is
// MUTATION_UNKNOWN, even where a look now would show nothing. Apply says so and does not
// look; [Fence.Lookup] may settle it, applying again does.
func (p *Place) commitFailed(ctx context.Context, key fence.Key, conn *sql.Conn, err error) error {
	if !p.engine.RolledBack(err) {
		if !p.memory { // whose only connection is the data
			discard(conn)
		}
		return p.fail("commit", key, fencesql.Unknown(p.name, err))
	}
	leave(ctx, conn)
	if p.engine.Class(err) == sqldb.Constraint {
		return p.fail("commit", key, &lastword.Error{Code: lastword.CodeInvalid, Op: "commit", Err: err,
			Message: "the effect breaks a constraint that is checked at COMMIT"})
	}
	return p.fail("commit", key, err)
}

// leave ends a transaction that database/sql believes to have ended, or never to
// have begun. Some drivers leave it open, others do not; the answer is an error if
// there was nothing to end.
func leave(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitGrace)
	defer cancel()
	_, _ = conn.ExecContext(ctx, "ROLLBACK")
}

// rollback undoes the transaction. An error of class Other says, on SQLite, that there
// is none any more (SQLite ended it after an error, or the effect did). A connection
// that could not roll back is not used again: closing it does.
func (p *Place) rollback(conn *sql.Conn, tx *sql.Tx) {
	err := tx.Rollback()
	if _, postgres := p.engine.(fencesql.PostgreSQL); err != nil && (postgres || p.engine.Class(err) != sqldb.Other) {
		discard(conn)
	}
}

// discard closes the connection instead of giving it back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
