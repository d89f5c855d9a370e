package grant

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lastword/lastword"
)

const (
	// fetchEvery bounds how often a bundle is fetched: grants that nobody signed can
	// be sent at any rate, and each asks for a fresh bundle.
	fetchEvery = 100 * time.Millisecond
	// defaultHint is the refresh hint of a bundle that has none.
	defaultHint = 10 * time.Second
	// limitFactor times the refresh hint is how old a bundle may be. Who has been
	// revoked is therefore refused everywhere within that time (R13).
	limitFactor = 2
	// defaultFetchTimeout bounds a fetch that nobody waits for.
	defaultFetchTimeout = 5 * time.Second
)

// FetchConfig is how a source fetches a bundle. Fetch is required.
type FetchConfig struct {
	// Fetch gets the marshalled bundle, over a pinned channel, and returns when ctx
	// ends.
	Fetch func(ctx context.Context) ([]byte, error)
	// Limit is how old a bundle may be; 0 is twice its refresh hint, or 20 s if it
	// has none.
	Limit time.Duration
	// Timeout bounds a fetch in the background; 0 is 5 s.
	Timeout time.Duration
	// Elapsed is elapsed time, in which a suspend counts; nil takes the process's.
	Elapsed func() time.Duration
}

// FetchBundle is [NewBundleSource] with nothing but fetch.
func FetchBundle(fetch func(ctx context.Context) ([]byte, error)) BundleSource {
	return newFetched(FetchConfig{Fetch: fetch})
}

// NewBundleSource is a source that fetches the bundle on first use, and again when a
// verifier asks anew or the bundle has passed its refresh hint. That last fetch is made
// in the background by the call that notices it, and bounded in time: a source that
// nobody uses does nothing, and it need not be closed. A bundle older than the limit,
// counted from when its question was sent, is not given any more: the call fetches, or
// fails with [lastword.CodeUnavailable] (R13). Between the starts of two fetches are at
// least 100 ms; who comes earlier waits. A fetch that fails leaves the remembered
// bundle alone. It fails with [lastword.CodeInvalid] without Fetch or with a negative
// time. Safe for concurrent use.
func NewBundleSource(cfg FetchConfig) (BundleSource, error) {
	const op = "make bundle source"
	switch {
	case cfg.Fetch == nil:
		return nil, invalid(op, "", errors.New("no function to fetch with"))
	case cfg.Limit < 0 || cfg.Timeout < 0:
		return nil, invalid(op, "", errors.New("a limit or time-out is negative"))
	}
	return newFetched(cfg), nil
}

func newFetched(cfg FetchConfig) *fetched {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultFetchTimeout
	}
	if cfg.Elapsed == nil {
		cfg.Elapsed = processElapsed()
	}
	return &fetched{cfg: cfg, turn: make(chan struct{}, 1)}
}

// processElapsed is the larger of what the monotonic and the wall clock have counted:
// the first stands still in a suspend, the second may be set back. Too much only means
// that the bundle is fetched earlier.
func processElapsed() func() time.Duration {
	start := time.Now() //nolint:forbidigo // the one place where the default is taken
	return func() time.Duration {
		now := time.Now() //nolint:forbidigo // as above
		return max(now.Sub(start), now.Round(0).Sub(start.Round(0)))
	}
}

type fetched struct {
	cfg  FetchConfig
	turn chan struct{} // holds one value while somebody fetches

	mu     sync.Mutex
	bundle *Bundle
	sent   time.Duration // when the question was sent that bundle answers
	begun  time.Duration // when the last fetch began, however it ended
	any    bool          // there was one
}

func (f *fetched) Bundle(ctx context.Context, refresh bool) (Bundle, error) {
	asked := f.cfg.Elapsed()
	if !refresh {
		if b, due := f.usable(asked); b != nil {
			if due {
				f.fetchBeside()
			}
			return *b, nil
		}
	}
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return Bundle{}, unreached(ctx.Err())
	}
	if b := f.servedMeanwhile(asked, refresh); b != nil {
		return *b, nil
	}
	if err := f.pause(ctx); err != nil {
		return Bundle{}, unreached(err)
	}
	return f.fetchNow(ctx)
}

// usable is the remembered bundle if it may be used at now, and whether it is time to
// fetch. Elapsed time that ran backwards is no time that can be trusted.
func (f *fetched) usable(now time.Duration) (b *Bundle, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bundle == nil {
		return nil, false
	}
	hint := f.bundle.RefreshHint()
	if hint == 0 {
		hint = defaultHint
	}
	limit := f.cfg.Limit
	if limit == 0 {
		limit = limitFactor * hint
	}
	age := now - f.sent
	if age < 0 || age >= limit {
		return nil, false
	}
	return f.bundle, age >= min(hint, limit/2)
}

// servedMeanwhile is what somebody else fetched while this call waited for its turn. A
// fresh answer is one to a question that was sent after this call came in.
func (f *fetched) servedMeanwhile(asked time.Duration, refresh bool) *Bundle {
	if !refresh {
		b, _ := f.usable(f.cfg.Elapsed())
		return b
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bundle != nil && f.sent > asked {
		return f.bundle
	}
	return nil
}

// fetchBeside fetches without making anybody wait, unless somebody does so already.
func (f *fetched) fetchBeside() {
	if f.rest() > 0 {
		return
	}
	select {
	case f.turn <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-f.turn }()
		ctx, cancel := context.WithTimeout(context.Background(), f.cfg.Timeout)
		defer cancel()
		_, _ = f.fetchNow(ctx) // the limit tells, if it keeps failing
	}()
}

func (f *fetched) fetchNow(ctx context.Context) (Bundle, error) {
	sent := f.cfg.Elapsed()
	f.mu.Lock()
	f.begun, f.any = sent, true
	f.mu.Unlock()
	raw, err := f.cfg.Fetch(ctx)
	if err != nil {
		return Bundle{}, unreached(err)
	}
	b, err := ParseBundle(raw)
	if err != nil {
		return Bundle{}, err
	}
	f.mu.Lock()
	f.bundle, f.sent = &b, sent
	f.mu.Unlock()
	return b, nil
}

// rest is how long the next fetch has to wait.
func (f *fetched) rest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.any {
		return 0
	}
	return min(fetchEvery, f.begun+fetchEvery-f.cfg.Elapsed())
}

func (f *fetched) pause(ctx context.Context) error {
	rest := f.rest()
	if rest <= 0 {
		return nil
	}
	timer := time.NewTimer(rest) //nolint:forbidigo // it bounds traffic and decides nothing
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
