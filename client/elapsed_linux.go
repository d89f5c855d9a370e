package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemElapsed is CLOCK_BOOTTIME, which runs through suspend; Go's own monotonic
// clock stops there.
func systemElapsed() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }
