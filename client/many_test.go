package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("descriptors can not be counted here: %v", err)
	}
	return len(files)
}

// ends counts the signals of one lease.
type ends struct {
	signals, events, late atomic.Int32
}

// split loses every message about some resources while it lasts, without a sign.
type split struct {
	client.Authority
	lost func(lastword.Resource) bool
}

// gone waits as one does who hears nothing.
func (s *split) gone(ctx context.Context, r lastword.Resource) error {
	if !s.lost(r) {
		return nil
	}
	<-ctx.Done()
	return &lastword.Error{Code: lastword.CodeUnknown, Resource: r, Message: "split", Err: ctx.Err()}
}

func (s *split) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	if err := s.gone(ctx, r.Resource); err != nil {
		return lastword.Tenure{}, err
	}
	return s.Authority.Acquire(ctx, r)
}

func (s *split) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	if err := s.gone(ctx, ref.Resource); err != nil {
		return lastword.Tenure{}, err
	}
	return s.Authority.Renew(ctx, ref)
}

func (s *split) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	if err := s.gone(ctx, q.Resource); err != nil {
		return lastword.Status{}, err
	}
	return s.Authority.Status(ctx, q)
}

func (s *split) Cancel(ctx context.Context, r lastword.Resource, owner, id string) error {
	if err := s.gone(ctx, r); err != nil {
		return err
	}
	return s.Authority.Cancel(ctx, r, owner, id)
}

// Many leases on one client for a minute, on the real authority, through lost, late
// and doubled messages, and a split of ten seconds for a third of them, some of them
// revoked: each ends exactly once, no later than its local deadline, and nothing is
// left. The client has one timer, which is counted; all others that it sets are of
// goroutines, which are counted, too.
func TestAThousandLeasesThroughChaosEndOnceEachAndLeaveNothing(t *testing.T) { // R28, KF-15
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	files := descriptors(t)
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) { manyLeases(t, seed) })
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
	if after := descriptors(t); after != files {
		t.Errorf("%d descriptors before, %d after", files, after)
	}
}

func manyLeases(t *testing.T, seed uint64) {
	const resources, ttl, length = 1000, 6 * time.Second, time.Minute
	real := embedded(t)
	chaos := mustChaos(t, real, client.ChaosConfig{
		Seed: seed, LoseRequest: 0.1, LoseReply: 0.1, DelayRequest: 0.1, DelayReply: 0.1, Duplicate: 0.05, MaxDelay: 2 * ttl,
	})
	start := time.Now()
	elapsed := func() time.Duration { return time.Since(start) }
	network := &split{Authority: chaos, lost: func(r lastword.Resource) bool {
		now := elapsed()
		return now > length/2 && now < length/2+10*time.Second && r[len(r)-1]%3 == 0
	}}
	var mu sync.Mutex
	all := map[string]*ends{}
	of := func(r lastword.Resource, id string) *ends {
		mu.Lock()
		defer mu.Unlock()
		key := string(r) + " " + id
		if all[key] == nil {
			all[key] = &ends{}
		}
		return all[key]
	}
	r := &dice{r: rand.New(rand.NewPCG(seed, 9))}
	c, err := client.New(network, client.Config{
		Owner: "many", Elapsed: elapsed, Jitter: r.Float64, CleanupTimeout: 2 * time.Second,
		OnEvent: func(e client.Event) {
			if e.Final() {
				of(e.Resource, e.LeaseID).events.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, timer := client.Planned(c); n != 0 || timer {
		t.Errorf("before: %d leases are planned, timer %v", n, timer)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var causes [5]atomic.Int32
	var acquires, overdue atomic.Int32
	hold := func(resource lastword.Resource, mine *dice) {
		l, err := c.Acquire(ctx, resource, client.AcquireOptions{TTL: ttl, Wait: ttl})
		acquires.Add(1)
		if err != nil {
			if errors.Is(err, lastword.ErrInvalid) || errors.Is(err, lastword.ErrInternal) {
				t.Error(err)
			}
			if errors.Is(err, lastword.ErrTenureEnded) {
				overdue.Add(1)
			}
			return
		}
		e := of(resource, l.Ref().LeaseID)
		context.AfterFunc(l.Context(), func() {
			e.signals.Add(1)
			if elapsed() > client.LocalDeadline(l) {
				e.late.Add(1)
			}
		})
		if mine.IntN(8) == 0 {
			time.AfterFunc(mine.upTo(2*ttl), func() {
				_ = real.Revoke(context.WithoutCancel(ctx), resource, l.Fence(), "operator", "a test")
			})
		}
		select {
		case <-l.Context().Done():
			for i, cause := range []error{client.ErrUnknownTooLong, client.ErrRevoked, client.ErrRefused, client.ErrExpired} {
				if errors.Is(context.Cause(l.Context()), cause) {
					causes[i].Add(1)
					break
				}
			}
		case <-time.After(5*ttl + mine.upTo(10*ttl)):
			causes[4].Add(1)
		case <-ctx.Done():
		}
		if mine.IntN(4) > 0 { // the others are left to Close
			_ = l.Close()
		}
	}
	var wg sync.WaitGroup
	for i := range resources {
		mine := &dice{r: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		wg.Go(func() {
			for ctx.Err() == nil {
				hold(lastword.Resource(fmt.Sprintf("doc/%d", i)), mine)
				sleepFor(ctx, ttl/4)
			}
		})
	}
	wg.Wait()
	_ = c.Close()
	if n, timer := client.Planned(c); n != 0 || timer || client.Leases(c) != 0 {
		t.Errorf("%d leases are listed, %d planned, timer %v", client.Leases(c), n, timer)
	}
	synctest.Wait()
	bad := 0
	for name, e := range all {
		if e.signals.Load() != 1 || e.events.Load() != 1 || e.late.Load() != 0 {
			if bad++; bad < 10 {
				t.Errorf("%s: %d signals, %d last events, %d late", name, e.signals.Load(), e.events.Load(), e.late.Load())
			}
		}
	}
	if overdue.Load()*20 > acquires.Load() { // most of what is lost is found out in time
		t.Errorf("of %d acquires %d were found out too late", acquires.Load(), overdue.Load())
	}
	counts := chaos.Counts()
	t.Logf("%d acquires, %d of them found out too late", acquires.Load(), overdue.Load())
	t.Logf("%d leases, chaos %+v, ends: unknown %d, revoked %d, refused %d, expired %d, given up %d", len(all), counts,
		causes[0].Load(), causes[1].Load(), causes[2].Load(), causes[3].Load(), causes[4].Load())
	if len(all) < resources || counts.LostReplies < 1000 || counts.Dups < 500 ||
		causes[0].Load() < 100 || causes[1].Load() < 50 || causes[3].Load() < 5 || causes[4].Load() < 50 {
		t.Error("it was not tried")
	}
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func TestLeasesAtRestCostNoGoroutineAndOneTimer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client(client.Config{Jitter: rand.Float64})
		if n, timer := client.Planned(c); n != 0 || timer {
			t.Errorf("without leases: %d planned, timer %v", n, timer)
		}
		before := runtime.NumGoroutine()
		start := time.Now()
		for i := range 1000 {
			if _, err := c.Acquire(t.Context(), lastword.Resource(fmt.Sprintf("doc/%d", i)), client.AcquireOptions{TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(start) != 0 {
			t.Fatal("they did not begin at one instant")
		}
		synctest.Wait()
		for deadline := 0; runtime.NumGoroutine() > before; deadline++ {
			if deadline > 1_000_000 {
				t.Fatalf("%d goroutines more for 1000 leases", runtime.NumGoroutine()-before)
			}
			runtime.Gosched()
		}
		if n, timer := client.Planned(c); n != 1000 || !timer {
			t.Errorf("%d planned, timer %v", n, timer)
		}
		// Their renewals are spread over a twelfth of the TTL.
		most, last := 0, 0
		for time.Since(start) < 10*time.Second {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			n := w.count("renew")
			most, last = max(most, n-last), n
		}
		if last != 1000 || most > 100 {
			t.Errorf("%d renewals, up to %d in a tenth of a second; want 1000 spread over 2.5 s", last, most)
		}
	})
}
