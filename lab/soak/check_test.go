package soak

import (
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/report"
	"github.com/lastword/lastword/store"
)

// TestTheVerifierOfRows: each thing that must not be in a business database is found, and
// by the gate that is there for it.
func TestTheVerifierOfRows(t *testing.T) {
	t.Parallel()
	const doc = lastword.Resource("doc")
	one, two := operation{doc, "1"}, operation{doc, "2"}
	good := func() (rows, []Call) {
		return rows{
				effects: []effectRow{{1, one, 1, "a", "x"}, {2, two, 2, "b", "y"}},
				receipts: map[operation]receiptRow{
					one: {fence: 1, seq: 1, lease: "lease-a", owner: "a"}, two: {fence: 2, seq: 1, lease: "lease-b", owner: "b"},
				},
				documents: map[lastword.Resource]string{doc: "y"},
			}, []Call{{
				Fact: history.Fact{Op: opWrite, Resource: doc, Owner: "a", Fence: 1}, Operation: "1", Verdict: string(lastword.Applied),
			}}
	}
	granted := grantedAs{
		{doc, "a", "1"}: &store.Request{LeaseID: "lease-a", Fence: 1}, {doc, "b", "1"}: &store.Request{LeaseID: "lease-b", Fence: 2},
	}
	for _, c := range []struct {
		name  string
		spoil func(*rows, *[]Call)
		gate  string // "" for none
	}{
		{"as it should be", func(*rows, *[]Call) {}, ""},
		{"an older fence after a newer one (P1)", func(w *rows, _ *[]Call) { w.effects[0].fence, w.effects[1].fence = 2, 1 }, "stale_accepted"},
		{"one operation, two effects (P4)", func(w *rows, _ *[]Call) { w.effects = append(w.effects, w.effects[1]) }, "effect_twice"},
		{"a receipt and no effect", func(w *rows, _ *[]Call) { w.effects, w.documents[doc] = w.effects[:1], "x" }, "receipt_without_effect"},
		{"an effect and no receipt", func(w *rows, _ *[]Call) { delete(w.receipts, two) }, "checked_mutations"},
		{"a receipt of a tenure that nobody granted", func(w *rows, _ *[]Call) { w.receipts[two] = receiptRow{2, 1, "lease-c", "b"} }, "checked_mutations"},
		{"a receipt with another fence", func(w *rows, _ *[]Call) { w.receipts[two] = receiptRow{3, 1, "lease-b", "b"} }, "checked_mutations"},
		{"a document that nobody wrote", func(w *rows, _ *[]Call) { w.documents[doc] = "forged" }, "document_differs"},
		{"a number left out (R17)", func(w *rows, _ *[]Call) { w.receipts[two] = receiptRow{2, 3, "lease-b", "b"} }, "segment_jumps_accepted"},
		{"an acknowledged write that is gone", func(_ *rows, c *[]Call) { (*c)[0].Operation = "9" }, "acknowledged_lost"},
		{"a write that nobody can tell the end of", func(_ *rows, c *[]Call) { (*c)[0].Operation, (*c)[0].Open = "9", true }, "unknown_open"},
	} {
		w, calls := good()
		c.spoil(&w, &calls)
		r := &run{broken: map[string]int{}, counters: map[string]int{}, opts: Options{Rounds: 0}}
		var f findings
		r.checkRows(&cell{}, w, calls, granted, &f)
		failed := map[string]bool{}
		for _, g := range r.gates(f, &report.Run{}, series{}) {
			if !g.Holds && g.Name != "handover_p99_ms" && g.Name != "handover_crash_p99_ms" {
				failed[g.Name] = true
			}
		}
		if c.gate == "" && len(failed) > 0 || c.gate != "" && !failed[c.gate] {
			t.Errorf("%s: fails %v, want %q", c.name, failed, c.gate)
		}
	}
}

func TestAFaultWithoutAnEffectFailsTheRun(t *testing.T) {
	t.Parallel()
	var count tally
	count.planned("X1", "freeze")
	count.planned("X10", "duplicates")
	count.planned("X2", "kill")
	for name, effect := range map[string]bool{"freeze": true, "duplicates": true} {
		count.fired(name)
		count.effect(effect, name)
	}
	if g := coverage(count.all()); g.Holds {
		t.Error("a fault that never came is covered")
	}
	count.fired("kill")
	if g := coverage(count.all()); g.Holds || g.Got != "2 had" {
		t.Errorf("a fault that changed nothing is covered: %+v", g)
	}
	count.effect(true, "kill")
	if g := coverage(count.all()); !g.Holds {
		t.Errorf("not covered: %+v", g)
	}
	if all := count.all(); all[1].Name != "kill" || all[2].Name != "duplicates" {
		t.Errorf("the order is %v", all)
	}
}

func TestTheSlowestOfAHundredCounts(t *testing.T) {
	t.Parallel()
	d := make([]int, 100)
	for i := range d {
		d[i] = i + 1
	}
	if got := p99(durations(d...)); got != 99*msec {
		t.Errorf("p99 of 1 to 100 is %v", got)
	}
	if got := p99(durations(-5, -3)); got != 0 {
		t.Errorf("earlier than the TTL is %v", got)
	}
	if g := timeGate("handover_p99_ms", nil, releaseBound); g.Holds {
		t.Error("a gate holds that nothing was measured for")
	}
	if g := timeGate("handover_p99_ms", durations(25), releaseBound); !g.Holds {
		t.Error("25 ms are at most 25 ms")
	}
	if g := timeGate("handover_p99_ms", durations(26), releaseBound); g.Holds {
		t.Error("26 ms are at most 25 ms")
	}
}

func durations(ms ...int) (d []time.Duration) {
	for _, n := range ms {
		d = append(d, time.Duration(n)*msec)
	}
	return d
}
