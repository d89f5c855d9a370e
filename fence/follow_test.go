package fence_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	issuing "github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/memstore"
)

// real is a gate beside an authority in the same process.
type real struct {
	*testing.T
	authority *issuing.Authority
	holders   *client.Client
	place     *memfence.Place
}

const refreshHint = 10 * time.Second

func newReal(t *testing.T) *real {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		t.Fatal(err)
	}
	a, err := issuing.Open(context.WithoutCancel(t.Context()), memstore.New().Open(), signer, issuing.Config{Domain: domain, RefreshHint: refreshHint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	c, err := client.New(a, client.Config{Owner: "worker", CleanupTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &real{T: t, authority: a, holders: c, place: memfence.New(t.Name())}
}

func (r *real) gate(change func(*fence.Config)) *fence.Gate {
	r.Helper()
	v, err := grant.NewVerifier(domain, grant.FetchBundle(r.authority.Bundle), grant.VerifierConfig{})
	if err != nil {
		r.Fatal(err)
	}
	cfg := fence.Config{Domain: domain, Verifier: v, Status: r.authority, StatusReuse: time.Hour}
	if change != nil {
		change(&cfg)
	}
	g, err := fence.NewGate(cfg)
	if err != nil {
		r.Fatal(err)
	}
	return g
}

func (r *real) acquire(life time.Duration) *client.Lease {
	r.Helper()
	l, err := r.holders.Acquire(r.Context(), doc, client.AcquireOptions{TTL: 30 * time.Second, ProofLife: life})
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// write is by grant, as a process that has no lease of its own any more would.
func (r *real) write(g *fence.Gate, l *client.Lease, operation string) error {
	c := fence.Call{Mutation: lastword.Mutation{Grant: l.Grant(), StatusProof: l.StatusProof(), Operation: operation, Payload: lastword.DigestOf([]byte(operation))}}
	_, err := fence.Apply(r.Context(), g, r.place, c, func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
		tx.Set("value", operation)
		return nil, nil
	})
	return err
}

// told remembers what a gate says of its watch.
type told struct {
	mu      sync.Mutex
	events  []bool
	revoked bool // a sight of it was taken in
	change  chan struct{}
}

func newTold() *told { return &told{change: make(chan struct{}, 16)} }

func (o *told) Answered(context.Context, fence.Answer) {}

func (o *told) Followed(_ context.Context, following bool, why error) {
	if following == (why != nil) {
		panic(fmt.Sprint("following ", following, " because of ", why))
	}
	o.mu.Lock()
	o.events = append(o.events, following)
	o.mu.Unlock()
	o.change <- struct{}{}
}

func (o *told) await(t *testing.T, want ...bool) {
	t.Helper()
	for {
		o.mu.Lock()
		got := slices.Clone(o.events)
		o.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		if len(got) > len(want) {
			t.Fatalf("told %v, want %v", got, want)
		}
		select {
		case <-o.change:
		case <-time.After(time.Minute):
			t.Fatalf("told %v, want %v", got, want)
		}
	}
}

// follow runs a gate's watch until the end of the test.
func (r *real) follow(g *fence.Gate, w fence.Watcher) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Follow(ctx, w) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			r.Errorf("Follow ended with %v", err)
		}
	})
}

// R12, T14: a revocation reaches a gate that follows the authority long before its
// remembered answer is too old, in query mode and with proofs. The time is printed; the
// bound is twice the refresh hint of the trust bundle.
func TestARevocationReachesAFollowingGateAtOnce(t *testing.T) {
	for mode, life := range map[fence.StatusMode]time.Duration{fence.Query: 0, fence.Proof: time.Minute} {
		t.Run(string(mode), func(t *testing.T) {
			r := newReal(t)
			o := newTold()
			g := r.gate(func(c *fence.Config) { c.Mode, c.Observer = mode, o })
			r.follow(g, r.authority)
			o.await(t, true)
			const rounds = 5
			var slowest time.Duration
			for round := range rounds {
				l := r.acquire(life)
				if err := r.write(g, l, fmt.Sprint("before ", round)); err != nil {
					t.Fatal(err)
				}
				if err := r.authority.Revoke(t.Context(), doc, l.Fence(), "ops", "a test"); err != nil {
					t.Fatal(err)
				}
				revoked := time.Now()
				for n := 0; ; n++ {
					err := r.write(g, l, fmt.Sprint("after ", round, " ", n))
					took := time.Since(revoked)
					if errors.Is(err, lastword.ErrUnverified) {
						slowest = max(slowest, took)
						break
					}
					if err != nil || took > 2*refreshHint {
						t.Fatalf("after %v: %v", took, err)
					}
				}
			}
			t.Logf("from revocation to refusal, the slowest of %d: %v (refresh hint %v)", rounds, slowest, refreshHint)
		})
	}
}

// breaking is a watcher whose first watches break.
type breaking struct {
	fence.Watcher
	mu   sync.Mutex
	left int
}

func (b *breaking) Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return b.Watcher.Watch(ctx, prefix)
	}
	b.left--
	return func(yield func(lastword.Sight, error) bool) {
		if yield(lastword.Sight{Complete: true}, nil) {
			yield(lastword.Sight{}, &lastword.Error{Code: lastword.CodeUnavailable, Op: "watch", Message: "cut"})
		}
	}
}

// A watch that is lost is told, and begun anew; meanwhile the bounded reuse is all there
// is, and nothing is refused because of it.
func TestALostWatchIsToldAndBegunAnew(t *testing.T) {
	r := newReal(t)
	o := newTold()
	g := r.gate(func(c *fence.Config) { c.Observer = o })
	r.follow(g, &breaking{Watcher: r.authority, left: 1})
	o.await(t, true, false, true)
	l := r.acquire(0)
	if err := r.write(g, l, "op"); err != nil {
		t.Fatal(err)
	}
}

// Without a watch, an answer is reused for StatusReuse and no longer.
func TestWithoutAWatchTheReuseIsBounded(t *testing.T) {
	r := newReal(t)
	var mu sync.Mutex
	var now time.Duration
	g := r.gate(func(c *fence.Config) {
		c.StatusReuse = time.Second
		c.Elapsed = func() time.Duration { mu.Lock(); defer mu.Unlock(); return now }
	})
	l := r.acquire(0)
	for _, operation := range []string{"op-1", "op-2"} { // the first look asks twice
		if err := r.write(g, l, operation); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.authority.Revoke(t.Context(), doc, l.Fence(), "ops", "a test"); err != nil {
		t.Fatal(err)
	}
	if err := r.write(g, l, "inside the reuse"); err != nil {
		t.Errorf("inside the time of reuse: %v", err)
	}
	mu.Lock()
	now += time.Second + 1
	mu.Unlock()
	if err := r.write(g, l, "after it"); !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("after it: %v", err)
	}
}

// An answer that was under way while the watch told of the end is not remembered.
func TestAnAnswerThatTheWatchOvertookIsNotRemembered(t *testing.T) {
	r := newReal(t)
	o := newTold()
	var once sync.Once
	l := r.acquire(0)
	late := statusFunc(func(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		st, err := r.authority.Status(ctx, q)
		once.Do(func() {
			if err := r.authority.Revoke(ctx, doc, l.Fence(), "ops", "a test"); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if o.saw() {
					return
				}
			}
			t.Error("the watch did not tell")
		})
		return st, err
	})
	if err := r.write(r.gate(nil), l, "op-0"); err != nil { // there is a record: no second look
		t.Fatal(err)
	}
	g := r.gate(func(c *fence.Config) { c.Observer, c.Status = o, late })
	r.follow(g, sighting{r.authority, o})
	o.await(t, true)
	if err := r.write(g, l, "op-1"); err != nil { // it was HELD when it was asked for
		t.Fatal(err)
	}
	if err := r.write(g, l, "op-2"); !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("a remembered answer: %v", err)
	}
}

// sighting notes what a watch has shown, after the gate has taken it in.
type sighting struct {
	fence.Watcher
	told *told
}

func (s sighting) Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error] {
	return func(yield func(lastword.Sight, error) bool) {
		for sight, err := range s.Watcher.Watch(ctx, prefix) {
			if !yield(sight, err) {
				return
			}
			if sight.Status.State == lastword.StateRevoked {
				s.told.mu.Lock()
				s.told.revoked = true
				s.told.mu.Unlock()
			}
		}
	}
}

func (o *told) saw() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revoked
}
