package simulate_test

import (
	"testing"

	"github.com/lastword/lastword/lab/simulate"
)

func benchmark(b *testing.B, unsigned bool) {
	b.ReportAllocs()
	rounds := max(b.N, 480)
	r, err := simulate.Run(b.Context(), simulate.Options{Rounds: rounds, Seed: 1, Unsigned: unsigned, Timelines: -1})
	if err != nil {
		b.Fatal(err)
	}
	if r.Failure != nil {
		b.Fatal(r.Failure.Kind)
	}
	b.ReportMetric(float64(r.Counters.Rounds)/r.Took.Seconds(), "rounds/s")
	b.ReportMetric(float64(r.Counters.Events)/float64(r.Counters.Rounds), "events/round")
}

// One operation is one round.
func BenchmarkUnsigned(b *testing.B) { benchmark(b, true) }
func BenchmarkSigned(b *testing.B)   { benchmark(b, false) }
