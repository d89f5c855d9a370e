package core

import (
	"strconv"

	"github.com/lastword/lastword"
)

// AcquireInput is what an acquire brings, and what the authority adds to it.
type AcquireInput struct {
	Owner     string
	RequestID string
	TTL       Span // to be granted
	Ticks     Tick // TTL in ticks of the store's counter
	Root      lastword.Digest
	Class     lastword.Class

	LeaseID          string // for the tenure, if it is granted
	KeyID            string
	PolicyGeneration uint64
	IssuedAt         int64

	// LockDelay is the time between an expiry and the next grant (R3), as a span
	// and in ticks; 0 for none.
	LockDelay      Span
	LockDelayTicks Tick
}

// Params is the digest of what a repetition of a request must not change (R2). The
// root has a fixed length and the number ends at a space, so no two requests share
// the bytes. It allocates nothing for a class of usual length.
func Params(ttl Span, root lastword.Digest, class lastword.Class) lastword.Digest {
	var room [128]byte
	b := strconv.AppendInt(room[:0], int64(ttl), 10)
	b = append(b, ' ')
	b = append(b, root[:]...)
	return lastword.DigestOf(append(b, class...))
}

// Acquire decides, increments and names the tenure in one step (R1). req is the
// record of this request id, nil if there is none. A record of a later epoch than
// the header's is FENCE_REGRESSION: a number below an issued one is never granted.
func Acquire(rec Record, req *Request, h Header, c Clock, in AcquireInput) (Change, Answer) {
	if req != nil {
		return repeat(rec, *req, h, c, in)
	}
	settled, change := rec.settle(h, c)
	if rec.Reported != 0 {
		return change, Answer{Code: lastword.CodeFenceRegression, Lease: settled.Lease}
	}
	if settled.Lease.open() {
		return change, Answer{Code: lastword.CodeHeld, Lease: settled.Lease}
	}
	if rec.Epoch > h.Epoch {
		return change, Answer{Code: lastword.CodeFenceRegression}
	}
	fence, ok := settled.nextFence(h)
	if !ok {
		return change, Answer{Code: lastword.CodeExhausted}
	}
	if c.Tick < h.HoldUntil {
		return change, Answer{Code: lastword.CodeHeld, Lease: settled.Lease, Blocked: true}
	}
	if delayed(rec, settled, c, in) {
		return change, Answer{Code: lastword.CodeHeld, Lease: settled.Lease, Blocked: true}
	}
	return grant(rec, settled, change, h, c, in, fence)
}

// grant is one write, whether or not it also marks the tenure before as expired.
func grant(rec, settled Record, marked Change, h Header, c Clock, in AcquireInput, fence lastword.Token) (Change, Answer) {
	next := rec.next()
	next.Epoch, next.Counter = fence.Epoch(), fence.Counter()
	next.Previous = settled.Lease.ending()
	next.Lease = Lease{
		ID: in.LeaseID, Owner: in.Owner, RequestID: in.RequestID, Fence: fence,
		Root: in.Root, Class: in.Class, PolicyGeneration: in.PolicyGeneration,
		TTL: in.TTL, Ticks: in.Ticks, Deadline: c.Tick.plus(in.Ticks),
		GrantedRevision: next.Revision, IssuedAt: in.IssuedAt, KeyID: in.KeyID,
		State: lastword.StateHeld,
	}
	return Change{Write: true, Record: next, Requests: append(marked.Requests, next.Lease.request())},
		Answer{Lease: next.Lease, Previous: next.Previous}
}

// repeat answers a request id that is known (R2, R6a): the same grant, how it
// ended, or a conflict. It never issues a number.
func repeat(rec Record, req Request, h Header, c Clock, in AcquireInput) (Change, Answer) {
	if req.LeaseID == "" {
		return Change{}, Answer{Code: lastword.CodeCanceled}
	}
	if req.Params != Params(in.TTL, in.Root, in.Class) {
		return Change{}, Answer{Code: lastword.CodeRequestConflict}
	}
	if rec.Lease.ID != req.LeaseID {
		return Change{}, Answer{Code: lastword.CodeTenureEnded, Ended: req.ending()}
	}
	settled, change := rec.settle(h, c)
	if !settled.Lease.open() {
		return change, Answer{Code: lastword.CodeTenureEnded, Ended: settled.Lease.ending()}
	}
	return Change{}, Answer{Lease: rec.Lease, Previous: rec.Previous, Repeated: true}
}

// delayed reports whether the lock-delay after an expiry is still running (R3).
func delayed(rec, settled Record, c Clock, in AcquireInput) bool {
	last := settled.Lease
	if in.LockDelayTicks == 0 || last.State != lastword.StateExpired {
		return false
	}
	watched := c.Watched
	if rec.Lease.open() { // the watching ran over the tenure first
		watched -= last.TTL
	}
	return c.Tick < last.EndedTick.plus(in.LockDelayTicks) && watched < in.LockDelay
}

// NextFence is the number the next grant would carry, 0 if there is none: the
// counter is used up, or the record is of a later epoch than the store.
func (rec Record) NextFence(h Header) lastword.Token {
	fence, ok := rec.nextFence(h)
	if !ok {
		return 0
	}
	return fence
}

func (rec Record) nextFence(h Header) (lastword.Token, bool) {
	counter := rec.Counter
	if rec.Epoch > h.Epoch {
		return 0, false
	}
	if rec.Epoch != h.Epoch {
		counter = 0
	}
	fence, err := lastword.MakeToken(h.Epoch, counter+1)
	return fence, err == nil
}
