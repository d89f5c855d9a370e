package fence

import (
	"context"
	"errors"
	"sync"

	"github.com/lastword/lastword"
)

// maxPending bounds the evidence that waits for a transaction of its own. A
// freeze takes the room of what is only counted.
const maxPending = 1024

// pending is evidence that could not be written inside the caller's own
// transaction ([Within]).
type pending struct {
	mu    sync.Mutex
	notes []note
	// flushing is held while notes are written, so that none is written twice.
	flushing sync.Mutex
}

// note is one piece of evidence and how to write it.
type note struct {
	place  string
	freeze bool
	write  func(context.Context) error
}

// noting writes evidence in a transaction of its own. What cannot be written now is
// kept for the next call at the place.
func noting[T Tx](w *passage, p Place[T]) func(context.Context, Evidence) error {
	return func(ctx context.Context, e Evidence) error {
		err := p.Note(ctx, w.key, e)
		if err == nil {
			return nil
		}
		return errors.Join(err, keep(w, p, e))
	}
}

// keep holds evidence back until it can be written.
func keep[T Tx](w *passage, p Place[T], e Evidence) error {
	return w.g.pending.keep(note{place: p.Name(), freeze: e.Freeze, write: func(ctx context.Context) error {
		return p.Note(ctx, w.key, e)
	}})
}

// keep stores n, or says what had to be dropped.
func (p *pending) keep(n note) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.notes) >= maxPending && !p.makeRoom(n.freeze) {
		return &lastword.Error{
			Code: lastword.CodeQuota, Op: "keep evidence",
			Message: "too much evidence waits to be written", Hint: "call Flush after the roll-back",
		}
	}
	p.notes = append(p.notes, n)
	return nil
}

// makeRoom drops the oldest note that is no freeze, for one that is.
func (p *pending) makeRoom(freeze bool) bool {
	if !freeze {
		return false
	}
	for i, n := range p.notes {
		if !n.freeze {
			p.notes = append(p.notes[:i], p.notes[i+1:]...)
			return true
		}
	}
	return false
}

// take removes and returns what waits for a place; "" is every place.
func (p *pending) take(place string) []note {
	p.mu.Lock()
	defer p.mu.Unlock()
	var taken, rest []note
	for _, n := range p.notes {
		if place == "" || n.place == place {
			taken = append(taken, n)
		} else {
			rest = append(rest, n)
		}
	}
	p.notes = rest
	return taken
}

// flush writes what waits for a place. What fails waits on. The caller holds
// flushing.
func (p *pending) flush(ctx context.Context, place string) error {
	var failed []error
	for _, n := range p.take(place) {
		if err := n.write(ctx); err != nil {
			failed = append(failed, definite(err), p.keep(n))
		}
	}
	return errors.Join(failed...)
}

// waits reports whether anything waits for the place.
func (p *pending) waits(place string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.notes {
		if n.place == place {
			return true
		}
	}
	return false
}
