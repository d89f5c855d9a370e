package fencetest

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// Subject is one place as the kit drives it. Functions that are nil are not
// offered; the first five are required. They are called from many goroutines.
// An adapter that goes through a [fence.Place] takes [Of]; one that decides in its
// engine (a SQL function, a script) fills in its own.
type Subject struct {
	// Apply makes one guarded write whose effect is w.
	Apply func(ctx context.Context, g *fence.Gate, c fence.Call, w Write) (lastword.Receipt, error)
	// Advance registers a fence (R16a).
	Advance func(ctx context.Context, g *fence.Gate, c fence.Call) (fence.Record, error)
	// Lookup is the receipt of an operation (R21).
	Lookup func(ctx context.Context, g *fence.Gate, resource lastword.Resource, operation string) (lastword.Receipt, bool, error)
	// Inspect is the record and what was noted beside it.
	Inspect func(ctx context.Context, g *fence.Gate, resource lastword.Resource) (fence.Inspection, error)
	// Read is the committed business value of a resource ("" before the first
	// effect), and all effects on it in the order in which they were made.
	Read func(ctx context.Context, resource lastword.Resource) (value string, effects []Effect, err error)

	// Second is another handle or connection at the same place: what a second
	// process would have. nil: the cases about two of them use this one twice.
	Second *Subject
	// Within makes the check in a transaction of the caller's own, then the effect,
	// and commits or rolls back. After a refusal it rolls back and returns it.
	Within func(ctx context.Context, g *fence.Gate, c fence.Call, w Write, commit bool) (lastword.Receipt, error)
	// Prune removes the receipt of an operation and leaves a tombstone (R19).
	Prune func(ctx context.Context, key fence.Key, operation string) error
	// Close raises a record to next − 1 and closes it (R20).
	Close func(ctx context.Context, key fence.Key, next lastword.Token) error
	// Lose removes the record of a resource and leaves its receipts (R19).
	Lose func(ctx context.Context, key fence.Key) error
	// Shadow begins the roll-out of a resource that has no record yet, and Enforce
	// ends it (R18).
	Shadow, Enforce func(ctx context.Context, key fence.Key) error
	// Release, Restored and Reopen are what operators do; see [fence.Release],
	// [fence.DeclareRestored] and [fence.Reopen].
	Release  func(ctx context.Context, key fence.Key, next lastword.Token, act fence.Act) (fence.Record, error)
	Restored func(ctx context.Context, r fence.Restore) (raised int, err error)
	Reopen   func(ctx context.Context, domain string, resource lastword.Resource, act fence.Act) (reopened int, err error)
	// Exchange makes old into next, and keeps receipt if it is not nil, in a transaction
	// that has locked the record: the bare conditional write (R15). [Of] offers it.
	Exchange func(ctx context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error
	// Bundle, RaiseBundle and Records are those of [fence.Place]. [Of] offers them.
	Bundle      func(ctx context.Context, domain string) (fence.BundleFloor, error)
	RaiseBundle func(ctx context.Context, domain string, seen fence.BundleFloor) error
	Records     func(ctx context.Context, domain string, after lastword.Resource, limit int) ([]lastword.Resource, error)

	// What follows an adapter offers to operators, if it likes. [Of] finds it at a place
	// by the methods Prune, Dismiss, Domains, Windows, Shadow and Enforce of these forms.

	// Expire removes the receipts that r lets go, and leaves what R19 wants.
	Expire func(ctx context.Context, key fence.Key, r fence.Retention) (pruned int, err error)
	// Dismiss removes what is in quarantine of one claimant, or of all ("").
	Dismiss func(ctx context.Context, key fence.Key, claimant string, act fence.Act) (dismissed int64, err error)
	// Domains are those in which the place has a record, a receipt or a refusal of r.
	Domains func(ctx context.Context, r lastword.Resource) ([]string, error)
	// Windows are the domains in which a window after a restore is open (R20).
	Windows func(ctx context.Context) ([]string, error)
	// ShadowBelow begins the roll-out of all resources with a prefix, which ends with a
	// slash, or is "" for all, or is a resource; EnforceBelow ends it (R18).
	ShadowBelow  func(ctx context.Context, domain, prefix string, act fence.Act) error
	EnforceBelow func(ctx context.Context, domain, prefix string, act fence.Act) (ended int, err error)
	// Name is [fence.Place]'s. [Of] sets it; "" is not told.
	Name string
	// Image is everything that the place holds, as text that is equal for equal
	// contents.
	Image func(ctx context.Context) (string, error)
}

// Write is the effect of one guarded write: in the write's transaction, set the
// value of Resource, append (operation, value) to its effects, then call Then. The
// effect fails if Then does, and returns Result.
type Write struct {
	Resource lastword.Resource
	Value    string
	Result   []byte
	Then     func(ctx context.Context) error // nil does nothing
}

// Effect is one entry of the log of effects.
type Effect struct {
	Operation string
	Value     string
}

// Parts is what [Of] makes a subject of. T is the transaction of the place.
type Parts[T fence.Tx] struct {
	Place  fence.Place[T]
	Second fence.Place[T] // the same place through another handle, or nil

	// Write is the business effect, made in tx alone: set the value of the resource
	// and append (operation, value) to its effects.
	Write func(ctx context.Context, tx T, resource lastword.Resource, operation, value string) error
	// Read is [Subject.Read].
	Read func(ctx context.Context, resource lastword.Resource) (value string, effects []Effect, err error)

	// Begin opens a transaction for a caller that ends it itself, for
	// [fence.Within]; nil if there is none.
	Begin func(ctx context.Context) (tx T, end func(commit bool) error, err error)

	// Prune, Close, Lose, Shadow, Enforce and Image are those of [Subject]; nil if not
	// offered.
	Prune func(ctx context.Context, key fence.Key, operation string) error
	Close func(ctx context.Context, key fence.Key, next lastword.Token) error
	Lose  func(ctx context.Context, key fence.Key) error

	Shadow, Enforce func(ctx context.Context, key fence.Key) error

	Image func(ctx context.Context) (string, error)
}

// Of is the subject of a place that package fence drives.
func Of[T fence.Tx](p Parts[T]) Subject {
	s := Subject{
		Apply: func(ctx context.Context, g *fence.Gate, c fence.Call, w Write) (lastword.Receipt, error) {
			return fence.Apply(ctx, g, p.Place, c, func(ctx context.Context, tx T) ([]byte, error) {
				return w.Result, p.effect(ctx, tx, c, w)
			})
		},
		Advance: func(ctx context.Context, g *fence.Gate, c fence.Call) (fence.Record, error) {
			return fence.Advance(ctx, g, p.Place, c)
		},
		Lookup: func(ctx context.Context, g *fence.Gate, resource lastword.Resource, operation string) (lastword.Receipt, bool, error) {
			return fence.Lookup(ctx, g, p.Place, resource, operation)
		},
		Inspect: func(ctx context.Context, g *fence.Gate, resource lastword.Resource) (fence.Inspection, error) {
			return fence.Inspect(ctx, g, p.Place, resource)
		},
		Release: func(ctx context.Context, key fence.Key, next lastword.Token, act fence.Act) (fence.Record, error) {
			return fence.Release(ctx, p.Place, key, next, act)
		},
		Restored: func(ctx context.Context, r fence.Restore) (int, error) { return fence.DeclareRestored(ctx, p.Place, r) },
		Reopen: func(ctx context.Context, domain string, resource lastword.Resource, act fence.Act) (int, error) {
			return fence.Reopen(ctx, p.Place, domain, resource, act)
		},
		Read: p.Read, Prune: p.Prune, Close: p.Close, Lose: p.Lose, Image: p.Image,
		Shadow: p.Shadow, Enforce: p.Enforce,
		Exchange: func(ctx context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
			return p.Place.Transact(ctx, key, func(ctx context.Context, tx T) error {
				if _, _, err := tx.Load(ctx, key, ""); err != nil {
					return err
				}
				return tx.Store(ctx, key, old, next, receipt)
			})
		},
	}
	s.Name, s.Bundle, s.RaiseBundle, s.Records = p.Place.Name(), p.Place.Bundle, p.Place.RaiseBundle, p.Place.Records
	s.forOperators(p.Place)
	if p.Begin != nil {
		s.Within = p.within
	}
	if p.Second != nil {
		other := p
		other.Place, other.Second = p.Second, nil
		second := Of(other)
		s.Second = &second
	}
	return s
}

// forOperators takes what a place offers beyond [fence.Place].
func (s *Subject) forOperators(place any) {
	if p, ok := place.(interface {
		Prune(ctx context.Context, key fence.Key, r fence.Retention) (int, error)
	}); ok {
		s.Expire = p.Prune
	}
	if p, ok := place.(interface {
		Dismiss(ctx context.Context, key fence.Key, claimant string, act fence.Act) (int64, error)
	}); ok {
		s.Dismiss = p.Dismiss
	}
	if p, ok := place.(interface {
		Domains(ctx context.Context, r lastword.Resource) ([]string, error)
	}); ok {
		s.Domains = p.Domains
	}
	if p, ok := place.(interface {
		Windows(ctx context.Context) ([]string, error)
	}); ok {
		s.Windows = p.Windows
	}
	if p, ok := place.(interface {
		Shadow(ctx context.Context, domain, prefix string, act fence.Act) error
		Enforce(ctx context.Context, domain, prefix string, act fence.Act) (int, error)
	}); ok {
		s.ShadowBelow, s.EnforceBelow = p.Shadow, p.Enforce
	}
}

func (p Parts[T]) effect(ctx context.Context, tx T, c fence.Call, w Write) error {
	if err := p.Write(ctx, tx, w.Resource, c.Mutation.Operation, w.Value); err != nil {
		return err
	}
	if w.Then != nil {
		return w.Then(ctx)
	}
	return nil
}

func (p Parts[T]) within(ctx context.Context, g *fence.Gate, c fence.Call, w Write, commit bool) (lastword.Receipt, error) {
	tx, end, err := p.Begin(ctx)
	if err != nil {
		return lastword.Receipt{}, err
	}
	r, err := fence.Within(ctx, g, p.Place, tx, c)
	if err == nil && r.Verdict == lastword.Applied {
		err = p.effect(ctx, tx, c, w)
	}
	if err != nil {
		_ = end(false) // the refusal is what counts
		return lastword.Receipt{}, err
	}
	return r, end(commit)
}
