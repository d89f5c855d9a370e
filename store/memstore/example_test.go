package memstore_test

import (
	"context"
	"fmt"

	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

func ExampleNew() {
	ctx := context.Background()
	memory := memstore.New()
	a, b := memory.Open(), memory.Open() // as of two processes

	header := store.Header{Exists: true, Identity: "example"}
	applied, err := a.Commit(ctx, store.Step{Create: true, Header: &header},
		store.Step{Record: &store.Record{Resource: "doc/1", Revision: 1, Counter: 1}})
	fmt.Println(applied, err)

	// Both read revision 1; one of them writes revision 2.
	next := store.Step{Record: &store.Record{Resource: "doc/1", Revision: 2, Counter: 2}}
	applied, err = b.Commit(ctx, next)
	fmt.Println(applied, err)
	applied, err = a.Commit(ctx, next)
	fmt.Println(applied, err)
	// Output:
	// [true true] <nil>
	// [true] <nil>
	// [false] <nil>
}
