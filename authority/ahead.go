package authority

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// What is done ahead of the disk. Grants are signed, and kept until their step is
// durable. Releases are answered, and only on a store that nobody else uses (R6): a
// crash may undo one, and the tenure lapses. Whatever shows a release waits for the
// disk: the answers of its round for the round's commit, and later rounds come after
// it.

// ahead shows callers what was decided for them before the commit: who acquires may
// sign meanwhile. Releases it answers.
func (b *batch) ahead() {
	for i := range b.answers {
		if a := &b.answers[i]; a.depends && a.reply.extended && a.call.decided != nil {
			shown := a.reply
			select {
			case a.call.decided <- &shown:
			default: // it has not looked at the one before
			}
		}
	}
	if !b.l.sole {
		return
	}
	for i := range b.answers {
		if a := &b.answers[i]; a.call.release && a.depends && a.reply.answer.Code == "" {
			a.call.tell(a.reply)
		}
	}
}

// repeat tries the step of a call once more that was told that it is done. If that
// comes to nothing, too, the tenure lapses.
func (b *batch) repeat(c *call) {
	if !c.repeated {
		c.repeated = true
		b.again = append(b.again, c)
	}
}

// defers answers a release that nobody else in this round has to do with, no waiter
// either, and leaves its step to the next round: who gives something back often takes
// the next thing at once, and both are then one write. Whatever asks for the resource
// is in a later round, and finds the release before it there, as if it had come just
// after it.
func (b *batch) defers(p *page, c *call) bool {
	if !c.release || c.deferred || c.told || !b.l.sole || p.named > 1 {
		return false
	}
	return b.l.postpone(c, p.record, b.request(c.query), b.header, core.Clock{Tick: b.header.Tick, Watched: p.watched})
}

// postpone answers a release and leaves its step to the next round, if the rule
// accepts it.
func (l *loop) postpone(c *call, rec core.Record, req *core.Request, h core.Header, clock core.Clock) bool {
	change, answer := c.decide(rec, req, h, clock)
	if !change.Write || answer.Code != "" {
		return false
	}
	c.deferred = true
	c.tell(result{answer: answer, record: rec, request: req, header: h})
	c.taken.Store(false)
	l.deferred = append(l.deferred, c)
	return true
}

// writeOut commits the steps. On a store of one user it answers meanwhile the releases
// of what the commit does not touch: who released asks for the next thing while the
// disk is busy, so that it is in the next round and not in the one after.
func (b *batch) writeOut() ([]bool, error) {
	l := b.l
	if !l.sole {
		return l.store.Commit(l.ctx, b.steps...)
	}
	var applied []bool
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		applied, err = l.store.Commit(l.ctx, b.steps...)
	}()
	for {
		select {
		case <-done:
			l.pokeIfQueued() // its wake may have been taken here
			return applied, err
		case <-l.wake:
			l.beside(b)
		}
	}
}

// beside answers releases while b is being committed. It decides nothing else: a
// release is decided again, and written, in the next round.
func (l *loop) beside(b *batch) {
	calls := l.releases(func(r lastword.Resource) bool { return b.pages[r] == nil && l.waiters.queues[r] == nil })
	if len(calls) == 0 {
		return
	}
	queries := make([]store.Query, len(calls))
	for i, c := range calls {
		queries[i] = c.query
	}
	view, err := l.store.Read(l.ctx, queries...)
	if err != nil || view.Header != l.header {
		l.requeue(calls)
		return
	}
	var rest []*call
	for i, c := range calls {
		e := &view.Entries[i]
		clock := core.Clock{Tick: view.Header.Tick, Watched: l.watches.watched(e.Record, b.now)}
		if !l.postpone(c, e.Record, e.Request, view.Header, clock) {
			rest = append(rest, c)
		}
	}
	l.requeue(rest)
}

func (l *loop) pokeIfQueued() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.holders)+len(l.others)+len(l.left) > 0 {
		l.poke()
	}
}

// releases takes the releases of resources that fit out of the queue.
func (l *loop) releases(fit func(lastword.Resource) bool) (calls []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.holders[:0]
	for _, c := range l.holders {
		if c.release && !c.told && !c.looked && fit(c.query.Resource) && c.taken.CompareAndSwap(false, true) {
			c.looked = true
			calls = append(calls, c)
		} else {
			kept = append(kept, c)
		}
	}
	clear(l.holders[len(kept):])
	l.holders = kept
	return calls
}

// sealed is a grant that was signed while its step was on its way to the disk. It
// leaves this process only as the answer to that step.
type sealed struct {
	key    string
	claims grant.Claims
	grant  string
	digest lastword.Digest
}

// signAhead signs what was decided and is not durable yet; nil if that can not be.
func (a *Authority) signAhead(decided *result) *sealed {
	l := decided.answer.Lease
	s := &sealed{key: l.KeyID, claims: a.claims(decided.record.Resource, l)}
	var err error
	if s.grant, s.digest, err = a.signer.Sign(s.key, s.claims); err != nil {
		return nil
	}
	return s
}

// seal signs claims with the key that is named.
type seal func(key string, claims grant.Claims) (string, lastword.Digest, error)

// sealWith gives the grant that was signed ahead where it is that.
func (a *Authority) sealWith(ahead *sealed) seal {
	return func(key string, claims grant.Claims) (string, lastword.Digest, error) {
		if ahead != nil && ahead.key == key && ahead.claims == claims {
			return ahead.grant, ahead.digest, nil
		}
		return a.signer.Sign(key, claims)
	}
}
