package store_test

import (
	"context"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

// A step is applied only if what it rests on still stands: here the revision.
func ExampleStore() {
	ctx := context.Background()
	s := memstore.New().Open()
	_, err := s.Commit(ctx, store.Step{Create: true, Header: &store.Header{Exists: true, Identity: "example", TickSpan: 100_000_000}})
	if err != nil {
		fmt.Println(err)
		return
	}
	write := func(revision uint64, owner string) store.Step {
		return store.Step{Record: &store.Record{
			Resource: "doc/report", Revision: revision, Counter: 1,
			Lease: store.Lease{ID: "lease-1", Owner: owner, RequestID: "1", Fence: 1, State: lastword.StateHeld},
		}}
	}
	applied, err := s.Commit(ctx, write(1, "a"), write(1, "b"), write(2, "c"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(applied)

	view, err := s.Read(ctx, store.Query{Resource: "doc/report"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(view.Entries[0].Record.Lease.Owner, view.Entries[0].Record.Revision)
	// Output:
	// [true false true]
	// c 2
}
