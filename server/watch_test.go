package server_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// sights reads a watch until the test ends.
func sights(t *testing.T, c *rpc.Client, prefix string) <-chan lastword.Sight {
	t.Helper()
	found := make(chan lastword.Sight, 1)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s, err := range c.Watch(ctx, prefix) {
			if err != nil {
				return
			}
			select {
			case found <- s:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return found
}

func until(t *testing.T, found <-chan lastword.Sight, what string, good func(lastword.Sight) bool) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case s := <-found:
			if good(s) {
				return
			}
		case <-limit:
			t.Fatalf("%s is not shown", what)
		}
	}
}

// R7: a watcher is what carries a revocation to a fence, so it has to be fast, over the
// wire, on a disk, with others busy and with readers that do not read.
func TestR7ARevocationReachesAWatcherInMilliseconds(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.DrainTimeout = 500 * time.Millisecond // which those that do not read use up
	r := start(t, cfg)
	c := r.client
	found := sights(t, c, "doc/")
	until(t, found, "complete", func(s lastword.Sight) bool { return s.Complete })
	stuckReaders(t, r, 8)
	measure := func(name string, rounds int) {
		var calls, took []time.Duration
		for end := time.Now().Add(20 * time.Second); len(took) < rounds && (len(took) < 20 || time.Now().Before(end)); {
			held, err := c.Acquire(t.Context(), request(fmt.Sprintf("doc/%s/%d", name, len(took)), "1"))
			if err != nil {
				t.Fatal(err)
			}
			until(t, found, "the grant", func(s lastword.Sight) bool {
				return s.Status.Holder.Fence == held.Fence && s.Status.Resource == held.Resource
			})
			revoked := time.Now()
			if err := c.Revoke(t.Context(), held.Resource, held.Fence, "op", "latency"); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, time.Since(revoked))
			until(t, found, "the revocation", func(s lastword.Sight) bool {
				return s.Status.Resource == held.Resource && s.Status.State == lastword.StateRevoked
			})
			took = append(took, time.Since(revoked))
		}
		slices.Sort(calls)
		slices.Sort(took)
		call, p50 := calls[len(calls)/2], took[len(took)/2]
		t.Logf("%s: from the call to the sight of %d revocations: p50 %v, p99 %v, longest %v; the call itself: p50 %v",
			name, len(took), p50, took[len(took)*99/100], took[len(took)-1], call)
		// What it is, is printed. What has to be is told in what a call takes: a machine
		// that has other things to do slows both.
		if most := 4*call + 50*time.Millisecond; p50 > most {
			t.Errorf("%s: p50 %v where the call itself takes %v, want at most %v", name, p50, call, most)
		}
	}
	measure("idle", 200)
	stop := busy(t, c, 64)
	measure("busy", 100)
	t.Logf("%d calls of 64 clients beside it", stop())
	r.end(t)
}

// stuckReaders open watches of everything and never read.
func stuckReaders(t *testing.T, r *running, n int) {
	t.Helper()
	conn, err := grpc.NewClient(r.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for range n {
		if _, err := wire.NewAuthorityServiceClient(conn).Watch(context.Background(), &wire.WatchRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

// busy has clients acquire and release until it is told to stop.
func busy(t *testing.T, c *rpc.Client, n int) (stop func() int64) {
	t.Helper()
	over := make(chan struct{})
	var calls atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-over:
					return
				default:
				}
				held, err := c.Acquire(t.Context(), request(fmt.Sprintf("other/%d", i), fmt.Sprint(j)))
				if err == nil {
					err = c.Release(t.Context(), held.TenureRef)
				}
				if err != nil {
					t.Error(err)
					return
				}
				calls.Add(2)
			}
		})
	}
	return func() int64 { close(over); all.Wait(); return calls.Load() }
}

// KF-06, R7, R9: one story, told the same by status, list and watch over the wire.
func TestKF06AForcedReleaseIsToldTheSameEverywhere(t *testing.T) {
	t.Parallel()
	r := start(t, config(t.TempDir()))
	c, ctx := r.client, t.Context()
	found := sights(t, c, "prod/")
	short := request("prod/state", "a")
	short.TTL = 200 * time.Millisecond
	if _, err := c.Acquire(ctx, short); err != nil {
		t.Fatal(err)
	}
	until(t, found, "EXPIRED", func(s lastword.Sight) bool {
		return s.Status.State == lastword.StateExpired && s.Status.Last.Fence == 1
	})
	b, err := c.Acquire(ctx, request("prod/state", "b"))
	if err != nil || b.Fence != 2 {
		t.Fatal(b.Fence, err)
	}
	var e *lastword.Error
	if err := c.Revoke(ctx, "prod/state", 1, "op", "a hangs"); !errors.As(err, &e) || e.Code != lastword.CodeNotHolder || e.Fence != 0 && e.Fence != 2 {
		t.Fatalf("fence 1: %v", err)
	}
	if err := c.Revoke(ctx, "prod/state", 2, "op", "b hangs"); err != nil {
		t.Fatal(err)
	}
	until(t, found, "REVOKED", func(s lastword.Sight) bool {
		return s.Status.State == lastword.StateRevoked && s.Status.Last.Fence == 2
	})
	page, err := c.List(ctx, lastword.ListQuery{Prefix: "prod/", All: true})
	if err != nil || len(page.Resources) != 1 || page.Resources[0].State != lastword.StateRevoked || page.Resources[0].NextFence != 3 {
		t.Errorf("list: %+v, %v", page, err)
	}
	if _, err := c.Renew(ctx, b.TenureRef); !errors.As(err, &e) || e.Code != lastword.CodeNotHolder {
		t.Errorf("b renews: %v", err)
	}
	r.end(t)
}

// T23: a list of a large store comes in bounded pages beside other work.
func TestT23AListOfManyResourcesComesInPages(t *testing.T) {
	t.Parallel()
	const resources = 3000
	r := start(t, config(t.TempDir()))
	var all sync.WaitGroup
	for w := range 50 {
		all.Go(func() {
			for i := w; i < resources; i += 50 {
				q := request(fmt.Sprintf("r/%06d", i), "1")
				held, err := r.client.Acquire(t.Context(), q)
				if err == nil && i%3 != 0 {
					err = r.client.Release(t.Context(), held.TenureRef)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for _, q := range []struct {
		all  bool
		want int
	}{{false, resources / 3}, {true, resources}} {
		began, pages, n := time.Now(), 0, 0
		query := lastword.ListQuery{All: q.all, Limit: 1 + rand.IntN(lastword.MaxPage)}
		for {
			page, err := r.client.List(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			pages, n = pages+1, n+len(page.Resources)
			if query.After = page.Next; query.After == "" {
				break
			}
		}
		t.Logf("%d resources in %d pages of %d: %v", n, pages, query.Limit, time.Since(began).Round(time.Millisecond))
		if n != q.want {
			t.Errorf("%d resources, want %d", n, q.want)
		}
	}
	r.end(t)
}
