package authority

import (
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// batch is one round of the loop: the calls it decides, the records they name and
// the steps that came out of it. Its memory is used again by the next round.
type batch struct {
	l     *loop
	now   core.Span     // what this process had surely watched when the round began
	began time.Duration // elapsed time then

	calls    []*call
	queries  []store.Query
	rotated  []*place // that are looked at beside the first of their queues
	header   core.Header
	pages    map[lastword.Resource]*page
	visited  []*page // in the order of the queries
	spare    []*page
	requests map[requestName]*core.Request // nil: there is none
	leases   map[leaseName]*core.Request

	ticked  bool // the first step advances the counter
	steps   []store.Step
	answers []pending
	parked  []parked
	again   []*call // to be decided in another round
}

type requestName struct {
	resource  lastword.Resource
	owner, id string
}

type leaseName struct {
	resource lastword.Resource
	lease    string
}

// page is one resource during a round. All that a round does to it is one write,
// conditional on the one revision that was read: a write that built on another one
// by counting revisions could meet somebody else's in its place.
type page struct {
	resource lastword.Resource
	record   core.Record // as the round leaves it
	base     uint64      // the revision that was read
	was      string      // the lease that was open then, "" for none
	watched  core.Span
	step     int  // index of its step, -1 if nothing was changed
	extended bool // the step grants or renews
	woken    bool // it grants to a call that waited
	applied  bool
	unread   bool // it is free, and the request of who waits first was not read
	named    int  // how many queries of the round name it
}

// pending is an answer that waits for the step of its page, if it depends on it.
type pending struct {
	call    *call
	page    *page
	depends bool
	reply   result
	waits   bool // the call begins to wait; reply is what it waits for
}

// parked is the refusal of a call that goes on waiting.
type parked struct {
	call    *call
	page    *page
	depends bool
	reply   result
}

func (l *loop) newBatch(calls []*call) *batch {
	b := l.scratch
	if b == nil {
		b = &batch{
			l: l, pages: map[lastword.Resource]*page{},
			requests: map[requestName]*core.Request{}, leases: map[leaseName]*core.Request{},
		}
		l.scratch = b
	}
	b.reset()
	b.now, b.began, b.calls = l.pace.sure, l.pace.last, calls
	for _, c := range calls {
		if c.probe {
			continue
		}
		b.queries = append(b.queries, c.query)
		if p := l.waiters.queues[c.query.Resource].next(nil); p != nil {
			b.queries = append(b.queries, p.query())
		}
	}
	b.callOn()
	return b
}

// reset forgets the last round, and gives back what a very large one has taken.
func (b *batch) reset() {
	const keep = 4096
	if len(b.pages) > keep || len(b.requests) > keep {
		*b = batch{
			l: b.l, pages: map[lastword.Resource]*page{},
			requests: map[requestName]*core.Request{}, leases: map[leaseName]*core.Request{},
		}
		return
	}
	b.spare = append(b.spare, b.visited...)
	clear(b.pages)
	clear(b.requests)
	clear(b.leases)
	clear(b.steps)
	clear(b.answers)
	clear(b.parked)
	clear(b.again)
	clear(b.rotated)
	b.queries, b.visited, b.steps = b.queries[:0], b.visited[:0], b.steps[:0]
	b.answers, b.parked, b.again = b.answers[:0], b.parked[:0], b.again[:0]
	b.rotated, b.ticked = b.rotated[:0], false
}

// callOn adds the queues that are due: the tenure in the way may be over, or another
// process may have ended it since the last look, a tick ago.
func (b *batch) callOn() {
	w := b.l.waiters
	interval := w.interval(time.Duration(b.l.header.TickSpan))
	for n := 0; n < b.l.cfg.MaxBatch && len(w.agenda) > 0 && w.agenda[0].at <= b.began; n++ {
		q := w.agenda[0]
		w.look(q, b.began+interval)
		if p := q.next(nil); p != nil {
			b.queries = append(b.queries, p.query())
		}
		for _, p := range q.rotate() {
			b.queries = append(b.queries, p.query())
			b.rotated = append(b.rotated, p)
		}
	}
}

func (b *batch) read(view store.View) {
	l := b.l
	l.pace.look(l.cfg.Elapsed())
	l.setHeader(view.Header)
	l.watches.saw(view.Header, l.pace.seen)
	l.watches.sweep(view.Header)
	b.header = view.Header
	for i := range view.Entries {
		e, q := &view.Entries[i], &b.queries[i]
		if b.pages[e.Record.Resource] == nil {
			b.open(e.Record)
		}
		b.pages[e.Record.Resource].named++
		if q.RequestID != "" {
			b.requests[requestName{q.Resource, q.Owner, q.RequestID}] = e.Request
		}
		if e.Request != nil && e.Request.LeaseID != "" {
			b.leases[leaseName{q.Resource, e.Request.LeaseID}] = e.Request
		}
	}
}

func (b *batch) open(rec core.Record) {
	l := b.l
	delay := l.cfg.lockDelay(rec.Resource)
	l.watches.note(sight{record: rec, sent: b.began, now: l.pace.seen, delayed: delay > 0})
	var p *page
	if n := len(b.spare); n > 0 {
		p, b.spare = b.spare[n-1], b.spare[:n-1]
	} else {
		p = new(page)
	}
	*p = page{resource: rec.Resource, record: rec, base: rec.Revision, watched: l.watches.watched(rec, b.now), step: -1}
	if open(rec.Lease.State) {
		p.was = rec.Lease.ID
	}
	b.pages[p.resource] = p
	b.visited = append(b.visited, p)
	l.alive(rec.Lease, b.header, delay)
}

// alive keeps the counter running for a tenure, and for the lock-delay after it.
func (l *loop) alive(lease core.Lease, h core.Header, delay time.Duration) {
	until := lease.Deadline
	switch lease.State {
	case lastword.StateHeld, lastword.StatePending:
	case lastword.StateExpired:
		until = lease.EndedTick
		if delay == 0 {
			return
		}
	case lastword.StateFree, lastword.StateReleased, lastword.StateRevoked, lastword.StateCanceled, "":
		return
	}
	if delay > 0 {
		until += core.Ticks(core.Span(delay), h.TickSpan)
	}
	l.liveUntil = max(l.liveUntil, until)
}

// apply runs the rules: the counter first, then what holders say, then whoever
// waits, then who comes new.
func (b *batch) apply() {
	b.tick()
	for _, c := range b.calls {
		if c.kind == kindHolder {
			b.run(c)
		}
	}
	for _, p := range b.visited {
		if q := b.l.waiters.queues[p.resource]; q != nil {
			b.promote(p, q)
		}
	}
	for _, pl := range b.rotated {
		if p := b.pages[pl.queue.resource]; p != nil && b.request(pl.query()) != nil {
			b.serve(p, pl) // another process has granted or cancelled its request
		}
	}
	for _, c := range b.calls {
		if c.kind != kindHolder {
			b.run(c)
		}
	}
}

// tick advances the store's counter by one, if it has been watched to stand still
// for a whole tick and somebody needs it (R8), or the last write failed: whether writes
// are possible again shows by one.
func (b *batch) tick() {
	h := b.header
	if !b.l.watches.stood(h, b.now) || h.Tick >= b.l.liveUntil && len(b.l.waiters.queues) == 0 && h.Tick >= h.HoldUntil && b.l.unsaved == nil {
		return
	}
	next := h
	next.Tick++
	b.steps = append(b.steps, store.Step{Epoch: h.Epoch, OnTick: true, Tick: h.Tick, Header: &next})
	b.header, b.ticked = next, true
}

func (b *batch) run(c *call) {
	if c.probe {
		b.answers = append(b.answers, pending{call: c, reply: b.count(c)})
		return
	}
	p := b.pages[c.query.Resource]
	if p.unread && c.kind == kindAcquire {
		b.again = append(b.again, c) // nobody passes those who wait (R3)
		return
	}
	if b.defers(p, c) {
		return
	}
	answer, extended := b.step(p, c)
	if c.cancels && answer.Code == "" {
		b.cancelWaiting(p, c)
	}
	b.answers = append(b.answers, pending{
		call: c, page: p, depends: p.step >= 0, reply: b.reply(p, c, answer, extended),
		waits: c.wait && answer.Code == lastword.CodeHeld,
	})
}

// count answers a probe.
func (b *batch) count(c *call) result {
	r := result{header: b.header, counts: make([]int, len(c.counted))}
	for i, resource := range c.counted {
		r.counts[i] = b.l.waiters.of(resource)
	}
	return r
}

func (b *batch) request(q store.Query) *core.Request {
	if q.RequestID != "" {
		return b.requests[requestName{q.Resource, q.Owner, q.RequestID}]
	}
	return b.leases[leaseName{q.Resource, q.LeaseID}]
}

// step applies one rule to a page. Changes of one page become one step: each is
// made to the revision that was read, so that the last one's is the next.
func (b *batch) step(p *page, c *call) (core.Answer, bool) {
	rec := p.record
	rec.Revision = p.base
	change, answer := c.decide(rec, b.request(c.query), b.header, core.Clock{Tick: b.header.Tick, Watched: p.watched})
	if !change.Write {
		return answer, false
	}
	p.record, p.watched = change.Record, 0
	if p.step < 0 {
		p.step = len(b.steps)
		b.steps = append(b.steps, store.Step{Epoch: b.header.Epoch, OnTick: true, Tick: b.header.Tick, Record: &p.record})
	}
	b.write(p, change.Requests)
	extended := c.extends && answer.Code == "" && !answer.Repeated
	p.extended = p.extended || extended
	return answer, extended
}

// write adds request records to the step of a page; of each id the last one counts.
func (b *batch) write(p *page, requests []core.Request) {
	s := &b.steps[p.step]
	for i := range requests {
		r := &requests[i]
		same := func(x core.Request) bool { return x.Owner == r.Owner && x.ID == r.ID }
		if at := slices.IndexFunc(s.Requests, same); at >= 0 {
			s.Requests[at] = *r
		} else {
			s.Requests = append(s.Requests, *r)
		}
		b.requests[requestName{p.resource, r.Owner, r.ID}] = r
		if r.LeaseID != "" {
			b.leases[leaseName{p.resource, r.LeaseID}] = r
		}
	}
}

func (b *batch) reply(p *page, c *call, answer core.Answer, extended bool) result {
	age, known := b.l.watches.age(p.record, b.began)
	return result{
		answer: answer, record: p.record, request: b.request(c.query), header: b.header,
		waiters: b.l.waiters.of(p.resource), waited: c.waited, extended: extended, age: age, known: known, at: b.began,
	}
}

// promote gives a free resource to whoever waits longest (R3).
func (b *batch) promote(p *page, q *queue) {
	for pl := q.next(nil); pl != nil; pl = q.next(pl.element) {
		if !b.knows(pl) {
			p.unread = !p.record.Lease.Live(b.header, core.Clock{Tick: b.header.Tick, Watched: p.watched})
			break
		}
		if b.serve(p, pl) {
			break
		}
	}
	b.due(p, q)
}

func (b *batch) knows(pl *place) bool {
	_, read := b.requests[requestName{pl.queue.resource, pl.key.Owner, pl.key.ID}]
	return read
}
