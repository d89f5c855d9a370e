package grant_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// TestFetchedBundlesAreAskedForOnlyAsOftenAsStated: a flood of grants with unknown
// keys must not become a flood of questions (T23).
func TestFetchedBundlesAreAskedForOnlyAsOftenAsStated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := marshalledBundle(t)
		var fetches atomic.Int64
		source := grant.FetchBundle(func(context.Context) ([]byte, error) {
			fetches.Add(1)
			return raw, nil
		})
		for range 10 {
			if _, err := source.Bundle(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		if n := fetches.Load(); n != 1 {
			t.Fatalf("%d fetches for 10 questions that need none, want 1", n)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 4 {
					if _, err := source.Bundle(t.Context(), true); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		allowed := int64(time.Since(start)/(100*time.Millisecond)) + 2
		if n := fetches.Load(); n > allowed || n < 3 {
			t.Fatalf("%d fetches in %v, want 3 to %d", n, time.Since(start), allowed)
		}
	})
}

func TestAFetchThatFailsIsUnavailableAndKeepsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := marshalledBundle(t)
		down := errors.New("connection refused")
		var broken atomic.Bool
		source := grant.FetchBundle(func(context.Context) ([]byte, error) {
			if broken.Load() {
				return nil, down
			}
			return raw, nil
		})
		broken.Store(true)
		_, err := source.Bundle(t.Context(), false)
		if !errors.Is(err, lastword.ErrUnavailable) || !errors.Is(err, down) {
			t.Fatalf("got %v, want UNAVAILABLE with its cause", err)
		}
		broken.Store(false)
		if _, err := source.Bundle(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		time.Sleep(time.Second)
		if _, err := source.Bundle(t.Context(), true); !errors.Is(err, down) {
			t.Fatalf("got %v, want the cause: a fresh answer was asked for", err)
		}
		if _, err := source.Bundle(t.Context(), false); err != nil {
			t.Fatalf("what was fetched before is gone: %v", err)
		}
	})
}

func TestAFetchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := grant.FetchBundle(func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		hanging, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _, _ = source.Bundle(hanging, true) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := source.Bundle(ctx, true)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("got %v after %v, want the deadline after 1s", err, time.Since(start))
		}
	})
}

func marshalledBundle(t *testing.T) []byte {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("test", key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := signer.Bundle(grant.BundleInfo{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// aging is a source over a bundle that a test exchanges, in time that it injects.
type aging struct {
	grant.BundleSource
	now     atomic.Int64
	raw     atomic.Pointer[[]byte]
	broken  atomic.Bool
	fetches atomic.Int64
	gate    chan struct{} // if set, a fetch waits for it
}

func newAging(t *testing.T, limit time.Duration) *aging {
	a := &aging{}
	a.serve(t, 1)
	source, err := grant.NewBundleSource(grant.FetchConfig{
		Limit: limit, Elapsed: func() time.Duration { return time.Duration(a.now.Load()) },
		Fetch: func(ctx context.Context) ([]byte, error) {
			a.fetches.Add(1)
			if a.gate != nil {
				select {
				case <-a.gate:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			if a.broken.Load() {
				return nil, errors.New("down")
			}
			return *a.raw.Load(), nil
		},
	})
	must(t, err)
	a.BundleSource = source
	return a
}

func (a *aging) serve(t *testing.T, sequence uint64) {
	raw, err := bundleOf(t, grant.BundleInfo{Sequence: sequence, CurrentEpoch: 4, RefreshHint: 10 * time.Second}, key(t, 0)).Marshal()
	must(t, err)
	a.raw.Store(&raw)
}

func (a *aging) at(d time.Duration) { a.now.Store(int64(d)) }

func (a *aging) sequence(t *testing.T) uint64 {
	t.Helper()
	b, err := a.Bundle(t.Context(), false)
	must(t, err)
	return b.Sequence()
}

// R13: a bundle is fetched again after its hint, by nobody's waiting, and not given any
// more after twice the hint.
func TestABundleIsFetchedAgainAfterItsHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAging(t, 0)
		if a.sequence(t) != 1 {
			t.Fatal("no first bundle")
		}
		a.serve(t, 2)
		a.at(10*time.Second - 1)
		if s := a.sequence(t); s != 1 || a.fetches.Load() != 1 {
			t.Fatalf("before the hint: sequence %d after %d fetches", s, a.fetches.Load())
		}
		a.at(10 * time.Second)
		if s := a.sequence(t); s != 1 {
			t.Fatalf("at the hint the call waited: sequence %d", s)
		}
		synctest.Wait() // the fetch beside has ended
		if s := a.sequence(t); s != 2 || a.fetches.Load() != 2 {
			t.Fatalf("after the hint: sequence %d after %d fetches", s, a.fetches.Load())
		}
		a.serve(t, 3)
		a.at(30 * time.Second) // nobody asked meanwhile
		if s := a.sequence(t); s != 3 {
			t.Fatalf("at the limit a bundle that is too old was given: sequence %d", s)
		}
	})
}

func TestABundleOlderThanItsLimitFailsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []time.Duration{0, 45 * time.Second, 3 * time.Second} {
			a := newAging(t, limit)
			a.sequence(t)
			a.broken.Store(true)
			if limit == 0 {
				limit = 20 * time.Second // twice the hint
			}
			v, err := grant.NewVerifier(domain, a, grant.VerifierConfig{})
			must(t, err)
			signer, err := grant.NewSigner(domain, key(t, 0))
			must(t, err)
			g, _, err := signer.Sign("", claims(t))
			must(t, err)
			open := func() string { return reasonOf(second(v.Open(t.Context(), g, want(t)))) }
			for _, c := range []struct {
				at   time.Duration
				want string
			}{{0, "opened"}, {limit - 1, "opened"}, {limit, "BUNDLE_UNAVAILABLE"}, {time.Hour, "BUNDLE_UNAVAILABLE"}, {-1, "BUNDLE_UNAVAILABLE"}} {
				a.at(c.at)
				if got := open(); got != c.want {
					t.Errorf("limit %v, age %v: %s, want %s", limit, c.at, got, c.want)
				}
				synctest.Wait()
			}
			a.broken.Store(false)
			a.at(2 * time.Hour)
			if got := open(); got != "opened" {
				t.Errorf("the source is back: %s", got)
			}
		}
	})
}

// The age counts from when the question was sent: what was revoked after that is not in
// the answer, however late the answer came.
func TestTheAgeOfABundleCountsFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAging(t, 0)
		a.gate = make(chan struct{})
		go func() { _, _ = a.Bundle(t.Context(), false) }()
		synctest.Wait()
		a.at(15 * time.Second)
		close(a.gate)
		synctest.Wait()
		a.broken.Store(true)
		a.at(20 * time.Second) // 5 s after the answer, 20 s after the question
		if _, err := a.Bundle(t.Context(), false); !errors.Is(err, lastword.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	})
}

// No goroutine is left of a fetch beside that hangs: it ends by its time-out, and there
// is one at a time. The bubble fails if one is left.
func TestAFetchBesideEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAging(t, 0)
		a.sequence(t)
		a.gate = make(chan struct{})
		a.at(11 * time.Second)
		for range 100 {
			a.sequence(t)
		}
		synctest.Wait()
		if n := a.fetches.Load(); n != 2 {
			t.Fatalf("%d fetches, want the first one and one beside", n)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		a.at(12 * time.Second)
		a.sequence(t) // the next one may begin
		synctest.Wait()
		if n := a.fetches.Load(); n != 3 {
			t.Fatalf("%d fetches after the time-out, want 3", n)
		}
		close(a.gate)
	})
}

func TestNewBundleSourceRefusesWhatCannotWork(t *testing.T) {
	fetch := func(context.Context) ([]byte, error) { return nil, nil }
	for _, cfg := range []grant.FetchConfig{{}, {Fetch: fetch, Limit: -1}, {Fetch: fetch, Timeout: -1}} {
		if _, err := grant.NewBundleSource(cfg); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%+v: %v", cfg.Limit, err)
		}
	}
}

// R13: a record that has seen a newer bundle makes the verifier ask for it, for this
// call alone.
func TestARecordsBundleMakesTheVerifierAsk(t *testing.T) {
	w := newWorld(t)
	old := bundleOf(t, grant.BundleInfo{Sequence: 1, CurrentEpoch: 4}, w.present)
	newer := bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 4}, w.present)
	s := &source{memory: old, fresh: newer}
	v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
	must(t, err)
	g, need := w.sign(t, claims(t)), want(t)
	need.Bundle = grant.BundleFloor{Sequence: 2}
	if got, err := v.Open(t.Context(), g, need); err != nil || got.BundleSequence() != 2 || s.refreshed != 1 {
		t.Fatalf("sequence %d after %d refreshes, %v", got.BundleSequence(), s.refreshed, err)
	}
	for _, floor := range []grant.BundleFloor{{Sequence: 3}, {MinimumEpoch: 1}} {
		need.Bundle = floor
		if _, err := v.Open(t.Context(), g, need); reasonOf(err) != "BUNDLE_ROLLBACK" {
			t.Fatalf("floor %+v: %v", floor, err)
		}
		if _, err := v.Open(t.Context(), g, want(t)); err != nil {
			t.Fatalf("one record spoke for others: %v", err)
		}
	}
}
