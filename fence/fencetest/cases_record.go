package fencetest

import (
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func recordCases() []testCase {
	return []testCase{
		{name: "R20: a closed record admits only a grant made later", run: closedRecord, needs: needsClose},
		{name: "record: what was stored comes back", run: storedComesBack},
		{name: "INVALID: a call that makes no sense changes nothing", run: senselessCalls},
	}
}

func closedRecord(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	key := fence.Key{Domain: domain, Resource: doc}
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.must(w.subject.Close(w.ctx, key, a.claims.Fence+1))
	w.unchanged("the tenure that the record was closed with", func() {
		w.refused(w.apply(a, 2, "op-2", "2"))(lastword.StaleOwner, a.claims.Fence)
		_, err := w.subject.Advance(w.ctx, w.gate, call(a, 0, "", ""))
		w.refused(lastword.Receipt{}, err)(lastword.StaleOwner, a.claims.Fence)
		w.replayed(w.apply(a, 1, "op-1", "1"))(first)
	})
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, "op-2", "2"))(1)
	// Raised over what was granted meanwhile, and never lowered.
	w.must(w.subject.Close(w.ctx, key, b.claims.Fence+5))
	w.must(w.subject.Close(w.ctx, key, 2))
	w.authority.setCounter(doc, uint64(b.claims.Fence)+4)
	w.refused(w.apply(b, 2, "op-3", "3"))(lastword.StaleOwner, b.claims.Fence+4)
	c := w.tenure(doc)
	w.applied(w.apply(c, 1, "op-3", "3"))(1)

	w.must(w.subject.Close(w.ctx, fence.Key{Domain: domain, Resource: fresh}, 8))
	w.authority.setCounter(fresh, 6)
	d := w.tenure(fresh)
	w.authority.setCounter(fresh, 7)
	w.refused(w.apply(d, 1, "op-1", "1"))(lastword.StaleOwner, 7)
	e := w.tenure(fresh)
	w.applied(w.apply(e, 1, "op-1", "1"))(1)
}

func storedComesBack(w *world) {
	const doc = "doc/a"
	g := w.newGate(func(c *fence.Config) { c.Policy, c.MinPolicyGeneration = fence.Latest, 1 })
	a := w.tenure(doc)
	w.applied(w.submit(w.subject, g, call(a, 7, "op-7", "7"), Write{Resource: doc, Value: "7"}))(7)
	bundle, err := w.authority.Bundle(w.ctx, false)
	w.must(err)
	want := fence.Record{
		Exists: true, Fence: a.claims.Fence, LeaseID: a.claims.LeaseID, GrantDigest: a.digest, Root: a.claims.Root,
		LastSeq: 7, LastOperation: "op-7", LastPayload: lastword.DigestOf([]byte("7")),
		Policy: fence.Latest, Status: fence.Query, BundleSequence: bundle.Sequence(), MinPolicyGeneration: 1,
	}
	for _, s := range []Subject{w.subject, w.second} {
		i, err := s.Inspect(w.ctx, g, doc)
		if err != nil || i.Record != want {
			w.Fatalf("inspect: %v\n%+v, want\n%+v", err, i.Record, want)
		}
	}
	none, err := w.subject.Inspect(w.ctx, g, "doc/none")
	if err != nil || none.Record.Exists || len(none.Refusals)+len(none.Quarantine) != 0 {
		w.Fatalf("inspect of a record that is not there: %v, %+v", err, none)
	}
	// No root is a root of its own.
	rootless, err := w.authority.issue("doc/b", "owner", 1, nil)
	w.must(err)
	rootless.claims.Root = lastword.Digest{}
	rootless.grant, rootless.digest, err = w.authority.signer.Sign("", rootless.claims)
	w.must(err)
	loose := w.newGate(fenceOnly)
	w.applied(w.submit(w.subject, loose, call(rootless, 1, "op-1", "1"), Write{Resource: "doc/b", Value: "1"}))(1)
	w.applied(w.submit(w.subject, loose, call(rootless, 2, "op-2", "2"), Write{Resource: "doc/b", Value: "2"}))(2)
}

func senselessCalls(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	good := call(a, 2, "op-2", "2")
	for what, change := range map[string]func(*fence.Call){
		"no operation":               func(c *fence.Call) { c.Mutation.Operation = "" },
		"a control character":        func(c *fence.Call) { c.Mutation.Operation = "a\x00b" },
		"an operation of 513 bytes":  func(c *fence.Call) { c.Mutation.Operation = string(make([]byte, 513)) },
		"no payload":                 func(c *fence.Call) { c.Content = nil },
		"a digest of other bytes":    func(c *fence.Call) { c.Mutation.Payload = lastword.DigestOf([]byte("3")) },
		"a number above 2^53":        func(c *fence.Call) { c.Mutation.Seq = 1 << 60 },
		"a holder and a grant":       func(c *fence.Call) { c.Holder = a },
		"a holder and a number":      func(c *fence.Call) { c.Holder, c.Mutation.Grant = a, "" },
		"the class advance":          func(c *fence.Call) { c.Mutation.Class = lastword.ClassAdvance },
		"a resource not in its form": func(c *fence.Call) { c.Resource = "doc//a" },
	} {
		c := good
		change(&c)
		w.untouched(what, func() {
			_, err := w.subject.Apply(w.ctx, w.gate, c, Write{Resource: doc, Value: "2"})
			w.refusedAs(what, err, lastword.CodeInvalid)
		})
	}
	w.applied(w.apply(a, 2, "op-2", "2"))(2)
}

func (w *world) refusedAs(what string, err error, want lastword.Code) {
	w.Helper()
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != want {
		w.Fatalf("%s: got %v, want %s", what, err, want)
	}
}
