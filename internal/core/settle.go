package core

import "github.com/lastword/lastword"

// Settle says what a look at a record, under its lock, proves of an operation whose
// outcome was open, once the fence of whoever asks is registered there (R22):
//
//   - REPLAYED: it had its effect, and its receipt is there;
//   - RECEIPT_EXPIRED: it may have had it, and its receipt is gone; a person decides;
//   - MUTATION_UNKNOWN: the record is being rolled out, where what would have been refused
//     passes without a receipt (R18): its absence proves nothing;
//   - "": it had none and never will have, since an older attempt can only end as
//     STALE_OWNER. It may be done again, under the same operation id.
func Settle(rec FenceRecord, known KnownOperation, operation string) lastword.Verdict {
	switch {
	case known.Receipt:
		return lastword.Replayed
	case known.Tombstone || rec.forgot(operation):
		return lastword.ReceiptExpired
	case rec.Shadow:
		return lastword.MutationUnknown
	}
	return ""
}
