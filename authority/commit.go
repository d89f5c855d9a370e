package authority

import (
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// serve answers the calls of a place. It reports whether they go on waiting.
func (b *batch) serve(p *page, pl *place) (held bool) {
	for _, c := range pl.take() {
		answer, extended := b.step(p, c)
		p.woken = p.woken || extended
		reply := b.reply(p, c, answer, extended)
		if answer.Code != lastword.CodeHeld {
			b.answers = append(b.answers, pending{call: c, page: p, depends: p.step >= 0, reply: reply})
			continue
		}
		// Its caller may leave while the rest is committed. The refusal counts once
		// it is durable; until then it has an earlier one.
		held = true
		b.parked = append(b.parked, parked{call: c, page: p, depends: p.step >= 0, reply: reply})
		b.l.giveBack(c)
	}
	return held
}

// due notes when the tenure in the way may be over by this process's own watching.
func (b *batch) due(p *page, q *queue) {
	l := p.record.Lease
	if l.State != lastword.StateHeld && l.State != lastword.StatePending {
		return
	}
	at := b.began + time.Duration(max(0, l.TTL-p.watched))
	if at < q.at {
		b.l.waiters.look(q, at)
	}
}

// cancelWaiting ends the waiting of a request id that has been cancelled (R6a).
func (b *batch) cancelWaiting(p *page, c *call) {
	q := b.l.waiters.queues[p.resource]
	if q == nil {
		return
	}
	pl := q.byID[store.RequestKey{Owner: c.query.Owner, ID: c.query.RequestID}]
	if pl == nil {
		return
	}
	for _, other := range pl.take() {
		reply := b.reply(p, other, core.Answer{Code: lastword.CodeCanceled}, false)
		b.answers = append(b.answers, pending{call: other, page: p, depends: true, reply: reply})
	}
}

// commit makes the steps durable, then answers (R1). What another process came
// before with is decided anew.
func (b *batch) commit() {
	l := b.l
	b.ahead()
	sent := l.cfg.Elapsed()
	err := b.send()
	if len(b.steps) > 0 {
		l.mu.Lock()
		l.unsaved = err
		l.mu.Unlock()
	}
	b.note(sent)
	b.show()
	for i := range b.answers {
		a := &b.answers[i]
		switch {
		case !a.depends || a.page.applied:
			a.reply.sent = sent
			b.answer(a)
		case a.call.told:
			b.repeat(a.call)
		case err != nil:
			b.lost(a.call, err)
		default:
			b.retry(a.call)
		}
	}
	for i := range b.parked {
		if p := &b.parked[i]; !p.depends || p.page.applied {
			reply := p.reply
			p.call.refused.Store(&reply)
		} else if c := p.call; err == nil && c.place != nil {
			l.waiters.look(c.place.queue, b.began)
		}
	}
	l.requeue(b.again)
	l.reporter.committed(b, sent, l.pace.last, err)
	if err != nil {
		l.failed = true
		l.scratch = nil // the store may still be reading it
	}
}

// answer ends a call, or lets it wait, within the bound.
func (b *batch) answer(a *pending) {
	w, c := b.l.waiters, a.call
	if !a.waits {
		w.finish(c)
		c.finish(a.reply)
		return
	}
	if !w.add(c, b.began, b.began+time.Duration(b.header.TickSpan), b.l.cfg.MaxWaiters) {
		a.reply.answer = core.Answer{Code: lastword.CodeQuota}
		c.finish(a.reply)
		return
	}
	b.due(a.page, c.place.queue)
	c.waited = true
	reply := a.reply
	c.refused.Store(&reply)
	if c.queued != nil {
		c.queued()
		c.queued = nil
	}
	b.l.giveBack(c)
}

// retry: the step was certainly not applied, since another process came before it.
// A waiting call keeps its place.
func (b *batch) retry(c *call) {
	if c.place == nil {
		b.again = append(b.again, c)
		return
	}
	b.l.waiters.look(c.place.queue, b.began)
	b.l.giveBack(c)
}

// lost answers a call whose commit brought no answer: unknown, unless the store
// says that it certainly did not happen. Then a waiting call goes on waiting.
func (b *batch) lost(c *call, err error) {
	if c.place != nil && errors.Is(err, lastword.ErrUnavailable) {
		b.l.giveBack(c)
		return
	}
	b.l.waiters.finish(c)
	c.finish(result{err: err})
}

// send commits the steps and marks the pages whose step was applied.
func (b *batch) send() error {
	if len(b.steps) == 0 {
		return nil
	}
	var longest core.Span
	for _, p := range b.visited {
		if p.extended {
			longest = max(longest, p.record.Lease.TTL)
		}
	}
	if err := b.l.remember(longest); err != nil {
		return err
	}
	applied, err := b.writeOut()
	if err != nil {
		return unknown(err)
	}
	if b.ticked && applied[0] {
		b.l.setHeader(b.header)
	}
	for _, p := range b.visited {
		p.applied = p.step >= 0 && applied[p.step]
	}
	return nil
}

// unknown: an error of a commit leaves the outcome open, unless it says otherwise.
func unknown(err error) error {
	var known *lastword.Error
	if errors.As(err, &known) {
		return err
	}
	return &lastword.Error{
		Code: lastword.CodeUnknown, Message: "the store did not answer", Err: err,
		Hint: "repeat it unchanged, with the same request id, to learn what happened",
	}
}

// note remembers what the replies showed, from now on.
func (b *batch) note(sent time.Duration) {
	if len(b.steps) == 0 {
		return
	}
	l := b.l
	l.pace.look(l.cfg.Elapsed())
	l.watches.saw(l.header, l.pace.seen)
	for _, p := range b.visited {
		if !p.applied {
			continue
		}
		l.used(p.record)
		delay := l.cfg.lockDelay(p.resource)
		l.watches.note(sight{
			record: p.record, sent: sent, now: l.pace.seen, delayed: delay > 0,
			wrote: true, base: p.base, extended: p.extended,
		})
		l.alive(p.record.Lease, l.header, delay)
	}
}
