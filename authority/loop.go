package authority

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// loop decides. Everything below the mutex's fields belongs to its goroutine.
type loop struct {
	cfg   Config
	store store.Store

	mu       sync.Mutex
	holders  []*call // what holders say of their tenures
	others   []*call // what others want and ask
	left     []*call // waiting calls whose callers have gone
	perOwner map[string]int
	closed   bool
	held     core.Header // as this process last knew it
	broken   error       // why it stopped granting
	unsaved  error       // why the last write failed; nil if none did since
	wake     chan struct{}
	closing  chan struct{}
	gone     chan struct{}

	ctx    context.Context // of what the loop asks of store and witness
	cancel context.CancelFunc

	header    core.Header
	witness   *Mark     // as last read
	longest   core.Span // TTL that the witness is known to know
	pace      pace
	watches   *watches
	waiters   *waiters
	liveUntil core.Tick // no tenure that this process knows of lasts longer
	checked   core.Span // when the witness was read last
	failed    bool      // the last round could not reach store or witness
	pruned    core.Tick
	scratch   *batch    // the last round's, for its memory
	reporter  *reporter // nil if nobody observes
	counter   uint64    // the highest one granted here in the header's epoch
	views     *views
	vigil     *vigil
	sole      bool    // nobody else reads or writes the store
	deferred  []*call // releases that were answered and are decided in the next round
}

// linger is how long a release that was answered waits for others to share its write.
const linger = 500 * time.Microsecond

// closeTimeout is how long a close waits for the store before it cuts it short.
const closeTimeout = 5 * time.Second

func newLoop(s store.Store, cfg Config, r run, v *views) *loop {
	ctx, cancel := context.WithCancel(context.Background())
	l := &loop{
		cfg: cfg, store: s, perOwner: map[string]int{}, held: r.header,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), gone: make(chan struct{}), ctx: ctx, cancel: cancel,
		header: r.header, witness: r.witness, longest: r.witness.Longest,
		pace:    pace{span: r.header.TickSpan, last: cfg.Elapsed()},
		watches: newWatches(), waiters: newWaiters(), views: v, vigil: newVigil(),
	}
	if only, ok := s.(store.Sole); ok {
		l.sole = only.Sole()
	}
	l.warnOfEpochs()
	// Tenures that an earlier run granted may be alive: the counter has to run.
	l.liveUntil = max(r.header.HoldUntil, r.header.Tick+core.Ticks(r.witness.Longest, r.header.TickSpan))
	return l
}

func (l *loop) enqueue(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the authority has been closed"}
	}
	room := l.cfg.MaxPerOwner
	if c.kind == kindHolder {
		room *= 2 // no owner's waiters keep it from renewing
	}
	if c.owner != "" && l.perOwner[c.owner] >= room {
		return &lastword.Error{
			Code: lastword.CodeQuota, Message: fmt.Sprintf("%q has %d calls under way already", c.owner, l.perOwner[c.owner]),
			Hint: "wait for some of them to end",
		}
	}
	l.perOwner[c.owner]++
	if c.kind == kindHolder {
		l.holders = append(l.holders, c)
	} else {
		l.others = append(l.others, c)
	}
	l.poke()
	return nil
}

// leave ends the counting of a call, however it ended.
func (l *loop) leave(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.perOwner[c.owner]--; l.perOwner[c.owner] <= 0 {
		delete(l.perOwner, c.owner)
	}
}

// abandon tells the loop that the caller of a waiting call has gone.
func (l *loop) abandon(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = append(l.left, c)
	l.poke()
}

// tick is the length of a tick of the store's counter.
func (l *loop) tick() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.held.TickSpan)
}

func (l *loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *loop) epoch() (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held.Epoch, l.broken
}

// granting is why nothing is granted at present, nil if something may be.
func (l *loop) granting() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken != nil:
		return l.broken
	case l.closed:
		return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the authority has been closed"}
	case l.held.Tick < l.held.HoldUntil:
		return holding(l.held)
	}
	return l.unsaved
}

// stop lets the round that is under way finish, but not for ever.
func (l *loop) stop() {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.closing)
	}
	timer := time.NewTimer(closeTimeout) //nolint:forbidigo // bounds a close
	defer timer.Stop()
	select {
	case <-l.gone:
	case <-timer.C:
	}
	l.cancel()
	<-l.gone
	if first {
		l.reporter.close()
	}
}

func (l *loop) run() {
	defer close(l.gone)
	timer := time.NewTimer(0) //nolint:forbidigo // wakes the loop; what it decides by is Config.Elapsed
	defer timer.Stop()
	for {
		select {
		case <-l.closing:
			l.shutDown()
			return
		case <-l.wake:
		case <-timer.C:
		}
		runtime.Gosched() // callers that come at once share a commit
		batch, more := l.take()
		l.decide(batch)
		l.prune()
		l.turn()
		if more {
			l.poke()
		}
		timer.Reset(l.rest())
	}
}

// take is the next batch: what was answered already, all that holders say, then the
// others up to the bound.
func (l *loop) take() (batch []*call, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.left {
		l.waiters.leave(c, l.pace.last)
	}
	l.left = nil
	n := min(len(l.others), l.cfg.MaxBatch)
	batch = slices.Concat(l.deferred, l.holders, l.others[:n])
	l.deferred, l.holders, l.others = nil, nil, l.others[n:]
	if len(l.others) == 0 {
		l.others = nil
	}
	return batch, len(l.others) > 0
}

// requeue puts calls back to the front, to be decided anew. Nothing of them has
// been done; whose caller has gone, told UNKNOWN, is let go.
func (l *loop) requeue(calls []*call) {
	if len(calls) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var holders, others []*call
	for _, c := range calls {
		switch {
		case c.gone.Load():
			continue
		case c.kind == kindHolder:
			holders = append(holders, c)
		default:
			others = append(others, c)
		}
		c.taken.Store(false)
	}
	l.holders = append(holders, l.holders...)
	l.others = append(others, l.others...)
	l.poke()
}

// rest is how long the loop may sleep: while a tenure may be alive or somebody
// waits it looks twice a tick, so that no time it has watched is lost, and at the
// moment the first tenure in a waiter's way may be over.
func (l *loop) rest() time.Duration {
	const idle, shortest = time.Hour, 100 * time.Microsecond
	if len(l.deferred) > 0 {
		return linger
	}
	if l.broken != nil || len(l.waiters.agenda) == 0 && len(l.vigil.due) == 0 && l.header.Tick >= l.liveUntil {
		return idle
	}
	rest := time.Duration(l.header.TickSpan) / 2
	if l.failed {
		return rest
	}
	if due := l.watches.tickSince + l.header.TickSpan - l.pace.seen; due > 0 {
		rest = min(rest, time.Duration(due)+shortest/2)
	}
	if len(l.waiters.agenda) > 0 {
		rest = min(rest, max(l.waiters.agenda[0].at-l.cfg.Elapsed(), shortest))
	}
	if len(l.vigil.due) > 0 {
		rest = min(rest, max(l.vigil.due[0].at-l.cfg.Elapsed(), shortest))
	}
	return rest
}

func (l *loop) shutDown() {
	if len(l.deferred) > 0 {
		l.decide(l.deferred)
	}
	l.mu.Lock()
	rest := append(l.holders, l.others...)
	l.holders, l.others = nil, nil
	l.mu.Unlock()
	for _, q := range l.waiters.queues {
		for e := q.order.Front(); e != nil; e = e.Next() {
			rest = append(rest, e.Value.(*place).calls...)
		}
	}
	closed := &lastword.Error{Code: lastword.CodeUnavailable, Message: "the authority is being closed", Hint: "repeat the call, with the same request id, at the one that takes over"}
	l.views.fail(closed, true)
	for _, c := range rest {
		if c.taken.CompareAndSwap(false, true) {
			c.finish(result{err: closed})
		}
	}
}

// decide runs one round: look at the time, read, apply the rules, commit, answer.
func (l *loop) decide(calls []*call) {
	calls = slices.DeleteFunc(calls, func(c *call) bool { return !c.taken.CompareAndSwap(false, true) })
	l.failed = false
	l.pace.begin(l.cfg.Elapsed())
	l.waiters.expire(l.pace.last)
	calls = l.attend(calls)
	if err := l.guard(); err != nil {
		l.fail(calls, err)
		return
	}
	b := l.newBatch(calls)
	if len(calls) == 0 && len(b.queries) == 0 && l.header.Tick >= l.liveUntil {
		return
	}
	view, err := l.store.Read(l.ctx, b.queries...)
	if err != nil {
		l.fail(calls, notDone(err, "the store did not answer"))
		return
	}
	if !l.current(view.Header, calls) {
		return
	}
	b.read(view)
	b.apply()
	b.commit()
}

// notDone is the error of what certainly had no effect: a reading, or a write that
// was not sent.
func notDone(err error, message string) error {
	var known *lastword.Error
	if errors.As(err, &known) && known.Code != lastword.CodeUnknown {
		return err
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: message, Err: err, Hint: "try again later"}
}

// fail answers every call of a round with an error, and every waiter too if this
// authority has stopped for good.
func (l *loop) fail(calls []*call, err error) {
	l.failed = true
	for _, c := range calls {
		c.finish(result{err: err})
	}
	if l.broken == nil {
		return
	}
	for _, q := range l.waiters.queues {
		for p := q.next(nil); p != nil; p = q.next(nil) {
			for _, c := range p.take() {
				c.finish(result{err: err})
			}
		}
	}
	l.waiters = newWaiters()
}
