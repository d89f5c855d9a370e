package core

import (
	"math"

	"github.com/lastword/lastword"
)

// TakeNumber gives operation the next number of a tenure at one record, and the
// state to keep while its outcome is open. ok is false while another operation
// alone may use that number (protocol §1, seq), and when the numbers are used up.
func TakeNumber(s lastword.Sequence, operation string) (next lastword.Sequence, seq uint64, ok bool) {
	if s.Open != "" && s.Open != operation || s.Last == math.MaxUint64 {
		return s, 0, false
	}
	s.Open = operation
	return s, s.Last + 1, true
}

// SettleNumber is the state after a verdict on the operation that took seq. own is
// the number in the operation's receipt, if there is one and it belongs to this very
// tenure, else 0: an attempt whose outcome had been unknown did consume it, also if
// the answer now is REPLAYED, or CONFLICT because another payload came with it.
func SettleNumber(s lastword.Sequence, seq, own uint64, v lastword.Verdict) lastword.Sequence {
	switch {
	case v == lastword.Applied:
		return lastword.Sequence{Last: max(s.Last, seq)}
	case v.Final():
		return lastword.Sequence{Last: max(s.Last, own)}
	}
	return s
}

// DropNumber is the state after an operation that certainly never reached its
// commit. before is the state from before [TakeNumber]: what was open then, of an
// earlier attempt, stays open.
func DropNumber(before lastword.Sequence) lastword.Sequence { return before }
