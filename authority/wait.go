package authority

import (
	"container/heap"
	"container/list"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

// waiters are the queues of this process, one for each resource that somebody
// waits for. Only the loop touches them.
type waiters struct {
	queues map[lastword.Resource]*queue
	agenda agenda // the same queues, by when they are to be looked at
	vacant []vacancy

	first, last *place // all of them, in the order of their coming
	waiting     int    // places with a call
}

// queue is first-come (R3). One place serves all calls of one request id: a caller
// that comes back, within placeGrace, keeps its place.
type queue struct {
	resource lastword.Resource
	order    list.List // of *place
	byID     map[store.RequestKey]*place
	vacant   int // places without a call
	cursor   *list.Element
	at       time.Duration // when its record is to be looked at
	index    int           // in the agenda
}

type place struct {
	queue   *queue
	element *list.Element
	key     store.RequestKey
	calls   []*call
	left    int // how often its last call has left it

	since         time.Duration // when its first call came
	before, after *place        // in the order of all queues
}

// vacancy is a place whose last call has left it.
type vacancy struct {
	place *place
	left  int
	until time.Duration
}

const (
	// placeGrace is how long a place is kept for a caller that may come back.
	placeGrace = 2 * time.Second
	// rotation is how many places of a queue, beside the first, are looked at in a
	// round: another process may have granted or cancelled their requests.
	rotation = 8
	// looksPerTick is how many queues are looked at in a tick without a reason:
	// with more of them, each is looked at less often.
	looksPerTick = 1024
)

func newWaiters() *waiters {
	return &waiters{queues: map[lastword.Resource]*queue{}}
}

// of is how many wait for r.
func (w *waiters) of(r lastword.Resource) int {
	if q := w.queues[r]; q != nil {
		return q.order.Len() - q.vacant
	}
	return 0
}

// add queues c, at the place of its request id if that has one already. It is false
// if there are bound places taken. A new queue is looked at again at that time.
func (w *waiters) add(c *call, now, at time.Duration, bound int) bool {
	q := w.queues[c.query.Resource]
	if q == nil {
		q = &queue{resource: c.query.Resource, byID: map[store.RequestKey]*place{}, at: at}
		w.queues[q.resource] = q
		heap.Push(&w.agenda, q)
	}
	key := store.RequestKey{Owner: c.query.Owner, ID: c.query.RequestID}
	p := q.byID[key]
	switch {
	case p == nil && q.order.Len() >= bound && !w.evict(q):
		return false
	case p == nil:
		p = &place{queue: q, key: key, since: now}
		p.element = q.order.PushBack(p)
		q.byID[key] = p
		w.line(p)
		w.waiting++
	case len(p.calls) == 0:
		q.vacant--
		w.waiting++
	}
	p.calls = append(p.calls, c)
	c.place = p
	return true
}

// evict gives up the places that are kept for callers that may come back.
func (w *waiters) evict(q *queue) bool {
	if q.vacant == 0 {
		return false
	}
	for e := q.order.Front(); e != nil; {
		p := e.Value.(*place)
		e = e.Next()
		if len(p.calls) == 0 {
			w.drop(p)
		}
	}
	return true
}

// leave takes one call from its place. The place of the last one is kept for a while.
func (w *waiters) leave(c *call, now time.Duration) {
	p := c.place
	if p == nil {
		return
	}
	c.place = nil
	for i, other := range p.calls {
		if other == c {
			p.calls = append(p.calls[:i], p.calls[i+1:]...)
			break
		}
	}
	if len(p.calls) > 0 || p.queue.byID[p.key] != p {
		return
	}
	p.queue.vacant++
	w.waiting--
	p.left++
	w.vacant = append(w.vacant, vacancy{place: p, left: p.left, until: now + placeGrace})
}

// finish takes a call that has its answer from its place, which goes with the last
// one.
func (w *waiters) finish(c *call) {
	if p := c.place; p != nil {
		w.leave(c, 0)
		if len(p.calls) == 0 {
			w.drop(p)
		}
	}
}

// expire drops the places whose callers did not come back.
func (w *waiters) expire(now time.Duration) {
	n := 0
	for n < len(w.vacant) && w.vacant[n].until <= now {
		if v := w.vacant[n]; len(v.place.calls) == 0 && v.place.left == v.left {
			w.drop(v.place)
		}
		n++
	}
	if w.vacant = w.vacant[n:]; len(w.vacant) == 0 {
		w.vacant = nil
	}
}

// drop removes a place.
func (w *waiters) drop(p *place) {
	q := p.queue
	if q.byID[p.key] != p {
		return
	}
	if len(p.calls) == 0 {
		q.vacant--
	} else {
		w.waiting--
	}
	for _, c := range p.calls {
		c.place = nil
	}
	w.unline(p)
	if q.cursor == p.element {
		q.cursor = p.element.Next()
	}
	q.order.Remove(p.element)
	delete(q.byID, p.key)
	if q.order.Len() == 0 {
		delete(w.queues, q.resource)
		heap.Remove(&w.agenda, q.index)
	}
}

// line puts p behind all others.
func (w *waiters) line(p *place) {
	p.before = w.last
	if w.last != nil {
		w.last.after = p
	} else {
		w.first = p
	}
	w.last = p
}

func (w *waiters) unline(p *place) {
	if p.before != nil {
		p.before.after = p.after
	} else {
		w.first = p.after
	}
	if p.after != nil {
		p.after.before = p.before
	} else {
		w.last = p.before
	}
	p.before, p.after = nil, nil
}

// oldest is for how long the one that waits longest has waited. Places whose callers
// have gone are few or short-lived, so that they may be passed over one by one.
func (w *waiters) oldest(now time.Duration) time.Duration {
	if w.waiting == 0 {
		return 0
	}
	for p := w.first; p != nil; p = p.after {
		if len(p.calls) > 0 {
			return max(0, now-p.since)
		}
	}
	return 0
}

// next is the first place after e (nil: of the queue) with a call that its caller
// has not taken back.
func (q *queue) next(e *list.Element) *place {
	if q == nil {
		return nil
	}
	if e == nil {
		e = q.order.Front()
	} else {
		e = e.Next()
	}
	for ; e != nil; e = e.Next() {
		p := e.Value.(*place)
		for _, c := range p.calls {
			if !c.taken.Load() {
				return p
			}
		}
	}
	return nil
}

// rotate is the next few places to look at beside the first one.
func (q *queue) rotate() []*place {
	if q.order.Len() == 1 {
		return nil
	}
	var found []*place
	for range min(rotation, q.order.Len()) {
		if q.cursor == nil {
			q.cursor = q.order.Front()
		}
		if p := q.cursor.Value.(*place); len(p.calls) > 0 {
			found = append(found, p)
		}
		q.cursor = q.cursor.Next()
	}
	return found
}

func (p *place) query() store.Query {
	return store.Query{Resource: p.queue.resource, Owner: p.key.Owner, RequestID: p.key.ID}
}

// interval is how often a queue is looked at for what other processes do.
func (w *waiters) interval(tick time.Duration) time.Duration {
	return tick * time.Duration(1+len(w.agenda)/looksPerTick)
}

// take takes the calls of the place that their callers have not taken back.
func (p *place) take() []*call {
	var taken []*call
	for _, c := range p.calls {
		if c.taken.CompareAndSwap(false, true) {
			taken = append(taken, c)
		}
	}
	return taken
}

// look sets when q is to be looked at.
func (w *waiters) look(q *queue, at time.Duration) {
	q.at = at
	heap.Fix(&w.agenda, q.index)
}

// agenda is a heap of queues by the time of their next look.
type agenda []*queue

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	q := x.(*queue)
	q.index = len(*a)
	*a = append(*a, q)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	q := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return q
}
