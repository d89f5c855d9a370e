package fencetest

import (
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
)

func proofCases() []testCase {
	return []testCase{
		{name: caseBadProofs, run: badProofs},
		{name: "R12, R13: a record that has seen a newer bundle wants it", run: newerBundle},
		{name: caseBundleOfAll, run: bundleOfAll},
		{name: "R12: a record keeps the minimum policy generation", run: minimumGeneration},
		{name: "R12: a record keeps the minimum issuer epoch", run: minimumEpoch},
	}
}

const caseBadProofs = "P3, R12, R14, KF-24: a failed proof changes nothing"

// badProofs goes through every door with every kind of proof that is none, at a
// record and where there is none yet.
func badProofs(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	w.authority.setCounter(doc, 4)
	good := w.tenure(doc)
	w.applied(w.apply(good, 1, "op-1", "1"))(1)
	w.touch(fresh, "bad")
	w.must(w.authority.publish(func(i *grant.BundleInfo) { i.CurrentEpoch, i.MinimumEpoch = 2, 0 }))

	for _, r := range []lastword.Resource{doc, fresh} {
		for _, bad := range w.proofs(r) {
			c := fence.Call{
				Resource: r, Content: []byte("bad"),
				Mutation: lastword.Mutation{Grant: bad.grant, Operation: "bad", Class: bad.class},
			}
			g := w.newGate(bad.gate)
			verdict := lastword.Unverified
			if bad.grant == "" {
				verdict = lastword.FenceRequired
			}
			w.untouched(bad.what, func() {
				w.refused(w.submit(w.subject, g, c, Write{Resource: r, Value: "bad"}))(verdict, 0)
				if bad.class == "" && !bad.registers {
					_, err := w.subject.Advance(w.ctx, g, c)
					w.refused(lastword.Receipt{}, err)(verdict, 0)
				}
				if w.subject.Within != nil {
					_, err := w.subject.Within(w.ctx, g, c, Write{Resource: r, Value: "bad"}, true)
					w.refused(lastword.Receipt{}, err)(verdict, 0)
					w.must(g.Flush(w.ctx))
				}
			})
		}
	}
	if rec := w.record(doc); rec.Fence != 5 {
		w.Fatalf("the record is %+v, want fence 5", rec)
	}
}

type badProof struct {
	what, grant string
	class       lastword.Class
	gate        func(*fence.Config)
	registers   bool // good enough for a registration
}

func (w *world) proofs(r lastword.Resource) []badProof {
	w.Helper()
	sign := func(s *grant.Signer, change func(*grant.Claims)) string {
		t, err := w.authority.issue(r, "owner", 6, nil)
		w.must(err)
		if change != nil {
			change(&t.claims)
		}
		g, _, err := s.Sign("", t.claims)
		w.must(err)
		return g
	}
	ours := w.authority.signer
	good := sign(ours, nil)
	elsewhere, err := grant.NewSigner("elsewhere.example", w.newKey())
	w.must(err)
	caller := func(name string) func(*fence.Config) { return func(c *fence.Config) { c.Caller = name } }
	return []badProof{
		{what: "no grant"},
		{what: "no grant, only words", grant: "fence=9223372036854775807"},
		{what: "an empty proof", grant: good[:strings.LastIndex(good, ".")+1]},
		{what: "no signature", grant: good[:strings.LastIndex(good, ".")]},
		{what: "a huge forged fence", grant: altered(good, `"fence":6`, `"fence":9007199254740991`)},
		{what: "a fence above 2^53", grant: altered(good, `"fence":6`, `"fence":9223372036854775807`)},
		{what: "fence 0", grant: altered(good, `"fence":6`, `"fence":0`)},
		{what: "an altered owner", grant: altered(good, `"sub":"owner"`, `"sub":"other"`)},
		{what: "an empty owner", grant: altered(good, `"sub":"owner"`, `"sub":""`)},
		{what: "a key that nobody trusts", grant: sign(w.authority.stranger, nil)},
		{what: "another domain", grant: sign(elsewhere, func(c *grant.Claims) { c.Domain = "elsewhere.example" })},
		{what: "another resource", grant: sign(ours, func(c *grant.Claims) { c.Resource = "doc/other" })},
		{what: "an epoch that is not yet", grant: sign(ours, func(c *grant.Claims) { c.Fence = 3<<33 | 1 })},
		{what: "another owner's grant", grant: good, gate: caller("somebody else")},
		{what: "an owner in other letters", grant: good, gate: caller("Owner")},
		{what: "a class that the grant has not", grant: good, class: "compact", registers: true},
		{what: "a grant of the class advance", registers: true, grant: sign(ours, func(c *grant.Claims) { c.Class = lastword.ClassAdvance })},
		{what: "an old policy generation", grant: good, gate: func(c *fence.Config) { c.MinPolicyGeneration = 2 }},
		{what: "a resource outside the gate's scope", grant: good, gate: func(c *fence.Config) { c.Scope = "other/" }},
		{what: "a resource that only begins like the gate's", grant: good, gate: func(c *fence.Config) { c.Scope = "do" }},
	}
}

func (w *world) newKey() grant.Key {
	w.Helper()
	k, err := grant.NewKey()
	w.must(err)
	return k
}

func newerBundle(w *world) {
	const doc = "doc/a"
	old, err := w.authority.Bundle(w.ctx, false)
	w.must(err)
	a := w.tenure(doc)
	w.must(w.authority.publish(func(*grant.BundleInfo) {}))
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	if got := w.record(doc).BundleSequence; got != old.Sequence()+1 {
		w.Fatalf("the record has the bundle sequence %d, want %d", got, old.Sequence()+1)
	}
	v, err := grant.NewVerifier(domain, grant.StaticBundle(old), grant.VerifierConfig{})
	w.must(err)
	behind := w.newGate(func(c *fence.Config) { c.Verifier = v })
	w.untouched("a write that was verified with an older bundle", func() {
		w.refused(w.submit(w.subject, behind, call(a, 2, "op-2", "2"), Write{Resource: doc, Value: "2"}))(lastword.Unverified, 0)
		_, err := w.subject.Advance(w.ctx, behind, call(a, 0, "", ""))
		w.refused(lastword.Receipt{}, err)(lastword.Unverified, 0)
	})
}

const caseBundleOfAll = "R13, T27: the newest bundle that was brought to a place binds every record of it"

// bundleOfAll: one record was written, or a write of it only refused, under a newer
// bundle. Who comes with the older one afterwards, to a record that has not seen the
// newer one, is refused.
func bundleOfAll(w *world) {
	const one, two = "doc/1", "doc/2"
	a, b := w.tenure(one), w.tenure(two)
	w.applied(w.apply(b, 1, "op-1", "1"))(1)
	for _, step := range []struct {
		what string
		take func()
	}{
		{"a bundle that a write of another record had", func() { w.applied(w.apply(a, 1, "op-1", "1"))(1) }},
		{"a bundle that only a refused write had", func() {
			c := call(a, 2, "op-2", "2")
			c.Mutation.Grant = altered(c.Mutation.Grant, "owner", "other")
			w.refused(w.submit(w.subject, w.newGate(nil), c, Write{Resource: one, Value: "2"}))(lastword.Unverified, 0)
		}},
	} {
		old, err := w.authority.Bundle(w.ctx, false)
		w.must(err)
		w.must(w.authority.publish(func(*grant.BundleInfo) {}))
		step.take()
		v, err := grant.NewVerifier(domain, grant.StaticBundle(old), grant.VerifierConfig{})
		w.must(err)
		behind := w.newGate(func(c *fence.Config) { fenceOnly(c); c.Verifier = v })
		w.untouched("a write under an older one than "+step.what, func() {
			c := call(b, 2, "op-2", "2")
			_, err := w.submit(w.second, behind, c, Write{Resource: two, Value: "2"})
			w.refused(lastword.Receipt{}, err)(lastword.Unverified, 0)
			if grant.ReasonOf(err) != grant.ReasonBundleRollback {
				w.Fatalf("got %v, want BUNDLE_ROLLBACK", err)
			}
		})
	}
}

func minimumGeneration(w *world) {
	const doc = "doc/a"
	a, err := w.authority.acquire(doc, "owner", func(c *grant.Claims) { c.PolicyGeneration = 7 })
	w.must(err)
	strict := w.newGate(func(c *fence.Config) { c.MinPolicyGeneration = 7 })
	w.applied(w.submit(w.subject, strict, call(a, 1, "op-1", "1"), Write{Resource: doc, Value: "1"}))(1)
	b, err := w.authority.acquire(doc, "owner", func(c *grant.Claims) { c.PolicyGeneration = 6 })
	w.must(err)
	w.untouched("a lower policy generation at a gate that has no minimum", func() {
		w.refused(w.apply(b, 1, "op-2", "2"))(lastword.Unverified, 0)
	})
}

func minimumEpoch(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	old, err := w.authority.Bundle(w.ctx, false)
	w.must(err)
	w.must(w.authority.publish(func(i *grant.BundleInfo) { i.CurrentEpoch, i.MinimumEpoch = 1, 1 }))
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, "op-1", "1"))(1)
	if rec := w.record(doc); rec.MinEpoch != 1 {
		w.Fatalf("the record has the minimum epoch %d, want 1", rec.MinEpoch)
	}
	v, err := grant.NewVerifier(domain, grant.StaticBundle(old), grant.VerifierConfig{})
	w.must(err)
	behind := w.newGate(func(c *fence.Config) { c.Verifier, c.Mode = v, fence.FenceOnly })
	w.untouched("a grant of a revoked epoch", func() {
		w.refused(w.submit(w.subject, behind, call(a, 1, "op-2", "2"), Write{Resource: doc, Value: "2"}))(lastword.Unverified, 0)
	})
}
