package observe_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/observe"
	"github.com/lastword/lastword/store/memstore"
)

// tellings is what one call costs, by side.
func tellings(tb testing.TB) map[string]func() {
	tb.Helper()
	o, err := observe.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	joined := observe.Join(o, observe.Observers{})
	ctx := context.Background()
	granted := authority.Answer{Op: authority.OpAcquire, Resource: "doc/1", Fence: 7, Took: time.Millisecond, Queued: true}
	applied := fence.Answer{
		Op: fence.OpApply, Place: "sqlite:/var/lib/app.db", Mode: fence.Query, Domain: domain, Resource: "doc/1",
		Operation: "op", Fence: 7, Verdict: lastword.Applied, Took: time.Millisecond,
	}
	renewed := client.Answer{Op: client.OpRenew, Resource: "doc/1", Fence: 7, Took: time.Millisecond}
	held := client.Change{Event: client.Event{From: lastword.HolderRenewing, To: lastword.HolderHeld}}
	report := authority.Report{
		Commits: []authority.Commit{{Records: 10, Calls: 12, Took: time.Millisecond}},
		Ended:   []authority.TenureEnd{{How: lastword.StateReleased, Held: time.Second, Known: true}},
		State:   authority.State{Waiters: 1, OldestWaiter: time.Second},
	}
	return map[string]func(){
		"authority.Answered": func() { o.Authority.Answered(ctx, granted) },
		"authority.Report":   func() { o.Authority.Report(report) },
		"joined":             func() { joined.Authority.Answered(ctx, granted) },
		"fence.Answered":     func() { o.Fence.Answered(ctx, applied) },
		"client.Answered":    func() { o.Client.Answered(ctx, renewed) },
		"client.Changed":     func() { o.Client.Changed(held) },
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	for name, tell := range tellings(t) {
		tell() // the first of its kind makes its series
		if n := testing.AllocsPerRun(1000, tell); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkCounting(b *testing.B) {
	for name, tell := range tellings(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tell()
			}
		})
	}
}

// BenchmarkCycle is acquire and release on a store in memory, with nobody watching,
// and with metrics.
func BenchmarkCycle(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, watched := range []string{"nobody", "metrics"} {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, watched), func(b *testing.B) {
				var o observe.Observers
				if watched == "metrics" {
					var err error
					if o, err = observe.NewMetrics(prometheus.NewRegistry()); err != nil {
						b.Fatal(err)
					}
				}
				cycles(b, callers, o.Authority)
			})
		}
	}
}

func cycles(b *testing.B, callers int, o authority.Observer) {
	key, err := grant.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		b.Fatal(err)
	}
	a, err := authority.Open(b.Context(), memstore.New().Open(), signer, authority.Config{Domain: domain, Observer: o})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	b.ReportAllocs()
	b.SetParallelism(max(1, callers/2))
	caller := make(chan int, callers*2)
	for i := range callers * 2 {
		caller <- i
	}
	cycle := func(resource lastword.Resource, i int) error {
		r := lastword.AcquireRequest{Resource: resource, Owner: "o", RequestID: fmt.Sprint(i), TTL: 30 * time.Second}
		t, err := a.Acquire(b.Context(), r)
		if err != nil {
			return err
		}
		return a.Release(b.Context(), t.TenureRef)
	}
	b.ResetTimer()
	before := processor(b)
	defer func() { b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/op") }()
	if callers == 1 {
		for i := range b.N {
			if err := cycle("cycle", i); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		resource := lastword.Resource(fmt.Sprint("cycle/", <-caller))
		for i := 0; pb.Next(); i++ {
			if err := cycle(resource, i); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// processor is the processor time that this process has used: unlike the time that
// goes by, it says the same on a busy machine.
func processor(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
