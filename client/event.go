package client

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/lastword/lastword"
)

// Event is one change of what a holder knows of one lease. See [Config.OnEvent].
type Event struct {
	Resource lastword.Resource
	Fence    lastword.Token
	LeaseID  string

	// At is when it happened, by [Config.Elapsed].
	At time.Duration
	// From and To are the states before and after. The first event of a lease comes
	// from REQUESTED, the last one goes to EXPIRED or RELEASED; there is exactly one
	// of those.
	From, To lastword.HolderState
	// Stopping says that the state has not changed, but the context of the work
	// under [Client.Run] has ended, and [Config.DrainTimeout] has begun.
	Stopping bool
	// Cause says why: of the last event the cause of [Lease.Context], of
	// OWNERSHIP_UNKNOWN what came in place of a clear answer (nil: the time-out
	// passed), of a stop why it is to stop. Otherwise nil.
	Cause error
	// Dropped is how many events of this lease were left out just before this one,
	// because their receiver was too slow.
	Dropped int
}

// Final reports whether it is the last event of its lease.
func (e Event) Final() bool {
	return e.To == lastword.HolderExpired || e.To == lastword.HolderReleased
}

// maxEvents is how many events of one lease wait for a slow receiver. The oldest
// are dropped, so that the last one is always told.
const maxEvents = 64

// outbox is what waits to be told about one lease; its lease's lock guards it.
type outbox struct {
	events  []Event
	telling bool // a goroutine is at it; it ends with the last event
}

// noteLocked queues an event. Nobody is called here: a log handler or a receiver
// that blocks must not delay anything.
func (l *Lease) noteLocked(e Event) {
	e.Resource, e.Fence, e.LeaseID = l.tenure.Resource, l.tenure.Fence, l.tenure.LeaseID
	l.c.changed(e)
	if l.c.silent {
		return
	}
	o := &l.outbox
	if len(o.events) == maxEvents {
		dropped := 1 + o.events[0].Dropped
		o.events = append(o.events[:0], o.events[1:]...)
		o.events[0].Dropped += dropped
	}
	o.events = append(o.events, e)
	if !o.telling {
		o.telling = true
		l.c.telling.Add(1)
		go l.tellAll()
	}
}

// tellAll tells what is queued, in order. Each lease has its own, so that the
// receiver of one which blocks keeps no other from being told.
func (l *Lease) tellAll() {
	through := false
	defer func() {
		if through {
			l.c.telling.Done()
		} else {
			go l.tellAll() // a receiver ended the goroutine
		}
	}()
	for {
		e, ok := l.nextEvent()
		if !ok {
			through = true
			return
		}
		l.guarded(func() { l.log(e) })
		if l.c.cfg.OnEvent != nil {
			l.guarded(func() { l.c.cfg.OnEvent(e) })
		}
	}
}

func (l *Lease) nextEvent() (Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.outbox
	if len(o.events) == 0 {
		o.events, o.telling = nil, false
		return Event{}, false
	}
	e := o.events[0]
	o.events = append(o.events[:0], o.events[1:]...)
	return e, true
}

// guarded calls what belongs to somebody else. A panic there is theirs and is
// logged; the next event is told all the same.
func (l *Lease) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // the log handler may be what panics
			l.c.cfg.Logger.Error("a receiver of events panicked", "resource", l.tenure.Resource,
				"fence", l.tenure.Fence, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

func (l *Lease) log(e Event) {
	level, message := slog.LevelDebug, "the state of the lease changed"
	switch {
	case e.Stopping:
		message = "the work is to stop; the lease is kept until it has"
	case e.To == lastword.HolderUnknown:
		level, message = slog.LevelWarn, "ownership is not known; no new effect starts"
	case e.To == lastword.HolderExpired:
		level, message = slog.LevelWarn, "the lease ended"
	case e.To == lastword.HolderReleased:
		message = "the lease was given up"
	case e.From == lastword.HolderUnknown:
		level, message = slog.LevelInfo, "ownership is known again"
	}
	ctx := context.WithoutCancel(l.values)
	if !l.c.cfg.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []any{"resource", e.Resource, "fence", e.Fence, "lease", e.LeaseID, "from", e.From, "to", e.To}
	if e.Cause != nil {
		attrs = append(attrs, "cause", e.Cause)
	}
	if e.Dropped > 0 {
		attrs = append(attrs, "dropped", e.Dropped)
	}
	l.c.cfg.Logger.Log(ctx, level, message, attrs...)
}
