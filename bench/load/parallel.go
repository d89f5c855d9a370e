package load

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Parallel runs work for 0 to n−1, by so many callers, each of which ends with its
// first error.
func Parallel(n, callers int, work func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[c] == nil; i = next.Add(1) - 1 {
				errs[c] = work(int(i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
