package authority

import (
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// pace is this process's own elapsed time, as far as it has been watching: each
// look adds the time since the one before, but never more than a tick, so that a
// process that was frozen finds nobody expired when it thaws (R8).
type pace struct {
	span core.Span
	last time.Duration
	seen core.Span
}

func (p *pace) look(now time.Duration) core.Span {
	p.seen += core.Pace(core.Span(now-p.last), p.span)
	p.last = now
	return p.seen
}

// watch is what this process has seen of one record with an open tenure.
type watch struct {
	revision uint64
	lease    string
	since    core.Span     // when the reply that first showed this revision had come
	own      bool          // this process granted or renewed the tenure last, as far as it knows
	sent     time.Duration // when it sent that
}

// watches remember one open tenure each, up to a bound; one that is forgotten is
// watched anew, which only makes an expiry later.
type watches struct {
	byResource map[lastword.Resource]watch
	tick       core.Tick // of the store's counter, as last seen
	tickSince  core.Span
}

const maxWatches = 1 << 20

func newWatches() *watches { return &watches{byResource: map[lastword.Resource]watch{}} }

// watched is for how long the record has been seen to stand unchanged.
func (w *watches) watched(rec core.Record, now core.Span) core.Span {
	seen, ok := w.byResource[rec.Resource]
	if !ok || seen.revision != rec.Revision {
		return 0
	}
	return now - seen.since
}

// note keeps what a reply showed. extended says that this process has granted or
// renewed the tenure with a commit sent at that time. An expiry is watched too, if
// a lock-delay follows it.
func (w *watches) note(rec core.Record, now core.Span, extended bool, sent time.Duration, delayed bool) {
	state := rec.Lease.State
	open := state == lastword.StateHeld || state == lastword.StatePending
	seen, known := w.byResource[rec.Resource]
	switch {
	case !open && !(delayed && state == lastword.StateExpired):
		delete(w.byResource, rec.Resource)
	case known && seen.revision == rec.Revision:
	case !known && len(w.byResource) >= maxWatches:
	default:
		next := watch{revision: rec.Revision, lease: rec.Lease.ID, since: now, own: extended, sent: sent}
		if !extended && known && seen.lease == rec.Lease.ID {
			next.own, next.sent = seen.own, seen.sent // written, but not extended: an earlier time is safe
		}
		w.byResource[rec.Resource] = next
	}
}

// ticked reports whether the store's counter has been seen to stand still for a
// whole tick, so that it may be advanced by one.
func (w *watches) ticked(h core.Header, now core.Span) bool {
	if h.Tick != w.tick {
		w.tick, w.tickSince = h.Tick, now
		return false
	}
	return now-w.tickSince >= h.TickSpan
}
