//go:build linux || darwin

package client

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func readClock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		// Without a clock nothing can be trusted, and there is no second one to
		// take: two clocks must not be mixed.
		panic(fmt.Sprintf("client: read clock %d: %v", id, err))
	}
	return time.Duration(ts.Nano())
}
