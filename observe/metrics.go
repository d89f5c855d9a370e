package observe

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lastword/lastword"
)

// NewMetrics registers every metric of docs/observe.md at once, or none, and returns
// the observers that feed them. It fails where one of the names is taken: of several
// authorities in one process each has a registry of its own, or a value of its own for
// a label that [prometheus.WrapRegistererWith] adds.
func NewMetrics(registerer prometheus.Registerer) (Observers, error) {
	a, f, c := newAuthorityMetrics(), newFenceMetrics(), newClientMetrics()
	var all collectors
	all = append(all, a.collectors()...)
	all = append(all, f.collectors()...)
	all = append(all, c.collectors()...)
	if err := registerer.Register(all); err != nil {
		return Observers{}, &lastword.Error{
			Code: lastword.CodeInvalid, Op: "register metrics", Message: "the names are taken", Err: err,
			Hint: "one authority to a registry; where several share one, give each a label's own value with prometheus.WrapRegistererWith",
		}
	}
	return Observers{Authority: a, Fence: f, Client: c}, nil
}

// Handler serves what is registered, for a path such as /metrics.
func Handler(gatherer prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{})
}

// collectors register together.
type collectors []prometheus.Collector

// Describe implements [prometheus.Collector].
func (all collectors) Describe(out chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (all collectors) Collect(out chan<- prometheus.Metric) {
	for _, c := range all {
		c.Collect(out)
	}
}

const namespace = "lastword"

// Buckets, in seconds. A call takes from what a store in memory needs up to a long
// time-out; waiting and holding are as long as the work is.
var (
	callBuckets = []float64{
		0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
	}
	longBuckets  = []float64{0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	countBuckets = prometheus.ExponentialBuckets(1, 2, 12)
)

func histogram(subsystem, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets,
	}, labels)
}

func counter(subsystem, name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
	}, labels)
}

func gauge(subsystem, name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
}

func gaugeFunc(subsystem, name, help string, value func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
	}, value)
}

// byCode is a label of one of the codes, "OK" for none.
func byCode(c lastword.Code) string {
	if c == "" {
		return "OK"
	}
	return string(c)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
