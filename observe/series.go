package observe

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// series keeps the metric of each combination of labels at hand, so that counting
// neither allocates nor locks.
type series[K comparable, M any] struct {
	open func(K) M

	mu    sync.Mutex
	known atomic.Pointer[map[K]M]
}

func newSeries[K comparable, M any](open func(K) M) *series[K, M] {
	s := &series[K, M]{open: open}
	s.known.Store(&map[K]M{})
	return s
}

func (s *series[K, M]) of(key K) M {
	if m, ok := (*s.known.Load())[key]; ok {
		return m
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.known.Load()
	if m, ok := known[key]; ok {
		return m
	}
	next := maps.Clone(known)
	next[key] = s.open(key)
	s.known.Store(&next)
	return next[key]
}

// names bounds how many values a label has: what comes later is "other".
type names struct {
	limit int

	mu    sync.Mutex
	known atomic.Pointer[map[string]string]
}

const other = "other"

func newNames(limit int) *names {
	n := &names{limit: limit}
	n.known.Store(&map[string]string{})
	return n
}

func (n *names) of(name string) string {
	known := *n.known.Load()
	if as, ok := known[name]; ok {
		return as
	}
	if len(known) >= n.limit {
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known = *n.known.Load()
	if as, ok := known[name]; ok {
		return as
	}
	if len(known) >= n.limit {
		return other
	}
	next := maps.Clone(known)
	next[name] = name
	n.known.Store(&next)
	return name
}

// age is how long something has lasted, as it was told, and goes on when nothing more
// is told: whoever is to tell it may be what is stuck.
type age struct {
	mu   sync.Mutex
	told time.Duration
	at   time.Time // zero: there is nothing
}

func (a *age) set(there bool, told time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told, a.at = told, time.Time{}
	if there {
		a.at = now()
	}
}

func (a *age) seconds() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.IsZero() {
		return 0
	}
	return (a.told + max(0, now().Sub(a.at))).Seconds()
}
