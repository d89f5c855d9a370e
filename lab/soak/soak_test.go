package soak_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/lastword/lastword/lab/report"
	"github.com/lastword/lastword/lab/soak"
)

func TestRealRounds(t *testing.T) {
	o := options()
	o.Rounds, o.Seed = 500, 1
	r, err := soak.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	show(t, r)
	if !r.OK() {
		t.Error("a gate does not hold")
	}
}

func TestDefectsAreFound(t *testing.T) {
	for _, c := range []struct{ variant, gate string }{
		{"no-fence", "stale_accepted"},
		{"check-then-write", "stale_accepted"},
		{"effect-beside-transaction", "checked_mutations"},
		{"split-authority", "history_wrong"},
	} {
		t.Run(c.variant, func(t *testing.T) {
			o := options()
			o.Rounds, o.Seed, o.Variant, o.Cells = 116, 7, c.variant, 24
			r, err := soak.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range r.Gates {
				if !g.Holds {
					t.Logf("GATE %s: want %s, got %s", g.Name, g.Want, g.Got)
				}
			}
			for _, f := range r.Failures[:min(6, len(r.Failures))] {
				t.Logf("FAILURE %s: %s", f.Kind, f.Detail)
			}
			t.Logf("%.0f ms", r.TookMS)
		})
	}
}

func show(t *testing.T, r *report.Run) {
	t.Helper()
	for _, g := range r.Gates {
		if !g.Holds {
			t.Logf("GATE %s: want %s, got %s", g.Name, g.Want, g.Got)
		}
	}
	for _, f := range r.Faults {
		t.Logf("%v %s: planned %d fired %d effect %d", f.Cases, f.Name, f.Planned, f.Fired, f.Effect)
	}
	for _, f := range r.Failures {
		t.Logf("FAILURE %s: %s", f.Kind, f.Detail)
	}
	for _, n := range r.Notes {
		t.Log(n)
	}
	b, _ := json.Marshal(r.Counters)
	t.Logf("%s; %.0f ms", b, r.TookMS)
	if path := os.Getenv("SOAK_OUT"); path != "" {
		var out bytes.Buffer
		_ = r.Write(&out)
		_ = os.WriteFile(path, out.Bytes(), 0o600)
	}
}
