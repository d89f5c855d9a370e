// Package memfence is the reference place in memory: records, receipts and a small
// area of business values behind one lock. It shows what an adapter owes to package
// fence, and serves tests and examples.
//
// # Guarantees
//
// A transaction is atomic and alone: what it stored appears as a whole at its
// commit or not at all, and no two run at once. Business values change inside a
// transaction only. A commit never has an unknown outcome.
//
// # Not guaranteed
//
// Nothing outlives the process. Transactions of different records wait for each
// other. It is not made to be fast.
package memfence

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

var _ fence.Place[*Tx] = (*Place)(nil)

// Place is a guarded place in memory. It is safe for concurrent use.
type Place struct {
	name string
	turn chan struct{} // holds one token while a transaction is open

	mu        sync.Mutex // guards committed, which only whoever has the turn changes
	committed *state
}

// New returns an empty place whose Name is "mem:" and name.
func New(name string) *Place {
	return &Place{name: "mem:" + name, turn: make(chan struct{}, 1), committed: newState()}
}

// Name implements [fence.Place].
func (p *Place) Name() string { return p.name }

// Copy returns an independent place, under another name, with all that p has
// committed: what a backup of it would hold.
func (p *Place) Copy(name string) *Place {
	c := New(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.committed = p.committed.clone()
	return c
}

// Snapshot is all that p has committed as text, the same for equal contents.
func (p *Place) Snapshot() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committed.text()
}

// Get is the committed business value of key.
func (p *Place) Get(key string) (value string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, found = p.committed.values[key]
	return value, found
}

// Transact implements [fence.Place].
func (p *Place) Transact(ctx context.Context, _ fence.Key, fn func(ctx context.Context, tx *Tx) error) error {
	tx, err := p.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit, and all after a panic
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return ended("commit", err)
	}
	return tx.Commit()
}

// Note implements [fence.Place].
func (p *Place) Note(ctx context.Context, key fence.Key, e fence.Evidence) error {
	return p.change(ctx, func(s *state) {
		s.count(key, e.Verdict)
		if e.Verdict == lastword.FenceJump {
			s.jumped[key] = e.Fence
		}
		if e.Quarantine != nil {
			s.quarantine[key] = keepEnds(s.quarantine[key], e)
		}
		if rec := s.records[key]; e.Freeze && rec.Exists && rec.Fence == e.Fence {
			s.records[key] = fence.Frozen(rec)
		}
	})
}

// keepEnds is the quarantine with e in it: per claimant the first and the last.
func keepEnds(q []fence.Evidence, e fence.Evidence) []fence.Evidence {
	q = slices.Clone(q)
	seen := 0
	for i := range q {
		if q[i].Claimant != e.Claimant {
			continue
		}
		if seen++; seen == 2 {
			q[i] = e
			return q
		}
	}
	return append(q, e)
}

// Find implements [fence.Place].
func (p *Place) Find(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, bool, error) {
	if err := ctx.Err(); err != nil {
		return lastword.Receipt{}, false, ended("find", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r, found := p.committed.receipts[opKey{key, operation}]
	return copyReceipt(r), found, nil
}

// Bundle implements [fence.Place].
func (p *Place) Bundle(_ context.Context, domain string) (fence.BundleFloor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committed.bundles[domain], nil
}

// RaiseBundle implements [fence.Place].
func (p *Place) RaiseBundle(ctx context.Context, domain string, seen fence.BundleFloor) error {
	return p.change(ctx, func(s *state) {
		now := s.bundles[domain]
		s.bundles[domain] = fence.BundleFloor{Sequence: max(now.Sequence, seen.Sequence), MinimumEpoch: max(now.MinimumEpoch, seen.MinimumEpoch)}
	})
}

// Inspect implements [fence.Place].
func (p *Place) Inspect(ctx context.Context, key fence.Key) (fence.Inspection, error) {
	if err := ctx.Err(); err != nil {
		return fence.Inspection{}, ended("inspect", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.committed
	i := fence.Inspection{
		Record:     (&Tx{committed: s, changes: newState()}).record(key),
		Refusals:   make(map[lastword.Verdict]uint64),
		Quarantine: slices.Clone(s.quarantine[key]),
		Acts:       s.actsAt(key),
	}
	for c, n := range s.refusals {
		if c.key == key {
			i.Refusals[c.verdict] = n
		}
	}
	return i, nil
}

// Records implements [fence.Place].
func (p *Place) Records(ctx context.Context, domain string, after lastword.Resource, limit int) ([]lastword.Resource, error) {
	if err := ctx.Err(); err != nil {
		return nil, ended("records", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []lastword.Resource
	for k := range p.committed.records {
		if k.Domain == domain && k.Resource > after {
			found = append(found, k.Resource)
		}
	}
	slices.Sort(found)
	return found[:min(len(found), limit)], nil
}

// Prune removes the receipt of an operation and leaves a tombstone (R19).
func (p *Place) Prune(ctx context.Context, key fence.Key, operation string) error {
	return p.change(ctx, func(s *state) {
		delete(s.receipts, opKey{key, operation})
		s.tombstones[opKey{key, operation}] = true
		s.marked[key] = true
	})
}

// Lose removes the record of a resource and leaves its receipts, as only a damaged
// place could (R19).
func (p *Place) Lose(ctx context.Context, key fence.Key) error {
	return p.change(ctx, func(s *state) { delete(s.records, key) })
}

// Shadow begins the roll-out of a resource: what would be refused passes, and is
// counted, until [Place.Enforce] (R18). A roll-out that has ended does not begin again.
func (p *Place) Shadow(ctx context.Context, key fence.Key) error {
	return p.change(ctx, func(s *state) {
		if _, known := s.shadow[key]; !known && !s.records[key].Exists {
			s.shadow[key] = true
		}
	})
}

// Enforce ends the roll-out of a resource, for good (R18).
func (p *Place) Enforce(ctx context.Context, key fence.Key) error {
	return p.change(ctx, func(s *state) { s.shadow[key] = false })
}

// CloseRecord raises a record to next − 1 and closes it, as a restored place does
// before it accepts again (R20).
func (p *Place) CloseRecord(ctx context.Context, key fence.Key, next lastword.Token) error {
	return p.change(ctx, func(s *state) { s.records[key] = fence.Closed(s.records[key], next) })
}

// change is one transaction that cannot fail.
func (p *Place) change(ctx context.Context, fn func(*state)) error {
	tx, err := p.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p.committed)
	return nil
}

func ended(op string, err error) error {
	return &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Message: "nothing was changed", Err: err}
}

func broken(op string, key fence.Key, format string, a ...any) error {
	return &lastword.Error{Code: lastword.CodeInternal, Op: op, Resource: key.Resource, Message: fmt.Sprintf(format, a...)}
}
