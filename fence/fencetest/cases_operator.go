package fencetest

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func operatorCases() []testCase {
	return []testCase{
		{name: caseReleased, run: released, needs: needsOperator},
		{name: caseActs, run: actsKept, needs: needsOperator},
		{name: caseJump, run: jumpReleased, needs: needsOperator},
		{name: caseRestored, run: restored, needs: needsOperator},
		{name: caseWindow, run: windowKept, needs: needsOperator},
		{name: caseUnraised, run: unraised, needs: needsOperator},
		{name: "R16b: a record that a restore has not raised is frozen like any other", run: unraisedFreezes, needs: needsOperator},
		{name: caseBegun, run: lostWithRestore, needs: needsOperator},
		{name: "KF-16: a place and an authority restored from different moments", run: bothRestored, needs: needsOperator},
	}
}

const (
	caseReleased = "R16b: a released record is closed and never lowered"
	caseActs     = "T16: what an operator did is kept with it"
	// T30.
	caseRestored = "R20: a restored record is raised and closed"
	// Also KF-33 (2): a receipt that the restore lost.
	caseWindow   = "R20: after a restore what has no receipt is expired until a person looks"
	caseUnraised = "R20: a restored place admits nothing before it is raised"
	caseBegun    = "R20: a record that the restore lost wants the authority's word"
)

// later is an operation id that was issued at ms milliseconds after the kit's now.
func later(ms int64) string {
	const digits = "0123456789abcdef"
	n := wallClock.UnixMilli() + ms
	b := []byte("00000000-0000-7000-8000-000000000000")
	for i := 12; i >= 0; i-- {
		if i == 8 {
			continue
		}
		b[i] = digits[n&15]
		n >>= 4
	}
	return string(b)
}

// freeze makes the record frozen, by a second grant of its fence.
func (w *world) freeze(r lastword.Resource, f lastword.Token) {
	w.Helper()
	twin, err := w.authority.issue(r, "twin", f, nil)
	w.must(err)
	w.authority.mu.Lock()
	held := w.authority.current[r]
	w.authority.current[r] = twin
	w.authority.states[twin.claims.LeaseID] = lastword.StateHeld
	w.authority.mu.Unlock()
	w.refused(w.apply(twin, 1, "op-twin", "twin"))(lastword.FenceRegression, f)
	w.authority.mu.Lock()
	w.authority.current[r] = held
	w.authority.mu.Unlock()
	if !w.record(r).Frozen {
		w.Fatalf("a fence that was issued twice did not freeze the record")
	}
}

func released(w *world) {
	const doc = "doc/a"
	w.authority.setCounter(doc, 40)
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.freeze(doc, a.claims.Fence)
	w.untouched("a release without a name or a reason", func() {
		for _, bad := range []fence.Act{{}, {Operator: "kit", At: wallClock}, {Reason: "because", At: wallClock}, {Operator: "a\nb", Reason: "because", At: wallClock}} {
			if _, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: doc}, 0, bad); err == nil {
				w.Fatalf("released by %+v", bad)
			}
		}
	})
	if _, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: doc}, 7, act("found the twin")); err == nil {
		w.Fatalf("released to a fence that was never refused")
	}
	for range 2 {
		rec, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: doc}, 0, act("found the twin"))
		w.must(err)
		if got := w.record(doc); got != rec || got.Frozen || got.Fence != a.claims.Fence || got.LeaseID != "" {
			w.Fatalf("released to\n%+v, told\n%+v", got, rec)
		}
	}
	w.unchanged("the tenure that was closed", func() {
		w.refused(w.apply(a, 2, "op-2", "2"))(lastword.StaleOwner, a.claims.Fence)
		w.replayed(w.apply(a, 1, "op-1", "1"))(first)
	})
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, "op-3", "3"))(1)
	if _, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: "doc/none"}, 0, act("nothing there")); err == nil {
		w.Fatalf("released a record that does not exist")
	}
	w.lostIsNotReleased()
}

// lostIsNotReleased: a record that is gone would begin again at 0; a restore that is
// declared brings it back.
func (w *world) lostIsNotReleased() {
	w.Helper()
	const gone = "doc/gone"
	if w.subject.Lose == nil {
		return
	}
	w.authority.setCounter(gone, 40)
	a := w.tenure(gone)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.must(w.subject.Lose(w.ctx, fence.Key{Domain: domain, Resource: gone}))
	for _, next := range []lastword.Token{0, 7} {
		if _, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: gone}, next, act("in a hurry")); err == nil {
			w.Fatalf("released a record that is lost, to %d", next)
		}
	}
	if _, err := w.restore(gone); err != nil {
		w.Fatalf("a lost record that is declared restored: %v", err)
	}
	if got := w.record(gone); got.Fence != a.claims.Fence || got.LeaseID != "" {
		w.Fatalf("the lost record came back as %+v", got)
	}
}

func actsKept(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.freeze(doc, a.claims.Fence)
	for _, reason := range []string{"first look", "second look"} {
		_, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: doc}, 0, act(reason))
		w.must(err)
	}
	got := w.inspect(doc).Acts
	want := act("first look")
	want.Kind, want.Before, want.After = fence.ActRelease, a.claims.Fence, a.claims.Fence
	if len(got) != 2 || !got[0].At.Equal(want.At) || got[1].Reason != "second look" {
		w.Fatalf("the acts are %+v, want both, oldest first", got)
	}
	got[0].At = want.At
	if got[0] != want {
		w.Fatalf("the act is\n%+v, want\n%+v", got[0], want)
	}
	if n := len(w.inspect("doc/other").Acts); n != 0 {
		w.Fatalf("%d acts at another resource", n)
	}
}

const caseJump = "R14a: a person lets one jump through, and no other"

func jumpReleased(w *world) {
	const doc = "doc/a"
	silent := w.newGate(fenceOnly)
	a := w.tenure(doc)
	write := func(t *tenure, o string) (lastword.Receipt, error) {
		return w.submit(w.subject, silent, call(t, 1, o, o), Write{Resource: doc, Value: o})
	}
	w.applied(write(a, "op-1"))(1)
	w.authority.setCounter(doc, 5_000_000)
	far := w.tenure(doc)
	key := fence.Key{Domain: domain, Resource: doc}
	refuses := func(next lastword.Token, what string) {
		w.unchanged(what, func() {
			var e *lastword.Error
			if _, err := w.subject.Release(w.ctx, key, next, act("in a hurry")); !errors.As(err, &e) || e.Code != lastword.CodeInvalid {
				w.Fatalf("%s: %v, want INVALID", what, err)
			}
		})
	}
	refuses(far.claims.Fence, "a release of a jump that nobody has made")
	w.unchanged("a jump", func() { w.refused(write(far, "op-2"))(lastword.FenceJump, a.claims.Fence) })
	refuses(far.claims.Fence+1, "a release of more than was refused")
	_, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: doc}, far.claims.Fence, act("the counter was moved by hand"))
	w.must(err)
	w.applied(write(far, "op-2"))(1)
}

// restore declares the whole place, or one resource of it, restored at the kit's now.
func (w *world) restore(r lastword.Resource) (int, error) {
	return w.subject.Restored(w.ctx, fence.Restore{Domain: domain, Resource: r, NextFence: w.nextOf, Until: wallClock, Act: act("backup of last night")})
}

// restored is KF-16 (2) and X21: the record went back to 40 while 45 was granted.
func restored(w *world) {
	const doc = "doc/a"
	w.authority.setCounter(doc, 39)
	a := w.tenure(doc)
	first := w.applied(w.apply(a, 1, "op-1", "1"))(1) // 40
	w.authority.setCounter(doc, 43)
	delayed := w.tenure(doc) // 44
	held := w.tenure(doc)    // 45
	w.unchanged("a delayed write at a restored place that nobody declared, in query mode", func() {
		w.refused(w.apply(delayed, 1, "op-2", "2"))(lastword.Unverified, a.claims.Fence)
	})
	n, err := w.restore(doc)
	w.must(err)
	rec := w.record(doc)
	if n != 1 || rec.Fence != held.claims.Fence || rec.LeaseID != "" || rec.Restored != uint64(wallClock.UnixMilli()) {
		w.Fatalf("%d raised, the record is %+v", n, rec)
	}
	silent := w.newGate(func(c *fence.Config) { c.Mode = fence.FenceOnly })
	w.unchanged("writes from before the restore was declared", func() {
		for _, t := range []*tenure{delayed, held} {
			w.refused(w.submit(w.subject, silent, call(t, 1, later(1), "2"), Write{Resource: doc, Value: "2"}))(lastword.StaleOwner, rec.Fence)
		}
		w.replayed(w.apply(held, 1, "op-1", "1"))(first)
	})
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, later(2), "3"))(1)
}

func windowKept(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	_, err := w.restore(doc)
	w.must(err)
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, later(1), "2"))(1)
	w.unchanged("operations that may have had their effect", func() {
		for _, o := range []string{"op-2", later(0), later(-1000)} {
			w.refused(w.submit(w.second, w.gate, call(b, 2, o, "3"), Write{Resource: doc, Value: "3"}))(lastword.ReceiptExpired, b.claims.Fence)
		}
	})
	n, err := w.subject.Reopen(w.ctx, domain, doc, act("looked through the orders"))
	w.must(err)
	if n != 1 || w.record(doc).Restored != 0 {
		w.Fatalf("%d reopened, the record is %+v", n, w.record(doc))
	}
	w.applied(w.apply(b, 2, "op-2", "3"))(2)
	kinds := ""
	for _, a := range w.inspect(doc).Acts {
		kinds += string(a.Kind) + " "
	}
	if kinds != "restored reopened " {
		w.Fatalf("the acts are %q", kinds)
	}
}

// unraised: the declaration breaks off after the first record.
func unraised(w *world) {
	const one, two = "doc/1", "doc/2"
	var last *tenure
	for _, r := range []lastword.Resource{one, two} {
		last = w.tenure(r)
		w.applied(w.apply(last, 1, "op-1", "1"))(1)
	}
	answers := 0
	n, err := w.subject.Restored(w.ctx, fence.Restore{Domain: domain, Until: wallClock, Act: act("backup"), NextFence: func(ctx context.Context, r lastword.Resource) (lastword.Token, error) {
		if answers++; answers > 1 {
			return 0, errors.New("silent")
		}
		return w.nextOf(ctx, r)
	}})
	if err == nil || n != 1 {
		w.Fatalf("%d raised, %v", n, err)
	}
	w.unchanged("a further write of the tenure that wrote before the restore", func() { // an adapter may remember it
		w.refused(w.apply(last, 2, later(1000), "2"))(lastword.FenceRegression, 1)
	})
	a, b := w.tenure(one), w.tenure(two)
	w.applied(w.apply(a, 1, later(1000), "2"))(1)
	w.unchanged("a record that was not raised", func() {
		w.refused(w.submit(w.second, w.gate, call(b, 1, later(1000), "2"), Write{Resource: two, Value: "2"}))(lastword.FenceRegression, 1)
		if _, err := w.subject.Release(w.ctx, fence.Key{Domain: domain, Resource: two}, 0, act("in a hurry")); err == nil {
			w.Fatalf("a release went round the restore")
		}
	})
	w.unchanged("the end of a window with a record that was not raised", func() {
		_, err := w.subject.Reopen(w.ctx, domain, "", act("in a hurry"))
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != lastword.CodeFenceRegression || e.Resource != two {
			w.Fatalf("got %v, want FENCE_REGRESSION that names %s", err, two)
		}
	})
	n, err = w.restore("")
	w.must(err)
	if n != 2 {
		w.Fatalf("%d raised, want both again", n)
	}
	c := w.tenure(two)
	w.applied(w.apply(c, 1, later(2000), "3"))(1)
	if _, err := w.subject.Reopen(w.ctx, domain, two, act("one of many")); err == nil {
		w.Fatalf("one record of a place that was restored as a whole was reopened alone")
	}
	n, err = w.subject.Reopen(w.ctx, domain, "", act("all looked through"))
	w.must(err)
	if n != 2 {
		w.Fatalf("%d reopened, want 2", n)
	}
	w.applied(w.apply(c, 2, "op-9", "4"))(2)
}

func unraisedFreezes(w *world) {
	const one, two = "doc/1", "doc/2"
	w.applied(w.apply(w.tenure(one), 1, "op-1", "1"))(1)
	w.authority.setCounter(two, 49)
	b := w.tenure(two)
	w.applied(w.apply(b, 1, "op-1", "1"))(1)
	answers := 0
	_, err := w.subject.Restored(w.ctx, fence.Restore{Domain: domain, Until: wallClock, Act: act("backup"), NextFence: func(ctx context.Context, r lastword.Resource) (lastword.Token, error) {
		if answers++; answers > 1 {
			return 0, errors.New("silent")
		}
		return w.nextOf(ctx, r)
	}})
	if err == nil || !w.record(two).Unraised {
		w.Fatalf("declared: %v; the record is %+v", err, w.record(two))
	}
	w.authority.setCounter(two, 40) // the authority was restored, too
	a := w.tenure(two)
	w.refused(w.apply(a, 1, later(1000), "2"))(lastword.FenceRegression, b.claims.Fence)
	if !w.record(two).Frozen {
		w.Fatalf("the record is not frozen: %+v", w.record(two))
	}
}

// lostWithRestore: the record was begun after the backup.
func lostWithRestore(w *world) {
	const doc = "doc/lost"
	if _, err := w.restore(""); err != nil {
		w.must(err)
	}
	old := w.tenure(doc)
	held := w.tenure(doc)
	silent := w.newGate(fenceOnly)
	asking := w.newGate(func(c *fence.Config) { c.Mode = fence.FenceOnly })
	w.touch(doc, later(1000))
	w.unchanged("writes of an older tenure, or without the authority's word", func() {
		w.refused(w.submit(w.second, silent, call(held, 1, later(1000), "1"), Write{Resource: doc, Value: "1"}))(lastword.StatusUnavailable, 0)
		w.refused(w.submit(w.second, asking, call(old, 1, later(1000), "1"), Write{Resource: doc, Value: "1"}))(lastword.Unverified, 0)
		w.refused(w.submit(w.second, asking, call(held, 1, "op-1", "1"), Write{Resource: doc, Value: "1"}))(lastword.ReceiptExpired, 0)
	})
	w.applied(w.submit(w.second, asking, call(held, 1, later(1000), "1"), Write{Resource: doc, Value: "1"}))(1)
	if rec := w.record(doc); rec.Restored == 0 || rec.Status != fence.Query {
		w.Fatalf("the record is %+v, want the window and the strictest mode", rec)
	}
}

// bothRestored is KF-16 (3) and X22: the authority is behind the place.
func bothRestored(w *world) {
	const doc = "doc/a"
	w.authority.setCounter(doc, 44)
	a := w.tenure(doc) // 45
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.authority.setCounter(doc, 40) // the authority's backup
	w.unchanged("a declaration while the authority is behind", func() {
		_, err := w.restore(doc)
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != lastword.CodeFenceRegression || e.Fence != a.claims.Fence {
			w.Fatalf("got %v, want FENCE_REGRESSION with the stored fence", err)
		}
	})
	w.newEpoch()
	if _, err := w.restore(doc); err != nil {
		w.Fatalf("in a new epoch: %v", err)
	}
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, later(int64(time.Hour/time.Millisecond)), "2"))(1)
}
