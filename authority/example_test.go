package authority_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/memstore"
)

// embedded is an authority inside this very process.
func embedded(ctx context.Context) (*authority.Authority, error) {
	key, err := grant.NewKey()
	if err != nil {
		return nil, err
	}
	signer, err := grant.NewSigner("invoices", key)
	if err != nil {
		return nil, err
	}
	return authority.Open(ctx, memstore.New().Open(), signer, authority.Config{Domain: "invoices"})
}

func ExampleOpen() {
	ctx := context.Background()
	key, err := grant.NewKey()
	if err != nil {
		fmt.Println(err)
		return
	}
	signer, err := grant.NewSigner("invoices", key)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := authority.Open(ctx, memstore.New().Open(), signer, authority.Config{Domain: "invoices"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()

	st, err := a.Status(ctx, lastword.StatusQuery{Resource: "batch/2026-07"})
	fmt.Println(st.State, st.NextFence, err)
	// Output: FREE 1 <nil>
}

func ExampleAuthority_Acquire() {
	ctx := context.Background()
	a, err := embedded(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()

	first, err := a.Acquire(ctx, lastword.AcquireRequest{
		Resource: "batch/2026-07", Owner: "worker-1", RequestID: "r-1", TTL: 30 * time.Second,
	})
	fmt.Println("worker-1:", first.Fence, err)

	second := lastword.AcquireRequest{
		Resource: "batch/2026-07", Owner: "worker-2", RequestID: "r-1", TTL: 30 * time.Second,
	}
	_, err = a.Acquire(ctx, second)
	fmt.Println("worker-2 is refused:", errors.Is(err, lastword.ErrHeld))

	fmt.Println("worker-1 is done:", a.Complete(ctx, first.TenureRef, []byte("42 invoices")), a.Release(ctx, first.TenureRef))

	second.Wait = time.Minute
	held, err := a.Acquire(ctx, second)
	fmt.Println("worker-2:", held.Fence, err)
	fmt.Printf("before it: %s, completed with %q\n", held.Previous.State, held.Previous.Result)
	// Output:
	// worker-1: 1 <nil>
	// worker-2 is refused: true
	// worker-1 is done: <nil> <nil>
	// worker-2: 2 <nil>
	// before it: RELEASED, completed with "42 invoices"
}

// Whoever carries out revocations watches, and sees them when they are durable.
func ExampleAuthority_Watch() {
	ctx := context.Background()
	a, err := embedded(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	held, err := a.Acquire(ctx, lastword.AcquireRequest{Resource: "batch/2026-07", Owner: "worker-1", RequestID: "r-1", TTL: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	for sight, err := range a.Watch(ctx, "batch/") {
		switch {
		case err != nil:
			fmt.Println("watch again:", err)
		case sight.Complete:
			fmt.Println("complete")
			if err := a.Revoke(ctx, held.Resource, held.Fence, "operator", "its host is gone"); err != nil {
				fmt.Println(err)
			}
			continue
		default:
			fmt.Println(sight.Status.Resource, sight.Status.State)
		}
		if sight.Status.State == lastword.StateRevoked {
			break
		}
	}
	page, err := a.List(ctx, lastword.ListQuery{Prefix: "batch/", All: true})
	fmt.Println(len(page.Resources), page.Resources[0].Last.Owner, err)
	// Output:
	// batch/2026-07 HELD
	// complete
	// batch/2026-07 REVOKED
	// 1 worker-1 <nil>
}
