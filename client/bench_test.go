package client_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// prompt grants and renews everything at once.
type prompt struct {
	client.Authority
	renewals atomic.Int64
	renewed  chan struct{} // nil: nobody waits
}

func (p *prompt) tenure(ref lastword.TenureRef, ttl time.Duration) lastword.Tenure {
	return lastword.Tenure{
		TenureRef: ref, State: lastword.StateHeld, Grant: strings.Repeat("g", 560), Class: lastword.ClassWrite, TTL: ttl, Remaining: ttl, Revision: 1,
	}
}

func (p *prompt) Acquire(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	ref := lastword.TenureRef{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID, LeaseID: fmt.Sprint("lease-", r.RequestID), Fence: 1}
	return p.tenure(ref, r.TTL), nil
}

func (p *prompt) Renew(_ context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	p.renewals.Add(1)
	if p.renewed != nil {
		p.renewed <- struct{}{}
	}
	return p.tenure(ref, ttl), nil
}

func (p *prompt) Release(context.Context, lastword.TenureRef) error { return nil }

func inMemory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// T23: what a lease takes that is renewed and otherwise let alone, its grant of 560 bytes
// included.
func TestALeaseTakesLittleMoreThanTwoKilobytes(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: runs without the race detector, which takes memory of its own")
	}
	const leases, most = 20_000, 2200
	p := &prompt{}
	var elapsed atomic.Int64
	c, err := client.New(p, client.Config{Owner: "o", Elapsed: func() time.Duration { return time.Duration(elapsed.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	before := inMemory()
	all := make([]*client.Lease, leases)
	for i := range all {
		if all[i], err = c.Acquire(t.Context(), lastword.Resource(fmt.Sprintf("doc/%d", i)), client.AcquireOptions{TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // each is renewed, as in a life of some length
		was := p.renewals.Load()
		elapsed.Add(int64(ttl/3) + 1)
		for _, l := range all {
			l.State()
		}
		for deadline := time.Now().Add(time.Minute); p.renewals.Load() < was+leases; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%d renewals, want %d", p.renewals.Load(), was+leases)
			}
		}
	}
	each := (inMemory() - before) / leases
	t.Logf("%d leases take %d bytes each", leases, each)
	if each > most {
		t.Errorf("a lease takes %d bytes, want at most %d", each, most)
	}
	for _, l := range all {
		if l.State() != lastword.HolderHeld && l.State() != lastword.HolderRenewing {
			t.Fatalf("a lease is %s", l.State())
		}
	}
}

// held is a lease whose clock stands still, and how to set it.
func held(b *testing.B, p *prompt) (*client.Lease, *atomic.Int64) {
	b.Helper()
	var elapsed atomic.Int64
	c, err := client.New(p, client.Config{Owner: "o", Elapsed: func() time.Duration { return time.Duration(elapsed.Load()) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	l, err := c.Acquire(b.Context(), doc, client.AcquireOptions{TTL: ttl})
	if err != nil {
		b.Fatal(err)
	}
	return l, &elapsed
}

// What every write asks.
func BenchmarkState(b *testing.B) {
	l, _ := held(b, &prompt{})
	b.ReportAllocs()
	for b.Loop() {
		if l.State() != lastword.HolderHeld {
			b.Fatal("it is not held")
		}
	}
}

// What every fenced write borrows.
func BenchmarkSequence(b *testing.B) {
	l, _ := held(b, &prompt{})
	b.ReportAllocs()
	for b.Loop() {
		_, free, err := l.Sequence(b.Context(), "app.db")
		if err != nil {
			b.Fatal(err)
		}
		free()
	}
}

// One renewal, without the authority's part.
func BenchmarkRenewal(b *testing.B) {
	p := &prompt{renewed: make(chan struct{})}
	l, elapsed := held(b, p)
	b.ReportAllocs()
	for b.Loop() {
		if elapsed.Add(int64(ttl/3)+1) > math.MaxInt64/2 {
			b.Fatal("the clock is used up")
		}
		l.State()
		<-p.renewed
		for l.State() != lastword.HolderHeld {
			runtime.Gosched()
		}
	}
}
