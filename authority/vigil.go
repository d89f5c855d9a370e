package authority

import (
	"container/heap"
	"time"

	"github.com/lastword/lastword"
)

// vigil is when the tenures that somebody watches may be over, so that they are
// settled although nobody asks about them. Only the loop touches it.
type vigil struct {
	byResource map[lastword.Resource]*minded
	due        vigilHeap
}

// minded is a watched resource with an open tenure.
type minded struct {
	resource lastword.Resource
	at       time.Duration
	index    int
}

func newVigil() *vigil { return &vigil{byResource: map[lastword.Resource]*minded{}} }

func (v *vigil) mind(r lastword.Resource, at time.Duration) {
	if m := v.byResource[r]; m != nil {
		m.at = at
		heap.Fix(&v.due, m.index)
		return
	}
	m := &minded{resource: r, at: at}
	v.byResource[r] = m
	heap.Push(&v.due, m)
}

func (v *vigil) drop(r lastword.Resource) {
	if m := v.byResource[r]; m != nil {
		heap.Remove(&v.due, m.index)
		delete(v.byResource, r)
	}
}

// attend adds to the calls of a round one for each watched tenure that may be over.
// Nobody listens to their answers: what they find is told to the views. They are
// asked again until they have been seen to be over.
func (l *loop) attend(calls []*call) []*call {
	v, now := l.vigil, l.pace.last
	for n := 0; n < l.cfg.MaxBatch && len(v.due) > 0 && v.due[0].at <= now; n++ {
		m := v.due[0]
		if !l.views.watched(m.resource) {
			v.drop(m.resource)
			continue
		}
		v.mind(m.resource, now+time.Duration(l.header.TickSpan)/2)
		c := newLook(m.resource)
		c.taken.Store(true)
		c.gone.Store(true)
		calls = append(calls, c)
	}
	return calls
}

// show tells the views what a round has found and done, before it is answered. Of what
// is not known to be done the store is asked at once.
func (b *batch) show() {
	l := b.l
	if !l.views.active.Load() {
		return
	}
	now := l.cfg.Elapsed()
	found := make([]result, 0, len(b.visited))
	for _, p := range b.visited {
		if p.step >= 0 && !p.applied {
			if l.views.watched(p.resource) {
				l.vigil.mind(p.resource, b.began)
			}
			continue
		}
		b.mind(p)
		age, known := l.watches.age(p.record, now)
		found = append(found, result{
			record: p.record, header: b.header, waiters: l.waiters.of(p.resource), age: age, known: known, at: now,
		})
	}
	l.views.tell(found...)
}

// mind keeps the vigil of a page's tenure.
func (b *batch) mind(p *page) {
	v := b.l.vigil
	switch {
	case !open(p.record.Lease.State):
		v.drop(p.resource)
	case b.l.views.watched(p.resource):
		v.mind(p.resource, b.began+time.Duration(max(0, p.record.Lease.TTL-p.watched)))
	}
}

// vigilHeap is a heap by time.
type vigilHeap []*minded

func (h vigilHeap) Len() int           { return len(h) }
func (h vigilHeap) Less(i, j int) bool { return h[i].at < h[j].at }

func (h vigilHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *vigilHeap) Push(x any) {
	m := x.(*minded)
	m.index = len(*h)
	*h = append(*h, m)
}

// Pop implements heap.Interface.
func (h *vigilHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return m
}
