package authority

import (
	"container/list"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

// waiters are the queues of this process, one for each resource that somebody
// waits for. Only the loop touches them.
type waiters struct {
	queues map[lastword.Resource]*queue
	places map[*call]*place
}

// queue is first-come (R3). One place serves all calls of one request id: a caller
// that comes back keeps its place.
type queue struct {
	resource lastword.Resource
	order    list.List // of *place
	byID     map[store.RequestKey]*place
	due      time.Duration // when the tenure in the way may be over; 0 if not known
	seen     time.Duration // when its record was looked at last
}

type place struct {
	queue   *queue
	element *list.Element
	key     store.RequestKey
	calls   []*call
}

func newWaiters() *waiters {
	return &waiters{queues: map[lastword.Resource]*queue{}, places: map[*call]*place{}}
}

func (w *waiters) of(r lastword.Resource) int {
	if q := w.queues[r]; q != nil {
		return q.order.Len()
	}
	return 0
}

// add queues c, at the place of its request id if that waits already.
func (w *waiters) add(c *call) {
	q := w.queues[c.query.Resource]
	if q == nil {
		q = &queue{resource: c.query.Resource, byID: map[store.RequestKey]*place{}}
		w.queues[q.resource] = q
	}
	key := store.RequestKey{Owner: c.query.Owner, ID: c.query.RequestID}
	p := q.byID[key]
	if p == nil {
		p = &place{queue: q, key: key}
		p.element = q.order.PushBack(p)
		q.byID[key] = p
	}
	p.calls = append(p.calls, c)
	w.places[c] = p
}

// waits reports whether this request id has a place already.
func (w *waiters) waits(q store.Query) bool {
	queue := w.queues[q.Resource]
	return queue != nil && queue.byID[store.RequestKey{Owner: q.Owner, ID: q.RequestID}] != nil
}

// leave takes one call from its place; the place goes with its last call.
func (w *waiters) leave(c *call) {
	p := w.places[c]
	if p == nil {
		return
	}
	delete(w.places, c)
	for i, other := range p.calls {
		if other == c {
			p.calls = append(p.calls[:i], p.calls[i+1:]...)
			break
		}
	}
	if len(p.calls) == 0 {
		w.drop(p)
	}
}

// drop removes a place and gives back its calls.
func (w *waiters) drop(p *place) []*call {
	q := p.queue
	if q.byID[p.key] != p {
		return nil
	}
	q.order.Remove(p.element)
	delete(q.byID, p.key)
	if q.order.Len() == 0 {
		delete(w.queues, q.resource)
	}
	for _, c := range p.calls {
		delete(w.places, c)
	}
	return p.calls
}

// head is the first place whose callers have not all given up; those of the ones
// that have are dropped on the way.
func (w *waiters) head(r lastword.Resource) *place {
	for q := w.queues[r]; q != nil && q.order.Len() > 0; {
		p := q.order.Front().Value.(*place)
		for _, c := range p.calls {
			if !c.taken.Load() {
				return p
			}
		}
		w.drop(p)
	}
	return nil
}
