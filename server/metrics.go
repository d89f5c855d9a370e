package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/observe"
)

// observed makes the metrics that /metrics shows, of this server alone, and adds them
// to what the configuration observes with.
func (s *Server) observed(configured authority.Observer) (authority.Observer, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	metrics, err := observe.NewMetrics(registry)
	if err != nil {
		return nil, err
	}
	s.metrics = observe.Handler(registry)
	return observe.Join(metrics, observe.Observers{Authority: configured}).Authority, nil
}
