package fence_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
)

// T24: the authority goes down in the middle. Nothing fails open: in query mode writes
// end with the last answer's reuse, in proof mode with the proof, and nothing new is
// granted; a gate that asks for less changes nothing at a record that wants more.
func TestWhileTheAuthorityIsDownNothingFailsOpen(t *testing.T) {
	r := newReal(t)
	var mu sync.Mutex
	var gone time.Duration
	start := time.Now()
	after := func() time.Duration { mu.Lock(); defer mu.Unlock(); return gone }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); gone += d }
	clocks := func(c *fence.Config) {
		c.StatusReuse, c.AskTimeout = time.Second, 20*time.Millisecond
		c.Elapsed, c.Now = after, func() time.Time { return start.Add(after()) }
	}
	for _, mode := range []fence.StatusMode{fence.Proof, fence.Query} { // the record is tightened
		l := r.acquire(20 * time.Second)
		g := r.gate(func(c *fence.Config) { clocks(c); c.Mode = mode })
		for _, operation := range []string{"up 1 ", "up 2 "} {
			if err := r.write(g, l, operation+string(mode)); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l := r.acquire(20 * time.Second)
	asking := r.gate(func(c *fence.Config) { clocks(c) })
	if err := r.write(asking, l, "first"); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	proving := r.gate(func(c *fence.Config) { clocks(c); c.Mode = fence.Proof })
	loose := r.gate(func(c *fence.Config) { clocks(c); c.Mode = fence.FenceOnly })
	must(r.authority.Close())

	must(r.write(asking, l, "inside the reuse"))
	pass(time.Second + 1)
	before := r.place.Snapshot()
	for what, g := range map[string]*fence.Gate{"query": asking, "proof": proving, "fence-only": loose} {
		if err := r.write(g, l, "down "+what); !errors.Is(err, lastword.ErrStatusUnavailable) {
			t.Errorf("%s at a record in query mode: %v", what, err)
		}
	}
	if r.place.Snapshot() != before {
		t.Error("a refused write changed the place")
	}

	other := newReal(t) // with a record that only wants proofs
	lease := other.acquire(20 * time.Second)
	gate := other.gate(func(c *fence.Config) { clocks(c); c.Mode, c.Status = fence.Proof, nil })
	must(other.write(gate, lease, "op-1"))
	must(other.authority.Close())
	must(other.write(gate, lease, "op-2")) // the proof still lives
	pass(18 * time.Second)
	if err := other.write(gate, lease, "op-3"); grant.ReasonOf(err) != grant.ReasonProofExpired {
		t.Errorf("with a proof that has lapsed: %v", err)
	}
}
