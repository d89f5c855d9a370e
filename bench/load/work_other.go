//go:build !linux

package load

import "time"

// Work keeps a holder busy for d without using the processor, as a call to a
// database would.
func Work(d time.Duration) { time.Sleep(d) }
