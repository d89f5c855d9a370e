package authority

import (
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// guard reads the witness again, at least every tick and every shortest TTL, and
// stops granting when it does not belong to this run any more (R10).
func (l *loop) guard() error {
	if l.broken != nil {
		return l.broken
	}
	if l.pace.seen-l.checked < min(l.header.TickSpan, core.Span(l.cfg.MinTTL)) {
		return nil
	}
	mark, err := l.cfg.Witness.Load(l.ctx)
	if err != nil {
		return notDone(err, "the witness did not answer")
	}
	l.checked = l.pace.seen
	if !ahead(mark, l.header) && core.Compare(l.header.Epoch, l.header, mark) == core.Regressed {
		return l.breakOff("the witness does not know this run's epoch any more")
	}
	if l.witness = mark; mark != nil {
		l.longest = max(l.longest, mark.Longest)
	}
	return nil
}

// ahead reports whether the witness's current epoch is later than the store's. A
// start sets the store's epoch before it is the witness's current one: a store that
// is read after the witness and has not heard of it is a copy.
func ahead(mark *Mark, h core.Header) bool {
	return mark != nil && mark.Store == h.Identity && mark.Current > h.Epoch
}

// current reports whether the store is at the epoch that this process holds. If
// not, the calls are dealt with: decided anew under a later epoch, or refused.
func (l *loop) current(h core.Header, calls []*call) bool {
	switch {
	case !h.Exists || h.Identity != l.header.Identity:
		l.fail(calls, l.breakOff("the store has been exchanged for another one"))
	case ahead(l.witness, h):
		l.fail(calls, l.breakOff("the witness is ahead of this store: it is a copy"))
	case h.Epoch != l.header.Epoch:
		l.moved(h, calls)
	default:
		return true
	}
	return false
}

// moved handles a store whose epoch is not the one this process holds: another
// process started, or the store went back.
func (l *loop) moved(h core.Header, calls []*call) {
	mark, err := l.cfg.Witness.Load(l.ctx)
	if err != nil {
		l.fail(calls, notDone(err, "the witness did not answer"))
		return
	}
	if h.Epoch > l.header.Epoch && ahead(mark, h) {
		// One more start, between the two readings. The next round, which reads the
		// store after this, tells it from a copy.
		l.witness = mark
		l.requeue(calls)
		return
	}
	if core.Compare(l.header.Epoch, h, mark) != core.Moved {
		l.fail(calls, l.breakOff(fmt.Sprintf("the store's epoch is %d and this process granted under %d", h.Epoch, l.header.Epoch)))
		return
	}
	if err := l.follow(h, mark); err != nil {
		l.fail(calls, notDone(err, "the witness did not answer"))
		return
	}
	l.requeue(calls)
}

// follow goes on with the store's epoch, once the witness knows that somebody
// grants under it: until then a backup from before it would pass for the store.
func (l *loop) follow(h core.Header, mark *Mark) error {
	next := mark.At(h.Epoch)
	if next != *mark {
		ok, err := l.cfg.Witness.Swap(l.ctx, mark, next)
		if err != nil || !ok {
			return err // another process was faster: the next round looks again
		}
	}
	l.witness = &next
	l.liveUntil = max(l.liveUntil, h.HoldUntil)
	l.setHeader(h)
	return nil
}

func (l *loop) setHeader(h core.Header) {
	if h == l.header {
		return
	}
	later := h.Epoch != l.header.Epoch
	l.header = h
	if later {
		l.counter = 0
		l.warnOfEpochs()
	}
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
	l.views.fail(err, true)
	return err
}

// remember makes the witness know the longest TTL, ahead of the grant (R10).
func (l *loop) remember(longest core.Span) error {
	for range rememberAttempts {
		known := l.longest // of a witness that is missing beside an unmarked store
		if l.witness != nil {
			known = l.witness.Longest
		}
		if longest <= known {
			l.longest = max(l.longest, known)
			return nil
		}
		if err := l.raise(longest); err != nil {
			return notDone(err, "the witness did not answer")
		}
		if l.witness == nil {
			break
		}
	}
	l.checked = -l.header.TickSpan // the next round finds out what has become of it
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the witness could not be told of a longer ttl", Hint: "try again; if it is missing, restart"}
}

// raise tries to write the longest TTL, or reads the witness again.
func (l *loop) raise(longest core.Span) error {
	if l.witness != nil {
		next := *l.witness
		next.Longest = longest
		ok, err := l.cfg.Witness.Swap(l.ctx, l.witness, next)
		if err != nil {
			return err
		}
		if ok {
			l.witness = &next
			return nil
		}
	}
	mark, err := l.cfg.Witness.Load(l.ctx)
	if err != nil {
		return err
	}
	l.witness = nil
	if mark != nil && core.Compare(l.header.Epoch, l.header, mark) == core.Steady {
		l.witness = mark
	}
	return nil
}

// rememberAttempts bounds how often one round races other processes for the witness.
const rememberAttempts = 8
