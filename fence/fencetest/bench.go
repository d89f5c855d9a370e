package fencetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// RunBenchmarks measures an adapter with the workloads that all adapters are
// measured with: new writes by one caller and by many on resources of their own,
// replays, refusals and lookups. The gate asks nobody, so that the place is what is
// measured.
func RunBenchmarks(b *testing.B, h Harness) {
	b.Run("Apply", func(b *testing.B) {
		w, g := benchWorld(b, h)
		t := w.tenure("bench/one")
		n := uint64(0)
		for b.Loop() {
			n++
			w.benchApply(b, g, t, n)
		}
	})
	b.Run("ApplyParallel", func(b *testing.B) {
		w, g := benchWorld(b, h)
		var resources atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			t, err := w.authority.acquire(lastword.Resource(fmt.Sprintf("bench/%d", resources.Add(1))), "owner", nil)
			if err != nil {
				b.Error(err)
				return
			}
			for n := uint64(1); pb.Next(); n++ {
				w.benchApply(b, g, t, n)
			}
		})
	})
	b.Run("Within", func(b *testing.B) {
		w, g := benchWorld(b, h)
		if w.subject.Within == nil {
			b.Skip("the harness offers no " + needsWithin(w.subject))
		}
		t := w.tenure("bench/one")
		n := uint64(0)
		for b.Loop() {
			n++
			value := strconv.FormatUint(n, 10)
			if _, err := w.subject.Within(w.ctx, g, call(t, n, value, value), Write{Resource: t.claims.Resource, Value: value}, true); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Replay", func(b *testing.B) {
		w, g := benchWorld(b, h)
		t := w.tenure("bench/one")
		w.benchApply(b, g, t, 1)
		for b.Loop() {
			w.benchApply(b, g, t, 1)
		}
	})
	b.Run("Refuse", func(b *testing.B) {
		w, g := benchWorld(b, h)
		old := w.tenure("bench/one")
		w.benchApply(b, g, w.tenure("bench/one"), 1)
		for b.Loop() {
			_, err := w.subject.Apply(w.ctx, g, call(old, 1, "late", "late"), Write{Resource: old.claims.Resource, Value: "late"})
			if !errors.Is(err, lastword.ErrStale) {
				b.Fatal(err)
			}
		}
	})
	b.Run("Lookup", func(b *testing.B) {
		w, g := benchWorld(b, h)
		t := w.tenure("bench/one")
		w.benchApply(b, g, t, 1)
		for b.Loop() {
			if _, found, err := w.subject.Lookup(w.ctx, g, "bench/one", "1"); err != nil || !found {
				b.Fatal(found, err)
			}
		}
	})
}

func benchWorld(b *testing.B, h Harness) (*world, *fence.Gate) {
	b.Helper()
	w := newWorld(b.Context(), b, h)
	return w, w.newGate(fenceOnly)
}

func (w *world) benchApply(b *testing.B, g *fence.Gate, t *tenure, n uint64) {
	value := strconv.FormatUint(n, 10)
	if _, err := w.subject.Apply(w.ctx, g, call(t, n, value, value), Write{Resource: t.claims.Resource, Value: value}); err != nil {
		b.Error(err)
	}
}
