package fencetest_test

import (
	"slices"
	"testing"

	"github.com/lastword/lastword/fence/fencetest"
)

// The kit rejects every broken adapter, by the case of the rule that it breaks.
func TestTheKitRejectsBrokenAdapters(t *testing.T) {
	names := map[string]bool{}
	for _, b := range fencetest.Broken() {
		if names[b.Name] {
			t.Fatalf("two broken adapters are called %q", b.Name)
		}
		names[b.Name] = true
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			failures := fencetest.Failures(t.Context(), b.Harness)
			var by []string
			for _, f := range failures {
				if !slices.Contains(by, f.Case) {
					by = append(by, f.Case)
				}
			}
			if !slices.Contains(by, b.Case) {
				t.Fatalf("%q did not reject it; rejected by %q", b.Case, by)
			}
			t.Logf("rejected by %d cases, among them %q", len(by), b.Case)
			for _, f := range failures {
				if f.Case == b.Case {
					t.Logf("%s", f.Message)
					break
				}
			}
		})
	}
}

// What rejects broken adapters does not reject the right one.
func TestFailuresOfTheReferencePlaceAreNone(t *testing.T) {
	for _, f := range fencetest.Failures(t.Context(), fencetest.Memory()) {
		t.Errorf("%s: %s", f.Case, f.Message)
	}
}
