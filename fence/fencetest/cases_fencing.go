package fencetest

import (
	"context"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
)

func fencingCases() []testCase {
	return []testCase{
		{name: caseStory, run: olderAfterNewer},
		{name: caseInterleaved, run: interleavedWriters},
		{name: caseOwnerName, run: sameOwnerName},
		{name: caseRefusedRaises, run: refusedRaisesNothing},
		{name: caseRegistered, run: advanceShutsOut},
		{name: "R16a: an equal, a lower and a foreign registration", run: advanceTwice},
		{name: "R16a, R12: a pending tenure registers, an ended one does not", run: advancePending},
		{name: caseFrozen, run: equalFenceOtherLease},
		{name: "FENCE_REGRESSION: an authority behind the record freezes it", run: authorityBehind},
		{name: "R14a: a fence that jumps waits for the authority", run: jumps},
		{name: caseLargest, run: largestFence},
	}
}

const (
	caseStory         = "P1: 41, 42, 41"
	caseInterleaved   = "P1, R15, R16: a write that a newer fence overtook is refused"
	caseRefusedRaises = "P3: a refused write raises no fence"
	caseOwnerName     = "P1, KF-29: a tenure of the same owner name is another tenure"
	caseRegistered    = "R16a: a registered fence shuts the older one out"
	caseLargest       = "§1: the largest fence is exact"
	caseFrozen        = "P2, R16b: two grants of one fence freeze the record"
)

// olderAfterNewer is the story of the whole system: a paused worker comes back.
func olderAfterNewer(w *world) {
	const doc = "doc/a"
	w.authority.setCounter(doc, 40)
	a := w.tenureOf(doc, "worker-a")
	w.applied(w.apply(a, 1, "a-1", "from a"))(1)
	b := w.tenureOf(doc, "worker-b")
	w.applied(w.apply(b, 1, "b-1", "from b"))(1)
	for _, g := range []*fence.Gate{w.gate, w.newGate(func(c *fence.Config) { c.StatusReuse = 0 })} {
		w.unchanged("a write of fence 41 after 42", func() {
			w.refused(w.submit(w.subject, g, call(a, 2, "a-2", "late"), Write{Resource: doc, Value: "late"}))(lastword.StaleOwner, 42)
		})
	}
	w.applied(w.apply(b, 2, "b-2", "again b"))(2)
	w.wantEffects(doc, "a-1=from a", "b-1=from b", "b-2=again b")
	if rec := w.record(doc); rec.Fence != 42 || rec.LastSeq != 2 || rec.LeaseID != b.claims.LeaseID {
		w.Fatalf("the record is %+v", rec)
	}
}

// interleavedWriters lets a newer write begin while an older one is inside its
// effect. A right place makes one of them wait or begin again.
func interleavedWriters(w *world) {
	const doc = "doc/a"
	loose := w.newGate(fenceOnly)
	a := w.tenureOf(doc, "worker-a")
	w.applied(w.submit(w.subject, loose, call(a, 1, "a-1", "first"), Write{Resource: doc, Value: "first"}))(1)
	b := w.tenureOf(doc, "worker-b")

	inside, overtaken := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var older, newer answerOf
	var wg sync.WaitGroup
	wg.Go(func() {
		older.r, older.err = w.submit(w.subject, loose, call(a, 2, "a-2", "older"), Write{
			Resource: doc, Value: "older",
			Then: func(ctx context.Context) error {
				once.Do(func() { close(inside) })
				return waitShortly(ctx, overtaken)
			},
		})
	})
	select {
	case <-inside:
	case <-w.ctx.Done():
		w.Fatalf("the older write did not reach its effect")
	}
	wg.Go(func() {
		defer close(overtaken)
		newer.r, newer.err = w.submit(w.second, loose, call(b, 1, "b-1", "newer"), Write{Resource: doc, Value: "newer"})
	})
	wg.Wait()
	w.applied(newer.r, newer.err)(1)
	if older.err != nil { // the place let the newer one go first
		w.refused(older.r, older.err)(lastword.StaleOwner, b.claims.Fence)
		w.wantEffects(doc, "a-1=first", "b-1=newer")
	} else {
		w.applied(older.r, nil)(2)
		w.wantEffects(doc, "a-1=first", "a-2=older", "b-1=newer")
	}
	if rec := w.record(doc); rec.Fence != b.claims.Fence {
		w.Fatalf("the record is %+v, want the newer fence", rec)
	}
}

type answerOf struct {
	r   lastword.Receipt
	err error
}

// waitShortly waits until the other write is done. A place that locks lets it wait
// for this one, so the wait has an end; nothing is decided by how long it is.
func waitShortly(ctx context.Context, done <-chan struct{}) error {
	bounded, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	select {
	case <-done:
	case <-bounded.Done():
	}
	return nil
}

func sameOwnerName(w *world) {
	const doc = "doc/a"
	loose := w.newGate(fenceOnly)
	old := w.tenureOf(doc, "worker")
	w.applied(w.submit(w.subject, loose, call(old, 1, "old-1", "1"), Write{Resource: doc, Value: "1"}))(1)
	again := w.tenureOf(doc, "worker")
	w.applied(w.submit(w.subject, loose, call(again, 1, "new-1", "2"), Write{Resource: doc, Value: "2"}))(1)
	w.unchanged("a write of the old tenure", func() {
		w.refused(w.submit(w.subject, loose, call(old, 2, "old-2", "3"), Write{Resource: doc, Value: "3"}))(lastword.StaleOwner, again.claims.Fence)
	})
}

func refusedRaisesNothing(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "op-1", "1"))(1)
	b := w.tenure(doc)
	w.unchanged("refused writes of a newer fence", func() {
		w.refused(w.apply(b, 2, "op-2", "2"))(lastword.OutOfOrder, first.Fence)
		w.refused(w.apply(b, 1, "op-1", "other"))(lastword.Conflict, first.Fence)
		w.replayed(w.apply(b, 1, "op-1", "1"))(first)
		w.authority.set(b, lastword.StateRevoked)
		w.refused(w.apply(b, 1, "op-3", "3"))(lastword.Unverified, first.Fence)
		w.authority.set(b, lastword.StateHeld)
	})
	w.authority.set(a, lastword.StateHeld)
	loose := w.newGate(nil)
	w.authority.mu.Lock()
	w.authority.current[doc] = a // the refused tenure is gone, as if it had never been
	w.authority.mu.Unlock()
	w.applied(w.submit(w.subject, loose, call(a, 2, "op-4", "4"), Write{Resource: doc, Value: "4"}))(2)
	c := w.tenure(fresh)
	w.refused(w.apply(c, 2, "op-1", "1"))(lastword.OutOfOrder, 0)
	if rec := w.record(fresh); rec.Exists {
		w.Fatalf("a refused first write made the record %+v", rec)
	}
	w.applied(w.apply(c, 1, "op-1", "1"))(1)
}

func advanceShutsOut(w *world) {
	const doc = "doc/a"
	loose := w.newGate(fenceOnly)
	a := w.tenure(doc)
	w.applied(w.submit(w.subject, loose, call(a, 1, "a-1", "1"), Write{Resource: doc, Value: "1"}))(1)
	b := w.tenure(doc)
	rec, err := w.subject.Advance(w.ctx, w.gate, call(b, 0, "", ""))
	if err != nil {
		w.Fatalf("advance: %v", err)
	}
	if rec != w.record(doc) {
		w.Fatalf("advance returned %+v, the place has %+v", rec, w.record(doc))
	}
	want := fence.Record{
		Exists: true, Fence: b.claims.Fence, LeaseID: b.claims.LeaseID, GrantDigest: b.digest, Root: b.claims.Root,
		Policy: fence.Ordered, Status: fence.Query, BundleSequence: rec.BundleSequence,
	}
	if rec != want {
		w.Fatalf("the record is\n%+v, want\n%+v", rec, want)
	}
	w.wantEffects(doc, "a-1=1")
	w.unchanged("a write of the older fence", func() {
		w.refused(w.apply(a, 2, "a-2", "2"))(lastword.StaleOwner, b.claims.Fence)
	})
	w.applied(w.apply(b, 1, "b-1", "3"))(1)
}

func advanceTwice(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "a-1", "1"))(1)
	w.untouched("a registration of the stored fence", func() {
		if _, err := w.subject.Advance(w.ctx, w.gate, call(a, 0, "", "")); err != nil {
			w.Fatalf("advance: %v", err)
		}
	})
	b := w.tenure(doc)
	for range 2 {
		if _, err := w.subject.Advance(w.ctx, w.gate, call(b, 0, "", "")); err != nil {
			w.Fatalf("advance: %v", err)
		}
	}
	w.unchanged("a registration of a lower fence", func() {
		_, err := w.subject.Advance(w.ctx, w.gate, call(a, 0, "", ""))
		w.refused(lastword.Receipt{}, err)(lastword.StaleOwner, b.claims.Fence)
	})
	c := w.tenure(fresh)
	w.touch(fresh, "none")
	if rec, err := w.subject.Advance(w.ctx, w.gate, call(c, 0, "", "")); err != nil || rec.Fence != c.claims.Fence {
		w.Fatalf("advance of a new record: %+v, %v", rec, err)
	}
	twin, err := w.authority.issue(doc, "twin", b.claims.Fence, nil)
	w.must(err)
	_, err = w.subject.Advance(w.ctx, w.newGate(func(c *fence.Config) { c.Status = held{twin, w.authority} }), call(twin, 0, "", ""))
	w.refused(lastword.Receipt{}, err)(lastword.FenceRegression, b.claims.Fence)
	if !w.record(doc).Frozen {
		w.Fatalf("R16b: the record is not frozen")
	}
}

func advancePending(w *world) {
	const doc = "doc/a"
	t, err := w.authority.acquire(doc, "owner", func(c *grant.Claims) { c.Class = lastword.ClassAdvance })
	w.must(err)
	w.authority.set(t, lastword.StateExpired)
	w.touch(doc, "op")
	w.unchanged("a registration of an ended tenure", func() {
		_, err := w.subject.Advance(w.ctx, w.gate, call(t, 0, "", ""))
		w.refused(lastword.Receipt{}, err)(lastword.Unverified, 0)
	})
	w.authority.set(t, lastword.StatePending)
	if _, err := w.subject.Advance(w.ctx, w.gate, call(t, 0, "", "")); err != nil {
		w.Fatalf("advance of a pending tenure: %v", err)
	}
	w.untouched("a write with a grant of the class advance", func() {
		w.refused(w.apply(t, 1, "op", "1"))(lastword.Unverified, 0)
	})
}

// held is a status source that says HELD of one tenure, whatever the authority says.
type held struct {
	t *tenure
	i *issuer
}

func (h held) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	st, err := h.i.Status(ctx, q)
	st.State, st.Digest = lastword.StateHeld, h.t.digest
	st.Holder = lastword.TenureRef{Resource: q.Resource, LeaseID: h.t.claims.LeaseID, Fence: h.t.claims.Fence}
	return st, err
}

func equalFenceOtherLease(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "a-1", "1"))(1)
	twin, err := w.authority.issue(doc, "twin", a.claims.Fence, nil)
	w.must(err)
	believing := w.newGate(func(c *fence.Config) { c.Status = held{twin, w.authority} })
	w.refused(w.submit(w.subject, believing, call(twin, 2, "twin-1", "2"), Write{Resource: doc, Value: "2"}))(lastword.FenceRegression, a.claims.Fence)
	if rec := w.record(doc); !rec.Frozen || rec.Fence != a.claims.Fence || rec.LeaseID != a.claims.LeaseID {
		w.Fatalf("the record is %+v, want it frozen and otherwise as it was", rec)
	}
	w.unchanged("writes at a frozen record", func() {
		w.refused(w.apply(a, 2, "a-2", "3"))(lastword.FenceRegression, a.claims.Fence)
		b := w.tenure(doc)
		w.refused(w.apply(b, 1, "b-1", "4"))(lastword.FenceRegression, a.claims.Fence)
		_, err := w.subject.Advance(w.ctx, w.gate, call(b, 0, "", ""))
		w.refused(lastword.Receipt{}, err)(lastword.FenceRegression, a.claims.Fence)
	})
	w.newEpoch()
	c := w.tenure(doc)
	w.applied(w.apply(c, 1, "c-1", "5"))(1)
	if rec := w.record(doc); rec.Frozen || rec.Fence != c.claims.Fence {
		w.Fatalf("the record is %+v, want it open under the new epoch", rec)
	}
	w.wantEffects(doc, "a-1=1", "c-1=5")
}

func authorityBehind(w *world) {
	const doc = "doc/a"
	w.authority.setCounter(doc, 49)
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, "b-1", "1"))(1)
	w.authority.setCounter(doc, 40) // restored from a backup
	a := w.tenure(doc)
	w.unchangedBut(doc, "a write below the stored fence", func() {
		w.refused(w.apply(a, 1, "a-1", "2"))(lastword.FenceRegression, b.claims.Fence)
	})
	if !w.record(doc).Frozen {
		w.Fatalf("the record is not frozen")
	}
	if n := w.inspect(doc).Refusals[lastword.FenceRegression]; n != 1 {
		w.Fatalf("R16b: %d refusals are counted, want 1", n)
	}
}

// unchangedBut is unchanged for a refusal that freezes the record.
func (w *world) unchangedBut(r lastword.Resource, what string, fn func()) {
	w.Helper()
	before := w.record(r)
	_, effects := w.read(r)
	fn()
	after := w.record(r)
	if _, now := w.read(r); len(now) != len(effects) {
		w.Fatalf("%s had an effect", what)
	}
	if after.Frozen = before.Frozen; after != before {
		w.Fatalf("%s changed the record from\n%+v\nto\n%+v", what, before, after)
	}
}

func jumps(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	const step = 1 << 20
	silent := w.newGate(fenceOnly)
	asking := w.newGate(func(c *fence.Config) { c.Mode = fence.FenceOnly })
	a := w.tenure(doc)
	w.applied(w.submit(w.subject, silent, call(a, 1, "a-1", "1"), Write{Resource: doc, Value: "1"}))(1)
	leaked, err := w.authority.issue(doc, "thief", a.claims.Fence+step+1, nil)
	w.must(err)
	first, err := w.authority.issue(fresh, "thief", step+1, nil)
	w.must(err)
	w.touch(fresh, "t-1")
	for _, g := range []*fence.Gate{silent, asking} {
		w.unchanged("a fence that nobody confirms", func() {
			w.refused(w.submit(w.subject, g, call(leaked, 1, "t-1", "x"), Write{Resource: doc, Value: "x"}))(lastword.FenceJump, a.claims.Fence)
			w.refused(w.submit(w.subject, g, call(first, 1, "t-1", "x"), Write{Resource: fresh, Value: "x"}))(lastword.FenceJump, 0)
		})
	}
	w.authority.setCounter(doc, uint64(leaked.claims.Fence))
	w.applied(w.submit(w.subject, asking, call(leaked, 1, "j-1", "2"), Write{Resource: doc, Value: "2"}))(1)
	w.authority.setCounter(fresh, step)
	c := w.tenure(fresh)
	w.applied(w.apply(c, 1, "c-1", "3"))(1)
}

func largestFence(w *world) {
	const doc = "doc/a"
	w.must(w.authority.publish(func(i *grant.BundleInfo) { i.CurrentEpoch = lastword.MaxEpoch }))
	var last *tenure
	for _, counter := range []uint64{1, lastword.MaxCounter - 2, lastword.MaxCounter - 1} {
		w.authority.setCounter(doc, counter-1)
		last = w.tenure(doc)
		w.applied(w.apply(last, 1, "op-"+last.claims.Fence.String(), last.claims.Fence.String()))(1)
		if rec := w.record(doc); rec.Fence != last.claims.Fence {
			w.Fatalf("the record has %s, want %s", rec.Fence, last.claims.Fence)
		}
	}
	top, err := w.authority.issue(doc, "owner", lastword.MaxToken, nil)
	w.must(err)
	loose := w.newGate(fenceOnly)
	w.refused(w.submit(w.subject, loose, call(top, 1, "top", "top"), Write{Resource: doc, Value: "top"}))(lastword.StatusUnavailable, 0)
	believing := w.newGate(func(c *fence.Config) { c.Status = held{top, w.authority} })
	r := w.applied(w.submit(w.subject, believing, call(top, 1, "top", "top"), Write{Resource: doc, Value: "top"}))(1)
	if r.Fence != lastword.MaxToken || w.record(doc).Fence != lastword.MaxToken {
		w.Fatalf("the largest fence became %s", w.record(doc).Fence)
	}
	w.authority.setCounter(doc, lastword.MaxCounter)
	w.unchanged("the fence below the largest", func() {
		w.refused(w.apply(last, 2, "late", "late"))(lastword.StaleOwner, lastword.MaxToken)
	})
}
