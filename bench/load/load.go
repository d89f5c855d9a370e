package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The workloads that a [Target] can be measured with.
const (
	Cycles     = "cycles"     // each client acquires and releases a key of its own
	Handovers  = "handovers"  // all clients want one key
	LiveLeases = "liveleases" // many leases are kept alive
)

// Lock is one client's lock on one key. A client uses it from one goroutine.
type Lock interface {
	// Lock returns when the client holds the key.
	Lock(ctx context.Context) error
	// Unlock returns when the service has taken the key back.
	Unlock(ctx context.Context) error
}

// Target is a lock service under load.
type Target interface {
	// Locks connects one client, with an identity of its own, for each key. Its
	// clients keep what they hold alive as they would in production. done gives the
	// connections back; nothing is held then.
	Locks(ctx context.Context, keys []string) (locks []Lock, done func() error, err error)
	// Keep takes n leases of this time to live, and renews each every third of it
	// until done. It returns when all are held. After an error some may be kept until
	// the process ends.
	Keep(ctx context.Context, n int, ttl time.Duration) (Kept, error)
	// Close gives the connections back.
	Close() error
}

// Kept are leases that are being renewed.
type Kept interface {
	// Count is how many renewals were answered so far, and how many leases were lost.
	Count() (renewed, lost int64)
	// Done stops renewing. The leases may be left to lapse.
	Done() error
}

// Order is one measurement.
type Order struct {
	Workload string        `json:"workload"`
	Run      string        `json:"run"` // makes the keys of this order its own
	Clients  int           `json:"clients"`
	Warm     time.Duration `json:"warm_ns"`     // before the window
	Duration time.Duration `json:"duration_ns"` // of the window
	Work     time.Duration `json:"work_ns"`     // how long a holder works, hand-overs
	Leases   int           `json:"leases"`      // live leases
	TTL      time.Duration `json:"ttl_ns"`      // of live leases
	Limit    time.Duration `json:"limit_ns"`    // for taking them all; 0 is none
}

// Figures are what one order came to. What a workload does not measure is zero.
type Figures struct {
	Elapsed time.Duration `json:"elapsed_ns"` // the window
	Count   int64         `json:"count"`      // cycles, hand-overs or renewals in it
	Latency Summary       `json:"latency"`    // of a cycle, or from a release to another client running

	// Hand-overs.
	LongestWait time.Duration `json:"longest_wait_ns"` // of any client
	Again       int64         `json:"again"`           // acquisitions by the client that had just released

	// Live leases.
	Held int64         `json:"held"`
	Lost int64         `json:"lost"`
	Took time.Duration `json:"took_ns"` // to take them all
	// GaveUp says that they could not all be taken within the limit. There are no other
	// figures then, and the process is good for nothing more.
	GaveUp bool `json:"gave_up"`

	CPU time.Duration `json:"cpu_ns"` // of the load generator in the window
}

// Rate is counts a second.
func (f Figures) Rate() float64 {
	if f.Elapsed <= 0 {
		return 0
	}
	return float64(f.Count) / f.Elapsed.Seconds()
}

// FairRound is how long a client waits where each of n gets its turn: n hand-overs,
// with the holders' work.
func (f Figures) FairRound(n int) time.Duration {
	if f.Count == 0 {
		return 0
	}
	return time.Duration(float64(f.Elapsed) / float64(f.Count+f.Again) * float64(n))
}

// Run measures one target. began, if not nil, is called when the window begins.
func Run(ctx context.Context, t Target, o Order, began func()) (Figures, error) {
	if began == nil {
		began = func() {}
	}
	switch {
	case o.Duration <= 0:
		return Figures{}, fmt.Errorf("duration %v: want more than 0", o.Duration)
	case o.Workload != LiveLeases && o.Clients < 1:
		return Figures{}, fmt.Errorf("%d clients: want 1 or more", o.Clients)
	}
	switch o.Workload {
	case Cycles:
		return cycles(ctx, t, o, began)
	case Handovers:
		if o.Clients < 2 {
			return Figures{}, errors.New("a hand-over needs 2 clients or more")
		}
		return handovers(ctx, t, o, began)
	case LiveLeases:
		return liveLeases(ctx, t, o, began)
	}
	return Figures{}, fmt.Errorf("workload %q: want %s, %s or %s", o.Workload, Cycles, Handovers, LiveLeases)
}

// window waits for the warm-up, calls begin, and waits for the window's end.
func window(ctx context.Context, o Order, begin func()) error {
	if err := pause(ctx, o.Warm); err != nil {
		return err
	}
	begin()
	return pause(ctx, o.Duration)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
