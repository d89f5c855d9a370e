package authority_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/memstore"
)

// BenchmarkCycle is acquire and release, signature included, on a store in memory.
func BenchmarkCycle(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) { cycles(b, callers, 0, 0, 0) })
	}
	b.Run("callers=64/queues=10000", func(b *testing.B) { cycles(b, 64, 10_000, 0, 0) })
	b.Run("callers=64/readers=1", func(b *testing.B) { cycles(b, 64, 0, 1, 0) })
	b.Run("callers=64/stuck=1000", func(b *testing.B) { cycles(b, 64, 0, 0, 1000) })
}

// cycles runs b.N cycles by so many callers, each on resources of its own, while
// somebody waits for each of so many other resources, and so many watch them all, some
// of them without reading on.
func cycles(b *testing.B, callers, queues, readers, stuck int) {
	key, err := grant.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		b.Fatal(err)
	}
	a, err := authority.Open(b.Context(), memstore.New().Open(), signer, authority.Config{Domain: domain, MaxPerOwner: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var waiting sync.WaitGroup
	for i := range queues {
		r := lastword.AcquireRequest{Resource: lastword.Resource(fmt.Sprint("queue/", i)), Owner: "h", RequestID: "1", TTL: time.Hour}
		if _, err := a.Acquire(ctx, r); err != nil {
			b.Fatal(err)
		}
		r.Owner, r.Wait = "w", time.Hour
		waiting.Go(func() { _, _ = a.Acquire(ctx, r) })
	}
	for i := range readers + stuck {
		begun := make(chan struct{})
		waiting.Go(func() {
			for s, err := range a.Watch(ctx, "") {
				if err != nil {
					return
				}
				if s.Complete {
					close(begun)
					if i >= readers {
						<-ctx.Done()
					}
				}
			}
		})
		<-begun
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for c := range callers {
		wg.Go(func() {
			resource := lastword.Resource(fmt.Sprint("cycle/", c))
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				r := lastword.AcquireRequest{Resource: resource, Owner: "o", RequestID: fmt.Sprint(i), TTL: 30 * time.Second}
				t, err := a.Acquire(ctx, r)
				if err == nil {
					err = a.Release(ctx, t.TenureRef)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
	stop()
	waiting.Wait()
}
