package fencetest

import (
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func retentionCases() []testCase {
	needsExpire := func(s Subject) string { return lacks(s.Expire == nil, "retention of receipts (Expire)") }
	return []testCase{
		{name: "R19: tombstones without their record are no new record", run: tombstonesAlone, needs: func(s Subject) string {
			if lack := needsPrune(s); lack != "" {
				return lack
			}
			return needsLose(s)
		}},
		{name: "R19: receipts go by their age, and what had one is RECEIPT_EXPIRED", run: expired, needs: needsExpire},
		{name: "R19: a watermark stands for ids with a time, and never falls", run: expiredByTime, needs: needsExpire},
		{name: "R16b: what was looked at goes from the quarantine, and nothing else", run: dismissed, needs: func(s Subject) string {
			return lacks(s.Dismiss == nil, "end of a quarantine (Dismiss)")
		}},
		{name: "domain: a place knows which domains it has something of", run: domainsListed, needs: func(s Subject) string {
			return lacks(s.Domains == nil || s.Lose == nil, "list of domains (Domains), or loss of a record (Lose)")
		}},
		{name: "R20: a place knows in which domains a window is open", run: windowsListed, needs: func(s Subject) string {
			if s.Windows == nil {
				return "list of windows (Windows)"
			}
			return needsOperator(s)
		}},
	}
}

func tombstonesAlone(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	w.must(w.subject.Prune(w.ctx, w.key(doc), "op-1"))
	w.must(w.subject.Lose(w.ctx, w.key(doc)))
	w.unchecked = true // the record is gone on purpose
	if rec := w.record(doc); rec.Exists || !rec.Lost {
		w.Fatalf("the record is %+v, want it lost", rec)
	}
	b := w.tenure(doc)
	w.unchanged("a write where only a tombstone is left", func() {
		w.refused(w.apply(b, 1, "op-2", "2"))(lastword.FenceRegression, 0)
	})
}

// ages are two times of the gate, and what lies between them.
var (
	longAgo = wallClock.Add(-48 * time.Hour)
	between = wallClock.Add(-24 * time.Hour)
	after   = wallClock.Add(24 * time.Hour)
)

// aged writes an operation at a time.
func (w *world) aged(t *tenure, seq uint64, operation string, at time.Time) lastword.Receipt {
	w.Helper()
	g := w.newGate(func(c *fence.Config) { c.Now = func() time.Time { return at } })
	return w.applied(w.submit(w.subject, g, call(t, seq, operation, operation), Write{Resource: w.rows + t.claims.Resource, Value: operation}))(seq)
}

// expire prunes what was applied before a time.
func (w *world) expire(r lastword.Resource, before time.Time, bound bool, want int) {
	w.Helper()
	w.pruned = true
	n, err := w.subject.Expire(w.ctx, w.key(r), fence.Retention{Before: before, TimeBound: bound, At: wallClock})
	if err != nil || n != want {
		w.Fatalf("pruned %d receipts of %s, %v, want %d", n, r, err, want)
	}
}

func (w *world) has(r lastword.Resource, operation string, want bool) {
	w.Helper()
	_, found, err := w.subject.Lookup(w.ctx, w.gate, r, operation)
	if err != nil || found != want {
		w.Fatalf("a receipt of %s at %s in %s: %v, %v, want %v", operation, r, w.authority.domain, found, err, want)
	}
}

func expired(w *world) {
	const doc, neighbour = "doc/a", "doc/b"
	o := w.elsewhere()
	stories := []struct {
		at   *world
		r    lastword.Resource
		last string
	}{{o, doc, "op-last-there"}, {w, neighbour, "op-last-beside"}, {w, doc, "op-last"}}
	tenures := map[string]*tenure{}
	for _, s := range stories {
		a := s.at.tenure(s.r)
		tenures[s.last] = a
		for i, op := range []string{"op-1", "op-2", "op-3"} {
			s.at.aged(a, uint64(i+1), op, []time.Time{longAgo, longAgo, wallClock}[i])
		}
		s.at.aged(a, 4, s.last, longAgo)
	}
	a := tenures["op-last"]
	w.expire(doc, longAgo, false, 0)
	w.expire(doc, between, false, 2)
	w.expire(doc, between, false, 0)
	for op, want := range map[string]bool{"op-1": false, "op-2": false, "op-3": true, "op-last": true} {
		w.has(doc, op, want)
	}
	for _, s := range stories[:2] {
		for _, op := range []string{"op-1", "op-2", "op-3", s.last} {
			s.at.has(s.r, op, true)
		}
		if _, err := s.at.apply(tenures[s.last], 1, "op-1", "op-1"); err != nil {
			w.Fatalf("an operation of another record: %v", err)
		}
	}
	w.unchanged("operations whose receipts are gone", func() {
		w.refused(w.apply(a, 5, "op-1", "op-1"))(lastword.ReceiptExpired, a.claims.Fence)
		w.refused(w.apply(a, 5, "op-2", "other"))(lastword.ReceiptExpired, a.claims.Fence)
	})
	w.expire(doc, after, false, 1)
	w.has(doc, "op-last", true) // the record's last write is never forgotten
	w.applied(w.apply(a, 5, "op-5", "op-5"))(5)
}

func expiredByTime(w *world) {
	const doc, neighbour = "doc/a", "doc/b"
	o := w.elsewhere()
	first, second, third := later(-3000), later(-2000), later(-1000)
	a := w.tenure(doc)
	// The one that was issued later was applied before the other.
	w.aged(a, 1, second, longAgo)
	w.aged(a, 2, first, wallClock)
	w.aged(a, 3, "op-no-time", longAgo)
	w.aged(a, 4, "op-last", wallClock)
	b, c := w.tenure(neighbour), o.tenure(doc)
	w.aged(b, 1, "op-1", wallClock)
	o.aged(c, 1, "op-1", wallClock)
	w.expire(doc, between, true, 2)
	w.expire(doc, after, true, 1)
	w.unchanged("operations that were issued up to the watermark, or have a tombstone", func() {
		for _, op := range []string{first, second, later(-2500), later(-4000), "op-no-time"} {
			w.refused(w.apply(a, 5, op, op))(lastword.ReceiptExpired, a.claims.Fence)
		}
	})
	w.applied(w.apply(a, 5, third, third))(5)
	if w.subject.Within != nil {
		w.applied(w.within(w.gate, call(a, 6, "op-within", "v"), "v", true))(6)
	}
	w.applied(w.apply(b, 2, first, first))(2)
	o.applied(o.apply(c, 2, first, first))(2)
}

func dismissed(w *world) {
	const doc, neighbour = "doc/a", "doc/b"
	o := w.elsewhere()
	for _, s := range []struct {
		at *world
		r  lastword.Resource
	}{{o, doc}, {w, neighbour}, {w, doc}} {
		for _, owner := range []string{"worker-a", "worker-b"} {
			t := s.at.tenureOf(s.r, owner)
			s.at.applied(s.at.apply(t, 1, "by "+owner, "good"))(1)
			for _, content := range []string{"one", "two"} {
				s.at.refused(s.at.apply(t, 2, "by "+owner, content))(lastword.Conflict, t.claims.Fence)
			}
		}
	}
	left := func(at *world, r lastword.Resource) (n int) { return len(at.inspect(r).Quarantine) }
	for _, step := range []struct {
		claimant   string
		gone, left int64
	}{{"worker-a", 2, 2}, {"worker-a", 0, 2}, {"", 2, 0}} {
		n, err := w.subject.Dismiss(w.ctx, w.key(doc), step.claimant, act("looked at it"))
		if err != nil || n != step.gone || left(w, doc) != int(step.left) {
			w.Fatalf("of %q %d were dismissed, %v, and %d are left; want %d and %d", step.claimant, n, err, left(w, doc), step.gone, step.left)
		}
		if step.left > 0 && slices.ContainsFunc(w.inspect(doc).Quarantine, func(e fence.Evidence) bool { return e.Claimant != "worker-b" }) {
			w.Fatalf("of the wrong claimant")
		}
	}
	if left(o, doc) != 4 || left(w, neighbour) != 4 {
		w.Fatalf("of others %d and %d are left, want 4 of each", left(o, doc), left(w, neighbour))
	}
}

func domainsListed(w *world) {
	const registered, refused, lost, nothing = "doc/registered", "doc/refused", "doc/lost", "doc/nothing"
	o := w.elsewhere()
	o.story("doc/there")
	w.unchecked = true // a record is lost on purpose
	_, err := w.subject.Advance(w.ctx, w.gate, call(w.tenure(registered), 0, "", ""))
	w.must(err)
	w.refused(w.apply(w.tenure(refused), 7, "op-7", "7"))(lastword.OutOfOrder, 0)
	w.applied(w.apply(w.tenure(lost), 1, "op-1", "1"))(1)
	w.must(w.subject.Lose(w.ctx, w.key(lost)))
	for r, want := range map[lastword.Resource][]string{
		registered: {domain}, refused: {domain}, lost: {domain}, nothing: nil, "doc/there": {otherDomain},
	} {
		got, err := w.subject.Domains(w.ctx, r)
		if err != nil || !slices.Equal(got, want) {
			w.Fatalf("the domains of %s are %q, %v, want %q", r, got, err, want)
		}
	}
}

func windowsListed(w *world) {
	const doc = "doc/a"
	o := w.elsewhere()
	are := func(want ...string) {
		w.Helper()
		got, err := w.subject.Windows(w.ctx)
		if err != nil || !slices.Equal(got, want) {
			w.Fatalf("windows are open in %q, %v, want %q", got, err, want)
		}
	}
	w.applied(w.apply(w.tenure(doc), 1, "op-1", "1"))(1)
	are()
	_, err := o.subject.Restored(w.ctx, fence.Restore{Domain: otherDomain, Until: wallClock, Act: act("backup"), NextFence: o.nextOf})
	w.must(err)
	are(otherDomain)
	_, err = w.restore(doc)
	w.must(err)
	are(otherDomain, domain)
	_, err = w.subject.Reopen(w.ctx, otherDomain, "", act("looked through"))
	w.must(err)
	are(domain)
	_, err = w.subject.Reopen(w.ctx, domain, doc, act("looked through"))
	w.must(err)
	are()
}
