package observe

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
)

const authoritySide = "authority"

type authorityMetrics struct {
	calls   *prometheus.HistogramVec
	waits   *prometheus.HistogramVec
	grants  *prometheus.CounterVec
	ended   *prometheus.CounterVec
	holds   *prometheus.HistogramVec
	handed  prometheus.Histogram
	commits *prometheus.HistogramVec
	records prometheus.Histogram
	shared  prometheus.Histogram

	waiters, live, epoch, counter, stopped, missing prometheus.Gauge

	oldest   age
	oldestOf prometheus.Collector
	failures prometheus.Counter
	dropped  prometheus.Counter

	callsOf        *series[authorityCall, prometheus.Observer]
	waitsOf        *series[lastword.Code, prometheus.Observer]
	commitsOf      *series[lastword.Code, prometheus.Observer]
	queued, atOnce prometheus.Counter
}

type authorityCall struct {
	op   authority.Op
	code lastword.Code
}

func newAuthorityMetrics() *authorityMetrics {
	single := func(v *prometheus.HistogramVec) prometheus.Histogram {
		return v.WithLabelValues().(prometheus.Histogram)
	}
	const side = authoritySide
	m := &authorityMetrics{
		calls:   histogram(side, "call_duration_seconds", "Time from a call's beginning to its answer, waiting included, by operation and code; OK is success.", callBuckets, "op", "code"),
		waits:   histogram(side, "wait_duration_seconds", "Time that acquires waited in a queue, by the code they ended with; OK is woken by a grant.", longBuckets, "code"),
		grants:  counter(side, "grants_total", "Grants of new tenures, by whether the acquire had waited; a repeated answer is none.", "queued"),
		ended:   counter(side, "tenures_ended_total", "Tenures whose end this process made durable, by how they ended.", "how"),
		holds:   histogram(side, "hold_duration_seconds", "Time from a tenure's grant to its end, where this process did both, by how it ended.", longBuckets, "how"),
		handed:  single(histogram(side, "handover_duration_seconds", "Time from a tenure's end to the durable grant of the next one, where somebody waited.", callBuckets)),
		commits: histogram(side, "commit_duration_seconds", "Time of a group commit of the store, by code; OK is success.", callBuckets, "code"),
		records: single(histogram(side, "commit_records", "Resources that one group commit wrote.", countBuckets)),
		shared:  single(histogram(side, "commit_calls", "Calls that shared one group commit.", countBuckets)),
		waiters: gauge(side, "waiters", "Acquires that are queued at this process now."),
		live:    gauge(side, "live_leases", "Open tenures that this process granted or wrote to and whose deadline has not passed."),
		epoch:   gauge(side, "epoch", "Issuer epoch that this process grants under."),
		counter: gauge(side, "highest_counter", "Highest counter of a resource that this process has granted in its epoch; 2^33-1 is the last one."),
		stopped: gauge(side, "stopped", "1 if this process has stopped granting until it is started again, because store and witness do not belong together."),
		missing: gauge(side, "witness_missing", "1 if there was no witness when it was read last."),
	}
	m.oldestOf = gaugeFunc(side, "oldest_waiter_age_seconds", "For how long the acquire that waits longest has waited; 0 if nobody waits.", m.oldest.seconds)
	m.failures = counter(side, "witness_failures_total", "Times that the witness could not be read or written.").WithLabelValues()
	m.dropped = counter(side, "reports_dropped_total", "Commits, grants and ends that are missing in these metrics because the observer was too slow.").WithLabelValues()
	m.callsOf = newSeries(func(k authorityCall) prometheus.Observer {
		return m.calls.WithLabelValues(string(k.op), byCode(k.code))
	})
	m.waitsOf = newSeries(func(c lastword.Code) prometheus.Observer { return m.waits.WithLabelValues(byCode(c)) })
	m.commitsOf = newSeries(func(c lastword.Code) prometheus.Observer { return m.commits.WithLabelValues(byCode(c)) })
	m.queued, m.atOnce = m.grants.WithLabelValues("yes"), m.grants.WithLabelValues("no")
	for _, how := range []lastword.State{lastword.StateReleased, lastword.StateExpired, lastword.StateRevoked, lastword.StateCanceled} {
		m.ended.WithLabelValues(string(how))
		m.holds.WithLabelValues(string(how))
	}
	return m
}

func (m *authorityMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.calls, m.waits, m.grants, m.ended, m.holds, m.handed, m.commits, m.records, m.shared,
		m.waiters, m.oldestOf, m.live, m.epoch, m.counter, m.stopped, m.missing, m.failures, m.dropped,
	}
}

// Answered implements [authority.Observer].
func (m *authorityMetrics) Answered(_ context.Context, a authority.Answer) {
	m.callsOf.of(authorityCall{a.Op, a.Code}).Observe(a.Took.Seconds())
	if a.Queued {
		m.waitsOf.of(a.Code).Observe(a.Took.Seconds())
	}
	if a.Op != authority.OpAcquire || a.Code != "" || a.Repeated {
		return
	}
	if a.Queued {
		m.queued.Inc()
	} else {
		m.atOnce.Inc()
	}
}

// Report implements [authority.Observer].
func (m *authorityMetrics) Report(r authority.Report) {
	for _, c := range r.Commits {
		m.commitsOf.of(c.Code).Observe(c.Took.Seconds())
		m.records.Observe(float64(c.Records))
		m.shared.Observe(float64(c.Calls))
	}
	for _, e := range r.Ended {
		m.ended.WithLabelValues(string(e.How)).Inc()
		if e.Known {
			m.holds.WithLabelValues(string(e.How)).Observe(e.Held.Seconds())
		}
	}
	for _, d := range r.HandOvers {
		m.handed.Observe(d.Seconds())
	}
	m.failures.Add(float64(r.WitnessFailures))
	m.dropped.Add(float64(r.Dropped))
	m.waiters.Set(float64(r.State.Waiters))
	m.oldest.set(r.State.Waiters > 0, r.State.OldestWaiter)
	m.live.Set(float64(r.State.Live))
	m.epoch.Set(float64(r.State.Epoch))
	m.counter.Set(float64(r.State.Counter))
	m.stopped.Set(truth(r.State.Stopped))
	m.missing.Set(truth(r.State.WitnessMissing))
}
