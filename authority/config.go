package authority

import (
	"crypto/rand"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/lastword/lastword"
)

// OnRegression says what a start does that finds a regression (R10).
type OnRegression string

// The choices.
const (
	// Stop refuses to start with FENCE_REGRESSION until an operator confirmed.
	Stop OnRegression = "stop"
	// Advance confirms by itself: an epoch above everything found, the tenures
	// found end, and first grants wait for the longest TTL.
	Advance OnRegression = "advance"
)

// Config of an [Authority]. The zero value of every field but Domain works.
type Config struct {
	// Domain names the set of resources whose fences this authority issues.
	Domain string
	// Witness is the durable place outside the store's backup set (R10); nil
	// keeps it in memory, which suits a store in memory only.
	Witness Witness
	// Witnessed marks the store: from then on a start that finds no witness is a
	// regression, where an unmarked store gets a new one with a warning. Set it
	// when the witness lies outside of what is backed up with the store. A mark
	// stays.
	Witnessed bool
	// OnRegression is [Stop] by default.
	OnRegression OnRegression

	// Tick is the length of a tick of the store's counter when the store is new;
	// an existing store keeps its own. 0 is 100 ms; 1 ms to 10 s.
	Tick time.Duration
	// MinTTL and MaxTTL bound a granted TTL; 0 is 100 ms and 24 h.
	MinTTL, MaxTTL time.Duration
	// MaxWait bounds how long an acquire may queue; 0 is 1 h.
	MaxWait time.Duration
	// LockDelay is the time between an expiry and the next grant (R3), by
	// resource prefix; the longest prefix that matches counts.
	LockDelay map[string]time.Duration
	// Retention is how long a request record is kept after the end of its tenure
	// (R2); 0 is 1 h, and never less than 10 × TTL of its tenure.
	Retention time.Duration

	// Policy says which owner may hold what; nil lets every owner hold everything,
	// under generation 0. It binds callers in the same process, too.
	Policy Policy

	// MaxWaiters bounds the waiters of one resource; 0 is 10,000.
	MaxWaiters int
	// MaxPerOwner bounds the acquires and status calls of one owner that are under
	// way at a time, waiting ones included; 0 is 20,000. What a holder says of its
	// own tenure has the same room again, so that no owner's waiters keep it from
	// renewing.
	MaxPerOwner int
	// MaxWatchers bounds the watches under way at a time; 0 is 1,024.
	MaxWatchers int
	// MaxBatch bounds the calls decided in one step; 0 is 1,024.
	MaxBatch int

	// RefreshHint is how often a resource should ask for the trust bundle; 0 is
	// 10 s.
	RefreshHint time.Duration

	// Elapsed is elapsed time that never goes back; nil takes the process's
	// monotonic clock. A jump forward expires nobody. One that stands still in
	// suspend lengthens leases, but then Remaining of a repeated acquire can be too
	// long where another process expires the lease meanwhile: where hosts suspend
	// and several share a store, give one that runs on (CLOCK_BOOTTIME). Now is the
	// wall clock, for the issued-at of grants; nothing is decided by it. NewID makes
	// lease ids, which must never repeat.
	Elapsed func() time.Duration
	Now     func() time.Time
	NewID   func() string
	// Logger gets what an operator should know; nil discards it. It never gets a
	// grant or a key.
	Logger *slog.Logger
	// Audit keeps what operators do; nil keeps nothing.
	Audit Auditor
	// Observer is told of every answered call and of what the loop does; nil is
	// nobody. See [Observer] for what one that blocks or panics can and cannot do.
	Observer Observer
}

func (c Config) withDefaults() (Config, error) {
	if err := lastword.CheckID("domain", c.Domain); err != nil {
		return c, err
	}
	start := time.Now() //nolint:forbidigo // for the default of Elapsed
	fill(&c.OnRegression, Stop)
	fill(&c.Tick, 100*time.Millisecond)
	fill(&c.MinTTL, 100*time.Millisecond)
	fill(&c.MaxTTL, 24*time.Hour)
	fill(&c.MaxWait, time.Hour)
	fill(&c.Retention, time.Hour)
	fill(&c.MaxWaiters, 10_000)
	fill(&c.MaxPerOwner, 20_000)
	fill(&c.MaxWatchers, 1024)
	fill(&c.MaxBatch, 1024)
	fill(&c.RefreshHint, 10*time.Second)
	if c.Witness == nil && !c.Witnessed {
		c.Witness = NewMemoryWitness()
	}
	if c.Elapsed == nil {
		c.Elapsed = func() time.Duration { return time.Since(start) } //nolint:forbidigo // the one place where the default is taken
	}
	if c.Now == nil {
		c.Now = time.Now //nolint:forbidigo // as above
	}
	if c.NewID == nil {
		c.NewID = func() string { return "lease-" + strings.ToLower(rand.Text()[:20]) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.LockDelay = maps.Clone(c.LockDelay)
	return c, c.validate()
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	switch {
	case c.OnRegression != Stop && c.OnRegression != Advance:
		return invalid("on-regression %q: want %s or %s", c.OnRegression, Stop, Advance)
	case c.Tick < time.Millisecond || c.Tick > 10*time.Second:
		return invalid("tick %v: want 1ms to 10s", c.Tick)
	case c.MinTTL < time.Millisecond || c.MaxTTL > 24*time.Hour || c.MinTTL > c.MaxTTL:
		return invalid("ttl bounds %v to %v: want 1ms to 24h", c.MinTTL, c.MaxTTL)
	case c.Witnessed && c.Witness == nil:
		return invalid("witnessed without a witness")
	case c.MaxWait < 0 || c.Retention < 0 || c.RefreshHint < 0:
		return invalid("a wait, retention or refresh hint is negative")
	case c.MaxWaiters < 0 || c.MaxPerOwner < 0 || c.MaxWatchers < 0 || c.MaxBatch < 0:
		return invalid("a bound is negative")
	}
	for prefix, delay := range c.LockDelay {
		if delay < 0 || delay > 24*time.Hour {
			return invalid("lock-delay %v of %q: want 0 to 24h", delay, prefix)
		}
	}
	return nil
}

func (c Config) lockDelay(r lastword.Resource) time.Duration {
	var longest int
	var delay time.Duration
	for prefix, d := range c.LockDelay {
		if len(prefix) >= longest && strings.HasPrefix(string(r), prefix) {
			longest, delay = len(prefix), d
		}
	}
	return delay
}
