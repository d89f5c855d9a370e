package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// cycles lets each client acquire and release a key of its own.
func cycles(ctx context.Context, t Target, o Order, began func()) (_ Figures, err error) {
	keys := make([]string, o.Clients)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s/cycle-%d", o.Run, i)
	}
	locks, done, err := t.Locks(ctx, keys)
	if err != nil {
		return Figures{}, err
	}
	defer func() { err = errors.Join(err, done()) }()

	run := newRun(ctx)
	samples := make([][]time.Duration, o.Clients)
	for i, lock := range locks {
		run.Go(func(ctx context.Context) error {
			return cycle(ctx, lock, run, &samples[i])
		})
	}
	f, err := run.measure(o, began)
	if err != nil {
		return Figures{}, err
	}
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s...)
	}
	f.Count, f.Latency = int64(len(all)), Summarize(all)
	return f, nil
}

func cycle(ctx context.Context, lock Lock, run *run, samples *[]time.Duration) error {
	for !run.over() {
		start := run.now()
		if err := lock.Lock(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err := lock.Unlock(ctx); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
		if end := run.now(); run.holds(start, end) {
			*samples = append(*samples, end-start)
		}
	}
	return nil
}

// run is the clients of one measurement and its window.
type run struct {
	ctx     context.Context //nolint:containedctx // lives as long as the measurement
	cancel  context.CancelCauseFunc
	origin  time.Time
	clients sync.WaitGroup

	mu         sync.Mutex
	begin, end time.Duration // of the window; 0 is not yet
	stopped    bool
}

func newRun(ctx context.Context) *run {
	r := &run{origin: time.Now()}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

func (r *run) now() time.Duration { return time.Since(r.origin) }

// Go starts one client. The first error ends them all.
func (r *run) Go(client func(ctx context.Context) error) {
	r.clients.Go(func() {
		if err := client(r.ctx); err != nil {
			r.cancel(err)
		}
	})
}

func (r *run) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped || r.ctx.Err() != nil
}

// holds says whether both moments lie in the window.
func (r *run) holds(start, end time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin > 0 && start >= r.begin && (r.end == 0 || end <= r.end)
}

// measure lets the clients run through warm-up and window, waits for them, and returns
// the figures of the window itself.
func (r *run) measure(o Order, began func()) (f Figures, err error) {
	var cpu time.Duration
	err = window(r.ctx, o, func() {
		began()
		cpu = cpuTime()
		r.mu.Lock()
		r.begin = max(r.now(), 1)
		r.mu.Unlock()
	})
	f.CPU = cpuTime() - cpu
	r.mu.Lock()
	r.end, r.stopped = r.now(), true
	f.Elapsed = r.end - r.begin
	r.mu.Unlock()
	r.clients.Wait()
	if err == nil && r.ctx.Err() != nil { // a client failed after the window
		err = context.Cause(r.ctx)
	}
	r.cancel(nil)
	return f, err
}
