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
