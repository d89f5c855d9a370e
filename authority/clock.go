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
	sure core.Span // seen when the round began, without the gaps since the one before
	gaps core.Span // of more than a tick, as far as they count, since the round began
	back bool      // time has gone back and not caught up yet
}

// begin looks at the beginning of a round. A gap of more than a tick counts for
// decisions only from the second round after it on: what holders said during it
// is handled in the first.
func (p *pace) begin(now time.Duration) {
	p.look(now)
	p.sure, p.gaps = p.seen-p.gaps, 0
}

// look adds what has gone by. Time that goes back counts again only from where it
// has caught up.
func (p *pace) look(now time.Duration) {
	if now < p.last {
		p.back = true
		return
	}
	gap := core.Span(now - p.last)
	if p.back {
		p.back, gap = false, 0
	}
	counts := core.Pace(gap, p.span)
	p.seen += counts
	if gap > p.span {
		p.gaps += counts
	}
	p.last = now
}

// watch is what this process has seen of one record with an open tenure.
type watch struct {
	revision uint64
	lease    string
	deadline core.Tick
	since    core.Span     // when the reply that first showed this revision had come
	read     time.Duration // when a reading was sent that showed this revision
	// known says that the tenure was granted, or renewed last, after sent: this
	// process sent that write then, or it sent a reading then that did not show it.
	known bool
	sent  time.Duration
}

// watches remember one open tenure each, up to a bound; one that is forgotten is
// watched anew, which only makes an expiry later.
type watches struct {
	byResource map[lastword.Resource]watch
	sweepAt    int
	tick       core.Tick // of the store's counter, as last seen
	tickSince  core.Span // when the reply that first showed it had come
}

const maxWatches = 1 << 20

func newWatches() *watches {
	return &watches{byResource: map[lastword.Resource]watch{}, sweepAt: 1024}
}

// watched is for how long the record has been seen to stand unchanged.
func (w *watches) watched(rec core.Record, now core.Span) core.Span {
	seen, ok := w.byResource[rec.Resource]
	if !ok || seen.revision != rec.Revision {
		return 0
	}
	return max(0, now-seen.since)
}

// age is for how long, at most, the tenure has been running since it was granted or
// renewed last; ok is false if this process does not know.
func (w *watches) age(rec core.Record, at time.Duration) (age time.Duration, ok bool) {
	seen, found := w.byResource[rec.Resource]
	if !found || seen.revision != rec.Revision || !seen.known {
		return 0, false
	}
	return at - seen.sent, true
}

// sight is one look at a record, as a reply showed it.
type sight struct {
	record  core.Record
	sent    time.Duration // when the reading, or the write, was sent
	now     core.Span     // when its reply had come
	delayed bool          // a lock-delay follows an expiry, which is watched too

	// Of a write of this process: the revision it was conditional on, and whether
	// it granted or renewed.
	wrote    bool
	base     uint64
	extended bool
}

// note keeps what a reply showed.
func (w *watches) note(s sight) {
	rec := s.record
	state := rec.Lease.State
	open := state == lastword.StateHeld || state == lastword.StatePending
	seen, had := w.byResource[rec.Resource]
	switch {
	case !open && (!s.delayed || state != lastword.StateExpired):
		if had {
			delete(w.byResource, rec.Resource)
		}
		return
	case had && seen.revision == rec.Revision:
		seen.read = s.sent
		w.byResource[rec.Resource] = seen
		return
	case !had && len(w.byResource) >= maxWatches:
		return
	}
	next := watch{
		revision: rec.Revision, lease: rec.Lease.ID, deadline: rec.Lease.Deadline,
		since: s.now, read: s.sent,
	}
	switch {
	case s.extended:
		next.known, next.sent = true, s.sent
	case !had:
	case seen.lease == next.lease && seen.deadline == next.deadline:
		next.known, next.sent = seen.known, seen.sent // an earlier time is safe, if it was renewed
		if s.wrote && s.base == seen.revision && open {
			next.since = seen.since // this process knows what it wrote: no renewal
		}
	default: // another process's doing, after the reading that did not show it
		next.known, next.sent = true, seen.read
	}
	w.byResource[rec.Resource] = next
}

// rewritten notes a write of this process that left the lease as it was.
func (w *watches) rewritten(resource lastword.Resource, base uint64) {
	if seen, ok := w.byResource[resource]; ok && seen.revision == base {
		seen.revision++
		w.byResource[resource] = seen
	}
}

// sweep forgets tenures that the store's counter has passed, since nothing is
// gained by watching them, whenever the watches have doubled.
func (w *watches) sweep(h core.Header) {
	if len(w.byResource) < w.sweepAt {
		return
	}
	for resource, seen := range w.byResource {
		if seen.deadline < h.Tick {
			delete(w.byResource, resource)
		}
	}
	w.sweepAt = min(maxWatches, max(1024, 2*len(w.byResource)))
}

// saw keeps when the store's counter was first seen at its value.
func (w *watches) saw(h core.Header, now core.Span) {
	if h.Tick != w.tick {
		w.tick, w.tickSince = h.Tick, now
	}
}

// stood reports whether the store's counter has been seen to stand still for a
// whole tick, so that it may be advanced by one.
func (w *watches) stood(h core.Header, now core.Span) bool {
	return h.Tick == w.tick && now-w.tickSince >= h.TickSpan
}
