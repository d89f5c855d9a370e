package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemElapsed is CLOCK_MONOTONIC_RAW, which on macOS goes on while the machine
// sleeps; Go's own monotonic clock stops there.
func systemElapsed() time.Duration { return readClock(unix.CLOCK_MONOTONIC_RAW) }
