package authority

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// kind orders the calls of one batch: what holders say comes before any expiry.
type kind int

const (
	kindHolder kind = iota
	kindStatus
	kindAcquire
)

// decision is one rule, with everything but the state bound to it.
type decision func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer)

// call is one caller's step on its way through the loop.
type call struct {
	kind    kind
	owner   string
	query   store.Query
	decide  decision
	extends bool   // grants or renews a tenure
	wait    bool   // queue if it is held
	cancels bool   // ends the waiting of its request id
	release bool   // its answer may run ahead of the disk (R6)
	queued  func() // is told once that the call begins to wait; nil: nobody
	probe   bool   // names no record: asks how many wait for those in counted
	counted []lastword.Resource

	// taken is set by whoever gets hold of the call first: the loop, when it
	// begins to decide, or the caller, when it gives up. A call that the caller
	// took had no effect and will have none.
	taken atomic.Bool
	done  chan *result // receives exactly one result, if the loop took the call
	// decided, if not nil, receives what is on its way to the disk, for prepare: work
	// that need not wait for the answer. What it shows may never come true.
	decided chan *result
	prepare func(*result)
	// refused is the last HELD answer, made durable, of a call that waits.
	refused atomic.Pointer[result]
	// over says that the caller waits no longer: the loop, when it gives the call
	// back, lets it go. gone says that nobody listens any more.
	over, gone atomic.Bool

	place    *place // where it waits; the loop's
	waited   bool   // the loop's
	told     bool   // it has its answer, and its step is not durable yet; the loop's
	repeated bool   // its step is being tried once more, with nobody listening; the loop's
	deferred bool   // its step is left to the next round; the loop's
	looked   bool   // it was looked at beside a commit; the loop's
}

func newCall(k kind, owner string, q store.Query) *call {
	return &call{kind: k, owner: owner, query: q, done: make(chan *result, 1)}
}

// result is what the loop found out for a call, made durable if it had to be.
type result struct {
	answer   core.Answer
	record   core.Record // as it is after the step
	request  *core.Request
	header   core.Header
	waiters  int
	counts   []int // of a probe
	waited   bool
	extended bool          // this step granted or renewed the tenure
	known    bool          // age is known
	age      time.Duration // since the tenure was granted or renewed last, at most, when the round began
	sent     time.Duration // when the step's commit was sent
	at       time.Duration // elapsed time that age is of
	err      error
}

// finish gives a call its answer, unless it has it.
func (c *call) finish(r result) {
	if !c.told {
		c.done <- &r
	}
}

// tell gives a call its answer before its step is durable.
func (c *call) tell(r result) {
	c.finish(r)
	c.told = true
}

// submit hands a call to the loop and waits for its result, for ctx, or for the
// end of its waiting.
func (l *loop) submit(ctx context.Context, c *call, wait time.Duration) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, notSent(err)
	}
	if err := l.enqueue(c); err != nil {
		return result{}, err
	}
	defer l.leave(c)
	var late <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait) //nolint:forbidigo // ends the caller's own waiting; decides nothing
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case r := <-c.done:
			return *r, r.err
		case r := <-c.decided:
			c.prepare(r)
		case <-late:
			late = nil
			c.over.Store(true)
			if held := c.refused.Load(); held != nil && c.taken.CompareAndSwap(false, true) {
				l.abandon(c)
				return *held, nil
			}
		case <-ctx.Done():
			c.over.Store(true)
			if c.taken.CompareAndSwap(false, true) {
				l.abandon(c)
				return result{}, notSent(ctx.Err())
			}
			c.gone.Store(true)
			if c.kind == kindStatus {
				return result{}, notSent(ctx.Err()) // a question has no outcome that could be unknown
			}
			return l.undecided(c, ctx.Err())
		}
	}
}

// giveBack returns a call that goes on waiting to its caller. Of loop and caller,
// whoever comes second sees that the other one has been there.
func (l *loop) giveBack(c *call) {
	c.taken.Store(false)
	if c.over.Load() && c.taken.CompareAndSwap(false, true) {
		l.waiters.leave(c, l.pace.last)
		c.finish(*c.refused.Load())
	}
}

// undecided: the loop is at work on the call and its caller cannot wait any longer.
func (l *loop) undecided(c *call, cause error) (result, error) {
	select {
	case r := <-c.done:
		return *r, r.err
	default:
		return result{}, &lastword.Error{
			Code: lastword.CodeUnknown, Message: "the call ended while the step was being committed", Err: cause,
			Hint: "repeat it unchanged, with the same request id, to learn what happened",
		}
	}
}

func notSent(cause error) error {
	message := "the call was cancelled before anything was decided"
	if errors.Is(cause, context.DeadlineExceeded) {
		message = "the call's time was over before anything was decided"
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: message, Err: cause}
}
