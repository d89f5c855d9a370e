package authority

import (
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

const (
	pruneEvery = 100 // ticks
	pruneLimit = 256
)

// prune forgets request records whose tenure has been over for long enough (R2).
// It is best effort: what it does not get to, a later round does.
func (b *batch) prune() {
	h := b.header
	retention := core.Ticks(core.Span(b.l.cfg.Retention), h.TickSpan)
	if h.Tick < retention || h.Tick < b.l.pruned+pruneEvery {
		return
	}
	b.l.pruned = h.Tick
	ended, err := b.l.store.Ended(b.l.ctx, h.Tick-retention, pruneLimit)
	if err != nil {
		b.l.cfg.Logger.Warn("request records could not be listed", "err", err)
		return
	}
	byResource := map[lastword.Resource][]store.RequestKey{}
	for _, e := range ended {
		if p := b.pages[e.Resource]; p == nil && e.Request.Prunable(h.Tick, retention) {
			byResource[e.Resource] = append(byResource[e.Resource], store.RequestKey{Owner: e.Request.Owner, ID: e.Request.ID})
		}
	}
	b.forget(byResource)
}

// forget adds the steps. They are conditional like any other; a record that
// somebody writes meanwhile keeps its request records until a later round.
func (b *batch) forget(byResource map[lastword.Resource][]store.RequestKey) {
	var queries []store.Query
	for r := range byResource {
		queries = append(queries, store.Query{Resource: r})
	}
	slices.SortFunc(queries, func(x, y store.Query) int { return compare(x.Resource, y.Resource) })
	view, err := b.l.store.Read(b.l.ctx, queries...)
	if err != nil || view.Header.Epoch != b.header.Epoch {
		return
	}
	for _, e := range view.Entries {
		rec := e.Record
		rec.Revision++
		b.steps = append(b.steps, store.Step{Epoch: b.header.Epoch, Record: &rec, Forget: byResource[rec.Resource]})
	}
}

func compare(a, b lastword.Resource) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
