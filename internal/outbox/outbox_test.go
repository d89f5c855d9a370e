package outbox_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword/internal/outbox"
)

// inbox is a receiver that remembers.
type inbox struct {
	mu      sync.Mutex
	items   []int
	dropped int
	batches int
}

func (i *inbox) take(batch []int, dropped int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.items = append(i.items, batch...)
	i.dropped += dropped
	i.batches++
}

func wait(t *testing.T, o *outbox.Outbox[int]) {
	t.Helper()
	if !o.Wait(t.Context()) {
		t.Fatal("not everything was handed over")
	}
}

func TestEverythingIsHandedOverInOrder(t *testing.T) {
	t.Parallel()
	var in inbox
	o := outbox.New(1<<20, in.take)
	var want []int
	for i := range 10_000 {
		o.Put(i)
		want = append(want, i)
	}
	o.Put() // nothing at all
	wait(t, o)
	if !slices.Equal(in.items, want) || in.dropped != 0 {
		t.Errorf("got %d items, %d dropped, want %d in order", len(in.items), in.dropped, len(want))
	}
}

func TestAnEmptyOutboxHasNothingToWaitFor(t *testing.T) {
	t.Parallel()
	wait(t, outbox.New(4, func([]int, int) {}))
}

// TestAStuckReceiverDelaysNobodyAndGetsTheNewest: the oldest go, and are counted.
func TestAStuckReceiverDelaysNobodyAndGetsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		open := make(chan struct{})
		o := outbox.New(100, func(batch []int, dropped int) {
			<-open
			in.take(batch, dropped)
		})
		const n = 10_000
		for i := range n {
			o.Put(i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if o.Wait(ctx) {
			t.Error("it says that a stuck receiver has everything")
		}
		close(open)
		wait(t, o)
		if got := len(in.items) + in.dropped; got != n {
			t.Errorf("%d handed over and %d dropped, want %d together", len(in.items), in.dropped, n)
		}
		if in.dropped == 0 || len(in.items) > 201 {
			t.Errorf("%d items were kept for a stuck receiver, want at most the bound of 100 and its first batch", len(in.items))
		}
		if last := in.items[len(in.items)-1]; last != n-1 || !slices.IsSorted(in.items) {
			t.Errorf("the last one handed over is %d, want %d, in order", last, n-1)
		}
	})
}

func TestAReceiverThatPanicsOrEndsItsGoroutineLosesItsBatchOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		o := outbox.New(100, func(batch []int, dropped int) {
			switch batch[0] {
			case 1:
				panic("receiver")
			case 2:
				runtime.Goexit()
			}
			in.take(batch, dropped)
		})
		for i := range 4 {
			o.Put(i)
			wait(t, o)
		}
		if want := []int{0, 3}; !slices.Equal(in.items, want) {
			t.Errorf("got %v, want %v", in.items, want)
		}
	})
}

func TestPutAllocatesNothing(t *testing.T) {
	o := outbox.New(1<<10, func([]int, int) {})
	o.Put(1)
	wait(t, o)
	if n := testing.AllocsPerRun(100, func() { o.Put(1, 2, 3) }); n > 0 {
		t.Errorf("%v allocations for a put", n)
	}
	wait(t, o)
}
