package authority

import (
	"context"
	"errors"
	"fmt"
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
	queued   []*call
	left     []*call // waiting calls whose callers have gone
	perOwner map[string]int
	closed   bool
	held     core.Header // as this process last knew it
	broken   error       // why it stopped granting
	wake     chan struct{}
	closing  chan struct{}
	gone     chan struct{}

	ctx    context.Context // of what the loop asks of store and witness
	cancel context.CancelFunc

	header    core.Header
	witness   *Mark
	pace      pace
	watches   *watches
	waiters   *waiters
	liveUntil core.Tick // no tenure that this process knows of lasts longer
	checked   core.Span // when the witness was read last
	ahead     bool      // the witness then knew a later epoch than this process
	pruned    core.Tick
}

// closeTimeout is how long a close waits for the store before it cuts it short.
const closeTimeout = 5 * time.Second

func newLoop(s store.Store, cfg Config, r run) *loop {
	ctx, cancel := context.WithCancel(context.Background())
	l := &loop{
		cfg: cfg, store: s, perOwner: map[string]int{}, held: r.header,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), gone: make(chan struct{}), ctx: ctx, cancel: cancel,
		header: r.header, witness: r.witness,
		pace:    pace{span: r.header.TickSpan, last: cfg.Elapsed()},
		watches: newWatches(), waiters: newWaiters(),
	}
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
	if c.owner != "" && l.perOwner[c.owner] >= l.cfg.MaxPerOwner {
		return &lastword.Error{
			Code: lastword.CodeQuota, Message: fmt.Sprintf("%q has %d calls under way already", c.owner, l.cfg.MaxPerOwner),
			Hint: "wait for some of them to end",
		}
	}
	l.perOwner[c.owner]++
	l.queued = append(l.queued, c)
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

// stop lets the round that is under way finish, but not for ever.
func (l *loop) stop() {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.closing)
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-l.gone:
	case <-timer.C:
	}
	l.cancel()
	<-l.gone
}

func (l *loop) run() {
	defer close(l.gone)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.closing:
			l.shutDown()
			return
		case <-l.wake:
		case <-timer.C:
		}
		batch, more := l.take()
		l.decide(batch)
		if more {
			l.poke()
		}
		timer.Reset(l.rest())
	}
}

// take is the next batch: all that holders say and ask, and acquires up to the
// bound.
func (l *loop) take() (batch []*call, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.left {
		l.waiters.leave(c)
	}
	l.left = nil
	queued := l.queued
	slices.SortStableFunc(queued, func(a, b *call) int { return int(a.kind) - int(b.kind) })
	n := 0
	for n < len(queued) && (n < l.cfg.MaxBatch || queued[n].kind == kindHolder) {
		n++
	}
	batch, l.queued = queued[:n:n], slices.Clone(queued[n:])
	return batch, len(l.queued) > 0
}

// requeue puts calls back to the front, to be decided anew.
func (l *loop) requeue(calls []*call) {
	if len(calls) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		c.taken.Store(false)
	}
	l.queued = append(calls, l.queued...)
	l.poke()
}

// rest is how long the loop may sleep: while a tenure may be alive or somebody
// waits it looks twice a tick, so that no time it has watched is lost, and at the
// moment the first tenure in a waiter's way may be over.
func (l *loop) rest() time.Duration {
	const idle = time.Hour
	if len(l.waiters.queues) == 0 && l.header.Tick >= l.liveUntil {
		return idle
	}
	rest := time.Duration(l.header.TickSpan) / 2
	if due := l.watches.tickSince + l.header.TickSpan - l.pace.seen; due > 0 {
		rest = min(rest, time.Duration(due)+50*time.Microsecond)
	}
	now := l.cfg.Elapsed()
	for _, q := range l.waiters.queues {
		if q.due > 0 {
			rest = min(rest, max(q.due-now, 100*time.Microsecond))
		}
	}
	return rest
}

func (l *loop) shutDown() {
	l.mu.Lock()
	rest := l.queued
	l.queued = nil
	l.mu.Unlock()
	for _, q := range l.waiters.queues {
		for e := q.order.Front(); e != nil; e = e.Next() {
			rest = append(rest, e.Value.(*place).calls...)
		}
	}
	closed := &lastword.Error{Code: lastword.CodeUnavailable, Message: "the authority is being closed", Hint: "repeat the call, with the same request id, at the one that takes over"}
	for _, c := range rest {
		if c.taken.CompareAndSwap(false, true) {
			c.finish(result{err: closed})
		}
	}
}

// decide runs one batch: look at the time, read, apply the rules, commit, answer.
func (l *loop) decide(calls []*call) {
	calls = slices.DeleteFunc(calls, func(c *call) bool { return !c.taken.CompareAndSwap(false, true) })
	now := l.pace.look(l.cfg.Elapsed())
	if err := l.guard(now); err != nil {
		l.fail(calls, err)
		return
	}
	b := newBatch(l, now, calls)
	if len(b.queries) == 0 && l.header.Tick >= l.liveUntil {
		return
	}
	view, err := l.store.Read(l.ctx, b.queries...)
	if err != nil {
		l.fail(calls, asAnswer(err))
		return
	}
	if view.Header.Epoch != l.header.Epoch || !view.Header.Exists || view.Header.Identity != l.header.Identity {
		l.moved(view.Header, calls)
		return
	}
	if l.ahead {
		// A start sets the store's epoch before it is the witness's current one.
		// This store was read after the witness and has not heard of it.
		l.fail(calls, l.breakOff("the witness is ahead of this store: it is a copy"))
		return
	}
	b.read(view)
	b.apply()
	b.commit()
}

// asAnswer: a read that failed had no effect.
func asAnswer(err error) error {
	var known *lastword.Error
	if errors.As(err, &known) && known.Code != lastword.CodeUnknown {
		return err
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the store did not answer", Err: err, Hint: "try again later"}
}

// fail answers every call of a batch with an error, and every waiter too if this
// authority has stopped for good.
func (l *loop) fail(calls []*call, err error) {
	for _, c := range calls {
		c.finish(result{err: err})
	}
	if l.broken == nil {
		return
	}
	for _, q := range l.waiters.queues {
		for p := l.waiters.head(q.resource); p != nil; p = l.waiters.head(q.resource) {
			for _, c := range l.waiters.drop(p) {
				if c.taken.CompareAndSwap(false, true) {
					c.finish(result{err: err})
				}
			}
		}
	}
}

// guard reads the witness again, twice a tick at most, and stops granting when it
// does not belong to this run any more (R10).
func (l *loop) guard(now core.Span) error {
	if l.broken != nil {
		return l.broken
	}
	if now-l.checked < l.header.TickSpan {
		return nil
	}
	mark, err := l.cfg.Witness.Load(l.ctx)
	if err != nil {
		return err
	}
	l.checked = now
	l.ahead = mark != nil && mark.Store == l.header.Identity && mark.Current > l.header.Epoch
	if !l.ahead && core.Compare(l.header.Epoch, l.header, mark) == core.Regressed {
		return l.breakOff("the witness does not know this run's epoch any more")
	}
	if mark != nil {
		l.witness = mark
	}
	return nil
}

// moved handles a store whose epoch is not the one this process holds: another
// process started, or the store went back.
func (l *loop) moved(h core.Header, calls []*call) {
	mark, err := l.cfg.Witness.Load(l.ctx)
	if err != nil {
		l.fail(calls, err)
		return
	}
	if h.Identity != l.header.Identity || core.Compare(l.header.Epoch, h, mark) != core.Moved {
		l.fail(calls, l.breakOff(fmt.Sprintf("the store's epoch is %d and this process granted under %d", h.Epoch, l.header.Epoch)))
		return
	}
	l.witness = mark
	l.setHeader(h)
	l.requeue(calls)
}

func (l *loop) setHeader(h core.Header) {
	l.header = h
	l.mu.Lock()
	l.held = h
	l.mu.Unlock()
}

// breakOff stops this authority for good: no grant, no renewal, no HELD answer and
// no next fence until it is started again.
func (l *loop) breakOff(why string) error {
	err := regressed(why)
	l.cfg.Logger.Error("stopped granting", "why", why)
	l.mu.Lock()
	l.broken = err
	l.mu.Unlock()
	return err
}
