package model_test

import (
	"testing"

	"github.com/lastword/lastword/model"
)

// W8: distinct states a second, on one core.
func BenchmarkStates(b *testing.B) {
	var states, rate uint64
	for b.Loop() {
		r, err := model.Run(b.Context(), model.Options{Scope: "ci"})
		if err != nil {
			b.Fatal(err)
		}
		states, rate = r.States, r.StatesPerSecond
	}
	b.ReportMetric(float64(rate), "states/s")
	b.ReportMetric(float64(states), "states")
}
