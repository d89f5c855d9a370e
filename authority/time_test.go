package authority_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// clock is elapsed time that a test can bend: real (or bubble) time at a rate, plus
// jumps; or standing still.
type clock struct {
	mu    sync.Mutex
	start time.Time
	rate  float64
	base  time.Duration
	still bool
}

func newClock(rate float64) *clock { return &clock{start: time.Now(), rate: rate} }

func (c *clock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still {
		return c.base
	}
	return c.base + time.Duration(float64(time.Since(c.start))*c.rate)
}

// set changes the clock from now on.
func (c *clock) set(jump time.Duration, still bool) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.start, c.still = now+jump, time.Now(), still
}

func TestR8ATTLIsNeverShorterThanGranted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range 60 {
		tick := time.Duration(1+rnd.IntN(300)) * time.Millisecond
		ttl := 100*time.Millisecond + time.Duration(rnd.Int64N(int64(3*time.Second)))
		phase := time.Duration(rnd.Int64N(int64(2 * tick)))
		slow := time.Duration(rnd.Int64N(int64(tick) * 3 / 2))
		restart := rnd.IntN(3)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				// Two processes on a slow store, one of them restarted now and then.
				open := func() *authority.Authority {
					s := &hooked{Store: w.memory.Open(), read: func([]store.Query) error { time.Sleep(slow); return nil }}
					return w.openOn(s, authority.Config{Tick: tick})
				}
				p1, p2 := open(), open()
				time.Sleep(phase)
				sent := time.Now()
				if _, err := p1.Acquire(t.Context(), request("a", "1", ttl)); err != nil {
					wantCode(t, err, lastword.ErrTenureEnded) // the store was slower than the TTL
					return
				}
				durable := time.Now()
				stop := make(chan struct{})
				var others sync.WaitGroup
				if restart > 0 {
					others.Go(func() {
						for {
							select {
							case <-stop:
								return
							case <-time.After(time.Duration(restart) * 797 * time.Millisecond):
								_ = p1.Close()
								p1 = open()
							}
						}
					})
				}
				got := <-background(t.Context(), p2, waiting("b", "1", time.Hour))
				close(stop)
				others.Wait()
				if got.err != nil {
					t.Fatal(got.err)
				}
				if early := got.at.Sub(sent); early < ttl {
					t.Fatalf("tick %v, ttl %v, slow %v: taken over %v after the acquire was sent", tick, ttl, slow, early)
				}
				if slow < tick/4 && restart == 0 {
					if late := got.at.Sub(durable); late > ttl+2*tick+4*slow+time.Millisecond {
						t.Fatalf("tick %v, ttl %v, slow %v: taken over only after %v", tick, ttl, slow, late)
					}
				}
			})
		})
	}
}

func TestR8TheCounterIsNeverFasterThanTime(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range 20 {
		inBubble(t, func(t *testing.T, w *world) {
			const tick = 100 * time.Millisecond
			open := func() {
				var mu sync.Mutex
				r := rand.New(rand.NewPCG(seed, uint64(100*i)+rnd.Uint64()))
				late := func() {
					mu.Lock()
					d := time.Duration(r.Int64N(int64(90 * time.Millisecond)))
					mu.Unlock()
					time.Sleep(d)
				}
				s := &hooked{Store: w.memory.Open(), read: func([]store.Query) error { late(); return nil }}
				if i%2 == 1 {
					s.sent = func(context.Context, []store.Step) error { late(); return nil }
				}
				a := w.openOn(s, authority.Config{Tick: tick})
				_, _ = a.Acquire(t.Context(), request("a", "1", time.Hour))
			}
			for range 4 {
				open()
			}
			raw := w.memory.Open()
			before, err := raw.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			for range 300 {
				time.Sleep(37 * time.Millisecond)
				now, err := raw.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				ticks, gone := now.Header.Tick-before.Header.Tick, time.Since(at)
				if ticks > 0 && time.Duration(ticks-1)*tick > gone {
					t.Fatalf("%d ticks in %v", ticks, gone)
				}
			}
			if now, _ := raw.Read(t.Context()); now.Header.Tick < before.Header.Tick+20 {
				t.Fatalf("only %d ticks in %v", now.Header.Tick-before.Header.Tick, time.Since(at))
			}
		})
	}
}

func TestX15AnElapsedTimeThatJumpsExpiresNobody(t *testing.T) {
	for name, bend := range map[string]func(c *clock){
		"jumps an hour ahead, as after a suspend": func(c *clock) { c.set(time.Hour, false) },
		"goes back an hour":                       func(c *clock) { c.set(-time.Hour, false) },
		"stands still": func(c *clock) {
			c.set(0, true)
			time.Sleep(30 * time.Second)
			c.set(0, false)
		},
		"goes to and fro": func(c *clock) {
			for range 500 {
				c.set(-40*time.Millisecond, false)
				time.Sleep(time.Millisecond)
				c.set(40*time.Millisecond, false)
				time.Sleep(time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := newClock(1)
				a := w.open(authority.Config{Elapsed: c.now})
				held := mustAcquire(t, a, request("a", "1", 3*time.Second))
				b := background(t.Context(), a, waiting("b", "1", time.Second))
				time.Sleep(1500 * time.Millisecond)
				bend(c)
				time.Sleep(300 * time.Millisecond)
				renewed, err := a.Renew(t.Context(), held.TenureRef)
				if err != nil {
					t.Fatal(err)
				}
				if renewed.Fence != held.Fence {
					t.Fatalf("renewed %+v", renewed)
				}
				at := time.Now()
				if name == "goes back an hour" {
					c.set(time.Hour, false) // it must have caught up before it counts
				}
				if got := <-b; got.err != nil || got.at.Sub(at) < 3*time.Second || got.at.Sub(at) > 3500*time.Millisecond {
					t.Fatalf("%v, taken over %v after the renewal", got.err, got.at.Sub(at))
				}
			})
		})
	}
}

func TestX15ARateOfOnePercentIsWithinTheHoldersMargin(t *testing.T) {
	for _, rate := range []float64{0.99, 1.01} {
		inBubble(t, func(t *testing.T, w *world) {
			a := w.open(authority.Config{Elapsed: newClock(rate).now})
			mustAcquire(t, a, request("a", "1", 30*time.Second))
			at := time.Now()
			got := <-background(t.Context(), a, waiting("b", "1", time.Second))
			waited := got.at.Sub(at).Seconds()
			if got.err != nil || waited < 30*0.99 || waited > 30*1.02 {
				t.Fatalf("rate %v: %v, taken over after %vs", rate, got.err, waited)
			}
		})
	}
}

func TestKF07WallClockStepsChangeNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var step time.Duration
		var mu sync.Mutex
		a := w.open(authority.Config{Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(step)
		}})
		set := func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			step = d
		}
		for i, d := range []time.Duration{time.Hour, -time.Hour, -100 * 365 * 24 * time.Hour} {
			held := mustAcquire(t, a, request("a", fmt.Sprint(i), 4*time.Second))
			at := time.Now()
			b := background(t.Context(), a, waiting("b", fmt.Sprint(i), time.Second))
			time.Sleep(2 * time.Second)
			set(d)
			again := mustAcquire(t, a, request("a", fmt.Sprint(i), 4*time.Second))
			if again.Grant != held.Grant || again.Remaining < 1900*time.Millisecond || again.Remaining > 2*time.Second {
				t.Fatalf("step %v: %+v", d, again)
			}
			got := <-b
			if waited := got.at.Sub(at); got.err != nil || waited < 4*time.Second || waited > 4010*time.Millisecond {
				t.Fatalf("step %v: %v, taken over after %v", d, got.err, waited)
			}
			verifyGrant(t, a, got.tenure)
			if err := a.Release(t.Context(), got.tenure.TenureRef); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestKF36ARestartNeverStartsTheTTLAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const ttl, down, restarts = 10 * time.Second, 200 * time.Millisecond, 10
		a := w.open(authority.Config{})
		mustAcquire(t, a, request("a", "1", ttl))
		at := time.Now()
		var got outcome
		n := 0
		for ; n < restarts && got.at.IsZero(); n++ {
			ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
			wait := background(ctx, a, waiting("b", "1", time.Minute))
			if r := <-wait; r.err == nil {
				got = r
			}
			stop()
			if got.at.IsZero() {
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(down)
				a = w.open(authority.Config{})
			}
		}
		limit := ttl + time.Duration(n)*(down+200*time.Millisecond)
		if waited := got.at.Sub(at); got.at.IsZero() || waited < ttl || waited > limit {
			t.Fatalf("granted after %v and %d restarts, want %v to %v", waited, n, ttl, limit)
		}
	})
}

func TestKF36ALiveHolderRenewsAcrossARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		held := mustAcquire(t, a, request("a", "1", 10*time.Second))
		time.Sleep(9 * time.Second)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		a = w.open(authority.Config{})
		renewed, err := a.Renew(t.Context(), held.TenureRef)
		if err != nil || renewed.Fence != held.Fence || renewed.Grant != held.Grant {
			t.Fatalf("%+v, %v: want the same fence and grant", renewed, err)
		}
	})
}

func TestR8AnExpiryThatWasToldIsDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		tell := map[string]func(a *authority.Authority, ref lastword.TenureRef){
			"status": func(a *authority.Authority, _ lastword.TenureRef) {
				if st := status(t, a); st.State != lastword.StateExpired {
					t.Fatalf("state %s", st.State)
				}
			},
			"renew": func(a *authority.Authority, ref lastword.TenureRef) {
				_, err := a.Renew(t.Context(), ref)
				wantCode(t, err, lastword.ErrNotHolder)
			},
			"repeat": func(a *authority.Authority, ref lastword.TenureRef) {
				_, err := a.Acquire(t.Context(), request("a", ref.RequestID, time.Second))
				wantCode(t, err, lastword.ErrTenureEnded)
			},
		}
		for name, ask := range tell {
			a := w.open(authority.Config{})
			held := mustAcquire(t, a, request("a", name, time.Second))
			// By its own watching, one tick before the counter would say so.
			b := background(t.Context(), a, lastword.AcquireRequest{Resource: lastword.Resource(name), Owner: "x", RequestID: name, TTL: time.Minute})
			time.Sleep(time.Second + time.Millisecond)
			ask(a, held.TenureRef)
			killed := w.memory.Copy() // as the disk is right after the answer
			view, err := killed.Open().Read(t.Context(), store.Query{Resource: "jobs/nightly"})
			if err != nil || view.Entries[0].Record.Lease.State != lastword.StateExpired {
				t.Fatalf("%s: told EXPIRED, the store says %s (%v)", name, view.Entries[0].Record.Lease.State, err)
			}
			if got := <-b; got.err != nil {
				t.Fatal(got.err)
			}
			_ = a.Close()
		}
	})
}

func TestR3ALockDelayRunsWhileNobodyWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{LockDelay: map[string]time.Duration{"": time.Minute, "jobs/": 3 * time.Second, "jobs/nightly": 20 * time.Second}})
		mustAcquire(t, a, request("a", "1", time.Second))
		at := time.Now()
		for i := 0; ; i++ {
			_, err := a.Acquire(t.Context(), request("b", "1", time.Second))
			if err == nil {
				break
			}
			wantCode(t, err, lastword.ErrHeld)
			time.Sleep(5 * time.Second)
		}
		if waited := time.Since(at); waited < 21*time.Second || waited > 26*time.Second {
			t.Fatalf("granted after %v, want the TTL and the delay of the longest prefix, 21s, at the next try", waited)
		}
	})
}

func TestAnIdleAuthorityWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		tenure := mustAcquire(t, a, request("a", "1", time.Second))
		if err := a.Release(t.Context(), tenure.TenureRef); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		before, _ := w.memory.Open().Read(t.Context())
		time.Sleep(time.Hour)
		after, _ := w.memory.Open().Read(t.Context())
		if before.Header != after.Header {
			t.Fatalf("the counter went from %d to %d while there was no tenure", before.Header.Tick, after.Header.Tick)
		}
	})
}

func TestKF36TheCounterRunsForTenuresOfAnEarlierRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		mustAcquire(t, a, request("a", "1", 10*time.Second))
		at := time.Now()
		time.Sleep(time.Second)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		a = w.open(authority.Config{})
		time.Sleep(9 * time.Second) // nobody asks
		mustAcquire(t, a, waiting("b", "1", time.Second))
		if waited := time.Since(at); waited < 10*time.Second || waited > 10400*time.Millisecond {
			t.Fatalf("granted after %v, want the TTL of 10s and a few ticks", waited)
		}
	})
}
