package fencetest

import (
	"fmt"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
)

func orderCases() []testCase {
	return []testCase{
		{name: caseOrdered, run: orderedPolicy},
		{name: "policy latest: the newest state wins", run: latestPolicy},
		{name: "policy once: one value per tenure", run: oncePolicy},
		{name: casePolicyStored, run: policyChanges},
		{name: "R32: the operations script", run: operationsScript},
		{name: caseSeqPerRecord, run: seqPerRecord},
		{name: "seq: a holder's numbers run by themselves", run: holderNumbers},
		{name: "ROOT_MISMATCH: one tenure, one operation root", run: rootMismatch},
		{name: caseOnePerNumber, run: oneWinsPerNumber},
	}
}

const (
	caseOrdered      = "policy ordered: every number counts"
	casePolicyStored = "policy: it is the record's, and changes only with a larger fence"
	caseSeqPerRecord = "seq: numbers are counted per record"
	caseOnePerNumber = "P4, R15, R16: of many writers one wins each number"
)

func orderedPolicy(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.refused(w.apply(a, 2, "early", "x"))(lastword.OutOfOrder, 0)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.applied(w.apply(a, 2, "op-2", "2"))(2)
	w.unchanged("numbers out of order", func() {
		for _, seq := range []uint64{4, 5, uint64(lastword.MaxToken)} {
			w.refused(w.apply(a, seq, "op-4", "4"))(lastword.OutOfOrder, a.claims.Fence)
		}
		for _, seq := range []uint64{1, 2} {
			w.refused(w.apply(a, seq, "op-x", "x"))(lastword.Conflict, a.claims.Fence)
		}
	})
	w.applied(w.apply(a, 0, "op-3", "3"))(3) // 0 takes the record's next one
	b := w.tenure(doc)
	w.unchanged("a new fence that does not start at 1", func() {
		w.refused(w.apply(b, 2, "b-1", "4"))(lastword.OutOfOrder, a.claims.Fence)
		w.refused(w.apply(b, 4, "b-1", "4"))(lastword.OutOfOrder, a.claims.Fence)
	})
	w.applied(w.apply(b, 1, "b-1", "4"))(1)
	w.wantEffects(doc, "op-1=1", "op-2=2", "op-3=3", "b-1=4")
}

func latestPolicy(w *world) {
	const doc = "doc/a"
	g := w.newGate(withPolicy(fence.Latest))
	a := w.tenure(doc)
	write := func(t *tenure, seq uint64, o, value string) (lastword.Receipt, error) {
		return w.submit(w.subject, g, call(t, seq, o, value), Write{Resource: doc, Value: value})
	}
	w.applied(write(a, 3, "op-3", "3"))(3)
	w.applied(write(a, 7, "op-7", "7"))(7)
	w.unchanged("an older state", func() {
		w.refused(write(a, 5, "op-5", "5"))(lastword.OutOfOrder, a.claims.Fence)
		w.refused(write(a, 7, "op-x", "x"))(lastword.Conflict, a.claims.Fence)
	})
	b := w.tenure(doc)
	w.applied(write(b, 2, "b-2", "b2"))(2)
	w.refused(write(b, 1, "b-1", "b1"))(lastword.OutOfOrder, b.claims.Fence)
	w.refused(write(a, 9, "op-9", "9"))(lastword.StaleOwner, b.claims.Fence)
	w.wantEffects(doc, "op-3=3", "op-7=7", "b-2=b2")
}

func oncePolicy(w *world) {
	const doc = "doc/a"
	g := w.newGate(withPolicy(fence.Once))
	a := w.tenure(doc)
	write := func(t *tenure, o, value string) (lastword.Receipt, error) {
		return w.submit(w.subject, g, call(t, 0, o, value), Write{Resource: doc, Value: value})
	}
	first := w.applied(write(a, "op-1", "v"))(1)
	w.untouched("the same value again", func() {
		w.replayed(write(a, "op-1", "v"))(first)
		w.replayed(write(a, "op-2", "v"))(first)
	})
	w.unchanged("another value", func() {
		w.refused(write(a, "op-3", "w"))(lastword.Conflict, a.claims.Fence)
	})
	b := w.tenure(doc)
	w.applied(write(b, "op-4", "v"))(1)
	w.wantEffects(doc, "op-1=v", "op-4=v")
}

func policyChanges(w *world) {
	const doc = "doc/a"
	latest, plain := w.newGate(withPolicy(fence.Latest)), w.gate
	a := w.tenure(doc)
	write := func(g *fence.Gate, t *tenure, seq uint64, o string) (lastword.Receipt, error) {
		return w.submit(w.subject, g, call(t, seq, o, o), Write{Resource: doc, Value: o})
	}
	w.applied(write(plain, a, 1, "op-1"))(1)
	w.unchanged("another policy inside a tenure", func() {
		w.refused(write(latest, a, 5, "op-5"))(lastword.OutOfOrder, a.claims.Fence)
	})
	b := w.tenure(doc)
	w.applied(write(latest, b, 5, "op-5"))(5)
	w.applied(write(plain, b, 9, "op-9"))(9)
	c := w.tenure(doc)
	w.applied(write(plain, c, 4, "op-4"))(4) // a gate without a policy keeps the record's
	if got := w.record(doc).Policy; got != fence.Latest {
		w.Fatalf("the record has the policy %q, want %q", got, fence.Latest)
	}
}

func operationsScript(w *world) {
	const doc = "doc/a"
	g := w.newGate(func(c *fence.Config) { fenceOnly(c); c.Policy = fence.Latest })
	write := func(t *tenure, seq uint64, o, value string) (lastword.Receipt, error) {
		return w.submit(w.subject, g, call(t, seq, o, value), Write{Resource: doc, Value: value})
	}
	a := w.tenure(doc)
	w.applied(write(a, 1, "op-1", "1"))(1)
	second := w.applied(write(a, 2, "op-2", "2"))(2)
	b := w.tenure(doc)
	w.replayed(write(b, 1, "op-2", "2"))(second)
	w.refused(write(b, 1, "op-2", "other"))(lastword.Conflict, a.claims.Fence)
	w.refused(write(a, 1, "op-3", "3"))(lastword.OutOfOrder, a.claims.Fence)
	w.wantEffects(doc, "op-1=1", "op-2=2")
}

// seqPerRecord: two resources in one place, and one tenure in two places.
func seqPerRecord(w *world) {
	const one, two = "doc/one", "doc/two"
	a, b := w.tenure(one), w.tenure(two)
	w.applied(w.apply(a, 1, "a-1", "1"))(1)
	w.applied(w.apply(a, 2, "a-2", "2"))(2)
	w.applied(w.apply(b, 1, "b-1", "1"))(1)
	w.applied(w.apply(a, 3, "a-3", "3"))(3)
	w.applied(w.apply(b, 2, "b-2", "2"))(2)

	elsewhere := w.open(w.TB)
	r, err := elsewhere.Apply(w.ctx, w.gate, call(a, 1, "e-1", "1"), Write{Resource: one, Value: "1"})
	w.applied(r, err)(1)
	w.applied(w.apply(a, 4, "a-4", "4"))(4)
}

func holderNumbers(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	write := func(o, value string) (lastword.Receipt, error) {
		c := fence.Call{Holder: a, Content: []byte(value), Mutation: lastword.Mutation{Operation: o}}
		return w.submit(w.subject, w.gate, c, Write{Resource: doc, Value: value})
	}
	first := w.applied(write("op-1", "1"))(1)
	w.applied(write("op-2", "2"))(2)
	w.replayed(write("op-1", "1"))(first)
	w.refused(write("op-1", "other"))(lastword.Conflict, a.claims.Fence)
	w.applied(write("op-3", "3"))(3)

	var wg sync.WaitGroup
	answers := make([]answerOf, 8)
	for i := range answers {
		wg.Go(func() {
			o := fmt.Sprintf("many-%d", i)
			answers[i].r, answers[i].err = write(o, o)
		})
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for _, got := range answers {
		if got.err != nil {
			w.Fatalf("one of many writes of a holder: %v", got.err)
		}
		seen[got.r.Seq] = true
	}
	if len(seen) != len(answers) || !seen[4] || !seen[11] {
		w.Fatalf("the writes of a holder have the numbers %v, want 4 to 11", seen)
	}
}

func rootMismatch(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	other, err := w.authority.issue(doc, "owner", a.claims.Fence, func(c *grant.Claims) {
		c.LeaseID, c.Root = a.claims.LeaseID, lastword.DigestOf([]byte("other work"))
	})
	w.must(err)
	g := w.newGate(func(c *fence.Config) { c.Status = held{other, w.authority} })
	w.unchanged("the same lease with another root", func() {
		w.refused(w.submit(w.subject, g, call(other, 2, "op-2", "2"), Write{Resource: doc, Value: "2"}))(lastword.RootMismatch, a.claims.Fence)
	})
	w.applied(w.apply(a, 2, "op-3", "3"))(2)
}

// oneWinsPerNumber lets many writers of one tenure try every number at once, through
// two handles.
func oneWinsPerNumber(w *world) {
	const doc, writers, rounds = "doc/a", 6, 5
	a := w.tenure(doc)
	loose := w.newGate(fenceOnly)
	for seq := uint64(1); seq <= rounds; seq++ {
		answers := make([]answerOf, writers)
		var wg sync.WaitGroup
		for i := range answers {
			s := w.subject
			if i%2 == 1 {
				s = w.second
			}
			o := fmt.Sprintf("op-%d-%d", seq, i)
			wg.Go(func() {
				answers[i].r, answers[i].err = w.submit(s, loose, call(a, seq, o, o), Write{Resource: doc, Value: o})
			})
		}
		wg.Wait()
		won := 0
		for _, got := range answers {
			if got.err == nil {
				won++
				w.applied(got.r, nil)(seq)
				continue
			}
			w.refused(got.r, got.err)(lastword.Conflict, a.claims.Fence)
		}
		if won != 1 {
			w.Fatalf("%d writers won the number %d, want 1", won, seq)
		}
		if _, effects := w.read(doc); uint64(len(effects)) != seq {
			w.Fatalf("after number %d there are %d effects", seq, len(effects))
		}
	}
}
