package client

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
	outboxes "github.com/lastword/lastword/internal/outbox"
)

// Observer is told what a [Client] does. It is told, never asked.
//
// Guaranteed: it is called on a goroutine of its own, one call at a time, in the
// order in which things happened. One that is slow, blocks or panics delays no
// acquire, renewal or release, nor the end of a context; [Client.Close] waits for it
// no longer than [Config.CleanupTimeout]. What it does not take is dropped beyond a
// bound, the oldest first, and counted.
type Observer interface {
	// Answered tells of one call that has its outcome. ctx carries the values of the
	// caller's, for a renewal those of the acquire's.
	Answered(ctx context.Context, a Answer)
	// Changed tells of a change of what is known of one lease.
	Changed(c Change)
}

// Op is what a client did.
type Op string

// The operations that an [Observer] is told of. An acquire and a release are told
// once, however often they had to be sent; of the renewals each one,
// unless the end of its lease cut it short.
const (
	OpAcquire  Op = "acquire"
	OpRenew    Op = "renew"
	OpRelease  Op = "release"
	OpComplete Op = "complete"
)

// Answer is how one call ended.
type Answer struct {
	Op       Op
	Resource lastword.Resource
	Fence    lastword.Token // of the lease; 0 of an acquire that brought none
	Code     lastword.Code  // "" for success; of a renewal UNKNOWN: no answer
	End      time.Time      // when it had its outcome, on the wall clock, for people
	Took     time.Duration  // by Config.Elapsed
	Waited   bool           // an acquire that was queued, and granted
	// Missed is how much was left out just before, because the observer was too slow.
	Missed int
}

// Change is a change of what is known of one lease.
type Change struct {
	Event
	// Held is by how much the number of leases that this client holds has changed
	// since the change told before: the sum is right, whatever was left out.
	Held int
	// Missed is how much was left out just before, because the observer was too slow.
	Missed int
}

// maxNews bounds what is kept for an observer that is slow.
const maxNews = 1 << 14

// news is one thing to tell.
type news struct {
	ctx    context.Context //nolint:containedctx // on its way to an observer
	answer Answer          // counts if ctx is not nil
	event  Event
}

// reporter brings news to the observer.
type reporter struct {
	c      *Client
	outbox *outboxes.Outbox[news]
	missed int // the next two are of the observer's goroutine
	held   int
}

func newReporter(c *Client) *reporter {
	if c.cfg.Observer == nil {
		return nil
	}
	r := &reporter{c: c}
	r.outbox = outboxes.New(maxNews, r.deliver)
	return r
}

func (r *reporter) deliver(batch []news, dropped int) {
	r.missed += dropped
	for i := range batch {
		r.tell(&batch[i])
	}
}

// tell contains a panic: what follows is told all the same.
func (r *reporter) tell(n *news) {
	defer func() { _ = recover() }()
	missed := r.missed
	r.missed = 0
	if n.ctx != nil {
		n.answer.Missed = missed
		r.c.cfg.Observer.Answered(n.ctx, n.answer)
		return
	}
	held := r.c.holds()
	change := Change{Event: n.event, Held: held - r.held, Missed: missed}
	r.held = held
	r.c.cfg.Observer.Changed(change)
}

// holds is how many leases are not over.
func (c *Client) holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.leases)
}

// answered tells the observer how a call ended that began at began.
func (c *Client) answered(ctx context.Context, op Op, l *Lease, r lastword.Resource, began int64, err error) {
	if c.reporter == nil {
		return
	}
	a := Answer{Op: op, Resource: r, End: time.Now(), Took: time.Duration(c.now() - began), Code: codeOf(err)}
	if l != nil {
		a.Fence = l.tenure.Fence
		a.Waited = op == OpAcquire && l.tenure.Waited
	}
	c.reporter.outbox.Put(news{ctx: context.WithoutCancel(ctx), answer: a})
}

// changed tells the observer of an event.
func (c *Client) changed(e Event) {
	if c.reporter != nil {
		c.reporter.outbox.Put(news{event: e})
	}
}

// codeOf is the code of an error, "" for none. What is no *lastword.Error is no clear
// answer.
func codeOf(err error) lastword.Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*lastword.Error](err); ok {
		return e.Code
	}
	return lastword.CodeUnknown
}
