package fencetest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

const (
	caseStrangers = "KF-28: what stands in another domain, or at another resource, does not count"
	caseRecords   = "records: those of a domain come in byte order, page by page"
)

func apartCases() []testCase {
	return []testCase{
		{name: caseStrangers, run: strangersDoNotCount},
		{name: "R16: the result of an effect is kept in its receipt, and in no other", run: resultsKept},
		{name: "R14a: a jump that was refused elsewhere lets none through", run: jumpElsewhere, needs: needsOperator},
		{name: "R20: a restore is of one domain", run: restoreElsewhere, needs: needsOperator},
		{name: "R18: a roll-out is of one domain", run: rolloutElsewhere, needs: needsShadow},
		{name: "R20: a declared restore ends the roll-outs of its domain", run: restoredRollouts, needs: func(s Subject) string {
			if lack := needsShadow(s); lack != "" {
				return lack
			}
			return needsOperator(s)
		}},
		{name: "R13: the newest bundle is that of its domain, and neither of its numbers falls", run: bundlesApart, needs: func(s Subject) string {
			return lacks(s.Bundle == nil || s.RaiseBundle == nil, "bare newest bundle (Bundle, RaiseBundle)")
		}},
		{name: caseRecords, run: recordsListed, needs: func(s Subject) string {
			return lacks(s.Records == nil || s.Exchange == nil, "bare list of records (Records, Exchange)")
		}},
	}
}

func lacks(it bool, what string) string {
	if it {
		return what
	}
	return ""
}

// story is what a stranger leaves behind: a record, receipts, tombstones, refusals,
// something in quarantine and an act, all with the words that the case itself uses.
func (w *world) story(r lastword.Resource) {
	w.Helper()
	w.authority.setCounter(r, 70)
	a := w.tenureOf(r, "worker")
	for i, o := range []string{"op-1", "op-2", "op-3", "op-4", "op-5"} {
		w.applied(w.apply(a, uint64(i+1), o, "theirs"))(uint64(i + 1))
	}
	w.refused(w.apply(a, 6, "op-1", "other"))(lastword.Conflict, a.claims.Fence)
	w.refused(w.apply(a, 6, "op-2", "another"))(lastword.Conflict, a.claims.Fence)
	if w.subject.Prune != nil {
		for _, o := range []string{"op-3", "op-5"} {
			w.must(w.subject.Prune(w.ctx, w.key(r), o))
		}
		w.pruned = true
	}
	if w.subject.Release != nil {
		_, err := w.subject.Release(w.ctx, w.key(r), 0, act("theirs"))
		w.must(err)
	}
}

// told is all that the place says of a resource of the world.
func (w *world) told(r lastword.Resource, operations ...string) string {
	w.Helper()
	i := w.inspect(r)
	var b strings.Builder
	fmt.Fprintf(&b, "record %+v\nrefusals %v\n", i.Record, i.Refusals)
	for _, e := range i.Quarantine {
		fmt.Fprintf(&b, "quarantine %s %+v\n", e.Claimant, *e.Quarantine)
	}
	for _, a := range i.Acts {
		fmt.Fprintf(&b, "act %s of %s, %s\n", a.Kind, a.Operator, a.Reason)
	}
	for _, o := range operations {
		receipt, found, err := w.subject.Lookup(w.ctx, w.gate, r, o)
		if err != nil {
			w.Fatalf("lookup %q: %v", o, err)
		}
		fmt.Fprintf(&b, "receipt %s %v %s\n", o, found, receiptText(receipt))
	}
	return b.String()
}

func strangersDoNotCount(w *world) {
	const doc, neighbour = "doc/a", "doc/b"
	operations := []string{"op-1", "op-2", "op-3", "op-4", "op-5"}
	o := w.elsewhere()
	nothing := w.told(doc, operations...)
	o.story(doc)
	w.story(neighbour)
	if now := w.told(doc, operations...); now != nothing {
		w.Fatalf("what others have done is told of a resource with nothing:\n%s", onlyIn(now, nothing))
	}
	theirs := o.told(doc, operations...) + w.told(neighbour, operations...)
	a := w.tenure(doc)
	for i, op := range operations[:4] {
		w.applied(w.apply(a, uint64(i+1), op, "mine"))(uint64(i + 1))
		if r, found, err := w.subject.Lookup(w.ctx, w.gate, doc, op); err != nil || !found || r.Payload != lastword.DigestOf([]byte("mine")) {
			w.Fatalf("looked up %s: %+v, %v, %v", op, r, found, err)
		}
	}
	first := w.acked[len(w.acked)-1]
	w.replayed(w.apply(a, 4, "op-4", "mine"))(first)
	if w.subject.Within != nil {
		w.applied(w.within(w.gate, call(a, 5, "op-5", "mine"), "mine", true))(5)
		w.replayed(w.within(w.gate, call(a, 4, "op-4", "mine"), "mine", true))(first)
	}
	w.refused(w.apply(a, 9, "op-1", "other"))(lastword.Conflict, a.claims.Fence)
	if i := w.inspect(doc); i.Refusals[lastword.Conflict] != 1 || len(i.Quarantine) != 1 || len(i.Acts) != 0 {
		w.Fatalf("of a resource with one conflict it is told\n%s", w.told(doc))
	}
	// Of the first write of a record an adapter may ask in another way than of a later one.
	o.story("doc/c")
	w.applied(w.apply(w.tenure("doc/c"), 1, "op-3", "mine"))(1)
	if now := o.told(doc, operations...) + w.told(neighbour, operations...); now != theirs {
		w.Fatalf("what was done here has changed what others have from\n%s\nto\n%s", onlyIn(theirs, now), onlyIn(now, theirs))
	}
}

func resultsKept(w *world) {
	o := w.elsewhere()
	type place struct {
		at *world
		t  *tenure
	}
	places := []place{{o, o.tenure("doc/a")}, {w, w.tenure("doc/b")}, {w, w.tenure("doc/a")}}
	kept := map[string][]byte{}
	for seq := range uint64(3) {
		op := fmt.Sprint("op-", seq+1)
		for i, p := range places {
			r, result := p.t.claims.Resource, fmt.Append(nil, "result ", i, " ", seq)
			got := p.at.applied(p.at.submit(p.at.subject, p.at.gate, call(p.t, seq+1, op, "v"), Write{Resource: p.at.rows + r, Value: "v", Result: result}))(seq + 1)
			kept[fmt.Sprint(i, op)] = got.Result
		}
	}
	for i, p := range places {
		for seq := range uint64(3) {
			op := fmt.Sprint("op-", seq+1)
			r, found, err := w.subject.Lookup(w.ctx, p.at.gate, p.t.claims.Resource, op)
			if told := kept[fmt.Sprint(i, op)]; err != nil || !found || !slices.Equal(r.Result, told) || len(told) > 0 && string(told) != fmt.Sprint("result ", i, " ", seq) {
				w.Fatalf("the receipt of %s at %d has the result %q, %v, %v; told was %q", op, i, r.Result, found, err, told)
			}
		}
	}
}

func jumpElsewhere(w *world) {
	const doc, neighbour = "doc/a", "doc/b"
	jump := func(at *world, r lastword.Resource) *tenure {
		silent := at.newGate(fenceOnly)
		a := at.tenure(r)
		at.applied(at.submit(at.subject, silent, call(a, 1, "op-1", "1"), Write{Resource: at.rows + r, Value: "1"}))(1)
		at.authority.setCounter(r, 5_000_000)
		far := at.tenure(r)
		at.refused(at.submit(at.subject, silent, call(far, 1, "op-2", "2"), Write{Resource: at.rows + r, Value: "2"}))(lastword.FenceJump, a.claims.Fence)
		return far
	}
	far := jump(w.elsewhere(), doc)
	jump(w, neighbour)
	w.applied(w.apply(w.tenure(doc), 1, "op-1", "1"))(1)
	w.unchanged("a release of a jump that was made elsewhere", func() {
		_, err := w.subject.Release(w.ctx, w.key(doc), far.claims.Fence, act("in a hurry"))
		w.refusedAs("it", err, lastword.CodeInvalid)
	})
}

func restoreElsewhere(w *world) {
	const doc, neighbour, only, never = "doc/a", "doc/b", "doc/only", "doc/never"
	o := w.elsewhere()
	a, b := w.tenure(doc), o.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.applied(w.apply(w.tenure(neighbour), 1, "op-1", "1"))(1)
	o.applied(o.apply(b, 1, "op-1", "1"))(1)
	o.applied(o.apply(o.tenure(only), 1, "op-1", "1"))(1)
	restore := func(at *world, r lastword.Resource) (asked []lastword.Resource, raised int) {
		raised, err := at.subject.Restored(at.ctx, fence.Restore{
			Domain: at.authority.domain, Resource: r, Until: wallClock, Act: act("backup"),
			NextFence: func(ctx context.Context, r lastword.Resource) (lastword.Token, error) {
				asked = append(asked, r)
				return at.nextOf(ctx, r)
			},
		})
		at.must(err)
		slices.Sort(asked)
		return asked, raised
	}
	reopen := func(at *world, r lastword.Resource, want int) {
		n, err := at.subject.Reopen(at.ctx, at.authority.domain, r, act("looked through"))
		if err != nil || n != want {
			at.Fatalf("reopened %d of %s %q, %v, want %d", n, at.authority.domain, r, err, want)
		}
	}
	goesOn := func(at *world, a *tenure, seq uint64) { // as a window after a restore would not let it
		at.applied(at.apply(a, seq, fmt.Sprint("op-", seq), "v"))(seq)
		fresh := lastword.Resource(fmt.Sprint("doc/fresh-", seq))
		at.applied(at.apply(at.tenure(fresh), 1, "op-1", "v"))(1)
	}
	// The whole of this domain, while the other one has records that nobody raises.
	if asked, n := restore(w, ""); n != 2 || !slices.Equal(asked, []lastword.Resource{doc, neighbour}) {
		w.Fatalf("%d raised, of %q", n, asked)
	}
	goesOn(o, b, 2)
	if i := w.inspect(never); len(i.Acts) != 1 || i.Acts[0].Kind != fence.ActRestored || i.Record.Restored == 0 {
		w.Fatalf("at a resource of the restored domain: %+v", i)
	}
	if i := o.inspect(doc); len(i.Acts) != 0 || i.Record.Unraised || i.Record.Restored != 0 {
		w.Fatalf("in the other domain: %+v", i)
	}
	reopen(w, "", 2)
	// And the other way round.
	if asked, n := restore(o, ""); n != 3 || slices.Contains(asked, neighbour) {
		w.Fatalf("%d raised, of %q", n, asked)
	}
	a = w.tenure(doc)
	w.applied(w.apply(a, 1, "op-a", "v"))(1)
	goesOn(w, a, 2)
	if _, err := o.subject.Reopen(o.ctx, otherDomain, doc, act("one of many")); err == nil {
		w.Fatalf("one record of a place that was restored as a whole was reopened alone")
	}
	restore(w, doc)
	reopen(w, doc, 1)
	reopen(o, "", 3)
}

func rolloutElsewhere(w *world) {
	const doc, neighbour = "doc/a", "doc/b"
	o := w.elsewhere()
	w.must(w.subject.Shadow(w.ctx, o.key(doc)))
	w.must(w.subject.Shadow(w.ctx, w.key(neighbour)))
	for _, c := range []struct {
		at     *world
		r      lastword.Resource
		shadow bool
	}{{w, doc, false}, {w, neighbour, true}, {o, doc, true}, {o, neighbour, false}} {
		if got := c.at.record(c.r).Shadow; got != c.shadow {
			w.Fatalf("a roll-out of %s in %s: %v, want %v", c.r, c.at.authority.domain, got, c.shadow)
		}
	}
	for _, c := range []struct {
		at *world
		r  lastword.Resource
	}{{w, doc}, {o, neighbour}} {
		a := c.at.tenure(c.r)
		c.at.applied(c.at.apply(a, 1, "op-1", "1"))(1)
		c.at.refused(c.at.apply(a, 9, "op-9", "9"))(lastword.OutOfOrder, a.claims.Fence)
	}
}

func restoredRollouts(w *world) {
	const doc, neighbour = "doc/a", "doc/b"
	o := w.elsewhere()
	for _, key := range []fence.Key{o.key(doc), w.key(doc), w.key(neighbour)} {
		w.must(w.subject.Shadow(w.ctx, key))
	}
	_, err := w.subject.Restored(w.ctx, fence.Restore{Domain: otherDomain, Until: wallClock, Act: act("backup"), NextFence: o.nextOf})
	w.must(err)
	if o.record(doc).Shadow || !w.record(doc).Shadow || !w.record(neighbour).Shadow {
		w.Fatalf("after a restore of one of two domains")
	}
}

func bundlesApart(w *world) {
	w.must(w.subject.RaiseBundle(w.ctx, otherDomain, fence.BundleFloor{Sequence: 90, MinimumEpoch: 30}))
	w.bundleIs(domain, fence.BundleFloor{})
	for _, step := range [][2]fence.BundleFloor{
		{{Sequence: 5, MinimumEpoch: 2}, {Sequence: 5, MinimumEpoch: 2}},
		{{Sequence: 3, MinimumEpoch: 1}, {Sequence: 5, MinimumEpoch: 2}},
		{{Sequence: 6, MinimumEpoch: 1}, {Sequence: 6, MinimumEpoch: 2}},
		{{Sequence: 4, MinimumEpoch: 3}, {Sequence: 6, MinimumEpoch: 3}},
	} {
		w.must(w.subject.RaiseBundle(w.ctx, domain, step[0]))
		w.bundleIs(domain, step[1])
	}
	w.bundleIs(otherDomain, fence.BundleFloor{Sequence: 90, MinimumEpoch: 30})
}

func (w *world) bundleIs(domain string, want fence.BundleFloor) {
	w.Helper()
	got, err := w.subject.Bundle(w.ctx, domain)
	if err != nil || got != want {
		w.Fatalf("the newest bundle of %s is %+v, %v, want %+v", domain, got, err, want)
	}
}

func recordsListed(w *world) {
	rec := fence.Record{Exists: true, Fence: 1, LeaseID: "lease", Policy: fence.Ordered, Status: fence.Query}
	for _, r := range []lastword.Resource{"b", "B", "a", "é", "b/c"} {
		w.must(w.subject.Exchange(w.ctx, w.key(r), fence.Record{}, rec, nil))
	}
	for _, r := range []lastword.Resource{"b", "0"} {
		w.must(w.subject.Exchange(w.ctx, fence.Key{Domain: otherDomain, Resource: r}, fence.Record{}, rec, nil))
	}
	for _, c := range []struct {
		after lastword.Resource
		limit int
		want  []lastword.Resource
	}{
		{"", 9, []lastword.Resource{"B", "a", "b", "b/c", "é"}},
		{"", 2, []lastword.Resource{"B", "a"}},
		{"a", 2, []lastword.Resource{"b", "b/c"}},
		{"b/c", 2, []lastword.Resource{"é"}},
		{"é", 2, nil},
	} {
		got, err := w.subject.Records(w.ctx, domain, c.after, c.limit)
		if err != nil || !slices.Equal(got, c.want) {
			w.Fatalf("%d records after %q are %q, %v, want %q", c.limit, c.after, got, err, c.want)
		}
	}
}
