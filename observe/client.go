package observe

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

const clientSide = "client"

type clientMetrics struct {
	calls       *prometheus.HistogramVec
	transitions *prometheus.CounterVec
	ended       *prometheus.CounterVec
	held        prometheus.Gauge
	dropped     prometheus.Counter

	callsOf *series[clientCall, prometheus.Observer]
}

type clientCall struct {
	op   client.Op
	code lastword.Code
}

// causes are how a lease can end; the first one that matches counts, so that the
// finer ones come first.
var causes = []struct {
	name string
	err  error
}{
	{"unknown_too_long", client.ErrUnknownTooLong},
	{"expired", client.ErrExpired},
	{"revoked", client.ErrRevoked},
	{"canceled", client.ErrAttemptCanceled},
	{"refused", client.ErrRefused},
	{"max_hold", client.ErrMaxHold},
	{"overrun", client.ErrOverrun},
	{"released", client.ErrReleased},
}

func causeOf(err error) string {
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return other
}

func newClientMetrics() *clientMetrics {
	const side = clientSide
	m := &clientMetrics{
		calls:       histogram(side, "call_duration_seconds", "Time of an acquire, a renewal, a release or a complete, all its tries included, by operation and code; OK is success.", callBuckets, "op", "code"),
		transitions: counter(side, "transitions_total", "Changes of what holders know of their leases, by the state before and after.", "from", "to"),
		ended:       counter(side, "leases_ended_total", "Leases that ended, by cause; all but released are losses.", "cause"),
		held:        gauge(side, "held_leases", "Leases that are held now, or that are not known to have ended."),
	}
	m.dropped = counter(side, "reports_dropped_total", "Outcomes and changes that are missing in these metrics because the observer was too slow.").WithLabelValues()
	m.callsOf = newSeries(func(k clientCall) prometheus.Observer { return m.calls.WithLabelValues(string(k.op), byCode(k.code)) })
	for _, c := range causes {
		m.ended.WithLabelValues(c.name)
	}
	return m
}

func (m *clientMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.transitions, m.ended, m.held, m.dropped}
}

// Answered implements [client.Observer].
func (m *clientMetrics) Answered(_ context.Context, a client.Answer) {
	m.dropped.Add(float64(a.Missed))
	m.callsOf.of(clientCall{a.Op, a.Code}).Observe(a.Took.Seconds())
}

// Changed implements [client.Observer].
func (m *clientMetrics) Changed(c client.Change) {
	m.dropped.Add(float64(c.Missed))
	m.held.Add(float64(c.Held))
	if c.From != c.To {
		m.transitions.WithLabelValues(string(c.From), string(c.To)).Inc()
	}
	if c.Final() {
		m.ended.WithLabelValues(causeOf(c.Cause)).Inc()
	}
}
