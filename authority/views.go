package authority

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// viewSlots is how many changed resources a view keeps for readers that are behind.
const viewSlots = 1024

// views are what the watchers of this process look at: one view for each prefix that
// somebody watches. Whoever learns what became of a resource tells it here: the loop
// at the end of every round, and who reads the store for a list. What is told is
// durable.
type views struct {
	most   int         // watchers
	active atomic.Bool // somebody watches

	mu       sync.Mutex
	byPrefix map[string]*view
	lengths  map[int]int // of the prefixes, and how many of each
	watchers int
	now      *generation
	shut     error // no watch begins any more

	// told is what was told last of each resource below a watched prefix, so that
	// whatever is told late, or again, is not shown.
	told  map[[2]uint64]standing
	seeds [2]maphash.Seed

	patrol func(context.Context) // runs while somebody watches
	stop   context.CancelFunc
	going  sync.WaitGroup
}

// standing is a state of one resource. The tenure is its fence and how it stands: a
// renewal or a result changes the revision only.
type standing struct {
	revision uint64
	fence    lastword.Token
	state    lastword.State
}

// generation are the watchers that end together.
type generation struct {
	over chan struct{}
	err  error
}

// view is the changes below one prefix, each resource once, the latest change last.
type view struct {
	prefix   string
	watchers map[*watcher]struct{}
	log      []change
	at       map[lastword.Resource]int // where in the log
	next     uint64                    // sequence number of the next change
	lost     uint64                    // of the latest change that was dropped before all had seen it
	changed  chan struct{}             // closed with the next change; nil if nobody waits
}

type change struct {
	seq uint64
	res *result // nil: the resource has changed again since
}

// watcher is one reader. It remembers nothing but where it is.
type watcher struct {
	views  *views
	view   *view
	mine   *generation
	cursor uint64 // sequence number of the last change that it took
}

func newViews(most int, patrol func(context.Context)) *views {
	return &views{
		most: most, byPrefix: map[string]*view{}, lengths: map[int]int{}, now: newGeneration(),
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, patrol: patrol,
	}
}

func newGeneration() *generation { return &generation{over: make(chan struct{})} }

// join adds a watcher, which takes what changes from now on.
func (v *views) join(prefix string) (*watcher, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut != nil {
		return nil, v.shut
	}
	if v.watchers >= v.most {
		return nil, &lastword.Error{Code: lastword.CodeQuota, Message: fmt.Sprintf("%d watch already", v.watchers), Hint: "end some of the watches, or watch a common prefix once"}
	}
	g := v.byPrefix[prefix]
	if g == nil {
		g = &view{prefix: prefix, watchers: map[*watcher]struct{}{}, at: map[lastword.Resource]int{}, next: 1}
		v.byPrefix[prefix] = g
		v.lengths[len(prefix)]++
	}
	w := &watcher{views: v, view: g, mine: v.now, cursor: g.next - 1}
	g.watchers[w] = struct{}{}
	if v.watchers++; v.watchers == 1 {
		v.begin()
	}
	return w, nil
}

func (v *views) begin() {
	v.told = map[[2]uint64]standing{}
	v.active.Store(true)
	ctx, stop := context.WithCancel(context.Background())
	v.stop = stop
	v.going.Go(func() { v.patrol(ctx) })
}

func (v *views) leave(w *watcher) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(w.view.watchers, w)
	if len(w.view.watchers) == 0 {
		delete(v.byPrefix, w.view.prefix)
		if n := len(w.view.prefix); v.lengths[n] == 1 {
			delete(v.lengths, n)
		} else {
			v.lengths[n]--
		}
	}
	if v.watchers--; v.watchers == 0 {
		v.active.Store(false)
		v.told = nil
		v.stop()
	}
}

// fail ends the watches there are; for good: no other one begins.
func (v *views) fail(err error, forGood bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if forGood && v.shut == nil {
		v.shut = err
	}
	v.now.err = err
	close(v.now.over)
	v.now = newGeneration()
	if forGood && v.stop != nil {
		v.stop()
	}
}

// watched reports whether somebody watches r.
func (v *views) watched(r lastword.Resource) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for n := range v.lengths {
		if n <= len(r) && v.byPrefix[string(r[:n])] != nil {
			return true
		}
	}
	return false
}

// common is the longest prefix that all views have.
func (v *views) common() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	first, all := true, ""
	for prefix := range v.byPrefix {
		if first {
			first, all = false, prefix
			continue
		}
		n := 0
		for n < len(all) && n < len(prefix) && all[n] == prefix[n] {
			n++
		}
		all = all[:n]
	}
	return all
}

func (v *views) key(r lastword.Resource) [2]uint64 {
	return [2]uint64{maphash.String(v.seeds[0], string(r)), maphash.String(v.seeds[1], string(r))}
}

// news reports whether rec shows a tenure, or a state of one, that was not told yet.
func (v *views) news(rec *core.Record) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, known := v.told[v.key(rec.Resource)]
	return !known || last.fence != rec.Lease.Fence || last.state != rec.Lease.State
}

// tell shows what became of resources to who watches them.
func (v *views) tell(found ...result) {
	if !v.active.Load() {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range found {
		v.tellOne(&found[i])
	}
}

func (v *views) tellOne(res *result) {
	rec := &res.record
	if rec.Revision == 0 || v.told == nil {
		return
	}
	matched, fresh := false, false
	for n := range v.lengths {
		if n > len(rec.Resource) {
			continue
		}
		g := v.byPrefix[string(rec.Resource[:n])]
		if g == nil {
			continue
		}
		if !matched {
			matched = true
			key := v.key(rec.Resource)
			last, known := v.told[key]
			if known && rec.Revision <= last.revision {
				return
			}
			v.told[key] = standing{rec.Revision, rec.Lease.Fence, rec.Lease.State}
			fresh = !known || last.fence != rec.Lease.Fence || last.state != rec.Lease.State
		}
		if fresh {
			g.add(*res)
		}
	}
}

func (g *view) add(res result) {
	res.record = light(res.record)
	if len(g.log) >= viewSlots {
		g.compact()
	}
	if i, again := g.at[res.record.Resource]; again {
		g.log[i].res = nil
	}
	g.at[res.record.Resource] = len(g.log)
	g.log = append(g.log, change{g.next, &res})
	g.next++
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// compact drops what everybody has seen and, if that is not enough, the older half:
// who has not seen it lists anew.
func (g *view) compact() {
	seen := g.next
	for w := range g.watchers {
		seen = min(seen, w.cursor)
	}
	kept := slices.DeleteFunc(g.log, func(c change) bool { return c.res == nil || c.seq <= seen })
	if over := len(kept) - viewSlots/2; over > 0 {
		g.lost = kept[over-1].seq
		kept = slices.Delete(kept, 0, over)
	}
	g.log = kept
	clear(g.at)
	for i, c := range g.log {
		g.at[c.res.record.Resource] = i
	}
}

// take is the next changes, at most n, of each resource the latest only. behind says
// that some were dropped before.
func (w *watcher) take(n int) (changes []result, behind bool, err error) {
	v, g := w.views, w.view
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-w.mine.over:
		return nil, false, w.mine.err
	default:
	}
	behind = w.cursor < g.lost
	i, _ := slices.BinarySearchFunc(g.log, w.cursor+1, func(c change, seq uint64) int { return cmp.Compare(c.seq, seq) })
	for ; i < len(g.log) && len(changes) < n; i++ {
		if c := g.log[i]; c.res != nil {
			changes = append(changes, *c.res)
			w.cursor = c.seq
		}
	}
	if i >= len(g.log) {
		w.cursor = g.next - 1
	}
	return changes, behind, nil
}

// wait returns when there is something to take, or nothing to wait for any more.
func (w *watcher) wait(ctx context.Context) error {
	v, g := w.views, w.view
	v.mu.Lock()
	if w.cursor < g.next-1 {
		v.mu.Unlock()
		return nil
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	changed := g.changed
	v.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-w.mine.over:
		return w.mine.err
	case <-ctx.Done():
		return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the watch was ended", Err: ctx.Err()}
	}
}
