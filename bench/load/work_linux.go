package load

import (
	"errors"
	"syscall"
	"time"
)

// Work keeps a holder busy for d without using the processor, as a call to a
// database would. The kernel's timer is exact to some 60 µs where the runtime's,
// on an idle processor, is late by up to 1 ms.
func Work(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for {
		if err := syscall.Nanosleep(&left, &left); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
