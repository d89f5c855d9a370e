package observe_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/observe"
)

func TestALostWatchIsCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	o, err := observe.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	both := observe.Join(o, observe.Observers{Fence: quiet{}})
	for _, observer := range []fence.Observer{o.Fence, both.Fence} {
		f, ok := observer.(fence.FollowObserver)
		if !ok {
			t.Fatalf("%T is told of no watch", observer)
		}
		f.Followed(t.Context(), true, nil)
		f.Followed(t.Context(), false, errors.New("cut"))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "lastword_fence_watch_losses_total" {
			if got := family.GetMetric()[0].GetCounter().GetValue(); got != 2 {
				t.Errorf("%v losses, want 2", got)
			}
			return
		}
	}
	t.Error("no such metric")
}

// quiet is an observer that knows nothing of watches.
type quiet struct{ fence.Observer }
