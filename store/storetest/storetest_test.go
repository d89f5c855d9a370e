package storetest_test

import (
	"testing"

	"github.com/lastword/lastword/store/storetest"
)

// A check that has never failed proves nothing: every broken store is rejected by a
// case of the rule that it breaks.
func TestEveryBrokenStoreIsRejectedByACaseOfItsRule(t *testing.T) {
	for _, b := range storetest.Brokens() {
		t.Run(b.Name, func(t *testing.T) {
			failures := storetest.Failures(t, b.Harness())
			rejected := false
			for _, f := range failures {
				if f.Case == "" || f.Message == "" {
					t.Errorf("a failure names no case or no reason: %+v", f)
				}
				if f.Rule == b.Rule && !rejected {
					rejected = true
					t.Logf("%s: rejected by %q: %s", b.Breaks, f.Case, f.Message)
				}
			}
			if !rejected {
				t.Errorf("no case of %s noticed that %s; failed were %d others: %+v", b.Rule, b.Breaks, len(failures), failures)
			}
		})
	}
}
