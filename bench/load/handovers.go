package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// handovers lets all clients want one key, again as soon as they gave it back.
func handovers(ctx context.Context, t Target, o Order, began func()) (_ Figures, err error) {
	keys := make([]string, o.Clients)
	for i := range keys {
		keys[i] = o.Run + "/handover"
	}
	locks, done, err := t.Locks(ctx, keys)
	if err != nil {
		return Figures{}, err
	}
	defer func() { err = errors.Join(err, done()) }()

	run := newRun(ctx)
	key := &sharedKey{run: run, waiting: make([]time.Duration, o.Clients), holder: -1, last: -1}
	for i, lock := range locks {
		run.Go(func(ctx context.Context) error { return key.client(ctx, i, lock, o.Work) })
	}
	f, err := run.measure(o, began)
	if err != nil {
		return Figures{}, err
	}
	f.Count, f.Again, f.LongestWait = int64(len(key.samples)), key.again, key.longest
	f.Latency = Summarize(key.samples)
	return f, nil
}

// sharedKey is what the clients of one key see of each other.
type sharedKey struct {
	run *run

	mu       sync.Mutex
	holder   int           // who holds the key, -1 for nobody
	last     int           // who released last, -1 for nobody
	released time.Duration // when
	waiting  []time.Duration
	samples  []time.Duration // from a release to another client running
	longest  time.Duration
	again    int64
}

func (k *sharedKey) client(ctx context.Context, me int, lock Lock, work time.Duration) error {
	for !k.run.over() {
		k.mu.Lock()
		k.waiting[me] = k.run.now()
		k.mu.Unlock()
		if err := lock.Lock(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err := k.acquired(me); err != nil {
			return err
		}
		Work(work)
		k.releasing(me)
		if err := lock.Unlock(ctx); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
	}
	return nil
}

func (k *sharedKey) acquired(me int) error {
	now := k.run.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holder >= 0 {
		return fmt.Errorf("two clients hold the key at once: %d and %d", k.holder, me)
	}
	k.holder = me
	k.waited(me, now)
	switch {
	case k.last < 0 || !k.run.holds(k.released, now):
	case k.last == me:
		k.again++
	default:
		k.samples = append(k.samples, now-k.released)
	}
	return nil
}

// waited takes the wait of a client, or as much of it as lies in the window: one that
// began before the window is at least as long as what is left of it.
func (k *sharedKey) waited(me int, now time.Duration) {
	begin, end := k.run.bounds()
	if begin == 0 {
		return
	}
	from, to := max(k.waiting[me], begin), now
	if end > 0 {
		to = min(to, end)
	}
	k.longest = max(k.longest, to-from)
}

func (k *sharedKey) releasing(me int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holder, k.last, k.released = -1, me, k.run.now()
}

// bounds are begin and end of the window, 0 for not yet.
func (r *run) bounds() (begin, end time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin, r.end
}
