package fence

import (
	"context"
	"sync"
	"time"

	"github.com/lastword/lastword/grant"
)

// floorAge is how long a gate goes by what it has read of a place's floor.
const floorAge = 10 * time.Second

// floors is how new a bundle the places of a gate want: what one record of a place has
// seen binds all of them (R13).
type floors struct {
	mu sync.Mutex
	by map[string]floorSeen
}

type floorSeen struct {
	floor BundleFloor
	read  time.Duration // when it was asked for
	known bool
}

func (f *floors) get(place string) floorSeen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[place]
}

func (f *floors) put(place string, seen floorSeen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.by[place]
	seen.floor.Sequence = max(seen.floor.Sequence, before.floor.Sequence)
	seen.floor.MinimumEpoch = max(seen.floor.MinimumEpoch, before.floor.MinimumEpoch)
	seen.read, seen.known = max(seen.read, before.read), seen.known || before.known
	f.by[place] = seen
}

// ReadFloor reads the newest trust bundle that was brought to p, so that g believes no
// older one there, in [Within] neither (R13). [Apply] and [Advance] do it by themselves,
// and again when they have not done so for some seconds.
func ReadFloor[T Tx](ctx context.Context, g *Gate, p Place[T]) error {
	if g.cfg.Verifier == nil {
		return nil
	}
	now := g.cfg.Elapsed()
	if seen := g.floors.get(p.Name()); seen.known && now-seen.read < floorAge {
		return nil
	}
	floor, err := p.Bundle(ctx, g.cfg.Domain)
	if err == nil {
		g.floors.put(p.Name(), floorSeen{floor: floor, read: now, known: true})
	}
	return err
}

// approach is the way to the place, from the floor of its bundles to the status. The
// bundle that was taken on it is made durable before anything is admitted by it, and also
// if the call is refused: then as far as that can be done.
func approach[T Tx](ctx context.Context, w *passage, p Place[T], way func(context.Context) error) error {
	if w.imports() {
		return way(ctx)
	}
	if err := ReadFloor(ctx, w.g, p); err != nil {
		return w.failed(err)
	}
	w.want.Bundle = w.g.floors.get(p.Name()).floor
	refused := way(ctx)
	err := raiseFloor(ctx, w, p)
	if refused != nil || err == nil {
		return refused
	}
	w.number.giveBack()
	return w.failed(err)
}

// approachWithin is approach while a transaction of the caller's is open, beside which
// nothing can be read or written: the bundle waits as evidence does.
func approachWithin[T Tx](ctx context.Context, w *passage, p Place[T], way func(context.Context) error) error {
	if w.imports() {
		return way(ctx)
	}
	floor := w.g.floors.get(p.Name()).floor
	w.want.Bundle = floor
	err := way(ctx)
	next, newer := w.g.cfg.Verifier.Beyond(floor)
	if !newer {
		return err
	}
	kept := w.g.pending.keep(note{place: p.Name(), write: func(ctx context.Context) error { return p.RaiseBundle(ctx, w.g.cfg.Domain, next) }})
	if kept == nil {
		w.g.floors.put(p.Name(), floorSeen{floor: next})
	}
	return err
}

func (w *passage) imports() bool { return w.g.cfg.Verifier == nil || w.call.Imported != nil }

func raiseFloor[T Tx](ctx context.Context, w *passage, p Place[T]) error {
	next, newer := w.g.cfg.Verifier.Beyond(w.g.floors.get(p.Name()).floor)
	if !newer {
		return nil
	}
	err := p.RaiseBundle(ctx, w.g.cfg.Domain, next)
	if err == nil {
		w.g.floors.put(p.Name(), floorSeen{floor: next})
	}
	return err
}

// higher is the stricter of two floors in each number.
func higher(a, b grant.BundleFloor) grant.BundleFloor {
	return grant.BundleFloor{Sequence: max(a.Sequence, b.Sequence), MinimumEpoch: max(a.MinimumEpoch, b.MinimumEpoch)}
}
