package fencetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func evidenceCases() []testCase {
	return []testCase{
		{name: caseEvidence, run: countsSurvive},
		{name: caseQuarantine, run: quarantine},
		{name: "R16b: a freeze is for the fence that was seen", run: lateFreeze},
	}
}

const (
	caseEvidence = "R16b: refusals are counted after the roll-back"
	// T12: a payload that is changed under a valid grant.
	caseQuarantine = "R16b: conflicts are kept, the first and the last of each claimant"
)

func countsSurvive(w *world) {
	const doc, fresh = "doc/a", "doc/fresh"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, "op-2", "2"))(1)
	for range 3 {
		w.refused(w.apply(a, 2, "op-3", "3"))(lastword.StaleOwner, b.claims.Fence)
	}
	for range 2 {
		w.refused(w.apply(b, 5, "op-3", "3"))(lastword.OutOfOrder, b.claims.Fence)
	}
	w.refused(w.apply(b, 2, "op-1", "x"))(lastword.Conflict, b.claims.Fence)
	c := w.tenure(fresh)
	w.refused(w.apply(c, 3, "op-1", "1"))(lastword.OutOfOrder, 0)
	i := w.inspect(doc)
	for v, want := range map[lastword.Verdict]uint64{
		lastword.StaleOwner: 3, lastword.OutOfOrder: 2, lastword.Conflict: 1, lastword.RootMismatch: 0, lastword.Applied: 0,
	} {
		if i.Refusals[v] != want {
			w.Fatalf("%d refusals with %s are counted, want %d", i.Refusals[v], v, want)
		}
	}
	if n := w.inspect(fresh).Refusals[lastword.OutOfOrder]; n != 1 {
		w.Fatalf("%d refusals are counted where there is no record, want 1", n)
	}
}

func quarantine(w *world) {
	const doc = "doc/a"
	a := w.tenureOf(doc, "worker-a")
	w.applied(w.apply(a, 1, "k", "good"))(1)
	long := strings.Repeat("long ", fence.MaxQuarantineBytes)
	for _, content := range []string{"first\x00\xff", "second", long} {
		w.refused(w.apply(a, 2, "k", content))(lastword.Conflict, a.claims.Fence)
	}
	b := w.tenureOf(doc, "worker-b")
	w.refused(w.apply(b, 1, "k", "other"))(lastword.Conflict, a.claims.Fence)
	i := w.inspect(doc)
	if len(i.Quarantine) != 3 || i.Refusals[lastword.Conflict] != 4 {
		w.Fatalf("%d are kept and %d counted, want 3 and 4", len(i.Quarantine), i.Refusals[lastword.Conflict])
	}
	w.kept(i.Quarantine, a, 2, "first\x00\xff")
	w.kept(i.Quarantine, a, 2, long)
	w.kept(i.Quarantine, b, 1, "other")
	w.wantEffects(doc, "k=good")
}

// kept checks that one refused payload of a claimant is in the quarantine.
func (w *world) kept(all []fence.Evidence, t *tenure, seq uint64, content string) {
	w.Helper()
	var seen []string
	for _, e := range all {
		q := e.Quarantine
		if q == nil {
			w.Fatalf("an entry of the quarantine keeps nothing: %+v", e)
		}
		want := []byte(content)[:min(len(content), fence.MaxQuarantineBytes)]
		if e.Claimant == t.claims.Owner && q.Payload == lastword.DigestOf([]byte(content)) && bytes.Equal(q.Content, want) {
			if e.Fence != t.claims.Fence || e.LeaseID != t.claims.LeaseID || q.Operation != "k" || q.Seq != seq ||
				e.Verdict != lastword.Conflict || e.Why == "" || e.At.Unix() != 1_800_000_123 {
				w.Fatalf("the entry is %+v %+v", e, *q)
			}
			return
		}
		seen = append(seen, fmt.Sprintf("%s %.20q", e.Claimant, q.Content))
	}
	w.Fatalf("%.20q of %s is not kept: %q", content, t.claims.Owner, seen)
}

// lateFreeze: between a refusal and its note the record may have moved on to a newer
// fence. That one must not be frozen.
func lateFreeze(w *world) {
	const doc = "doc/a"
	if w.subject.Within == nil {
		w.Logf("without Within the note cannot be held back; only the plain freeze is looked at")
		equalFenceOtherLease(w)
		return
	}
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	twin, err := w.authority.issue(doc, "twin", a.claims.Fence, nil)
	w.must(err)
	g := w.newGate(func(c *fence.Config) { c.Status = held{twin, w.authority} })
	w.refused(w.within(g, call(twin, 2, "op-2", "2"), "2", true))(lastword.FenceRegression, a.claims.Fence)
	b := w.tenure(doc)
	w.applied(w.apply(b, 1, "op-3", "3"))(1)
	if err := g.Flush(w.ctx); err != nil {
		w.Fatalf("flush: %v", err)
	}
	if i := w.inspect(doc); i.Record.Frozen || i.Refusals[lastword.FenceRegression] != 1 {
		w.Fatalf("after the flush: %+v, want it counted and not frozen", i)
	}
	w.applied(w.apply(b, 2, "op-4", "4"))(2)
}
