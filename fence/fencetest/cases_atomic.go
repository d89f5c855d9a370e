package fencetest

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func atomicCases() []testCase {
	return []testCase{
		{name: "R16: a failing effect leaves neither record nor receipt", run: failingEffect},
		{name: "R16: a panic in the effect leaves nothing and goes on", run: panickingEffect},
		{name: "R16: a context that ended before the commit leaves nothing", run: endedContext},
		{name: caseWithin, run: withinRolledBack, needs: needsWithin},
		{name: "R16: the caller's own transaction is checked like any other", run: withinChecked, needs: needsWithin},
		{name: "R16b: evidence of a refusal within waits for the roll-back", run: withinEvidence, needs: needsWithin},
		{name: "seq: a number within is settled by what was committed", run: withinNumbers, needs: needsWithin},
	}
}

const caseWithin = "R16: record and receipt go with the caller's roll-back"

func failingEffect(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	a, b := w.tenure(doc), w.tenure(fresh)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.touch(fresh, "op-1")
	boom := errors.New("boom")
	fail := func(context.Context) error { return boom }
	next := w.tenure(doc)
	w.untouched("failing effects", func() {
		for _, c := range []fence.Call{call(next, 1, "op-2", "2"), call(b, 1, "op-1", "1")} {
			_, err := w.submit(w.subject, w.gate, c, Write{Resource: c.Resource, Value: "2", Result: []byte("r"), Then: fail})
			if !errors.Is(err, boom) || errors.Is(err, lastword.ErrUnknownOutcome) {
				w.Fatalf("got %v, want the effect's own error", err)
			}
		}
	})
	// The effect may fail in a way that looks like something else: still nothing stays.
	for _, boom := range []error{lastword.ErrStale, lastword.ErrConflict, context.Canceled, lastword.ErrUnknownOutcome} {
		w.untouched("an effect that fails with "+boom.Error(), func() {
			_, err := w.submit(w.subject, w.gate, call(next, 1, "op-2", "2"), Write{
				Resource: doc, Value: "2", Then: func(context.Context) error { return boom },
			})
			if !errors.Is(err, boom) {
				w.Fatalf("got %v, want %v", err, boom)
			}
		})
	}
	w.applied(w.apply(next, 1, "op-2", "2"))(1)
	w.applied(w.apply(b, 1, "op-1", "1"))(1)
}

func panickingEffect(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.untouchedBy(doc, "a panic", func() {
		defer func() {
			if p := recover(); p != "in the effect" {
				w.Fatalf("the panic became %v", p)
			}
		}()
		_, err := w.submit(w.subject, w.gate, call(a, 2, "k", "2"), Write{
			Resource: doc, Value: "2", Then: func(context.Context) error { panic("in the effect") },
		})
		w.Fatalf("the panic was swallowed: %v", err)
	})
	w.applied(w.apply(a, 2, "k", "2"))(2)
}

func endedContext(w *world) {
	const doc = "doc/a"
	loose := w.newGate(fenceOnly)
	a := w.tenure(doc)
	w.applied(w.submit(w.subject, loose, call(a, 1, "op-1", "1"), Write{Resource: doc, Value: "1"}))(1)
	before, cancelBefore := context.WithCancel(w.ctx)
	cancelBefore()
	inside, cancelInside := context.WithCancel(w.ctx)
	defer cancelInside()
	w.untouchedBy(doc, "a context that ended", func() {
		_, err := w.subject.Apply(before, loose, call(a, 2, "k", "2"), Write{Resource: doc, Value: "2"})
		if err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
			w.Fatalf("ended before the start: got %v, want a definite error", err)
		}
		_, err = w.subject.Apply(inside, loose, call(a, 2, "k", "2"), Write{
			Resource: doc, Value: "2", Then: func(context.Context) error { cancelInside(); return nil },
		})
		if err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
			w.Fatalf("ended inside the effect: got %v, want a definite error", err)
		}
	})
	w.applied(w.submit(w.subject, loose, call(a, 2, "k", "2"), Write{Resource: doc, Value: "2"}))(2)
}

// within is submit through the caller's own transaction.
func (w *world) within(g *fence.Gate, c fence.Call, value string, commit bool) (lastword.Receipt, error) {
	r := c.Resource
	if t, ok := c.Holder.(*tenure); ok {
		r = t.claims.Resource
	}
	w.touch(r, c.Mutation.Operation)
	got, err := w.subject.Within(w.ctx, g, c, Write{Resource: r, Value: value}, commit)
	if commit {
		w.ack(got, err)
	}
	return got, err
}

func withinRolledBack(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	a, b := w.tenure(doc), w.tenure(fresh)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.touch(fresh, "op-1")
	next := w.tenure(doc)
	w.untouchedBy(doc, "a write that the caller rolled back", func() {
		w.applied(w.within(w.gate, call(next, 1, "k", "2"), "2", false))(1)
		w.applied(w.within(w.gate, call(b, 1, "op-1", "1"), "1", false))(1)
	})
	first := w.applied(w.within(w.gate, call(next, 1, "k", "2"), "2", true))(1)
	w.replayed(w.within(w.gate, call(next, 1, "k", "2"), "2", true))(first)
	w.applied(w.within(w.gate, call(b, 1, "op-1", "1"), "1", true))(1)
	w.applied(w.apply(next, 2, "op-3", "3"))(2)
	w.wantEffects(doc, "op-1=1", "k=2", "op-3=3")
}

func withinChecked(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.within(w.gate, call(a, 1, "op-1", "1"), "1", true))(1)
	w.refused(w.within(w.gate, call(a, 3, "op-3", "3"), "3", true))(lastword.OutOfOrder, a.claims.Fence)
	w.refused(w.within(w.gate, call(a, 1, "op-x", "x"), "x", true))(lastword.Conflict, a.claims.Fence)
	b := w.tenure(doc)
	w.applied(w.within(w.gate, call(b, 1, "op-2", "2"), "2", true))(1)
	w.unchanged("an older fence within", func() {
		w.refused(w.within(w.gate, call(a, 2, "op-3", "3"), "3", true))(lastword.StaleOwner, b.claims.Fence)
	})
	w.authority.set(b, lastword.StateExpired)
	w.unchanged("a tenure that is not held, within", func() {
		w.refused(w.within(w.gate, call(b, 2, "op-3", "3"), "3", true))(lastword.Unverified, b.claims.Fence)
	})
	w.wantEffects(doc, "op-1=1", "op-2=2")
}

func withinEvidence(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	twin, err := w.authority.issue(doc, "twin", a.claims.Fence, nil)
	w.must(err)
	g := w.newGate(func(c *fence.Config) { c.Status = held{twin, w.authority} })
	w.untouched("a refusal within, before the flush", func() {
		w.refused(w.within(g, call(twin, 2, "op-2", "2"), "2", true))(lastword.FenceRegression, a.claims.Fence)
	})
	if err := g.Flush(w.ctx); err != nil {
		w.Fatalf("flush: %v", err)
	}
	if i := w.inspect(doc); !i.Record.Frozen || i.Refusals[lastword.FenceRegression] != 1 {
		w.Fatalf("after the flush: %+v", i)
	}
	w.untouched("a second flush", func() {
		if err := g.Flush(w.ctx); err != nil {
			w.Fatalf("flush: %v", err)
		}
	})
}

func withinNumbers(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	hold := func(o string) fence.Call {
		return fence.Call{Holder: a, Content: []byte(o), Mutation: lastword.Mutation{Operation: o}}
	}
	apply := func(o string) (lastword.Receipt, error) {
		return w.submit(w.subject, w.gate, hold(o), Write{Resource: doc, Value: o})
	}
	w.applied(w.within(w.gate, hold("op-1"), "op-1", false))(1)
	w.applied(w.within(w.gate, hold("op-2"), "op-2", true))(1)
	w.applied(w.within(w.gate, hold("op-3"), "op-3", true))(2)
	w.applied(w.within(w.gate, hold("op-4"), "op-4", false))(3)
	w.applied(apply("op-5"))(3)
	w.applied(w.within(w.gate, hold("op-6"), "op-6", true))(4)
	w.applied(apply("op-7"))(5)
	w.applied(apply("op-8"))(6)
	w.wantEffects(doc, "op-2=op-2", "op-3=op-3", "op-5=op-5", "op-6=op-6", "op-7=op-7", "op-8=op-8")
}
