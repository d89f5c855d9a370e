package authority

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/memstore"
)

// BenchmarkLoop is the loop alone, on a store in memory: acquire and release
// without a signature.
func BenchmarkLoop(b *testing.B) {
	key, err := grant.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	signer, err := grant.NewSigner("d", key)
	if err != nil {
		b.Fatal(err)
	}
	a, err := Open(b.Context(), memstore.New().Open(), signer, Config{Domain: "d"})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for c := range 64 {
		wg.Go(func() {
			resource := lastword.Resource(fmt.Sprint("cycle/", c))
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				if err := bareCycle(a.loop, resource, fmt.Sprint(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}

func bareCycle(l *loop, resource lastword.Resource, id string) error {
	q := store.Query{Resource: resource, Owner: "o", RequestID: id}
	acquire := newCall(kindAcquire, "o", q)
	acquire.extends = true
	acquire.decide = func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
		return core.Acquire(rec, req, h, c, core.AcquireInput{
			Owner: "o", RequestID: id, TTL: core.Span(time.Minute), Ticks: 601, Class: "write", LeaseID: id,
		})
	}
	got, err := l.submit(context.Background(), acquire, 0)
	if err != nil {
		return err
	}
	held := ref(resource, got.answer.Lease)
	release := newCall(kindHolder, "o", q)
	release.decide = func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
		return core.Release(rec, req, h, c, held)
	}
	got, err = l.submit(context.Background(), release, 0)
	if err == nil && got.answer.Code != "" {
		err = fmt.Errorf("released with %s", got.answer.Code)
	}
	return err
}
