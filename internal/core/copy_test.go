package core_test

import (
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// R10: whoever starts on a copy finds a regression, in the very run that it is of, with
// the witness of its store, with another one and with none.
func TestR10ACopyOfTheStoreIsFoundToBeOne(t *testing.T) {
	store := core.Header{Exists: true, Identity: "s", Domain: "d", TickSpan: 100, Epoch: 3, Tick: 7}
	copied := store.Copied()
	if copied != copied.Copied() || copied.Identity == store.Identity || !copied.Witnessed {
		t.Fatalf("the copy is %+v", copied)
	}
	for header, want := range map[core.Header]bool{store: false, copied: true} {
		if original, is := header.Original(); original != "s" || is != want {
			t.Errorf("%+v: original %q, copied %v", header, original, is)
		}
	}
	own := core.Witness{Current: 3, Pending: 3, Longest: 50, Store: "s"}
	if plan := core.PlanStart(store, &own); plan.Code != "" {
		t.Fatalf("a start on the store itself: %+v", plan)
	}
	another := own
	another.Store = "other"
	for _, w := range []*core.Witness{&own, &another, nil} {
		if plan := core.PlanStart(copied, w); plan.Code != lastword.CodeFenceRegression {
			t.Errorf("a start on the copy with witness %+v: %+v", w, plan)
		}
	}
	if got := core.Compare(3, copied, &own); got != core.Regressed {
		t.Errorf("a running process that finds the copy in place of its store: %v", got)
	}
}
