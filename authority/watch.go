package authority

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

const (
	// lookEvery is how often, at most, the whole store is looked at for what other
	// processes have done, while somebody watches: pageRecords a tick.
	lookEvery = time.Second
	// lookPatience is how long the store may take for a piece of it.
	lookPatience = 10 * time.Second
	// atOnce is how many changes a watcher takes at once: the fewer, the newer they are
	// when a slow reader gets to them.
	atOnce = 64
)

// Watch shows the resources whose ids begin with prefix as they are, then one sight
// with Complete, and then each resource again whenever it has changed. A change is a
// grant, or an end of a tenure of any kind; renewals, results and waiters alone are
// none, and Waiters is 0. It tells states and no history: the newest state of every resource is certain
// to be shown, in the order of revisions, and states between may be left out. A reader
// that is too slow is shown resources anew that have not changed.
//
// What this process has done is shown as soon as it is durable, before it is
// answered. A lease that lapses is settled by this process itself and is shown as
// EXPIRED when its TTL has been watched, or two ticks after it where only the store's
// counter tells, although nobody asks (R8). What another process on the same store
// has done is shown after at most 1 s and a tick for every 128 resources of the store.
//
// Memory is bounded: 1,024 changes for each distinct prefix, however many watch it and
// however slowly they read, and, while somebody watches, some 60 bytes for each
// resource of the store below a watched prefix. [Config.MaxWatchers] bounds the
// watches.
//
// It ends with an error only: CodeFenceRegression when this authority has stopped
// (R10), CodeUnavailable when it was closed, ctx has ended or the store does not
// answer, CodeQuota and CodeInvalid at once. Watch again then. It ends without one
// when the loop that ranges over it ends.
func (a *Authority) Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error] {
	return func(yield func(lastword.Sight, error) bool) {
		err := a.watch(ctx, prefix, func(s lastword.Sight) error {
			if !yield(s, nil) {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			yield(lastword.Sight{}, named(err, "watch", ""))
		}
	}
}

var errEnough = errors.New("the reader wants no more")

// show gives one sight to the reader, which may take its time.
type show func(lastword.Sight) error

func (a *Authority) watch(ctx context.Context, prefix string, see show) error {
	if err := lastword.CheckPrefix(prefix); err != nil {
		return err
	}
	w, err := a.views.join(prefix)
	if err != nil {
		return err
	}
	defer a.views.leave(w)
	look := func(found []result) error {
		for i := range found {
			st, err := a.listed(found[i])
			if err != nil {
				return err
			}
			st.Waiters = 0 // nobody follows it: a number would be old at once
			if err := see(lastword.Sight{Status: st}); err != nil {
				return err
			}
		}
		return nil
	}
	for complete := false; ; complete = true {
		missed, err := a.all(ctx, w, prefix, look)
		if err != nil {
			return err
		}
		if !complete {
			if err := see(lastword.Sight{Complete: true}); err != nil {
				return err
			}
		}
		if missed {
			continue
		}
		if err := a.changes(ctx, w, look); err != nil {
			return err
		}
	}
}

// all shows everything there is, page by page, and between the pages what has changed
// of what was shown already: of what comes later, later pages tell. missed says that
// some of that was dropped meanwhile.
//
// A page is answered for by a round of the loop, and whatever a round has done is told
// to the views before the round answers. So the changes that are taken after a page
// has come are of that page's time or newer, and none that comes later is older.
func (a *Authority) all(ctx context.Context, w *watcher, prefix string, look func([]result) error) (missed bool, err error) {
	var after lastword.Resource
	for more := true; more; {
		var found []result
		if found, more, err = a.leaf(ctx, prefix, after, nil); err != nil {
			return false, err
		}
		changed, behind, err := w.take(viewSlots)
		if err != nil {
			return false, err
		}
		missed = missed || behind
		if err := look(merge(found, changed, after, more)); err != nil {
			return false, err
		}
		if len(found) > 0 {
			after = found[len(found)-1].record.Resource
		}
	}
	return missed, nil
}

// merge is what is to be shown of a page and of the changes that came with it. after is
// where the page begins.
func merge(page, changed []result, after lastword.Resource, more bool) []result {
	last := after
	if len(page) > 0 {
		last = page[len(page)-1].record.Resource
	}
	for _, c := range changed {
		i, found := slices.BinarySearchFunc(page, c.record.Resource, func(r result, name lastword.Resource) int {
			return cmp.Compare(r.record.Resource, name)
		})
		switch {
		case found && c.record.Revision > page[i].record.Revision:
			page[i] = c
		case !found && (c.record.Resource <= last || !more):
			page = slices.Insert(page, i, c)
		}
	}
	return page
}

// changes shows what changes, until some of it was dropped.
func (a *Authority) changes(ctx context.Context, w *watcher, look func([]result) error) error {
	for {
		changed, behind, err := w.take(atOnce)
		if err != nil || behind {
			return err
		}
		if err := look(changed); err != nil {
			return err
		}
		if len(changed) > 0 {
			continue
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// patrol looks, while somebody watches, for what other processes have done, and
// whether this authority may still answer.
func (a *Authority) patrol(ctx context.Context) {
	for {
		prefix, pause := a.views.common(), lookEvery
		var after lastword.Resource
		for more := true; more; pause = a.loop.tick() {
			if !rested(ctx, pause) {
				return
			}
			var last lastword.Resource
			var err error
			if last, more, err = a.glance(ctx, prefix, after); err != nil {
				if ctx.Err() == nil {
					a.views.fail(err, false)
				}
				more = false
			}
			after = last
		}
	}
}

// glance looks at one piece of the store.
func (a *Authority) glance(ctx context.Context, prefix string, after lastword.Resource) (last lastword.Resource, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	known := func(rec *core.Record) bool { return !a.views.news(rec) }
	found, more, err := a.leaf(ctx, prefix, after, known)
	if len(found) > 0 {
		last = found[len(found)-1].record.Resource
	}
	return last, more, err
}

func rested(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause) //nolint:forbidigo // paces the looks; decides nothing
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
