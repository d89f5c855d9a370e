package authority

import (
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

const (
	pruneEvery = 100 // ticks; 1 while there is more to forget
	pruneLimit = 512
)

// prune forgets request records whose tenure, or whose waiting, has been over for
// long enough (R2). It is best effort: what it does not get to, a later one does.
func (l *loop) prune() {
	h := l.header
	retention := l.retention()
	if l.broken != nil || l.failed || h.Tick < retention || h.Tick < l.pruned+pruneEvery {
		return
	}
	l.pruned = h.Tick
	ended, err := l.store.Ended(l.ctx, h.Tick-retention, pruneLimit)
	if err != nil {
		l.cfg.Logger.Warn("request records could not be listed", "err", err)
		return
	}
	if len(ended) == 0 {
		return
	}
	if len(ended) == pruneLimit {
		l.pruned = h.Tick - min(h.Tick, pruneEvery-1)
	}
	// They are read again, together with their records: what is forgotten is what
	// was seen at the revision that the step is conditional on.
	queries := make([]store.Query, len(ended))
	for i, e := range ended {
		queries[i] = store.Query{Resource: e.Resource, Owner: e.Request.Owner, RequestID: e.Request.ID}
	}
	view, err := l.store.Read(l.ctx, queries...)
	if err != nil || view.Header.Epoch != h.Epoch || view.Header.Identity != h.Identity {
		return
	}
	steps, open := forgetting(view, retention)
	if len(steps) == 0 && len(ended) == pruneLimit {
		steps = open // in the way of others
	}
	l.forget(steps)
}

// retention is for how many ticks a request record is kept, at least 10 times the
// TTL of its tenure: of the longest TTL there was.
func (l *loop) retention() core.Tick {
	return core.Ticks(max(core.Span(l.cfg.Retention), 10*l.longest), l.header.TickSpan)
}

// forgetting makes the steps; those of records with an open tenure are apart. A write
// makes every other process watch the record anew, so that only the counter tells
// them of its expiry, a tick or two later.
func forgetting(view store.View, retention core.Tick) (steps, open []store.Step) {
	byResource := map[lastword.Resource]*store.Step{}
	var order []lastword.Resource
	for _, e := range view.Entries {
		if e.Request == nil || !e.Request.Prunable(view.Header.Tick, retention) {
			continue
		}
		s := byResource[e.Record.Resource]
		if s == nil {
			rec := e.Record
			rec.Revision++
			s = &store.Step{Epoch: view.Header.Epoch, Record: &rec}
			byResource[rec.Resource] = s
			order = append(order, rec.Resource)
		}
		s.Forget = append(s.Forget, store.RequestKey{Owner: e.Request.Owner, ID: e.Request.ID})
	}
	slices.Sort(order)
	for _, r := range order {
		s := byResource[r]
		if state := s.Record.Lease.State; state == lastword.StateHeld || state == lastword.StatePending {
			open = append(open, *s)
		} else {
			steps = append(steps, *s)
		}
	}
	return steps, open
}

// forget commits the steps. They are conditional like any other; a record that
// somebody writes meanwhile keeps its request records until later.
func (l *loop) forget(steps []store.Step) {
	if len(steps) == 0 {
		return
	}
	applied, err := l.store.Commit(l.ctx, steps...)
	if err != nil {
		l.cfg.Logger.Warn("request records could not be forgotten", "err", err)
		return
	}
	for i, s := range steps {
		if applied[i] {
			l.watches.rewritten(s.Record.Resource, s.Record.Revision-1)
		}
	}
}
