package simulate

// handovers is the distribution of how long a resource was free between two tenures.
type handovers struct {
	released, crashed [len(buckets) + 1]uint64
}

// buckets are upper ends in milliseconds.
var buckets = [...]float64{0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 12.5, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 250, 350, 500, 1000}

func (h *handovers) add(took int64, crash bool) {
	b := 0
	for b < len(buckets) && float64(took)/float64(ms) > buckets[b] {
		b++
	}
	if crash {
		h.crashed[b]++
	} else {
		h.released[b]++
	}
}

// above counts all and those that took longer than a limit, which is one of the buckets.
func above(counts *[len(buckets) + 1]uint64, limit float64) (over, all uint64) {
	for i, n := range counts {
		all += n
		if i == len(buckets) || buckets[i] > limit {
			over += n
		}
	}
	return over, all
}

// p99 is the upper end of the bucket in which the 99th of a hundred lies.
func p99(counts *[len(buckets) + 1]uint64) float64 {
	var all, sum uint64
	for _, n := range counts {
		all += n
	}
	if all == 0 {
		return 0
	}
	for i, n := range counts {
		if sum += n; sum*100 >= all*99 {
			if i == len(buckets) {
				return 1e9
			}
			return buckets[i]
		}
	}
	return 1e9
}

func (h *handovers) bars() (bars []Bucket) {
	for i, up := range buckets {
		bars = append(bars, Bucket{up, h.released[i], h.crashed[i]})
	}
	if last := len(buckets); h.released[last]+h.crashed[last] > 0 {
		bars = append(bars, Bucket{-1, h.released[last], h.crashed[last]})
	}
	return bars
}
