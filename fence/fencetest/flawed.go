package fencetest

import (
	"cmp"
	"context"
	"math"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
)

// flawed is the reference place with something done wrong. What a flaw does not
// replace is done right.
type flawed struct {
	*memfence.Place

	// detached runs a write without a transaction around it: what it changes is
	// put together and given to finish at its end.
	finish func(tx *memfence.Tx, later *flawedTx) error
	// refused runs after a write that was rolled back.
	refused func(ctx context.Context, key fence.Key)
	key     func(fence.Key) fence.Key
	load    func(ctx context.Context, key fence.Key, operation string, rec *fence.Record, known *fence.Known)
	store   func(ctx context.Context, key fence.Key, old fence.Record, next *fence.Record, r *lastword.Receipt) *lastword.Receipt
	receipt func(key fence.Key, operation string) (lastword.Receipt, bool)
	// forgetful keeps no acts.
	forgetful bool
	// jumpy takes every fence for one that was refused with FENCE_JUMP.
	jumpy bool
	// careless finds no record that a restore has not raised.
	careless bool
	// bundleless forgets which bundles were brought to it.
	bundleless bool
	note       func(e fence.Evidence) (fence.Evidence, bool)
	// called is what every place is called.
	called string
	// found is the key at which a receipt is looked up.
	found func(fence.Key) fence.Key
	// page changes what a list of records is asked for, and what it answers.
	page func(all []lastword.Resource, after lastword.Resource, limit int) []lastword.Resource

	mu sync.Mutex // for the notes of a flaw
}

// flawedTx is a transaction of a flawed place.
type flawedTx struct {
	*memfence.Tx // nil while detached
	place        *flawed

	key     fence.Key
	loaded  fence.Record // as it really was
	next    *fence.Record
	result  *lastword.Receipt
	effects []func(*memfence.Tx)
}

var _ fence.Place[*flawedTx] = (*flawed)(nil)

func (p *flawed) at(key fence.Key) fence.Key {
	if p.key != nil {
		return p.key(key)
	}
	return key
}

func (p *flawed) Transact(ctx context.Context, key fence.Key, fn func(context.Context, *flawedTx) error) error {
	err := p.transact(ctx, key, fn)
	if err != nil && p.refused != nil {
		p.refused(ctx, key)
	}
	return err
}

func (p *flawed) transact(ctx context.Context, key fence.Key, fn func(context.Context, *flawedTx) error) error {
	if p.finish == nil {
		return p.Place.Transact(ctx, p.at(key), func(ctx context.Context, tx *memfence.Tx) error {
			return fn(ctx, &flawedTx{Tx: tx, place: p})
		})
	}
	later := &flawedTx{place: p}
	if err := fn(ctx, later); err != nil {
		return err
	}
	return p.Place.Transact(ctx, p.at(key), func(_ context.Context, tx *memfence.Tx) error {
		for _, effect := range later.effects {
			effect(tx)
		}
		return p.finish(tx, later)
	})
}

func (p *flawed) Note(ctx context.Context, key fence.Key, e fence.Evidence) error {
	if p.note != nil {
		changed, keep := p.note(e)
		if !keep {
			return nil
		}
		e = changed
	}
	return p.Place.Note(ctx, p.at(key), e)
}

func (p *flawed) RaiseBundle(ctx context.Context, domain string, seen fence.BundleFloor) error {
	if p.bundleless {
		return nil
	}
	return p.Place.RaiseBundle(ctx, domain, seen)
}

func (p *flawed) Find(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, bool, error) {
	if p.receipt != nil {
		r, found := p.receipt(key, operation)
		return r, found, nil
	}
	if p.found != nil {
		key = p.found(key)
	}
	return p.Place.Find(ctx, p.at(key), operation)
}

func (p *flawed) Inspect(ctx context.Context, key fence.Key) (fence.Inspection, error) {
	return p.Place.Inspect(ctx, p.at(key))
}

func (tx *flawedTx) Load(ctx context.Context, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	rec, known, err := tx.read(ctx, key, operation)
	if err != nil {
		return rec, known, err
	}
	tx.loaded = rec
	if p := tx.place; p.receipt != nil {
		r, found := p.receipt(key, operation)
		known = fence.Known{Receipt: found, Payload: r.Payload, Tombstone: known.Tombstone}
	}
	if tx.place.load != nil {
		tx.place.load(ctx, key, operation, &rec, &known)
	}
	return rec, known, nil
}

// read is Load in the transaction, or in a short one of its own while detached.
func (tx *flawedTx) read(ctx context.Context, key fence.Key, operation string) (rec fence.Record, known fence.Known, err error) {
	at := tx.place.at(key)
	if tx.Tx != nil {
		return tx.Tx.Load(ctx, at, operation)
	}
	err = tx.place.Place.Transact(ctx, at, func(ctx context.Context, short *memfence.Tx) (err error) {
		rec, known, err = short.Load(ctx, at, operation)
		return err
	})
	return rec, known, err
}

func (tx *flawedTx) Receipt(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	if tx.place.receipt != nil {
		r, _ := tx.place.receipt(key, operation)
		return r, nil
	}
	if tx.Tx == nil {
		r, _, err := tx.place.Place.Find(ctx, tx.place.at(key), operation)
		return r, err
	}
	return tx.Tx.Receipt(ctx, tx.place.at(key), operation)
}

func (tx *flawedTx) Store(ctx context.Context, key fence.Key, _, next fence.Record, r *lastword.Receipt) error {
	if tx.place.store != nil {
		r = tx.place.store(ctx, key, tx.loaded, &next, r)
	}
	if tx.Tx == nil {
		tx.key, tx.next, tx.result = tx.place.at(key), &next, r
		return nil
	}
	return tx.Tx.Store(ctx, tx.place.at(key), tx.loaded, next, r)
}

func (tx *flawedTx) Keep(ctx context.Context, key fence.Key, act fence.Act) error {
	if tx.place.forgetful {
		return nil
	}
	return tx.Tx.Keep(ctx, tx.place.at(key), act)
}

func (tx *flawedTx) Jumped(ctx context.Context, key fence.Key) (lastword.Token, error) {
	if tx.place.jumpy {
		return lastword.MaxToken, nil
	}
	return tx.Tx.Jumped(ctx, tx.place.at(key))
}

func (tx *flawedTx) Unraised(ctx context.Context, domain string, mark uint64) (lastword.Resource, bool, error) {
	if tx.place.careless {
		return "", false, nil
	}
	return tx.Tx.Unraised(ctx, domain, mark)
}

func (tx *flawedTx) effect(fn func(*memfence.Tx)) {
	if tx.Tx == nil {
		tx.effects = append(tx.effects, fn)
		return
	}
	fn(tx.Tx)
}

// flawedSubject is the harness of a flawed place.
func flawedSubject(p *flawed) Subject {
	right := memoryParts(p.Place)
	s := Of(Parts[*flawedTx]{
		Place: p,
		Write: func(_ context.Context, tx *flawedTx, r lastword.Resource, operation, value string) error {
			tx.effect(func(tx *memfence.Tx) { memoryWrite(tx, r, operation, value) })
			return nil
		},
		Read: right.Read,
		Begin: func(ctx context.Context) (*flawedTx, func(bool) error, error) {
			tx, end, err := right.Begin(ctx)
			return &flawedTx{Tx: tx, place: p}, end, err
		},
		Prune: right.Prune, Close: right.Close, Lose: right.Lose, Image: right.Image,
		Shadow: right.Shadow, Enforce: right.Enforce,
	})
	return s.knowing()
}

// knowing hands the grant's claims to the place, which a real adapter would have as
// parameters of its statement.
func (s Subject) knowing() Subject {
	apply, advance, within := s.Apply, s.Advance, s.Within
	s.Apply = func(ctx context.Context, g *fence.Gate, c fence.Call, w Write) (lastword.Receipt, error) {
		return apply(withClaims(ctx, c), g, c, w)
	}
	s.Advance = func(ctx context.Context, g *fence.Gate, c fence.Call) (fence.Record, error) {
		return advance(withClaims(ctx, c), g, c)
	}
	s.Within = func(ctx context.Context, g *fence.Gate, c fence.Call, w Write, commit bool) (lastword.Receipt, error) {
		return within(withClaims(ctx, c), g, c, w, commit)
	}
	return s
}

type claimsKey struct{}

func withClaims(ctx context.Context, c fence.Call) context.Context {
	g := c.Mutation.Grant
	if c.Holder != nil {
		g = c.Holder.Grant()
	}
	seen, err := grant.Inspect(g)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, claimsKey{}, seen.Claims)
}

func claimsIn(ctx context.Context) grant.Claims {
	c, _ := ctx.Value(claimsKey{}).(grant.Claims)
	return c
}

func (p *flawed) Name() string { return cmp.Or(p.called, p.Place.Name()) }

func (p *flawed) Records(ctx context.Context, domain string, after lastword.Resource, limit int) ([]lastword.Resource, error) {
	if p.page == nil {
		return p.Place.Records(ctx, domain, after, limit)
	}
	all, err := p.Place.Records(ctx, domain, "", math.MaxInt)
	return p.page(all, after, limit), err
}
