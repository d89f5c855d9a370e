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
