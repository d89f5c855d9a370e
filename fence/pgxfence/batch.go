package pgxfence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
)

// Statement is one business statement of [Fence.Send].
type Statement struct {
	SQL  string
	Args []any
	// Rows, if not nil, takes the number of rows that it has changed, once all of it
	// was committed.
	Rows *int64
}

// sent is the place as [Fence.Send] uses it: a write is decided on what is known to have
// been committed, before anything is sent, and the conditional write of the record
// decides whether that is still so. It comes first, then the statements, then COMMIT,
// and the server skips what comes after a refusal.
type sent struct {
	*Place
	statements []Statement
}

var _ fence.Place[*looked] = (*sent)(nil)

// looked is a transaction that has not begun: what Load has told was committed once,
// and Store keeps the step from there.
type looked struct {
	*tables // for what no write does
	place   *Place
	guess   *fencesql.Seen // what is remembered, if a look is not wanted
	unfit   error          // what is wrong with a protected table
	from    fencesql.Seen
	step    *fencesql.Step // of the record
	pass    *fencesql.Step // of what passes without one, in a roll-out
}

// Load is what the place remembers of the record, or what is committed now.
func (l *looked) Load(ctx context.Context, key fence.Key, operation string) (rec fence.Record, known fence.Known, err error) {
	if l.guess != nil {
		l.from = *l.guess
		return l.from.Record, l.from.Known(operation), nil
	}
	l.from, known, err = fencesql.LookAt(ctx, conn{l.place.pool}, key, operation)
	return l.from.Record, known, l.place.fail("load", key, err)
}

// Receipt is read from what is committed.
func (l *looked) Receipt(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	if l.guess != nil {
		return lastword.Receipt{}, fencesql.ErrGuess
	}
	return l.tables.Receipt(ctx, key, operation)
}

// Store keeps the step.
func (l *looked) Store(_ context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
	step, err := fencesql.StepFrom(l.from, key, old, next, receipt)
	l.step = &step
	return l.place.fail("store", key, err)
}

// Transact decides, and sends what was decided. fn is run on what is remembered first;
// only a write may come of that. A refusal, and everything else, is decided on what is
// committed.
func (p *sent) Transact(ctx context.Context, key fence.Key, fn func(ctx context.Context, tx *looked) error) error {
	return fencesql.Repeat(ctx, engine, key, func(ctx context.Context) error {
		unfit := p.look(ctx)
		if guess, ok := p.seen.Get(key); ok {
			l := p.looking(unfit, &guess)
			if err := fn(ctx, l); err == nil && l.step != nil {
				return p.send(ctx, key, *l.step)
			}
			p.seen.Drop(key)
		}
		l := p.looking(unfit, nil)
		err := fn(ctx, l)
		switch {
		case err != nil:
			return err
		case l.step != nil:
			return p.send(ctx, key, *l.step)
		case l.pass != nil:
			return p.send(ctx, key, *l.pass)
		}
		return nil
	})
}

func (p *sent) looking(unfit error, guess *fencesql.Seen) *looked {
	return &looked{tables: fencesql.NewTx(engine, conn{p.pool}, false, false), place: p.Place, unfit: unfit, guess: guess}
}

// send is the whole transaction in one round trip.
func (p *sent) send(ctx context.Context, key fence.Key, step fencesql.Step) error {
	failed, err := p.sendOnce(ctx, key, step)
	switch {
	case err == nil || fencesql.Open(err):
		return err
	case failed.Xact != "": // a statement may have been executed
		return fencesql.Ended(ctx, conn{p.pool}, failed, key, err)
	case errors.Is(err, fencesql.ErrChanged):
		return fencesql.Overtaken(err)
	}
	return err
}

func (p *sent) sendOnce(ctx context.Context, key fence.Key, step fencesql.Step) (failed fencesql.Attempt, err error) {
	c, err := p.pool.Acquire(ctx)
	if err != nil {
		return failed, p.fail("begin", key, err)
	}
	defer c.Release()
	open := true
	defer func() {
		if open {
			rollback(ctx, c.Conn())
		}
	}()
	if err := ctx.Err(); err != nil { // the last moment at which this is certain
		return failed, p.fail("begin", key, err)
	}
	recorded := step.After != nil
	at := nowhere
	err = p.finish(ctx, key, c.Conn(), step.After, func(ctx context.Context) (where, error) {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{IsoLevel: p.level})
		var told *string
		if recorded {
			step.Query += fencesql.AndXact
			told = &failed.Xact
		}
		b.Queue(step.Query, step.Args...)
		counts := make([]*int64, len(p.statements))
		for i, s := range p.statements {
			b.Queue(s.SQL, s.Args...)
			counts[i] = s.Rows
		}
		if recorded {
			same := fencesql.SameStep(key, *step.After)
			b.Queue(same.Query, same.Args...)
		}
		b.Queue("commit")
		var err error
		at, err = committed(c.Conn().SendBatch(ctx, b), b.Len()-1, recorded, told, counts...)
		return at, err
	})
	open = err != nil && !fencesql.Open(err)
	failed.Recorded, failed.Standing = recorded, fencesql.Ours
	if open && at == failedBefore {
		failed.Standing = stands(ctx, c.Conn(), failed.Xact)
	}
	return failed, err
}
