// Package outbox hands what happened to one receiver, beside those to whom it
// happened.
//
// # Guarantees
//
// [Outbox.Put] never waits for the receiver. What was put is handed over in its
// order, in batches, one at a time, on a goroutine that ends when nothing is left.
// A receiver that panics, or ends its goroutine, loses its batch and no more. What a
// receiver does not take is kept up to a bound; beyond it the older half goes and is
// counted, so that the newest is always handed over.
//
// # Not guaranteed
//
// That everything is handed over: beyond the bound, and after [Outbox.Wait] has
// given up, it is not.
package outbox

import (
	"context"
	"sync"
)

// Outbox is a bounded queue with its receiver. It is safe for concurrent use.
type Outbox[T any] struct {
	bound   int
	receive func(batch []T, dropped int)
	start   func() // run, bound once: starting it allocates nothing

	mu      sync.Mutex
	waiting []T
	spare   []T // the last batch's memory
	dropped int
	running bool
	idle    chan struct{} // closed once nothing is left; nil if nobody waits for that
}

// keep is the largest memory, in items, that is used again.
const keep = 4096

// New returns an empty outbox for at most bound items, 2 or more. receive gets a
// batch, which it must not keep, and how many items were dropped just before it.
func New[T any](bound int, receive func(batch []T, dropped int)) *Outbox[T] {
	o := &Outbox[T]{bound: bound, receive: receive}
	o.start = o.run
	return o
}

// Put queues items. It never blocks.
func (o *Outbox[T]) Put(items ...T) {
	if len(items) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, items...)
	if len(o.waiting) > o.bound {
		o.drop(len(o.waiting) - o.bound/2)
	}
	if !o.running {
		o.running = true
		go o.start()
	}
}

// drop forgets the n oldest items. Half of them at a time, so that a receiver that
// is stuck costs no copying with every item.
func (o *Outbox[T]) drop(n int) {
	rest := copy(o.waiting, o.waiting[n:])
	clear(o.waiting[rest:])
	o.waiting = o.waiting[:rest]
	o.dropped += n
}

// Wait waits until everything has been handed over and reports whether it has; false
// means that ctx ended first.
func (o *Outbox[T]) Wait(ctx context.Context) bool {
	o.mu.Lock()
	if !o.running {
		o.mu.Unlock()
		return true
	}
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	idle := o.idle
	o.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o *Outbox[T]) run() {
	through := false
	defer func() {
		if !through {
			go o.start() // the receiver ended the goroutine
		}
	}()
	for {
		batch, dropped := o.next()
		if len(batch) == 0 {
			through = true
			return
		}
		o.hand(batch, dropped)
		o.giveBack(batch)
	}
}

func (o *Outbox[T]) next() (batch []T, dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		o.running = false
		if o.idle != nil {
			close(o.idle)
			o.idle = nil
		}
		return nil, 0
	}
	batch, dropped = o.waiting, o.dropped
	o.waiting, o.spare, o.dropped = o.spare, nil, 0
	return batch, dropped
}

// hand calls the receiver. A panic there is the receiver's; who puts must not pay
// for it.
func (o *Outbox[T]) hand(batch []T, dropped int) {
	defer func() { _ = recover() }()
	o.receive(batch, dropped)
}

func (o *Outbox[T]) giveBack(batch []T) {
	clear(batch)
	if cap(batch) > keep {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = batch[:0]
}
