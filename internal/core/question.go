package core

import "github.com/lastword/lastword"

// QueryDue reports whether a question is to be sent at now: what is known of this
// tenure? Questions are asked in OWNERSHIP_UNKNOWN only, beside the renewals (R26).
func (t Trust) QueryDue(now int64) bool {
	return t.State == lastword.HolderUnknown && !t.Asking && now >= t.Query
}

// Question notes that a question is about to be sent.
func (t Trust) Question(now int64) Trust {
	if t = t.At(now); t.Final() {
		return t
	}
	t.Queried, t.Asking = now, true
	return t
}

// Told takes the answer to the question that was asked last, about the tenure that
// ref names. An answer that something newer is known than is discarded; one that says
// how the tenure ended, or that another one is current, is definite; one that says
// HELD brings back HELD as far as what remains allows, which is not at all if only a
// renewal can tell (R25, R26). Anything else is no clear answer: pause is when to ask
// again.
func (t Trust) Told(ref lastword.TenureRef, st lastword.Status, pause, now int64) Trust {
	if t = t.At(now); t.Final() || !t.Asking {
		return t
	}
	if t.Queried < t.Known || st.Resource != ref.Resource {
		return t.Untold(pause, now)
	}
	switch found(ref, st) {
	case stillHeld:
		return t.confirmed(int64(st.Remaining), pause, now)
	case isOver:
		return t.Ended(st.Asked, now)
	case unsaid:
	}
	return t.Untold(pause, now)
}

// Untold takes the lack of a clear answer to the question that was asked last; the
// next one is due after pause.
func (t Trust) Untold(pause, now int64) Trust {
	if t = t.At(now); t.Final() || !t.Asking {
		return t
	}
	t.Asking, t.Query = false, now+min(pause, TrustRetry(t.TTL))
	return t
}

// confirmed is HELD again: what the answer says is newer than what was known, so it
// counts also where it leaves less. The renewals go on as they were.
func (t Trust) confirmed(remaining, pause, now int64) Trust {
	until := t.until(t.Queried, remaining)
	if remaining <= 0 || now >= until || t.State != lastword.HolderUnknown {
		return t.Untold(pause, now)
	}
	if !t.Open && t.Sent > t.Queried {
		return t.Untold(pause, now) // a renewal that was sent after the question has had no clear answer
	}
	t.State, t.Asking = lastword.HolderHeld, false
	if t.Open && t.Sent > t.Queried {
		t.State = lastword.HolderRenewing // that one was sent after the question
	}
	t.Until, t.Known = until, t.Queried
	return t.At(now)
}

// finding is what a status answer says of one tenure.
type finding uint8

const (
	unsaid finding = iota
	stillHeld
	isOver
)

// found reads a status answer. The state that the answer gives for the asked tenure
// and the current tenure have to agree; of an answer in which they do not, nothing
// is believed.
func found(ref lastword.TenureRef, st lastword.Status) finding {
	open := st.State == lastword.StateHeld || st.State == lastword.StatePending
	mine := open && st.Holder.LeaseID == ref.LeaseID
	switch st.Asked {
	case lastword.StateHeld:
		if mine && st.State == lastword.StateHeld && st.Holder.Fence == ref.Fence {
			return stillHeld
		}
	case lastword.StateExpired, lastword.StateReleased, lastword.StateRevoked, lastword.StateCanceled, lastword.StateFree:
		if !mine {
			return isOver
		}
	case lastword.StatePending: // never after a grant that was HELD
	}
	return unsaid
}
