package main

import (
	"os"
	"runtime"
)

// spareHeap is how much of the heap of a server is there for nothing: it is never
// written to, so that the system gives no memory for it, but the garbage collector
// counts it. A server keeps little and allocates much; without this the collector
// would run many times a second over the same few megabytes.
const spareHeap = 32 << 20

// spare returns what keeps the collector away, until release is called. Who sets GOGC
// or GOMEMLIMIT decides alone.
func spare() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := make([]byte, spareHeap)
	return func() { runtime.KeepAlive(room) }
}
