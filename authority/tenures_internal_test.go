package authority

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// TestLiveTenuresAreCountedAsByCounting compares with a count of all that are open and
// not past their deadline, over small steps of the counter and large ones.
func TestLiveTenuresAreCountedAsByCounting(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 1))
	all, n := newTenures(), 0
	open := map[lastword.Resource]core.Tick{}
	lease := map[lastword.Resource]string{}
	var tick core.Tick
	for i := range 200_000 {
		resource := lastword.Resource(fmt.Sprint("r/", r.IntN(3000)))
		var out Report
		c := &change{resource: resource, was: lease[resource], done: time.Duration(i)}
		switch r.IntN(4) {
		case 0: // granted, to the same or after an end
			c.lease, c.open, c.extended = fmt.Sprint("l", i), true, true
			c.ended = lastword.StateReleased
		case 1: // renewed
			c.lease, c.open, c.extended = c.was, true, true
		case 2: // ended
			c.lease, c.ended = c.was, lastword.StateReleased
		default:
			step := core.Tick(r.IntN(3))
			if r.IntN(100) == 0 {
				step = core.Tick(r.IntN(500))
			}
			tick += step
			all.advance(tick)
		}
		if c.lease != "" {
			c.deadline = tick + core.Tick(r.IntN(300))
			all.follow(c, &out)
			delete(open, resource)
			delete(lease, resource)
			if c.open {
				open[resource], lease[resource] = c.deadline, c.lease
			}
			n += len(out.Ended)
		}
		if i%100 != 0 {
			continue
		}
		want := 0
		for _, deadline := range open {
			if deadline > tick {
				want++
			}
		}
		if all.live != want {
			t.Fatalf("seed %d, step %d: %d live, want %d", seed, i, all.live, want)
		}
	}
	if n < 10_000 {
		t.Errorf("only %d ends", n)
	}
}
