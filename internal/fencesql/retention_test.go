package fencesql_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

func TestWhatWasPrunedIsExpiredAndNeverDoneAgain(t *testing.T) { // KF-33 (1), R19
	const (
		early = "01890a5d-ac96-7b2c-8f00-000000000001" // UUIDv7: 2023-06-29
		later = "01990a5d-ac96-7b2c-8f00-000000000002" // 2025-09-02
		never = "01890a5d-ac00-7b2c-8f00-000000000003" // issued before early, and never applied
	)
	for _, c := range allClients() {
		for _, bound := range []bool{false, true} {
			t.Run(c.name+map[bool]string{false: ", tombstones", true: ", time-bound ids"}[bound], func(t *testing.T) {
				dsn, db := c.place(t)
				s := newSeal(t)
				g := c.guard(t, dsn, s, 2)
				h := s.holder("r", "a", 1)
				for _, op := range []string{early, "no-time", later, "last"} {
					if _, err := g.write(t.Context(), h, "r", op, "v"); err != nil {
						t.Fatal(err)
					}
				}
				key := fence.Key{Domain: domain, Resource: "r"}
				if _, err := g.prune(t.Context(), key, fence.Retention{}); !errors.Is(err, lastword.ErrInvalid) {
					t.Errorf("without a time: %v", err)
				}
				now := time.Now()
				if n, err := g.prune(t.Context(), key, fence.Retention{Before: now.Add(-time.Hour), TimeBound: bound, At: now}); n != 0 || err != nil {
					t.Errorf("nothing is old enough: %d %v", n, err)
				}
				if n, err := g.prune(t.Context(), key, fence.Retention{Before: now.Add(time.Hour), TimeBound: bound, At: now}); n != 3 || err != nil {
					t.Errorf("all but the last: %d %v", n, err)
				}
				for _, op := range []string{early, "no-time", later} {
					if _, err := g.write(t.Context(), h, "r", op, "v"); !errors.Is(err, lastword.ErrReceiptExpired) {
						t.Errorf("%s again: %v", op, err)
					}
				}
				if r, err := g.write(t.Context(), h, "r", "last", "v"); err != nil || r.Verdict != lastword.Replayed {
					t.Errorf("the last: %+v %v", r, err)
				}
				if _, err := g.write(t.Context(), h, "r", never, "v"); bound != errors.Is(err, lastword.ErrReceiptExpired) {
					t.Errorf("issued before the watermark and never applied: %v", err)
				}
				// What a place remembers of a record has its watermark in it.
				for i, op := range []string{early, "no-time", later, never} {
					if _, err := g.write(t.Context(), h, "r", fmt.Sprint("between-", i), "v"); err != nil {
						t.Fatal(err)
					}
					if _, err := g.write(t.Context(), h, "r", op, "v"); !errors.Is(err, lastword.ErrReceiptExpired) && (bound || op != never) {
						t.Errorf("%s once more: %v", op, err)
					}
				}
				for op, want := range map[string]int{early: 1, "no-time": 1, later: 1, never: map[bool]int{false: 1}[bound]} {
					if n := effects(t, db, op); n != want {
						t.Errorf("%s: %d effects, want %d", op, n, want)
					}
				}
				newer := s.holder("r", "b", 2)
				if _, _, err := g.resolve(t.Context(), "r", newer, early); !errors.Is(err, lastword.ErrReceiptExpired) {
					t.Errorf("resolve what was pruned: %v", err)
				}
				if r, found, err := g.resolve(t.Context(), "r", newer, "last"); err != nil || !found || r.Verdict != lastword.Replayed {
					t.Errorf("resolve what is there: %v %v", found, err)
				}
				if _, found, err := g.resolve(t.Context(), "r", newer, "no-effect"); err != nil || found {
					t.Errorf("resolve what is not: %v %v", found, err)
				}
				if _, err := g.write(t.Context(), h, "r", "no-effect", "v"); !errors.Is(err, lastword.ErrStale) {
					t.Errorf("the old attempt after that: %v", err)
				}
				if _, _, err := g.resolve(t.Context(), "r", h, "no-effect"); !errors.Is(err, lastword.ErrStale) {
					t.Errorf("an older tenure resolves: %v", err)
				}
			})
		}
	}
}
