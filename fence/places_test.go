package fence_test

import (
	"context"
	"errors"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
)

// errLost is what a place says that did not hear its commit's reply.
var errLost = &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "commit", Message: "the connection was cut"}

// losing is a place that loses the replies of its next commits.
type losing struct {
	*memfence.Place
	mu   sync.Mutex
	next []bool // per commit: was it done all the same?
}

func (p *losing) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.next) == 0 {
		return p.Place.Transact(ctx, key, fn)
	}
	done := p.next[0]
	gone := errors.New("gone")
	err := p.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
		if err := fn(ctx, tx); err != nil || done {
			return err
		}
		return gone
	})
	if err != nil && !errors.Is(err, gone) {
		return err
	}
	p.next = p.next[1:]
	return errLost
}

// endsBefore is a place at which the holder has expired when its turn comes.
type endsBefore struct {
	*memfence.Place
	h *holder
}

func (p endsBefore) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	return p.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
		p.h.set(lastword.HolderExpired)
		return fn(ctx, tx)
	})
}

// retrying is a place that runs every write three times, as after two deadlocks.
type retrying struct{ *memfence.Place }

func (p retrying) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	deadlock := errors.New("deadlock")
	for range 2 {
		if err := p.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
			if err := fn(ctx, tx); err != nil {
				return err
			}
			return deadlock
		}); !errors.Is(err, deadlock) {
			return err
		}
	}
	return p.Place.Transact(ctx, key, fn)
}

// noteless is a place that cannot write evidence.
type noteless struct {
	*memfence.Place
	err error
}

func (p noteless) Note(context.Context, fence.Key, fence.Evidence) error { return p.err }

// failing is a place whose transactions fail before they begin.
type failing struct {
	*memfence.Place
	err error
}

func (p failing) Transact(context.Context, fence.Key, func(context.Context, *memfence.Tx) error) error {
	return p.err
}

// careless is a place that commits whatever its function says.
type careless struct {
	*memfence.Place
	run bool
}

func (p careless) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	if !p.run {
		return nil
	}
	return p.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
		_ = fn(ctx, tx)
		return nil
	})
}

// wrapped is a place with other transactions, whose Load and Receipt a test changes.
type wrapped struct {
	*memfence.Place
	load    func(*fence.Record)
	receipt func(*lastword.Receipt)
}

type wrappedTx struct {
	*memfence.Tx
	p wrapped
}

func (p wrapped) Transact(ctx context.Context, key fence.Key, fn func(context.Context, wrappedTx) error) error {
	return p.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
		return fn(ctx, wrappedTx{tx, p})
	})
}

func (tx wrappedTx) Load(ctx context.Context, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	rec, known, err := tx.Tx.Load(ctx, key, operation)
	if tx.p.load != nil {
		tx.p.load(&rec)
	}
	return rec, known, err
}

func (tx wrappedTx) Receipt(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	r, err := tx.Tx.Receipt(ctx, key, operation)
	if tx.p.receipt != nil {
		tx.p.receipt(&r)
	}
	return r, err
}

// unsatisfied is a place whose record wants something else every time: it is there
// in one look and gone in the next, and wants more than was asked.
type unsatisfied struct{ *memfence.Place }

func (p unsatisfied) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	return p.Place.Transact(ctx, key, func(ctx context.Context, tx *memfence.Tx) error {
		rec, _, err := tx.Load(ctx, key, "")
		if err != nil {
			return err
		}
		next := rec
		next.Exists, next.Status = true, "a mode of the future"
		if err := tx.Store(ctx, key, rec, next, nil); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// exploding is a place whose commits are done and end in a panic.
type exploding struct{ *memfence.Place }

func (p exploding) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	if err := p.Place.Transact(ctx, key, fn); err != nil {
		return err
	}
	panic("in the commit")
}

// counting counts its transactions.
type counting struct {
	*memfence.Place
	n *int
}

func (p counting) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *memfence.Tx) error) error {
	*p.n++
	return p.Place.Transact(ctx, key, fn)
}
