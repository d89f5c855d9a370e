package load

import (
	"sync"
	"sync/atomic"
)

// Parallel runs work for 0 to n−1, by so many callers. The first error ends them all,
// and is returned.
func Parallel(n, callers int, work func(i int) error) error {
	var next atomic.Int64
	var first atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(callers, n) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && first.Load() == nil; i = next.Add(1) - 1 {
				if err := work(int(i)); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}
