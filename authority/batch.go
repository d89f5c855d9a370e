package authority

import (
	"fmt"
	"math"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// batch is one round of the loop: the calls it decides, the records they name and
// the steps that came out of it.
type batch struct {
	l     *loop
	now   core.Span     // what this process has watched, when the round began
	began time.Duration // elapsed time then

	calls   []*call
	queries []store.Query
	header  core.Header
	pages   map[lastword.Resource]*page
	visited []*page // in the order of the queries

	steps   []store.Step
	answers []pending
}

// page is one resource during a round.
type page struct {
	resource lastword.Resource
	record   core.Record // as the steps so far leave it
	watched  core.Span
	requests map[store.RequestKey]*core.Request // what is known of request ids
	byLease  map[string]*core.Request
	last     int  // index of the last step that wrote it, -1 if none did
	extended bool // a step of this round granted or renewed the tenure
	refused  int  // index of the first of its steps that was not applied
}

// pending is an answer that waits for the steps it depends on.
type pending struct {
	call  *call
	page  *page
	step  int // all steps of the page up to this one must have been applied; -1 for none
	reply result
	waits bool // the call goes on waiting; reply is what it waits for
}

func newBatch(l *loop, now core.Span, calls []*call) *batch {
	b := &batch{l: l, now: now, began: l.pace.last, calls: calls, pages: map[lastword.Resource]*page{}}
	for _, c := range calls {
		b.queries = append(b.queries, c.query)
		if p := l.waiters.head(c.query.Resource); p != nil {
			b.queries = append(b.queries, p.query())
		}
	}
	for r, q := range l.waiters.queues {
		if p := l.waiters.head(r); p != nil && q.lookedAt(b.began, time.Duration(l.header.TickSpan)) {
			b.queries = append(b.queries, p.query())
		}
	}
	return b
}

func (p *place) query() store.Query {
	return store.Query{Resource: p.queue.resource, Owner: p.key.Owner, RequestID: p.key.ID}
}

// lookedAt reports whether the queue is due: its tenure may be over, or another
// process may have ended it since the last look, a tick ago.
func (q *queue) lookedAt(now, tick time.Duration) bool {
	if q.due > 0 && now >= q.due || now-q.seen >= tick {
		q.seen = now
		return true
	}
	return false
}

func (b *batch) read(view store.View) {
	b.header = view.Header
	b.l.setHeader(view.Header)
	for i, e := range view.Entries {
		p := b.pages[e.Record.Resource]
		if p == nil {
			p = &page{
				resource: e.Record.Resource, record: e.Record, last: -1, refused: math.MaxInt,
				watched:  b.l.watches.watched(e.Record, b.now),
				requests: map[store.RequestKey]*core.Request{}, byLease: map[string]*core.Request{},
			}
			b.pages[p.resource] = p
			b.visited = append(b.visited, p)
			b.l.liveUntil = max(b.l.liveUntil, e.Record.Lease.Deadline)
		}
		q := b.queries[i]
		if q.RequestID != "" {
			p.requests[store.RequestKey{Owner: q.Owner, ID: q.RequestID}] = nil
		}
		if e.Request != nil {
			p.keep(*e.Request)
		}
	}
}

func (p *page) keep(r core.Request) {
	p.requests[store.RequestKey{Owner: r.Owner, ID: r.ID}] = &r
	if r.LeaseID != "" {
		p.byLease[r.LeaseID] = &r
	}
}

func (p *page) request(q store.Query) *core.Request {
	if q.RequestID != "" {
		return p.requests[store.RequestKey{Owner: q.Owner, ID: q.RequestID}]
	}
	return p.byLease[q.LeaseID]
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
		b.promote(p)
	}
	for _, c := range b.calls {
		if c.kind != kindHolder {
			b.run(c)
		}
	}
}

// tick advances the store's counter by one, if it has been watched to stand still
// for a whole tick and somebody needs it (R8).
func (b *batch) tick() {
	h := b.header
	if !b.l.watches.ticked(h, b.now) || h.Tick >= b.l.liveUntil && len(b.l.waiters.queues) == 0 && h.Tick >= h.HoldUntil {
		return
	}
	next := h
	next.Tick++
	b.steps = append(b.steps, store.Step{Epoch: h.Epoch, OnTick: true, Tick: h.Tick, Header: &next})
	b.header = next
	b.prune()
}

func (b *batch) run(c *call) {
	p := b.pages[c.query.Resource]
	req := p.request(c.query)
	answer, extended := b.step(p, req, c)
	if c.cancels && answer.Code == "" {
		b.dropCanceled(p, c)
	}
	reply := b.reply(p, c, answer, extended)
	if answer.Code == lastword.CodeHeld && c.wait {
		b.queue(p, c, reply)
		return
	}
	b.answers = append(b.answers, pending{call: c, page: p, step: p.last, reply: reply})
}

// step applies one rule to a page. Each change is a step of its own, conditional
// on the revision that the one before left.
func (b *batch) step(p *page, req *core.Request, c *call) (core.Answer, bool) {
	change, answer := c.decide(p.record, req, b.header, core.Clock{Tick: b.header.Tick, Watched: p.watched})
	if !change.Write {
		return answer, false
	}
	record := change.Record
	b.steps = append(b.steps, store.Step{
		Epoch: b.header.Epoch, OnTick: true, Tick: b.header.Tick, Record: &record, Requests: change.Requests,
	})
	p.record, p.watched, p.last = record, 0, len(b.steps)-1
	for _, r := range change.Requests {
		p.keep(r)
	}
	extended := c.extends && answer.Code == "" && !answer.Repeated
	p.extended = p.extended || extended
	return answer, extended
}

func (b *batch) reply(p *page, c *call, answer core.Answer, extended bool) result {
	seen := b.l.watches.byResource[p.resource]
	own := seen.own && seen.revision == p.record.Revision
	return result{
		answer: answer, record: p.record, request: p.request(c.query), header: b.header,
		waiters: b.l.waiters.of(p.resource), waited: c.waited, extended: extended,
		own: own, ownSent: seen.sent, at: b.began,
	}
}

// queue lets a refused acquire wait, within the bound.
func (b *batch) queue(p *page, c *call, reply result) {
	w := b.l.waiters
	if w.of(p.resource) >= b.l.cfg.MaxWaiters && !w.waits(c.query) {
		reply.answer = core.Answer{Code: lastword.CodeQuota}
		reply.why = fmt.Sprintf("%d wait already", w.of(p.resource))
		b.answers = append(b.answers, pending{call: c, page: p, step: p.last, reply: reply})
		return
	}
	b.answers = append(b.answers, pending{call: c, page: p, step: p.last, reply: reply, waits: true})
}

// promote gives a free resource to whoever waits longest (R3).
func (b *batch) promote(p *page) {
	for place := b.l.waiters.head(p.resource); place != nil; place = b.l.waiters.head(p.resource) {
		req, read := p.requests[place.key]
		if !read {
			// Its request record was not read in this round.
			b.due(place.queue, p)
			if !p.record.Lease.Live(b.header, core.Clock{Tick: b.header.Tick, Watched: p.watched}) {
				place.queue.due = b.began
				b.l.poke()
			}
			return
		}
		c := place.first()
		if c == nil {
			continue
		}
		answer, extended := b.step(p, req, c)
		reply := b.reply(p, c, answer, extended)
		if answer.Code == lastword.CodeHeld {
			b.due(place.queue, p)
			b.l.park(c, reply)
			return
		}
		for _, other := range b.l.waiters.drop(place) {
			if other == c || other.taken.CompareAndSwap(false, true) {
				b.answers = append(b.answers, pending{call: other, page: p, step: p.last, reply: reply})
			}
		}
	}
}

// first takes a call of the place whose caller has not given up.
func (p *place) first() *call {
	for _, c := range p.calls {
		if c.taken.CompareAndSwap(false, true) {
			return c
		}
	}
	return nil
}

// due notes when the tenure in the way may be over by this process's own watching.
func (b *batch) due(q *queue, p *page) {
	l := p.record.Lease
	q.due = 0
	if left := l.TTL - p.watched; left > 0 && l.State != lastword.StateExpired {
		q.due = b.began + time.Duration(left)
	}
}

// dropCanceled ends the waiting of a request id that has been cancelled (R6a).
func (b *batch) dropCanceled(p *page, c *call) {
	q := b.l.waiters.queues[p.resource]
	if q == nil {
		return
	}
	place := q.byID[store.RequestKey{Owner: c.query.Owner, ID: c.query.RequestID}]
	if place == nil {
		return
	}
	for _, other := range b.l.waiters.drop(place) {
		if other.taken.CompareAndSwap(false, true) {
			answer := core.Answer{Code: lastword.CodeCanceled}
			b.answers = append(b.answers, pending{call: other, page: p, step: p.last, reply: b.reply(p, other, answer, false)})
		}
	}
}

// commit makes the steps durable, then answers (R1). What another process came
// before with is decided anew.
func (b *batch) commit() {
	sent := b.l.cfg.Elapsed()
	if err := b.send(); err != nil {
		b.lost(err)
		return
	}
	b.note(sent)
	var again []*call
	for _, a := range b.answers {
		switch {
		case a.step >= a.page.refused:
			again = append(again, a.call)
		case a.waits:
			b.l.waiters.add(a.call)
			b.due(b.l.waiters.queues[a.page.resource], a.page)
			a.call.waited = true
			b.l.park(a.call, a.reply)
		default:
			a.reply.sent = sent
			a.call.finish(a.reply)
		}
	}
	b.l.requeue(again)
}

// send commits the steps and marks the pages whose steps were not all applied.
func (b *batch) send() error {
	if len(b.steps) == 0 {
		return nil
	}
	if err := b.remember(); err != nil {
		return err
	}
	applied, err := b.l.store.Commit(b.l.ctx, b.steps...)
	if err != nil {
		return err
	}
	for i, s := range b.steps {
		switch {
		case s.Header != nil && applied[i]:
			b.l.setHeader(*s.Header)
		case s.Record != nil && !applied[i]:
			if p := b.pages[s.Record.Resource]; p != nil {
				p.refused = min(p.refused, i)
			}
		}
	}
	return nil
}

// note remembers what the replies showed, from now on.
func (b *batch) note(sent time.Duration) {
	l := b.l
	now := l.pace.look(l.cfg.Elapsed())
	if len(b.steps) > 0 {
		l.watches.ticked(l.header, now)
	}
	for _, p := range b.visited {
		if p.last >= p.refused {
			delete(l.watches.byResource, p.resource)
			continue
		}
		l.watches.note(p.record, now, p.extended, sent, l.cfg.lockDelay(p.resource) > 0)
		l.liveUntil = max(l.liveUntil, p.record.Lease.Deadline)
	}
}

// lost answers a batch whose commit brought no answer: unknown, unless the store
// says that it certainly did not happen.
func (b *batch) lost(err error) {
	clear(b.l.watches.byResource)
	for _, a := range b.answers {
		a.call.finish(result{err: err})
	}
}

// remember makes the witness know a TTL that is longer than any before, ahead of
// the grant (R10).
func (b *batch) remember() error {
	longest := b.l.witness.Longest
	for _, s := range b.steps {
		if s.Record != nil {
			longest = max(longest, s.Record.Lease.TTL)
		}
	}
	if longest == b.l.witness.Longest {
		return nil
	}
	next := *b.l.witness
	next.Longest = longest
	ok, err := b.l.cfg.Witness.Swap(b.l.ctx, b.l.witness, next)
	if err != nil {
		return asAnswer(err)
	}
	if ok {
		b.l.witness = &next
		return nil
	}
	now, err := b.l.cfg.Witness.Load(b.l.ctx)
	if err != nil || now == nil {
		return asAnswer(err)
	}
	b.l.witness = now
	if now.Longest >= longest {
		return nil
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the witness is being written by another process", Hint: "try again"}
}
