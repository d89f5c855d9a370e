//go:build !linux && !darwin

package client

import "time"

var processStart = time.Now()

// systemElapsed is Go's monotonic clock, which may stop while the machine is
// suspended.
func systemElapsed() time.Duration { return time.Since(processStart) }
