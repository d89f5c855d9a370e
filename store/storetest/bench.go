package storetest

import (
	"fmt"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

// RunBenchmarks measures the steps of an acquire (a record and its request record),
// in batches as a group commit makes them of 64 callers with a resource each, or of
// callers spread over 4096 resources, and reads. It reports steps/s.
func RunBenchmarks(b *testing.B, h Harness) {
	for _, resources := range []int{64, 4096} {
		for _, size := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("Commit/resources=%d/batch=%d", resources, size), func(b *testing.B) { benchCommit(b, h, resources, size) })
		}
	}
	b.Run("Read/known", func(b *testing.B) { benchRead(b, h, 4096, true) })
	b.Run("Read/new-request", func(b *testing.B) { benchRead(b, h, 4096, false) })
}

// benchWorld has every resource once and returns the step of its next version.
func benchWorld(b *testing.B, h Harness, resources int) (*world, func(n int) store.Step) {
	w := newWorld(b, h)
	w.create(store.Header{})
	root := lastword.DigestOf([]byte("root"))
	step := func(n int) store.Step {
		resource := lastword.Resource(fmt.Sprintf("tenant/%d/document/%d", n%16, n%resources))
		in := w.input("spiffe://example.org/worker/7", fmt.Sprintf("request-%d", n))
		revision := uint64(n/resources + 1)
		lease := store.Lease{ID: in.LeaseID, Owner: in.Owner, RequestID: in.RequestID, Fence: lastword.Token(revision),
			Root: root, Class: in.Class, TTL: in.TTL, Ticks: in.Ticks, Deadline: in.Ticks, GrantedRevision: revision,
			IssuedAt: 1_700_000_000, KeyID: "key-1", State: lastword.StateHeld}
		return store.Step{OnTick: true,
			Record:   &store.Record{Resource: resource, Revision: revision, Counter: revision, Lease: lease},
			Requests: []store.Request{{Owner: in.Owner, ID: in.RequestID, Params: root, LeaseID: in.LeaseID, Fence: lease.Fence, State: lastword.StateHeld}}}
	}
	for n := 0; n < resources; n += 64 {
		w.batch(step, n, 64)
	}
	return w, step
}

func (w *world) batch(step func(int) store.Step, from, size int) {
	w.Helper()
	steps := make([]store.Step, size)
	for i := range steps {
		steps[i] = step(from + i)
	}
	applied, err := w.handle.Commit(w.Context(), steps...)
	if err != nil {
		w.Fatalf("commit: %v", err)
	}
	for i, ok := range applied {
		if !ok {
			w.Fatalf("step %d was not applied", from+i)
		}
	}
}

func benchCommit(b *testing.B, h Harness, resources, size int) {
	w, step := benchWorld(b, h, resources)
	n := resources
	b.ReportAllocs()
	for b.Loop() {
		w.batch(step, n, size)
		n += size
	}
	b.ReportMetric(float64(n-resources)/b.Elapsed().Seconds(), "steps/s")
}

func benchRead(b *testing.B, h Harness, resources int, known bool) {
	w, step := benchWorld(b, h, resources)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		s := step(n % resources)
		q := store.Query{Resource: s.Record.Resource, Owner: s.Record.Lease.Owner, RequestID: s.Record.Lease.RequestID}
		if !known {
			q.RequestID = "another"
		}
		if view := w.read(q); view.Entries[0].Record.Revision != 1 || (view.Entries[0].Request != nil) != known {
			b.Fatalf("read %+v", view)
		}
		n++
	}
}
