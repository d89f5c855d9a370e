package fencetest

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func shadowCases() []testCase {
	return []testCase{
		{name: caseShadow, run: shadowPasses, needs: needsShadow},
		{name: caseShadowed, run: shadowStores, needs: needsShadow},
		{name: "R18: before the record is read, only a gate that knows of a roll-out looks at it", run: shadowUnproved, needs: needsShadow},
		{name: "R18: a transaction of the caller's own in shadow", run: shadowWithin, needs: func(s Subject) string {
			if lack := needsShadow(s); lack != "" {
				return lack
			}
			return needsWithin(s)
		}},
		{name: caseEnforced, run: shadowEnds, needs: needsShadow},
		{name: "R18: of the prefixes of a resource the longest counts", run: shadowBelow, needs: func(s Subject) string {
			return lacks(s.ShadowBelow == nil || s.EnforceBelow == nil, "roll-out of a prefix (ShadowBelow, EnforceBelow)")
		}},
		{name: "R20: a declared restore ends the roll-out", run: shadowRestored, needs: func(s Subject) string {
			if lack := needsShadow(s); lack != "" {
				return lack
			}
			return needsOperator(s)
		}},
	}
}

const (
	caseShadow   = "R18: in shadow what would be refused passes and is counted"
	caseShadowed = "R18: in shadow record and receipts change as in enforce"
	caseEnforced = "R18: the roll-out ends once"
)

// shadowed begins the roll-out of a resource.
func (w *world) shadowed(r lastword.Resource) fence.Key {
	w.Helper()
	key := fence.Key{Domain: domain, Resource: r}
	w.must(w.subject.Shadow(w.ctx, key))
	if !w.record(r).Shadow {
		w.Fatalf("the roll-out of %q does not show", r)
	}
	return key
}

// toldOnly checks that a write passed and what would have refused it.
func (w *world) toldOnly(r lastword.Receipt, err error) func(v lastword.Verdict) {
	return func(v lastword.Verdict) {
		w.Helper()
		if err != nil || r.Verdict != v.Shadow() || r.Seq != 0 {
			w.Fatalf("got %q with seq %d, %v, want %s", r.Verdict, r.Seq, err, v.Shadow())
		}
	}
}

func shadowPasses(w *world) {
	const doc = "doc/a"
	w.unchecked = true // a write that passed in shadow has no receipt
	w.shadowed(doc)
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.newer(doc)
	before := w.record(doc)
	w.toldOnly(w.apply(a, 2, "op-late", "late"))(lastword.StaleOwner)
	w.toldOnly(w.apply(a, 2, "op-late", "late"))(lastword.StaleOwner) // it has no receipt
	w.wantEffects(doc, "op-1=1", "op-new=new", "op-late=late", "op-late=late")
	if after := w.record(doc); after != before {
		w.Fatalf("a write that passed in shadow changed the record from\n%+v\nto\n%+v", before, after)
	}
	if _, found, err := w.subject.Lookup(w.ctx, w.gate, doc, "op-late"); err != nil || found {
		w.Fatalf("it left a receipt: %v, %v", found, err)
	}
	if n := w.inspect(doc).Refusals[lastword.StaleOwner.Shadow()]; n != 2 {
		w.Fatalf("%d of 2 were counted", n)
	}
}

// newer is one write of the next tenure.
func (w *world) newer(r lastword.Resource) *tenure {
	w.Helper()
	b := w.tenure(r)
	w.applied(w.apply(b, 1, "op-new", "new"))(1)
	return b
}

func shadowStores(w *world) {
	const doc, twin = "doc/a", "doc/b"
	w.unchecked = true
	w.shadowed(doc)
	for _, r := range []lastword.Resource{doc, twin} {
		a := w.tenure(r)
		first := w.applied(w.apply(a, 1, "op-1", "1"))(1)
		w.replayed(w.apply(a, 1, "op-1", "1"))(first)
		w.applied(w.apply(a, 2, "op-2", "2"))(2)
	}
	got, want := w.record(doc), w.record(twin)
	got.Shadow, got.LeaseID, got.GrantDigest, got.Root, got.Heard = want.Shadow, want.LeaseID, want.GrantDigest, want.Root, want.Heard
	if got != want {
		w.Fatalf("in shadow the record is\n%+v, in enforce\n%+v", got, want)
	}
	w.toldOnly(w.apply(w.tenure(doc), 9, "op-far", "far"))(lastword.OutOfOrder)
	w.refused(w.apply(w.tenure(twin), 9, "op-far", "far"))(lastword.OutOfOrder, want.Fence)
	w.wantEffects(doc, "op-1=1", "op-2=2", "op-far=far")
}

func shadowUnproved(w *world) {
	const doc = "doc/a"
	w.unchecked = true
	w.shadowed(doc)
	bare := fence.Call{Resource: doc, Content: []byte("x"), Mutation: lastword.Mutation{Operation: "op-bare"}}
	forged := bare
	forged.Mutation.Grant = "forged"
	rollout := w.newGate(func(c *fence.Config) { c.Rollout = true })
	for v, c := range map[lastword.Verdict]fence.Call{lastword.FenceRequired: bare, lastword.Unverified: forged} {
		e := Write{Resource: doc, Value: "x"}
		w.touch(doc, c.Mutation.Operation)
		w.untouched("a refusal before the record", func() { w.refused(w.submit(w.subject, w.gate, c, e))(v, 0) })
		w.toldOnly(w.submit(w.subject, rollout, c, e))(v)
		if n := w.inspect(doc).Refusals[v.Shadow()]; n != 1 {
			w.Fatalf("%s was counted %d times, want once", v, n)
		}
		other := c
		other.Resource = "doc/enforced"
		w.touch(other.Resource, c.Mutation.Operation)
		w.untouched("a refusal at a record in enforce", func() {
			w.refused(w.submit(w.subject, rollout, other, Write{Resource: other.Resource, Value: "x"}))(v, 0)
		})
	}
	if rec := w.record(doc); rec.Exists {
		w.Fatalf("an unproved write made the record %+v", rec)
	}
	w.wantEffects(doc, "op-bare=x", "op-bare=x")
}

func shadowWithin(w *world) {
	const doc = "doc/a"
	w.unchecked = true
	w.shadowed(doc)
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.newer(doc)
	w.touch(doc, "op-late")
	c := call(a, 2, "op-late", "late")
	r, err := w.subject.Within(w.ctx, w.gate, c, Write{Resource: doc, Value: "late"}, true)
	w.toldOnly(r, err)(lastword.StaleOwner)
	w.must(w.gate.Flush(w.ctx))
	if n := w.inspect(doc).Refusals[lastword.StaleOwner.Shadow()]; n != 1 {
		w.Fatalf("%d of 1 were counted", n)
	}
}

func shadowEnds(w *world) {
	const doc = "doc/a"
	w.unchecked = true
	key := w.shadowed(doc)
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	b := w.newer(doc)
	w.toldOnly(w.apply(a, 2, "op-2", "2"))(lastword.StaleOwner)
	w.must(w.subject.Enforce(w.ctx, key))
	_ = w.subject.Shadow(w.ctx, key) // refused or ignored: it does not begin again
	if w.record(doc).Shadow {
		w.Fatalf("the roll-out has begun again")
	}
	w.unchanged("a stale write after the roll-out", func() {
		w.refused(w.apply(a, 2, "op-2", "2"))(lastword.StaleOwner, b.claims.Fence)
		bare := fence.Call{Resource: doc, Content: []byte("x"), Mutation: lastword.Mutation{Operation: "op-bare"}}
		rollout := w.newGate(func(c *fence.Config) { c.Rollout = true })
		w.refused(w.submit(w.subject, rollout, bare, Write{Resource: doc, Value: "x"}))(lastword.FenceRequired, 0)
	})
	w.applied(w.apply(b, 2, "op-3", "3"))(2)
}

func shadowRestored(w *world) {
	const doc = "doc/a"
	w.shadowed(doc)
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	_, err := w.subject.Restored(w.ctx, fence.Restore{
		Domain: domain, Until: wallClock, Act: act("restored"),
		NextFence: func(context.Context, lastword.Resource) (lastword.Token, error) { return a.claims.Fence + 1, nil },
	})
	w.must(err)
	if w.record(doc).Shadow {
		w.Fatalf("a restored place goes on with a roll-out that may have ended")
	}
}

// shadowBelow looks at the record, and writes: an adapter may have two ways to ask.
func shadowBelow(w *world) {
	w.unchecked = true
	o := w.elsewhere()
	begin := func(at *world, prefix string) {
		w.must(w.subject.ShadowBelow(w.ctx, at.authority.domain, prefix, act("a roll-out")))
	}
	end := func(at *world, prefix string) {
		_, err := w.subject.EnforceBelow(w.ctx, at.authority.domain, prefix, act("it is over"))
		w.must(err)
	}
	are := func(at *world, shadow bool, resources ...lastword.Resource) {
		w.Helper()
		for _, r := range resources {
			if got := at.record(r).Shadow; got != shadow {
				w.Fatalf("a roll-out of %s in %s: %v, want %v", r, at.authority.domain, got, shadow)
			}
			a := at.tenure(r)
			at.applied(at.apply(a, 1, "op of "+a.claims.LeaseID, "1"))(1)
			got, err := at.apply(a, 9, "late op of "+a.claims.LeaseID, "9")
			if shadow {
				at.toldOnly(got, err)(lastword.OutOfOrder)
			} else {
				at.refused(got, err)(lastword.OutOfOrder, a.claims.Fence)
			}
		}
	}
	begin(o, "")
	begin(w, "doc/")
	begin(w, "one")
	are(w, true, "doc/a", "doc/b/c", "doc/hot/x", "one")
	are(w, false, "doc", "docs/a", "do/a", "a/doc/a", "one/a", "oneself", "on", "else")
	are(o, true, "else", "doc/a")
	end(w, "doc/hot/")
	are(w, true, "doc/a", "doc/b/c", "doc/hotter", "one")
	are(w, false, "doc/hot/x", "doc/hot/y/z")
	end(o, "doc/")
	are(o, true, "else", "docs")
	are(o, false, "doc/a")
	end(o, "")
	are(o, false, "else", "docs", "doc/a")
	are(w, true, "doc/a", "one")
}
