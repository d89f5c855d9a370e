package fence

import (
	"time"

	"github.com/lastword/lastword/internal/core"
)

// Retention says which receipts of a record may go (R19). They have to outlive every
// retry window: of clients, of a redelivering queue, of a disaster recovery, of people
// who enter something again.
type Retention struct {
	// Before: only receipts that were applied before it are pruned. It is compared
	// with the wall clock that wrote them down. The receipt of the record's last write
	// always stays.
	Before time.Time
	// TimeBound leaves out the tombstone of an operation whose id carries its issue
	// time (UUIDv7, ULID), and raises the record's pruning watermark instead: every
	// operation issued at or before it that has no receipt is RECEIPT_EXPIRED from then
	// on, also one that was never applied. Without it, and for every other id, a
	// tombstone stays for as long as the record.
	TimeBound bool
	// At is the wall clock that the tombstones show to people.
	At time.Time
}

// Pruned reports whether the receipt of an operation, of which there is none, may have
// been pruned under a watermark, in milliseconds since 1970 (R19).
func Pruned(operation string, watermark uint64) bool { return core.Pruned(operation, watermark) }

// IssueTime is the time in an operation id that carries one, in milliseconds since 1970.
func IssueTime(operation string) (ms uint64, ok bool) { return core.IssueTime(operation) }
