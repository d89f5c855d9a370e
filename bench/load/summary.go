package load

import (
	"slices"
	"time"
)

// Summary describes a set of durations.
type Summary struct {
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	Max  time.Duration `json:"max_ns"`
	Mean time.Duration `json:"mean_ns"`
}

// Summarize describes all. It sorts them.
func Summarize(all []time.Duration) Summary {
	if len(all) == 0 {
		return Summary{}
	}
	slices.Sort(all)
	var sum float64
	for _, d := range all {
		sum += float64(d)
	}
	return Summary{
		P50: Percentile(all, 50), P99: Percentile(all, 99), Max: all[len(all)-1],
		Mean: time.Duration(sum / float64(len(all))),
	}
}

// Percentile is the smallest of sorted that is not less than p percent of them
// (nearest rank). p is 0 to 100; of none it is 0.
func Percentile[T ~int64 | ~float64](sorted []T, p int) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle one, or the mean of the two in the middle; of none it is 0. It
// leaves values as they are.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		var zero T
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return sorted[middle-1] + (sorted[middle]-sorted[middle-1])/2
}
