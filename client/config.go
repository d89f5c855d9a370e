package client

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Bounds and defaults of a tenure's TTL.
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 100 * time.Millisecond
	MaxTTL     = 24 * time.Hour
)

// Config is how a [Client] holds. The zero value works.
type Config struct {
	// Owner names the holder. Where the authority authenticates callers it is the
	// authenticated identity: another one is refused. Default: the identity that the
	// client of the authority proves, if it has the method Owner and names one; else
	// host, process id and a random part, so that two starts of a program are two
	// owners.
	Owner string
	// Elapsed is the clock by which trust is decided: time since any fixed point,
	// never going back. It must run through suspend, or a machine that slept
	// believes too long. Default: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC_RAW on
	// macOS, which do; elsewhere Go's monotonic clock, which may not.
	Elapsed func() time.Duration
	// Jitter spreads retries, and the renewals of leases that began together: a
	// number in [0, 1). Default: math/rand/v2.
	Jitter func() float64
	// Logger takes changes of ownership and what goes wrong in the background.
	// Grants are never logged. Default: none.
	Logger *slog.Logger
	// OnEvent is told of every change of what is known of a lease: of one lease in
	// order and one at a time, of several leases at once. It is called on goroutines
	// of its own: one that is slow, blocks or panics delays neither renewals nor the
	// end of a context, and not the events of other leases. Of a lease whose events
	// are not taken the newest 64 are kept, the last one always; see
	// [Event.Dropped]. Default: none.
	OnEvent func(Event)
	// Observer is told of every outcome and every change, for metrics and traces; nil
	// is nobody. See [Observer].
	Observer Observer
	// ClockRate is how far this clock and the authority's may differ in rate, in
	// parts per million, 1 to 200,000. That part of a TTL is never trusted.
	// Default 10,000 (1 %).
	ClockRate int
	// Margin is the least part of a TTL that is never trusted, 1 ms to 10 s.
	// Default 20 ms.
	Margin time.Duration
	// CallTimeout bounds one call to the authority, a renewal or a question above
	// all, where a sixth of the TTL is longer. 1 ms and more; 0 means a sixth of the TTL. The queueing of an
	// acquire comes on top.
	CallTimeout time.Duration
	// CleanupTimeout bounds what is done after the caller's context has ended, or
	// where there is none: the cancel of an attempt that was given up, the releases
	// by Close and Run. 10 ms to 10 min. Default 10 s.
	CleanupTimeout time.Duration
	// DrainTimeout is how long work under [Client.Run] may take to return once it
	// was told to stop. The lease is kept that long; after that it is not released
	// but left to lapse, and the overrun is reported ([ErrOverrun]). 1 ms to 24 h.
	// Default 10 s.
	DrainTimeout time.Duration
	// MaxHold is the longest time that a lease is held, for acquires that name
	// none. 0 is no limit.
	MaxHold time.Duration
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Owner == "" {
		cfg.Owner = defaultOwner()
	}
	if err := lastword.CheckID("owner", cfg.Owner); err != nil {
		return cfg, err
	}
	if cfg.Elapsed == nil {
		cfg.Elapsed = systemElapsed
	}
	if cfg.Jitter == nil {
		cfg.Jitter = mathrand.Float64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.ClockRate == 0 {
		cfg.ClockRate = 10_000
	}
	if cfg.ClockRate < 1 || cfg.ClockRate > 200_000 {
		return cfg, invalid("configure client", "", "clock rate bound %d: want 1 to 200000 parts per million", cfg.ClockRate)
	}
	for _, d := range []struct {
		name      string
		value     *time.Duration
		def       time.Duration
		low, high time.Duration
	}{
		{"margin", &cfg.Margin, 20 * time.Millisecond, time.Millisecond, 10 * time.Second},
		{"call time-out", &cfg.CallTimeout, 0, time.Millisecond, MaxTTL},
		{"cleanup time-out", &cfg.CleanupTimeout, 10 * time.Second, 10 * time.Millisecond, 10 * time.Minute},
		{"drain time-out", &cfg.DrainTimeout, 10 * time.Second, time.Millisecond, MaxTTL},
		{"max-hold", &cfg.MaxHold, 0, time.Millisecond, maxSpan},
	} {
		if *d.value == 0 {
			*d.value = d.def
			continue
		}
		if *d.value < d.low || *d.value > d.high {
			return cfg, invalid("configure client", "", "%s %s: want %s to %s", d.name, *d.value, d.low, d.high)
		}
	}
	return cfg, nil
}

// maxSpan keeps sums of durations and clock readings inside 64 bits.
const maxSpan = 10 * 365 * 24 * time.Hour

func (cfg Config) bound() core.TrustBound {
	return core.TrustBound{RatePPM: int64(cfg.ClockRate), Floor: int64(cfg.Margin)}
}

// callTimeout bounds one call about a tenure of this TTL.
func (cfg Config) callTimeout(ttl time.Duration) time.Duration {
	sixth := time.Duration(core.TrustCall(int64(ttl)))
	if cfg.CallTimeout > 0 {
		return min(cfg.CallTimeout, sixth)
	}
	return sixth
}

// pause is a random time between half of limit and limit.
func (cfg Config) pause(limit time.Duration) time.Duration {
	half := limit / 2
	return limit - half + time.Duration(cfg.Jitter()*float64(half))
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || lastword.CheckID("host", host) != nil {
		host = "unnamed"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text())
}

// AcquireOptions says what is wanted. The zero value asks for 30 s, does not
// queue, and holds for any length of time.
type AcquireOptions struct {
	// TTL is wanted, [MinTTL] to [MaxTTL], default [DefaultTTL]; the authority may
	// grant another one. The lease is renewed every third of it.
	TTL time.Duration
	// Wait is how long to queue behind another holder. 0 does not queue.
	Wait time.Duration
	// RequestID names the attempt. Who wants to find out after a crash gives one
	// that is stored first, and repeats the acquire with it. A client refuses one that
	// it is using. Default: a random one.
	RequestID string
	// Root names the whole piece of work; none is allowed.
	Root lastword.Digest
	// Class is what the grant may be used for, default [lastword.ClassWrite].
	Class lastword.Class
	// ProofLife asks for status proofs that live so long, 1 s to 1 min, beside the
	// grant and with every renewal, for resources that want one ([Lease.StatusProof]).
	// One should outlive a third of the TTL, or be asked for with
	// [Lease.RefreshProof]. 0 asks for none.
	ProofLife time.Duration
	// MaxHold is the longest time that the lease is held, counted from the moment
	// it is held. 0 takes [Config.MaxHold].
	MaxHold time.Duration
}

func (o AcquireOptions) withDefaults(cfg Config, resource lastword.Resource) (AcquireOptions, error) {
	if _, err := lastword.ParseResource(string(resource)); err != nil {
		return o, err
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Class == "" {
		o.Class = lastword.ClassWrite
	}
	if o.RequestID == "" {
		o.RequestID = rand.Text()
	}
	if o.MaxHold == 0 {
		o.MaxHold = cfg.MaxHold
	}
	switch margin := time.Duration(cfg.bound().Margin(int64(o.TTL))); {
	case o.TTL < MinTTL || o.TTL > MaxTTL:
		return o, invalid("acquire", resource, "ttl %s: want %s to %s", o.TTL, MinTTL, MaxTTL)
	case margin > o.TTL/3:
		return o, invalid("acquire", resource, "ttl %s: a margin of %s leaves too little to trust; want a ttl of three margins or more", o.TTL, margin)
	case o.ProofLife != 0 && (o.ProofLife < time.Second || o.ProofLife > time.Minute):
		return o, invalid("acquire", resource, "proof life %s: want 1s to 1m", o.ProofLife)
	case o.Wait < 0 || o.Wait > maxSpan:
		return o, invalid("acquire", resource, "wait %s: want 0 to %s", o.Wait, maxSpan)
	case o.MaxHold < 0 || o.MaxHold > maxSpan:
		return o, invalid("acquire", resource, "max-hold %s: want 0 to %s", o.MaxHold, maxSpan)
	}
	return o, lastword.CheckID("request id", o.RequestID)
}
