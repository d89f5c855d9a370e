package fencetest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func statusCases() []testCase {
	return []testCase{
		{name: "R12: a tenure that is not held admits nothing new", run: notHeld},
		{name: "R12: no answer of the authority, no transaction", run: noAnswer},
		{name: caseTightened, run: modeTightened},
		{name: "R12: an answer counts for this very grant only", run: answerOfAnother},
		{name: "R12: a HELD answer is reused for a bounded time", run: reusedAnswer},
		{name: "R19: a missing record is new only if asked after the look", run: missingRecord},
		{name: caseLost, run: lostRecord, needs: needsLose},
	}
}

const (
	// T29: no switch turns checks off.
	caseTightened = "R12: a record's status mode can only be tightened"
	caseLost      = "R19: receipts without their record are no new record"
)

func notHeld(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "op-1", "1"))(1)
	for _, s := range []lastword.State{lastword.StateExpired, lastword.StateReleased, lastword.StateRevoked, lastword.StatePending} {
		w.authority.set(a, s)
		w.unchanged("a write of a tenure that is "+string(s), func() {
			w.refused(w.apply(a, 2, "op-2", "2"))(lastword.Unverified, first.Fence)
			w.refused(w.apply(a, 2, "op-1", "other"))(lastword.Conflict, first.Fence)
			w.replayed(w.apply(a, 1, "op-1", "1"))(first)
		})
	}
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, "op-3", "3"))(1)
	w.authority.set(b, lastword.StateExpired)
	w.unchanged("a write of an older tenure that has ended", func() {
		w.refused(w.apply(a, 2, "op-2", "2"))(lastword.StaleOwner, b.claims.Fence)
	})
}

func noAnswer(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.touch(fresh, "op-1")
	w.authority.setDown(true)
	b := w.tenure(fresh)
	w.untouched("writes while the authority is silent", func() {
		w.refused(w.apply(a, 2, "op-2", "2"))(lastword.StatusUnavailable, 0)
		w.refused(w.apply(b, 1, "op-1", "1"))(lastword.StatusUnavailable, 0)
		_, err := w.subject.Advance(w.ctx, w.gate, call(b, 0, "", ""))
		w.refused(lastword.Receipt{}, err)(lastword.StatusUnavailable, 0)
	})
	w.authority.setDown(false)
	w.applied(w.apply(a, 2, "op-2", "2"))(2)
}

func modeTightened(w *world) {
	const doc, loose = "doc/a", "doc/loose"
	silent := w.newGate(fenceOnly)
	asking := w.newGate(func(c *fence.Config) { c.Mode = fence.FenceOnly })
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	if got := w.record(doc).Status; got != fence.Query {
		w.Fatalf("the record has the mode %q, want %q", got, fence.Query)
	}
	w.untouched("a gate that asks for less and has nobody to ask", func() {
		w.refused(w.submit(w.subject, silent, call(a, 2, "op-2", "2"), Write{Resource: doc, Value: "2"}))(lastword.StatusUnavailable, 0)
	})
	before := w.authority.questions()
	w.applied(w.submit(w.subject, asking, call(a, 2, "op-2", "2"), Write{Resource: doc, Value: "2"}))(2)
	if w.authority.questions() == before {
		w.Fatalf("a gate that asks for less than the record did not ask")
	}
	w.authority.set(a, lastword.StateExpired)
	w.refused(w.submit(w.subject, asking, call(a, 3, "op-3", "3"), Write{Resource: doc, Value: "3"}))(lastword.Unverified, a.claims.Fence)

	b := w.tenure(loose)
	w.applied(w.submit(w.subject, silent, call(b, 1, "op-1", "1"), Write{Resource: loose, Value: "1"}))(1)
	if got := w.record(loose).Status; got != fence.FenceOnly {
		w.Fatalf("the record has the mode %q, want %q", got, fence.FenceOnly)
	}
	w.applied(w.apply(b, 2, "op-2", "2"))(2)
	if got := w.record(loose).Status; got != fence.Query {
		w.Fatalf("the record has the mode %q, want it tightened to %q", got, fence.Query)
	}
	w.refused(w.submit(w.subject, silent, call(b, 3, "op-3", "3"), Write{Resource: loose, Value: "3"}))(lastword.StatusUnavailable, 0)
}

// scripted is a status source whose answers a case changes.
type scripted struct {
	w      *world
	change func(*lastword.Status)
}

func (s scripted) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	st, err := s.w.authority.Status(ctx, q)
	s.change(&st)
	return st, err
}

func answerOfAnother(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "op-1", "1"))(1)
	for what, change := range map[string]func(*lastword.Status){
		"another fence":  func(s *lastword.Status) { s.Holder.Fence++ },
		"another lease":  func(s *lastword.Status) { s.Holder.LeaseID += "x" },
		"another digest": func(s *lastword.Status) { s.Digest[0] ^= 1 },
		"no digest":      func(s *lastword.Status) { s.Digest = lastword.Digest{} },
	} {
		g := w.newGate(func(c *fence.Config) { c.Status = scripted{w, change} })
		w.unchanged("HELD with "+what, func() {
			w.refused(w.submit(w.subject, g, call(a, 2, "op-2", "2"), Write{Resource: doc, Value: "2"}))(lastword.Unverified, first.Fence)
		})
	}
	other := w.newGate(func(c *fence.Config) {
		c.Status = scripted{w, func(s *lastword.Status) { s.Resource = "doc/other" }}
	})
	w.untouched("an answer about another resource", func() {
		w.refused(w.submit(w.subject, other, call(a, 2, "op-2", "2"), Write{Resource: doc, Value: "2"}))(lastword.StatusUnavailable, 0)
	})
}

func reusedAnswer(w *world) {
	const doc = "doc/a"
	var now atomic.Int64
	var questions atomic.Int64
	g := w.newGate(func(c *fence.Config) {
		c.StatusReuse = time.Second
		c.Elapsed = func() time.Duration { return time.Duration(now.Load()) }
		// The answer takes 400 ms: its age counts from the question.
		c.Status = scripted{w, func(*lastword.Status) { questions.Add(1); now.Add(int64(400 * time.Millisecond)) }}
	})
	a := w.tenure(doc)
	write := func(seq uint64, o string) (lastword.Receipt, error) {
		return w.submit(w.subject, g, call(a, seq, o, o), Write{Resource: doc, Value: o})
	}
	w.applied(write(1, "op-1"))(1)
	asked := questions.Load()
	w.authority.set(a, lastword.StateExpired)
	now.Add(int64(600 * time.Millisecond))
	w.applied(write(2, "op-2"))(2)
	if questions.Load() != asked {
		w.Fatalf("asked again inside the time of reuse")
	}
	now.Add(1)
	w.refused(write(3, "op-3"))(lastword.Unverified, a.claims.Fence)
	asked = questions.Load()
	w.refused(write(3, "op-3"))(lastword.Unverified, a.claims.Fence)
	if questions.Load() == asked {
		w.Fatalf("an answer that is not HELD was reused")
	}
}

func missingRecord(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.touch(doc, "op-1")
	asked := 0
	g := w.newGate(func(c *fence.Config) {
		c.Status = scripted{w, func(*lastword.Status) {
			// The tenure ends while the place looks for the record.
			if asked++; asked == 1 {
				w.authority.set(a, lastword.StateExpired)
			}
		}}
	})
	w.unchanged("a first write whose tenure ended before the look", func() {
		w.refused(w.submit(w.subject, g, call(a, 1, "op-1", "1"), Write{Resource: doc, Value: "1"}))(lastword.Unverified, 0)
	})
	if asked < 2 {
		w.Fatalf("asked %d times, want once more after the look", asked)
	}
}

func lostRecord(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.must(w.subject.Lose(w.ctx, fence.Key{Domain: domain, Resource: doc}))
	b := w.tenure(doc)
	w.unchanged("a write where the record is lost", func() {
		w.refused(w.apply(b, 1, "op-2", "2"))(lastword.FenceRegression, 0)
		_, err := w.subject.Advance(w.ctx, w.gate, call(b, 0, "", ""))
		w.refused(lastword.Receipt{}, err)(lastword.FenceRegression, 0)
		w.replayed(w.apply(b, 1, "op-1", "1"))(first)
	})
	w.unchecked = true // the record is gone on purpose: nothing is left to compare with
}
