package core

// Asking is what a holder knows of one acquire, under one request id, whose outcome
// may be open (R27). It is a value; all times are nanoseconds on the holder's own
// elapsed-time clock, all durations nanoseconds.
//
// An attempt with an open outcome is asked about with its own request id until Asks.
// A copy that is sent later would only make it live longer, so from then on it can but
// be cancelled, until nothing of it can be valid any more.
type Asking struct {
	Asks int64 // until then it is asked about with its request id
	Gone int64 // from then on nothing of what was sent is valid; counts while Open
	Open bool  // something was sent that may have arrived, and no answer says what became of it
}

// askedCalls is for how many call time-outs an attempt is asked about once its wait is
// over: for three copies that nobody answers.
const askedCalls = 3

// NewAsking is an attempt that begins now.
func NewAsking(wait, call, now int64) Asking {
	return Asking{Asks: now + wait + askedCalls*call}
}

// Unanswered notes that a message has no clear answer which was sent at sent and may
// have arrived: an acquire that queues for wait, or a renewal (wait 0), bounded by wait
// and call. Who is granted ttl at the very end of that has until then, and the part of
// ttl by which two clocks may differ.
func (a Asking) Unanswered(sent, wait, call, ttl int64, b TrustBound) Asking {
	a.Open, a.Gone = true, max(a.Gone, sent+wait+call+ttl+b.Margin(ttl))
	return a
}

// Granted notes a grant that has arrived and cannot be trusted yet. It is confirmed
// within the time that an attempt is asked about, counted anew.
func (a Asking) Granted(call, ttl, now int64, b TrustBound) Asking {
	a = a.Unanswered(now, 0, 0, ttl, b)
	a.Asks = now + askedCalls*call
	return a
}

// Left is for how long something of an open attempt may still be valid.
func (a Asking) Left(now int64) int64 { return max(a.Gone-now, 0) }

// AskingLook is how often an attempt that is queued is asked about beside that, at
// most: a grant whose answer was lost has to be found while most of its TTL is left.
// Not oftener than four times a second, since many may queue.
func AskingLook(ttl int64) int64 { return max(TrustRenew(ttl), 250_000_000) }
