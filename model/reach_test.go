package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword/internal/core"
)

// broken runs a scope as if it were the right system, with something changed.
func broken(t *testing.T, scope string, change func(*Wiring)) Report {
	t.Helper()
	_, name, cast, err := build(Options{Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Elapsed: func() time.Duration { return time.Second }}
	r := &run{o: o, v: Variant{change: change}, cast: cast, results: make([]*explored, len(cast))}
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.report(None, name, time.Second)
}

// A scope that does not get to what it is there for has shown nothing (R31): here the
// counter stands still, so that nobody ever takes over.
func TestAScopeThatDoesNotReachItsEndFails(t *testing.T) {
	r := broken(t, "r31", func(w *Wiring) {
		w.Step = func(read core.Tick) core.Tick { return read }
	})
	missing := r.Missing()
	if r.OK() || len(r.Violations) != 0 || !slices.Contains(missing, "r31: the end of the script") || !slices.Contains(missing, "r31: STALE_OWNER") {
		t.Errorf("ok: %t, violations: %d, missing: %q", r.OK(), len(r.Violations), missing)
	}
}

// Without the comparison of fences alone, the number inside the newer tenure would
// refuse many an older write, for another reason (P1).
func TestAFenceThatDoesNotCompareIsNoticedByTheVerdict(t *testing.T) {
	uncompared := func(w *Wiring) {
		w.Admit = func(rec core.FenceRecord, known core.KnownOperation, a core.Attempt) core.Decision {
			if rec.Exists && a.Fence < rec.Fence {
				a.Fence, a.LeaseID, a.Root = rec.Fence, rec.LeaseID, rec.Root
			}
			return core.Admit(rec, known, a)
		}
	}
	for _, scope := range []string{"r31", "quick"} {
		kinds := map[string]bool{}
		for _, v := range broken(t, scope, uncompared).Violations {
			kinds[v.Kind] = true
		}
		for _, want := range []string{wrongVerdict, revokedGenerationOverwrite} {
			if !kinds[want] {
				t.Errorf("%s: no %s in %v", scope, want, kinds)
			}
		}
	}
}

func TestEveryWorldSaysWhatMustBeReachable(t *testing.T) {
	for name, w := range worlds() {
		if w.wants == 0 {
			t.Errorf("%s wants nothing", name)
		}
		if w.wants&(1<<outPrefix) != 0 != w.script {
			t.Errorf("%s: a script is there to reach its end", name)
		}
	}
	used := map[string]bool{}
	for _, s := range Scopes() {
		for _, n := range s.Worlds {
			if _, ok := worlds()[n]; !ok {
				t.Errorf("%s has no world %s", s.Name, n)
			}
			used[n] = true
		}
	}
	for name := range worlds() {
		if !used[name] {
			t.Errorf("no scope has the world %s", name)
		}
	}
	for o := range outcomeCount {
		wanted := false
		for _, w := range worlds() {
			wanted = wanted || w.wants>>o&1 == 1
		}
		if !wanted {
			t.Errorf("no world is there to reach %s", outcomeNames[o])
		}
	}
}

func TestEachScopeHasTheWorldsOfTheOneBefore(t *testing.T) {
	all := Scopes()
	for i, s := range all[1:] {
		for _, name := range all[i].Worlds {
			if !slices.Contains(s.Worlds, name) {
				t.Errorf("%s has %s, and %s has not", all[i].Name, name, s.Name)
			}
		}
	}
}

// A count that stopped is a lower bound, and says so.
func TestACountThatStoppedSaysSo(t *testing.T) {
	w := worlds()["r31"]
	e := newExplorer(newMachine(w, Production()))
	if err := e.run(t.Context(), "", func(uint64, uint64) {}); err != nil {
		t.Fatal(err)
	}
	exact, _ := e.orders(mostOrders)
	if stopped, _ := e.orders(exact - 1); stopped != exact-1 {
		t.Errorf("stopped at %d, want %d", stopped, exact-1)
	}
	r := &run{results: []*explored{{report: WorldReport{Interleavings: mostOrders - 1}}, {report: WorldReport{Interleavings: 1}}}}
	if sum := r.report(None, "x", 0); sum.Interleavings != mostOrders || !sum.InterleavingsAtLeast {
		t.Errorf("the sum is %d, at least: %t", sum.Interleavings, sum.InterleavingsAtLeast)
	}
	r.results = r.results[:1]
	if sum := r.report(None, "x", 0); sum.InterleavingsAtLeast {
		t.Error("an exact count says that it stopped")
	}
}

// 64-bit numbers are strings in JSON, all of them.
func TestNoNumberOfAReportIsAJSONNumber(t *testing.T) {
	b, err := json.Marshal(broken(t, "r31", nil))
	if err != nil {
		t.Fatal(err)
	}
	var all any
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	var look func(path string, v any)
	look = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				look(path+"."+k, x)
			}
		case []any:
			for i, x := range v {
				look(fmt.Sprint(path, "[", i, "]"), x)
			}
		case json.Number:
			t.Errorf("%s is the number %s", path, v)
		}
	}
	look("", all)
}
