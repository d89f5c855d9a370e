package grant

import (
	"context"
	"sync"
	"time"

	"github.com/lastword/lastword"
)

// fetchEvery bounds how often a bundle is fetched: grants that nobody signed can
// be sent at any rate, and each asks for a fresh bundle.
const fetchEvery = 100 * time.Millisecond

// FetchBundle is a source that gets the marshalled bundle from fetch: on first use,
// and whenever a verifier asks anew, but not more often than every 100 ms; a call
// that comes earlier waits for that. A fetch that fails leaves the remembered
// bundle alone. It is safe for concurrent use.
func FetchBundle(fetch func(ctx context.Context) ([]byte, error)) BundleSource {
	return &fetched{fetch: fetch, turn: make(chan struct{}, 1)}
}

type fetched struct {
	fetch func(ctx context.Context) ([]byte, error)
	turn  chan struct{} // holds one value while somebody fetches

	mu     sync.Mutex
	bundle *Bundle
	last   time.Time // monotonic; when the last fetch ended
}

func (f *fetched) Bundle(ctx context.Context, refresh bool) (Bundle, error) {
	if b := f.remembered(); b != nil && !refresh {
		return *b, nil
	}
	asked := time.Now() //nolint:forbidigo // monotonic, only to compare with the end of another fetch
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return Bundle{}, unreached(ctx.Err())
	}
	if b := f.since(asked); b != nil {
		return *b, nil // somebody else fetched while this call waited
	}
	if err := f.pause(ctx); err != nil {
		return Bundle{}, unreached(err)
	}
	raw, err := f.fetch(ctx)
	if err != nil {
		return Bundle{}, unreached(err)
	}
	b, err := ParseBundle(raw)
	if err != nil {
		return Bundle{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bundle, f.last = &b, time.Now() //nolint:forbidigo // monotonic
	return b, nil
}

func (f *fetched) remembered() *Bundle {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bundle
}

func (f *fetched) since(asked time.Time) *Bundle {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last.After(asked) {
		return f.bundle
	}
	return nil
}

func (f *fetched) pause(ctx context.Context) error {
	f.mu.Lock()
	rest := fetchEvery - time.Since(f.last) //nolint:forbidigo // monotonic; it bounds traffic and decides nothing
	f.mu.Unlock()
	if rest <= 0 {
		return nil
	}
	timer := time.NewTimer(rest) //nolint:forbidigo // as above
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func unreached(err error) error {
	return &lastword.Error{
		Code: lastword.CodeUnavailable, Op: "bundle", Message: "the trust bundle could not be fetched", Err: err,
		Hint: "is the authority reachable?",
	}
}
