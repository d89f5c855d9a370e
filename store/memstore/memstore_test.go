package memstore_test

import (
	"testing"

	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
	"github.com/lastword/lastword/store/storetest"
)

func harness() storetest.Harness {
	var m *memstore.Memory
	return storetest.Harness{
		Open: func(storetest.TB) store.Store {
			m = memstore.New()
			return m.Open()
		},
		Reopen: func(storetest.TB, bool) store.Store { return m.Open() },
		Second: func(storetest.TB) (store.Store, error) { return m.Open(), nil },
		Shared: true,
	}
}

func TestTheReferencePassesTheKit(t *testing.T) { storetest.Run(t, harness()) }

func TestACopyIsIndependent(t *testing.T) {
	m := memstore.New()
	header := store.Header{Exists: true, Identity: "test"}
	step := func(n uint64) store.Step {
		return store.Step{Record: &store.Record{Resource: "doc", Revision: n}, Requests: []store.Request{{Owner: "o", ID: "r", Fence: 1}}}
	}
	if _, err := m.Open().Commit(t.Context(), store.Step{Create: true, Header: &header}, step(1)); err != nil {
		t.Fatal(err)
	}
	backup := m.Copy()
	if _, err := m.Open().Commit(t.Context(), step(2)); err != nil {
		t.Fatal(err)
	}
	for memory, want := range map[*memstore.Memory]uint64{m: 2, backup: 1} {
		view, err := memory.Open().Read(t.Context(), store.Query{Resource: "doc", Owner: "o", RequestID: "r"})
		if err != nil || view.Entries[0].Record.Revision != want || view.Entries[0].Request == nil {
			t.Errorf("got %+v, %v; want revision %d", view, err, want)
		}
	}
}

func BenchmarkMemory(b *testing.B) { storetest.RunBenchmarks(b, harness()) }
