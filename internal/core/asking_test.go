package core_test

import (
	"testing"

	"github.com/lastword/lastword/internal/core"
)

func TestAnAttemptIsGoneWhenItsLastCopyMustHaveLapsed(t *testing.T) { // R27
	bound := core.TrustBound{RatePPM: 10_000, Floor: 2}
	a := core.NewAsking(100, 10, 1000)
	if a.Asks != 1130 || a.Open || a.Left(1000) != 0 {
		t.Errorf("a new one: %+v", a)
	}
	a = a.Unanswered(1000, 100, 10, 600, bound)
	if want := int64(1000 + 100 + 10 + 600 + 6); !a.Open || a.Gone != want || a.Left(1016) != want-1016 || a.Left(want+1) != 0 {
		t.Errorf("one copy: %+v", a)
	}
	// A later copy that does not queue is gone sooner, and takes nothing back.
	if b := a.Unanswered(1050, 0, 10, 600, bound); b.Gone != a.Gone {
		t.Errorf("a shorter copy: %+v", b)
	}
	if b := a.Unanswered(1120, 0, 10, 600, bound); b.Gone != 1120+10+600+6 {
		t.Errorf("the last copy: %+v", b)
	}
	// A grant that arrived early in a long wait does not have the rest of it.
	b := core.NewAsking(100_000, 10, 1000).Granted(20, 60, 1500, bound)
	if b.Asks != 1560 || b.Gone != 1500+60+2 || !b.Open {
		t.Errorf("a grant: %+v", b)
	}
}

func TestAQueuedAttemptIsLookedAtWhileAGrantWouldLast(t *testing.T) { // R27
	const ms = 1_000_000
	for ttl, want := range map[int64]int64{30_000 * ms: 10_000 * ms, 3000 * ms: 1000 * ms, 750 * ms: 250 * ms, 100 * ms: 250 * ms} {
		if got := core.AskingLook(ttl); got != want {
			t.Errorf("ttl %d ms: every %d ms, want %d", ttl/ms, got/ms, want/ms)
		}
	}
}
