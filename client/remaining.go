package client

import (
	"time"

	"github.com/lastword/lastword/internal/core"
)

// Remaining is how long the lease may still be relied on if nothing more is heard of
// the authority: until the local deadline, or the end of the longest hold or of the
// drain where that is sooner (R25, R28). 0 once the lease is EXPIRED or RELEASED. Every renewal makes it
// longer. It compares with the clock, and does no I/O.
//
// Who needs time to stop, beyond the end of the context, begins that much earlier.
func (l *Lease) Remaining() time.Duration {
	var now int64
	trust := l.step(func(t core.Trust, at int64) core.Trust {
		now = at
		return t.At(at)
	})
	if trust.Final() {
		return 0
	}
	return time.Duration(trust.Ends() - now)
}
