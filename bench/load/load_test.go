package load_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastword/lastword/bench/load"
)

// service is a lock service in memory.
type service struct {
	mu     sync.Mutex
	locks  map[string]chan struct{}
	broken bool // lets everybody in
	fails  error
	open   atomic.Int64 // clients
}

func (s *service) Locks(_ context.Context, keys []string) ([]load.Lock, func() error, error) {
	s.open.Add(int64(len(keys)))
	var locks []load.Lock
	for _, key := range keys {
		locks = append(locks, &lock{s, s.key(key)})
	}
	return locks, func() error { s.open.Add(-int64(len(keys))); return nil }, nil
}

func (s *service) key(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks == nil {
		s.locks = map[string]chan struct{}{}
	}
	if s.locks[name] == nil {
		s.locks[name] = make(chan struct{}, 1)
	}
	return s.locks[name]
}

func (s *service) Close() error { return nil }

type lock struct {
	service *service
	held    chan struct{}
}

func (l *lock) Lock(ctx context.Context) error {
	if l.service.fails != nil {
		return l.service.fails
	}
	if l.service.broken {
		return nil
	}
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lock) Unlock(context.Context) error {
	if !l.service.broken {
		<-l.held
	}
	return nil
}

// kept are leases that renew themselves once.
type kept struct{ n int64 }

func (k *kept) Count() (int64, int64) { return k.n, 2 }
func (k *kept) Done() error           { return nil }

func (s *service) Keep(ctx context.Context, n int, _ time.Duration) (load.Kept, error) {
	if s.broken {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.open.Add(1)
	return &countedUp{kept: kept{}, service: s}, nil
}

type countedUp struct {
	kept
	service *service
}

func (k *countedUp) Count() (int64, int64) { k.n += 7; return k.n, 2 }
func (k *countedUp) Done() error           { k.service.open.Add(-1); return nil }

func order(workload string, clients int) load.Order {
	return load.Order{Workload: workload, Run: "r", Clients: clients, Warm: time.Millisecond, Duration: 50 * time.Millisecond, Work: 50 * time.Microsecond}
}

func TestACycleCountsOnlyInsideTheWindow(t *testing.T) {
	t.Parallel()
	s := &service{}
	began := 0
	f, err := load.Run(t.Context(), s, order(load.Cycles, 4), func() { began++ })
	if err != nil || began != 1 {
		t.Fatalf("%v, began %d times", err, began)
	}
	if f.Count == 0 || f.Elapsed < 50*time.Millisecond || f.Latency.Max > f.Elapsed || f.Latency.P50 > f.Latency.P99 {
		t.Errorf("figures %+v", f)
	}
	if s.open.Load() != 0 {
		t.Error("clients are left")
	}
}

func TestAHandoverIsToAnotherClientAndEveryWaiterCounts(t *testing.T) {
	t.Parallel()
	f, err := load.Run(t.Context(), &service{}, order(load.Handovers, 8), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Count == 0 || f.LongestWait == 0 || f.LongestWait > f.Elapsed+time.Millisecond || f.FairRound(8) == 0 {
		t.Errorf("figures %+v", f)
	}
}

// hungry lets its first client in, and the others only when the window is over.
type hungry struct{ service }

func (h *hungry) Locks(ctx context.Context, keys []string) ([]load.Lock, func() error, error) {
	locks, done, err := h.service.Locks(ctx, keys)
	over := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(over) })
	for i := range locks[1:] {
		locks[i+1] = &starved{locks[i+1], over}
	}
	return locks, done, err
}

type starved struct {
	inner load.Lock
	over  chan struct{}
}

func (s *starved) Lock(ctx context.Context) error {
	<-s.over
	return s.inner.Lock(ctx)
}

func (s *starved) Unlock(ctx context.Context) error { return s.inner.Unlock(ctx) }

// Somebody who never gets a turn in the window has waited for all of it.
func TestAClientThatStarvesShowsInTheLongestWait(t *testing.T) {
	t.Parallel()
	f, err := load.Run(t.Context(), &hungry{}, order(load.Handovers, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.LongestWait < f.Elapsed*9/10 || f.Again == 0 || f.Count != 0 {
		t.Errorf("longest wait %v of %v, %d again, %d hand-overs", f.LongestWait, f.Elapsed, f.Again, f.Count)
	}
}

func TestThereAreNoFiguresOfALockThatDoesNotLock(t *testing.T) {
	t.Parallel()
	s := &service{broken: true}
	_, err := load.Run(t.Context(), s, order(load.Handovers, 4), nil)
	if err == nil || !strings.Contains(err.Error(), "two clients hold the key at once") {
		t.Errorf("got %v", err)
	}
	if s.open.Load() != 0 {
		t.Error("clients are left")
	}
}

func TestACallThatFailsEndsTheRun(t *testing.T) {
	t.Parallel()
	want := errors.New("out of order")
	if _, err := load.Run(t.Context(), &service{fails: want}, order(load.Cycles, 2), nil); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestLiveLeasesCountRenewalsOfTheWindow(t *testing.T) {
	t.Parallel()
	o := order(load.LiveLeases, 0)
	o.Leases, o.TTL = 10, time.Second
	s := &service{}
	f, err := load.Run(t.Context(), s, o, nil)
	if err != nil || f.Count != 7 || f.Lost != 2 || f.Held != 8 || s.open.Load() != 0 {
		t.Errorf("figures %+v, %v, %d open", f, err, s.open.Load())
	}
}

func TestLeasesThatCannotBeTakenInTimeAreGivenUp(t *testing.T) {
	t.Parallel()
	o := order(load.LiveLeases, 0)
	o.Leases, o.TTL, o.Limit = 10, time.Second, time.Millisecond
	if f, err := load.Run(t.Context(), &service{broken: true}, o, nil); err != nil || !f.GaveUp {
		t.Errorf("figures %+v, %v", f, err)
	}
}

func TestOrdersThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []load.Order{
		{}, {Workload: "no", Clients: 1, Duration: 1}, {Workload: load.Cycles, Duration: 1}, {Workload: load.Cycles, Clients: 1},
		{Workload: load.Handovers, Clients: 1, Duration: 1}, {Workload: load.LiveLeases, Duration: 1},
	} {
		if _, err := load.Run(t.Context(), &service{}, o, nil); err == nil {
			t.Errorf("%+v was measured", o)
		}
	}
}

// TestServeAnswersEveryOrder also with a failure, and ends with its input.
func TestServeAnswersEveryOrder(t *testing.T) {
	t.Parallel()
	in, orders := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- load.Serve(t.Context(), in, out, func(context.Context) (load.Target, error) { return &service{}, nil })
		out.Close()
	}()
	lines := json.NewDecoder(answers)
	next := func() (l load.Line) {
		if err := lines.Decode(&l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	if !next().Ready {
		t.Error("it is not ready")
	}
	say := json.NewEncoder(orders)
	for range 2 {
		if err := say.Encode(order(load.Cycles, 2)); err != nil {
			t.Fatal(err)
		}
		if !next().Began {
			t.Error("no beginning")
		}
		if l := next(); l.Figures == nil || l.Figures.Count == 0 {
			t.Errorf("got %+v", l)
		}
	}
	if err := say.Encode(order("no", 1)); err != nil {
		t.Fatal(err)
	}
	if l := next(); l.Failed == "" {
		t.Errorf("got %+v", l)
	}
	orders.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A parent that is gone hears no figures: the order under way ends at once.
func TestServeEndsInTheMiddleOfAnOrderWithItsInput(t *testing.T) {
	t.Parallel()
	in, orders := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- load.Serve(t.Context(), in, out, func(context.Context) (load.Target, error) { return &service{}, nil })
		out.Close()
	}()
	o := order(load.Cycles, 2)
	o.Duration = time.Hour
	lines := json.NewDecoder(answers)
	var l load.Line
	if err := lines.Decode(&l); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(orders).Encode(o); err != nil {
		t.Fatal(err)
	}
	if err := lines.Decode(&l); err != nil || !l.Began {
		t.Fatalf("%+v, %v", l, err)
	}
	orders.Close()
	go func() { _, _ = io.Copy(io.Discard, answers) }()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestPercentilesAreThoseOfADumbCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 200).Draw(t, "all")
		p := rapid.IntRange(1, 100).Draw(t, "p")
		sorted := slices.Sorted(slices.Values(all))
		got := load.Percentile(sorted, p)
		// The smallest value such that at least p percent of all are not larger.
		atMost := func(v int64) (n int) {
			for _, x := range all {
				if x <= v {
					n++
				}
			}
			return n
		}
		if !slices.Contains(all, got) || atMost(got)*100 < p*len(all) || got > 0 && atMost(got-1)*100 >= p*len(all) {
			t.Fatalf("%d %% of %v is not %d", p, sorted, got)
		}
	})
}

func TestTheMedianHasAsManyBelowAsAbove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "all")
		before := slices.Clone(all)
		m := load.Median(all)
		below, above := 0, 0
		for _, v := range all {
			if v < m {
				below++
			}
			if v > m {
				above++
			}
		}
		if below > len(all)/2 || above > len(all)/2 || !slices.Equal(all, before) {
			t.Fatalf("%v is no median of %v: %d below, %d above", m, before, below, above)
		}
	})
	if load.Median([]float64{4, 1, 3, 2}) != 2.5 || load.Median([]float64(nil)) != 0 || load.Percentile([]int64(nil), 50) != 0 {
		t.Error("the median of an even count is the mean of the two in the middle, of none it is 0")
	}
}

func TestASummaryIsOrdered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []time.Duration
		for _, v := range rapid.SliceOf(rapid.Int64Range(0, 1e12)).Draw(t, "all") {
			all = append(all, time.Duration(v))
		}
		s := load.Summarize(all)
		if s.P50 > s.P99 || s.P99 > s.Max || s.Mean > s.Max || len(all) == 0 && s != (load.Summary{}) {
			t.Fatalf("%+v of %v", s, all)
		}
	})
}

func TestWorkTakesItsTime(t *testing.T) {
	t.Parallel()
	start := time.Now()
	load.Work(2 * time.Millisecond)
	if d := time.Since(start); d < 2*time.Millisecond {
		t.Errorf("2 ms of work took %v", d)
	}
}

func TestParallelRunsEachOnceAndReturnsTheFirstError(t *testing.T) {
	t.Parallel()
	var ran [100]atomic.Int32
	if err := load.Parallel(len(ran), 7, func(i int) error { ran[i].Add(1); return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range ran {
		if ran[i].Load() != 1 {
			t.Errorf("%d ran %d times", i, ran[i].Load())
		}
	}
	want := errors.New("no")
	if err := load.Parallel(3, 2, func(int) error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func ExampleMedian() {
	fmt.Println(load.Median([]float64{642, 590, 660, 12, 651}))
	// Output: 642
}
