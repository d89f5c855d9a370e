package observe

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword/fence"
)

const (
	fenceSide = "fence"
	// maxPlaces bounds the places that have a name of their own as a label.
	maxPlaces = 64
)

// What a call ended with, where that is neither a verdict nor a code.
const (
	effectFailed = "EFFECT_FAILED"
	notFound     = "NOT_FOUND"
	panicked     = "PANIC"
)

type fenceMetrics struct {
	calls     *prometheus.CounterVec
	durations *prometheus.HistogramVec
	losses    prometheus.Counter

	unsettled   *unsettled
	open        prometheus.Collector
	oldest      prometheus.Collector
	places      *names
	callsOf     *series[fenceCall, prometheus.Counter]
	durationsOf *series[fenceCall, prometheus.Observer]
}

// fenceCall has no outcome where durations are meant.
type fenceCall struct {
	op      fence.Op
	place   string
	mode    fence.StatusMode
	outcome string
}

func newFenceMetrics() *fenceMetrics {
	const side = fenceSide
	m := &fenceMetrics{
		calls:     counter(side, "calls_total", "Calls at a gate, by operation, place, status mode of the gate and outcome: the verdict, or why there is none.", "op", "place", "mode", "outcome"),
		durations: histogram(side, "call_duration_seconds", "Time of a call at a gate, the effect and the commit included, by operation, place and status mode.", callBuckets, "op", "place", "mode"),
		losses:    losses(),
		unsettled: newUnsettled(),
		places:    newNames(maxPlaces),
	}
	m.open = gaugeFunc(side, "unsettled_operations", "Operations whose outcome is unknown (MUTATION_UNKNOWN) and has not been settled in this process.", m.unsettled.count)
	m.oldest = gaugeFunc(side, "oldest_unsettled_age_seconds", "For how long the outcome of the oldest of them has been unknown; 0 if there is none.", m.unsettled.oldest)
	m.callsOf = newSeries(func(k fenceCall) prometheus.Counter {
		return m.calls.WithLabelValues(string(k.op), k.place, string(k.mode), k.outcome)
	})
	m.durationsOf = newSeries(func(k fenceCall) prometheus.Observer {
		return m.durations.WithLabelValues(string(k.op), k.place, string(k.mode))
	})
	return m
}

func (m *fenceMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.durations, m.losses, m.open, m.oldest}
}

// Answered implements [fence.Observer].
func (m *fenceMetrics) Answered(_ context.Context, a fence.Answer) {
	key := fenceCall{op: a.Op, place: m.places.of(a.Place), mode: a.Mode}
	m.durationsOf.of(key).Observe(a.Took.Seconds())
	key.outcome = outcomeOf(a)
	m.callsOf.of(key).Inc()
	m.unsettled.learn(a)
}

// Followed implements [fence.FollowObserver].
func (m *fenceMetrics) Followed(_ context.Context, following bool, _ error) {
	if !following {
		m.losses.Inc()
	}
}

func losses() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: fenceSide, Name: "watch_losses_total",
		Help: "How often a gate lost its watch of the authority, or did not get one.",
	})
}

func outcomeOf(a fence.Answer) string {
	switch {
	case a.Verdict != "":
		return string(a.Verdict)
	case a.Code != "":
		return string(a.Code)
	case a.EffectFailed:
		return effectFailed
	case a.Op == fence.OpLookup:
		return notFound
	}
	return panicked
}
