package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// door counts what passes to an authority, and can break or stop the way there.
type door struct {
	client.Authority

	mu      sync.Mutex
	calls   int
	arrived map[string]time.Time      // when each request id came first, in the bubble's time
	granted map[lastword.Token]string // by which request id
	broken  chan struct{}             // closed: the acquires under way are cut off
}

func newDoor(a client.Authority) *door {
	return &door{Authority: a, arrived: map[string]time.Time{}, granted: map[lastword.Token]string{}, broken: make(chan struct{})}
}

func (d *door) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	d.mu.Lock()
	d.calls++
	broken := d.broken
	if d.arrived[r.RequestID].IsZero() {
		d.arrived[r.RequestID] = time.Now()
	}
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-broken:
			cancel()
		case <-ctx.Done():
		}
	}()
	t, err := d.Authority.Acquire(ctx, r)
	select {
	case <-broken:
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnknown, Op: "acquire", Message: "connection reset"}
	default:
	}
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.granted[t.Fence] = r.RequestID
	}
	return t, err
}

func (d *door) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	d.count()
	return d.Authority.Renew(ctx, ref)
}

func (d *door) Release(ctx context.Context, ref lastword.TenureRef) error {
	d.count()
	return d.Authority.Release(ctx, ref)
}

func (d *door) Cancel(ctx context.Context, r lastword.Resource, owner, id string) error {
	d.count()
	return d.Authority.Cancel(ctx, r, owner, id)
}

func (d *door) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	d.count()
	return d.Authority.Status(ctx, q)
}

func (d *door) count() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
}

// cut drops all connections of waiters once.
func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.broken)
	d.broken = make(chan struct{})
}

// paused is the way of a process that is stopped: nothing passes until it is
// continued.
type paused struct {
	client.Authority
	mu   sync.Mutex
	gate chan struct{}
}

func (p *paused) wait() {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (p *paused) stop() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
	return sync.OnceFunc(func() { close(p.gate) })
}

func (p *paused) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	p.wait()
	defer p.wait()
	return p.Authority.Acquire(ctx, r)
}

func (p *paused) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	p.wait()
	defer p.wait()
	return p.Authority.Renew(ctx, ref)
}

// 50 waiters; the holder acquires and releases 20 times; 3 waiters are killed, 3
// stopped for a while, and all connections drop once.
func TestEveryLiveWaiterIsGrantedInItsTurn(t *testing.T) { // R3, KF-40(b)
	inBubble(t, func(t *testing.T, w *world) {
		const waiters, rounds, ttl = 50, 20, 3 * time.Second
		d := newDoor(embedded(t))
		start := time.Now()
		at := func(a client.Authority, owner string) *client.Client {
			c, err := client.New(a, client.Config{Owner: owner, Elapsed: func() time.Duration { return time.Since(start) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		ctx, done := context.WithCancel(t.Context())
		defer done()
		var mu sync.Mutex
		turns := map[string][]time.Time{}
		// turn is one lease for 10 ms; a grant that lapsed before it was heard of is
		// none, and is asked for anew.
		turn := func(c *client.Client) error {
			for {
				l, err := c.Acquire(ctx, doc, client.AcquireOptions{TTL: ttl, Wait: time.Hour})
				switch {
				case errors.Is(err, lastword.ErrNotHolder) || errors.Is(err, lastword.ErrTenureEnded):
					continue
				case err != nil:
					return err
				}
				mu.Lock()
				turns[c.Owner()] = append(turns[c.Owner()], time.Now())
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				return l.Close()
			}
		}

		holder := at(d, "holder")
		first, err := holder.Acquire(ctx, doc, client.AcquireOptions{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var stopped []*paused
		for i := range waiters {
			time.Sleep(time.Millisecond) // an order to come in
			owner := fmt.Sprintf("waiter-%02d", i)
			switch i % 20 {
			case 5: // killed: what is granted to it is heard by nobody
				go func() {
					_, _ = d.Acquire(context.WithoutCancel(ctx), lastword.AcquireRequest{Resource: doc, Owner: owner, RequestID: owner, TTL: ttl, Wait: time.Hour})
				}()
				continue
			case 7:
				stopped = append(stopped, &paused{Authority: d})
				c := at(stopped[len(stopped)-1], owner)
				wg.Go(func() {
					if err := turn(c); err != nil && ctx.Err() == nil {
						t.Errorf("%s: %v", owner, err)
					}
				})
				continue
			}
			c := at(d, owner)
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := turn(c); err != nil && ctx.Err() == nil {
						t.Errorf("%s: %v", owner, err)
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		d.cut()
		time.Sleep(100 * time.Millisecond)
		for _, p := range stopped {
			resume := p.stop()
			time.AfterFunc(20*time.Second, resume)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		for range rounds - 1 {
			if err := turn(holder); err != nil {
				t.Fatal(err)
			}
		}
		took := time.Since(start)
		for len(stopped) > 0 { // those that were stopped come again
			time.Sleep(time.Second)
			mu.Lock()
			n := 0
			for i := 7; i < waiters; i += 20 {
				n += len(turns[fmt.Sprintf("waiter-%02d", i)])
			}
			mu.Unlock()
			if n == len(stopped) {
				break
			}
			if time.Since(start) > time.Hour {
				t.Fatalf("%d of %d stopped waiters were ever granted", n, len(stopped))
			}
		}
		done()
		wg.Wait()
		checkTurns(t, d, turns, took, waiters, rounds, ttl)
	})
}

func checkTurns(t *testing.T, d *door, turns map[string][]time.Time, took time.Duration, waiters, rounds int, ttl time.Duration) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range waiters {
		switch n := len(turns[fmt.Sprintf("waiter-%02d", i)]); {
		case i%20 == 5:
		case i%20 == 7 && n == 0, i%20 != 7 && n < rounds-2:
			t.Errorf("waiter %d had %d turns, the holder %d", i, n, rounds)
		}
	}
	// Six heads that are dead or stopped, a TTL each at most, and the turns.
	if most := 7*ttl + time.Duration(rounds*waiters)*15*time.Millisecond + time.Second; took > most {
		t.Errorf("the holder's rounds took %s, want %s at most", took, most)
	}
	var order []lastword.Token
	for fence := range d.granted {
		order = append(order, fence)
	}
	slices.Sort(order)
	// Who came at one moment came in no order: time moves on in the bubble only when
	// all of them stand in the queue.
	var last time.Time
	for _, fence := range order {
		at := d.arrived[d.granted[fence]]
		if at.Before(last) {
			t.Errorf("fence %s went to a request that came %s before the one that was granted ahead of it", fence, last.Sub(at))
		}
		last = at
	}
	if n := len(order); n < rounds*(waiters-6) || d.calls > 5*n {
		t.Errorf("%d calls for %d grants", d.calls, n)
	}
	t.Logf("%d grants, %d calls, %s", len(order), d.calls, took)
}
