package storetest_test

import (
	"fmt"
	"testing"

	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
	"github.com/lastword/lastword/store/storetest"
)

// A store's own test is one call.
func ExampleRun() {
	var memory *memstore.Memory
	_ = func(t *testing.T) {
		storetest.Run(t, storetest.Harness{
			Shared: true,
			Open: func(storetest.TB) store.Store {
				memory = memstore.New()
				return memory.Open()
			},
			Reopen: func(storetest.TB, bool) store.Store { return memory.Open() },
			Second: func(storetest.TB) (store.Store, error) { return memory.Open(), nil },
		})
	}
}

// What the kit must reject, or it proves nothing.
func ExampleBrokens() {
	for _, b := range storetest.Brokens()[:3] {
		fmt.Println(b.Rule, b.Name)
	}
	// Output:
	// R1 counter-in-lease
	// R6 reset-on-release
	// R2 no-request-records
}
