package fencetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func intentCases() []testCase {
	return []testCase{
		{name: "P4, KF-32 (1): the same operation again gets its first receipt", run: sameAgain},
		{name: "P4, KF-32 (2, 3): the same operation with other content conflicts", run: otherContent},
		{name: caseOtherResource, run: otherResource},
		{name: "P4, KF-32 (5): two equal requests at once have one effect", run: equalAtOnce},
		{name: "P4, KF-32 (6): an operation that failed half-way runs once", run: failedHalfWay},
		{name: "R21: a lookup moves nothing", run: lookupMovesNothing},
		{name: "R22: submitting again settles what was not heard", run: resubmission},
		{name: casePruned, run: receiptExpired, needs: needsPrune},
		{name: "receipts are complete", run: completeReceipts},
	}
}

const (
	caseOtherResource = "P4, KF-32 (4): an operation id belongs to one resource"
	casePruned        = "R19: a pruned receipt is RECEIPT_EXPIRED"
)

func sameAgain(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "k", "amount 1"))(1)
	w.applied(w.apply(a, 2, "other", "2"))(2)
	w.untouched("the same operation again", func() {
		for _, seq := range []uint64{0, 1, 2, 3, 9} {
			w.replayed(w.apply(a, seq, "k", "amount 1"))(first)
		}
	})
	b := w.tenure(doc)
	w.untouched("the same operation in the next tenure", func() {
		w.replayed(w.apply(b, 1, "k", "amount 1"))(first)
	})
	w.applied(w.apply(b, 1, "next", "3"))(1)
	w.untouched("the same operation of a tenure that was overtaken", func() {
		w.replayed(w.apply(a, 1, "k", "amount 1"))(first)
	})
	w.wantEffects(doc, "k=amount 1", "other=2", "next=3")
}

func otherContent(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "k", `{"amount":1,"to":"x"}`))(1)
	others := []string{`{"amount":2,"to":"x"}`, `{"to":"x","amount":1}`, `{"amount":1, "to":"x"}`, `{"amount":1.0,"to":"x"}`, ``}
	refuse := func(t *tenure) {
		for _, other := range others {
			w.unchanged("other content "+other, func() {
				w.refused(w.apply(t, 0, "k", other))(lastword.Conflict, a.claims.Fence)
			})
		}
	}
	refuse(a)
	b := w.tenure(doc)
	refuse(b)
	w.wantEffects(doc, `k={"amount":1,"to":"x"}`)
}

func otherResource(w *world) {
	const one, two = "doc/one", "doc/two"
	a, b := w.tenureOf(one, "tenant-a"), w.tenureOf(two, "tenant-b")
	first := w.applied(w.apply(a, 1, "k", "1"))(1)
	second := w.applied(w.apply(b, 1, "k", "1"))(1)
	w.replayed(w.apply(a, 2, "k", "1"))(first)
	w.replayed(w.apply(b, 2, "k", "1"))(second)
	w.refused(w.apply(a, 2, "k", "2"))(lastword.Conflict, a.claims.Fence)
	w.wantEffects(one, "k=1")
	w.wantEffects(two, "k=1")
	if _, found, err := w.subject.Lookup(w.ctx, w.gate, "doc/three", "k"); found || err != nil {
		w.Fatalf("lookup at a resource without writes: found %v, %v", found, err)
	}
}

func equalAtOnce(w *world) {
	const doc, many = "doc/a", 6
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "before", "0"))(1)
	answers := make([]answerOf, many)
	var wg sync.WaitGroup
	for i := range answers {
		s := w.subject
		if i%2 == 1 {
			s = w.second
		}
		wg.Go(func() {
			answers[i].r, answers[i].err = w.submit(s, w.gate, call(a, 0, "k", "1"), Write{Resource: doc, Value: "1"})
		})
	}
	wg.Wait()
	applied := 0
	for _, got := range answers {
		if got.err != nil {
			w.Fatalf("one of %d equal requests: %v", many, got.err)
		}
		if got.r.Verdict == lastword.Applied {
			applied++
		}
		if got.r.Seq != 2 || got.r.Operation != "k" {
			w.Fatalf("one of %d equal requests got the receipt %+v", many, got.r)
		}
	}
	if applied != 1 {
		w.Fatalf("%d of %d equal requests were applied, want 1", applied, many)
	}
	w.wantEffects(doc, "before=0", "k=1")
}

func failedHalfWay(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	boom := errors.New("half-way")
	w.untouchedBy(doc, "an effect that fails after it has written", func() {
		_, err := w.submit(w.subject, w.gate, call(a, 1, "k", "1"), Write{
			Resource: doc, Value: "1", Then: func(context.Context) error { return boom },
		})
		if !errors.Is(err, boom) || errors.Is(err, lastword.ErrUnknownOutcome) {
			w.Fatalf("got %v, want the effect's own error", err)
		}
	})
	first := w.applied(w.apply(a, 1, "k", "1"))(1)
	w.replayed(w.apply(a, 1, "k", "1"))(first)
	w.wantEffects(doc, "k=1")
}

// untouchedBy is untouched, of a resource that may not have been seen before.
func (w *world) untouchedBy(r lastword.Resource, what string, fn func()) {
	w.Helper()
	w.touch(r, "k")
	w.untouched(what, fn)
}

func lookupMovesNothing(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "k", "1"))(1)
	first.Verdict = lastword.Replayed
	w.untouched("lookups", func() {
		got, found, err := w.second.Lookup(w.ctx, w.gate, doc, "k")
		if err != nil || !found || !sameReceipt(got, first) {
			w.Fatalf("found %v, %v\n%+v\nwant\n%+v", found, err, got, first)
		}
		for _, o := range []string{"K", "k ", "unknown"} {
			if got, found, err := w.subject.Lookup(w.ctx, w.gate, doc, o); err != nil || found {
				w.Fatalf("lookup of %q: found %v, %v, %+v", o, found, err, got)
			}
		}
		for _, o := range []string{"", "a\x00b", "\xff"} {
			if _, found, err := w.subject.Lookup(w.ctx, w.gate, doc, o); !errors.Is(err, lastword.ErrInvalid) || found {
				w.Fatalf("lookup of %q: found %v, %v, want INVALID", o, found, err)
			}
		}
	})
}

func resubmission(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	// The caller is gone before the commit: definite, and nothing of it stays.
	ctx, cancel := context.WithCancel(w.ctx)
	w.untouchedBy(doc, "a write whose caller left before the commit", func() {
		_, err := w.subject.Apply(ctx, w.gate, call(a, 1, "k", "1"), Write{
			Resource: doc, Value: "1", Then: func(ctx context.Context) error { cancel(); return ctx.Err() },
		})
		if err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
			w.Fatalf("got %v, want a definite error", err)
		}
	})
	// The caller did not hear that it was done.
	first := w.applied(w.apply(a, 1, "k", "1"))(1)
	w.replayed(w.apply(a, 1, "k", "1"))(first)
	w.applied(w.apply(a, 2, "next", "2"))(2)
	// A newer tenure registers its fence, looks, and does what is not there (R22).
	b := w.tenure(doc)
	if _, err := w.subject.Advance(w.ctx, w.gate, call(b, 0, "", "")); err != nil {
		w.Fatalf("advance: %v", err)
	}
	w.touch(doc, "lost")
	if _, found, err := w.subject.Lookup(w.ctx, w.gate, doc, "lost"); err != nil || found {
		w.Fatalf("lookup: found %v, %v", found, err)
	}
	w.refused(w.apply(a, 3, "lost", "3"))(lastword.StaleOwner, b.claims.Fence)
	w.applied(w.apply(b, 1, "lost", "3"))(1)
	w.wantEffects(doc, "k=1", "next=2", "lost=3")
}

func receiptExpired(w *world) {
	const doc = "doc/a"
	w.pruned = true
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "k", "1"))(1)
	w.applied(w.apply(a, 2, "l", "2"))(2)
	w.must(w.subject.Prune(w.ctx, fence.Key{Domain: domain, Resource: doc}, "k"))
	b := w.tenure(doc)
	w.unchanged("a pruned operation", func() {
		w.refused(w.apply(b, 1, "k", "1"))(lastword.ReceiptExpired, a.claims.Fence)
		w.refused(w.apply(b, 1, "k", "other"))(lastword.ReceiptExpired, a.claims.Fence)
	})
	w.applied(w.apply(b, 1, "m", "3"))(1)
	w.refused(w.apply(a, 3, "k", "1"))(lastword.StaleOwner, b.claims.Fence)
	w.wantEffects(doc, "k=1", "l=2", "m=3")
}

func completeReceipts(w *world) {
	const doc = "doc/a"
	a := w.tenureOf(doc, "worker-a")
	g := w.newGate(func(c *fence.Config) { c.Caller = "worker-a" })
	big := make([]byte, lastword.MaxResultBytes)
	for i := range big {
		big[i] = byte(i)
	}
	for i, result := range [][]byte{nil, []byte("done"), {0, 255, 10, 39, 34, 92}, big} {
		o, value := fmt.Sprintf("op-%d", i+1), fmt.Sprintf("value %d", i+1)
		got := w.applied(w.submit(w.subject, g, call(a, 0, o, value), Write{Resource: doc, Value: value, Result: result}))(uint64(i + 1))
		want := lastword.Receipt{
			Domain: domain, Resource: doc, Operation: o, Payload: lastword.DigestOf([]byte(value)),
			Fence: a.claims.Fence, Seq: uint64(i + 1), LeaseID: a.claims.LeaseID, GrantDigest: a.digest,
			Owner: "worker-a", Caller: "worker-a", Root: a.claims.Root, Result: result,
			AppliedAt: got.AppliedAt, Verdict: lastword.Applied,
		}
		if !sameReceipt(got, want) || got.AppliedAt.Unix() != 1_800_000_123 {
			w.Fatalf("got the receipt\n%+v\nwant\n%+v", got, want)
		}
		want.Verdict = lastword.Replayed
		found, ok, err := w.second.Lookup(w.ctx, g, doc, o)
		if err != nil || !ok || !sameReceipt(found, want) {
			w.Fatalf("the stored receipt is (found %v, %v)\n%+v\nwant\n%+v", ok, err, found, want)
		}
		w.replayed(w.submit(w.subject, g, call(a, 0, o, value), Write{Resource: doc, Value: value}))(got)
	}
	anonymous := w.applied(w.apply(a, 0, "op-5", "5"))(5)
	if anonymous.Caller != "" || anonymous.Owner != "worker-a" {
		w.Fatalf("the receipt without a caller is %+v", anonymous)
	}
}
