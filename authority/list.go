package authority

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

const (
	// pageRecords is how many records are taken from the store at once.
	pageRecords = 128
	// listRecords is how many records one List looks through at most, and listBytes
	// how long the names on its page may be together: a page fits into a message.
	listRecords = 8192
	listBytes   = 256 << 10
	// listsAtOnce is how many pages are read at a time. More callers wait.
	listsAtOnce = 4
)

// List is one page of the resources whose ids begin with the query's prefix, byte by
// byte. What it shows of each is as linearizable as its [Authority.Status]: it was
// so at a moment between the call and its answer (R9); a page as a whole is of no one
// moment. EXPIRED is told only once it is durable (R8), and an authority that has
// stopped tells nothing (R10). A page ends early, with a Next, after 8,192 resources
// that are not to be shown, and at 256 KiB of names.
func (a *Authority) List(ctx context.Context, q lastword.ListQuery) (lastword.Page, error) {
	if err := checkList(q); err != nil {
		return lastword.Page{}, named(err, "list", "")
	}
	page, err := a.list(ctx, q)
	return page, named(err, "list", "")
}

func checkList(q lastword.ListQuery) error {
	if err := lastword.CheckPrefix(q.Prefix); err != nil {
		return err
	}
	if q.Limit < 0 {
		return invalid("limit %d: want 0 to %d", q.Limit, lastword.MaxPage)
	}
	if q.After == "" {
		return nil
	}
	_, err := lastword.ParseResource(string(q.After))
	return err
}

func (a *Authority) list(ctx context.Context, q lastword.ListQuery) (page lastword.Page, err error) {
	limit := q.Limit
	if limit == 0 {
		limit = lastword.DefaultPage
	}
	limit = min(limit, lastword.MaxPage)
	bytes, after := 0, q.After
	for seen := 0; seen < listRecords; {
		found, more, err := a.leaf(ctx, q.Prefix, after, nil)
		if err != nil {
			return lastword.Page{}, err
		}
		seen += len(found)
		for i := range found {
			after = found[i].record.Resource
			st, err := a.listed(found[i])
			if err != nil {
				return lastword.Page{}, err
			}
			if !q.All && st.Holder.Fence == 0 {
				continue
			}
			page.Resources = append(page.Resources, st)
			bytes += sizeOf(st)
			if len(page.Resources) >= limit || bytes >= listBytes {
				if more || i < len(found)-1 {
					page.Next = after
				}
				return page, nil
			}
		}
		if !more {
			return page, nil
		}
	}
	page.Next = after
	return page, nil
}

func sizeOf(st lastword.Status) int {
	const rest = 200
	return rest + 2*len(st.Resource) + len(st.Holder.Owner) + len(st.Last.LeaseID) + len(st.Last.Owner)
}

// leaf is a piece of the list: what the store has, in the order of the names. The
// records with an open tenure are looked at by the loop, which settles those that have
// lapsed; and every piece is answered for by a round of the loop that read the store
// after this did, so that an authority which has stopped, or whose store has been
// exchanged, shows nothing (R10). skip, if not nil, says which records the loop need
// not look at.
func (a *Authority) leaf(ctx context.Context, prefix string, after lastword.Resource, skip func(*core.Record) bool) (found []result, more bool, err error) {
	select {
	case a.lists <- struct{}{}:
		defer func() { <-a.lists }()
	case <-ctx.Done():
		return nil, false, notSent(ctx.Err())
	}
	records, err := a.store.List(ctx, prefix, after, pageRecords)
	if err != nil {
		return nil, false, notDone(err, "the store did not answer")
	}
	probe := newProbe(records)
	calls, at := []*call{probe}, []int{-1}
	for i := range records {
		if r := &records[i]; open(r.Lease.State) && (skip == nil || !skip(r)) {
			calls, at = append(calls, newLook(r.Resource)), append(at, i)
		}
	}
	answers, err := a.loop.submitAll(ctx, calls)
	if err != nil {
		return nil, false, err
	}
	found = make([]result, len(records))
	for i := range records {
		found[i] = result{record: light(records[i]), header: answers[0].header, waiters: answers[0].counts[i]}
	}
	for i, answer := range answers[1:] {
		found[at[i+1]] = answer
	}
	a.views.tell(found...)
	return found, len(records) == pageRecords, nil
}

func open(s lastword.State) bool {
	return s == lastword.StateHeld || s == lastword.StatePending
}

// light is rec without results, which lists and watches do not show.
func light(rec core.Record) core.Record {
	rec.Lease.Result, rec.Previous.Result = nil, nil
	return rec
}

// newLook is the question that Status asks.
func newLook(resource lastword.Resource) *call {
	c := newCall(kindStatus, "", store.Query{Resource: resource})
	c.decide = func(rec core.Record, _ *core.Request, h core.Header, clock core.Clock) (core.Change, core.Answer) {
		return core.Look(rec, h, clock)
	}
	return c
}

// newProbe asks about no record: only whether this authority may answer, and how many
// wait for these resources.
func newProbe(records []core.Record) *call {
	c := newCall(kindStatus, "", store.Query{})
	c.probe, c.counted = true, make([]lastword.Resource, len(records))
	for i := range records {
		c.counted[i] = records[i].Resource
	}
	return c
}

// listed is what lists and watches show of a resource. What remains is counted from
// now: a reader may have been slow.
func (a *Authority) listed(res result) (lastword.Status, error) {
	res.record = light(res.record)
	res.age += max(0, a.cfg.Elapsed()-res.at)
	return a.status(res, lastword.StatusQuery{Resource: res.record.Resource})
}

// submitAll hands calls that only ask to the loop at once, and waits for all of them.
func (l *loop) submitAll(ctx context.Context, calls []*call) ([]result, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	for i, c := range calls {
		if err := l.enqueue(c); err != nil {
			l.giveUp(calls[:i])
			return nil, err
		}
		defer l.leave(c)
	}
	results := make([]result, len(calls))
	for i, c := range calls {
		select {
		case r := <-c.done:
			if r.err != nil {
				l.giveUp(calls[i+1:])
				return nil, r.err
			}
			results[i] = *r
		case <-ctx.Done():
			l.giveUp(calls[i:])
			return nil, notSent(ctx.Err())
		}
	}
	return results, nil
}

// giveUp: nobody listens to these any more.
func (l *loop) giveUp(calls []*call) {
	for _, c := range calls {
		c.taken.CompareAndSwap(false, true)
		c.gone.Store(true)
	}
}
