package core

import (
	"slices"

	"github.com/lastword/lastword"
)

// Renew extends a valid tenure to now + granted TTL (R5). It issues no fence,
// creates no record and changes the revision even when the deadline comes out
// equal. Everything that does not match is NOT_HOLDER. A resource that a report has
// stopped is FENCE_REGRESSION (R10).
func Renew(rec Record, h Header, c Clock, ref lastword.TenureRef) (Change, Answer) {
	settled, change := rec.settle(h, c)
	if !settled.Lease.matches(ref) || !settled.Lease.open() {
		return change, Answer{Code: lastword.CodeNotHolder, Lease: settled.Lease}
	}
	if rec.Reported != 0 {
		return change, Answer{Code: lastword.CodeFenceRegression, Lease: settled.Lease}
	}
	next := rec.next()
	next.Lease.Deadline = max(rec.Lease.Deadline, c.Tick.plus(rec.Lease.Ticks))
	return Change{Write: true, Record: next}, Answer{Lease: next.Lease, Previous: rec.Previous}
}

// Release ends a valid tenure and keeps the counter (R6). req is the record of the
// tenure's request id; it answers a repetition.
func Release(rec Record, req *Request, h Header, c Clock, ref lastword.TenureRef) (Change, Answer) {
	settled, change := rec.settle(h, c)
	if settled.Lease.matches(ref) && settled.Lease.open() {
		ended := rec.end(lastword.StateReleased, c.Tick)
		return ended, Answer{Lease: ended.Record.Lease}
	}
	if req.matches(ref) && req.State == lastword.StateReleased {
		return change, Answer{Repeated: true}
	}
	return change, Answer{Code: lastword.CodeNotHolder, Lease: settled.Lease}
}

// Complete stores the result of a valid tenure beside the lease (R6b). Repeated
// with the same result it answers the same, also after the deadline; with another
// one it is a conflict.
func Complete(rec Record, req *Request, h Header, c Clock, ref lastword.TenureRef, result []byte) (Change, Answer) {
	completed, known := rec.Lease.Completed, rec.Lease.Result
	if !rec.Lease.matches(ref) && req.matches(ref) {
		completed, known = req.Completed, req.Result
	}
	if completed && (rec.Lease.matches(ref) || req.matches(ref)) {
		if !slices.Equal(known, result) {
			return Change{}, Answer{Code: lastword.CodeRequestConflict}
		}
		return Change{}, Answer{Repeated: true}
	}
	settled, change := rec.settle(h, c)
	if !settled.Lease.matches(ref) || !settled.Lease.open() {
		return change, Answer{Code: lastword.CodeNotHolder, Lease: settled.Lease}
	}
	next := rec.next()
	next.Lease.Completed, next.Lease.Result = true, slices.Clone(result)
	return Change{Write: true, Record: next, Requests: []Request{next.Lease.request()}}, Answer{Lease: next.Lease}
}

// Cancel ends the tenure or the waiting of one request id and makes a later acquire
// with it be refused (R6a). A tenure that has ended stays as it ended.
func Cancel(rec Record, req *Request, h Header, c Clock, owner, requestID string) (Change, Answer) {
	settled, change := rec.settle(h, c)
	lease := settled.Lease
	switch {
	case req == nil:
		next := settled
		if !change.Write {
			next = rec.next()
		}
		tomb := Request{Owner: owner, ID: requestID, State: lastword.StateCanceled, EndedTick: c.Tick}
		return Change{Write: true, Record: next, Requests: append(change.Requests, tomb)}, Answer{}
	case req.LeaseID != "" && lease.ID == req.LeaseID && lease.open():
		ended := rec.end(lastword.StateCanceled, c.Tick)
		return ended, Answer{Lease: ended.Record.Lease}
	default:
		return change, Answer{Repeated: true}
	}
}

// Revoke ends the tenure that has this very fence (R7). Never by resource alone.
func Revoke(rec Record, h Header, c Clock, fence lastword.Token) (Change, Answer) {
	settled, change := rec.settle(h, c)
	if settled.Lease.Fence != fence || !settled.Lease.open() {
		return change, Answer{Code: lastword.CodeNotHolder, Lease: settled.Lease}
	}
	ended := rec.end(lastword.StateRevoked, c.Tick)
	return ended, Answer{Lease: ended.Record.Lease}
}

// Look settles what can be settled before a status is told: EXPIRED by this
// process's own watching is told only once it is durable (R8).
func Look(rec Record, h Header, c Clock) (Change, Answer) {
	settled, change := rec.settle(h, c)
	return change, Answer{Lease: settled.Lease, Previous: settled.Previous}
}

// Asked is the state of the tenure that a query named, and its ending: of one that
// is still HELD or PENDING, its result so far. rec must be settled; req is its
// request record, if kept.
func Asked(rec Record, req *Request, leaseID string) (lastword.State, lastword.Ending) {
	switch {
	case leaseID != "" && rec.Lease.ID == leaseID:
		return rec.Lease.State, rec.Lease.ending()
	case req != nil && req.LeaseID != "" && rec.Lease.ID == req.LeaseID:
		return rec.Lease.State, rec.Lease.ending()
	case req != nil:
		return req.State, req.ending()
	}
	return lastword.StateFree, lastword.Ending{}
}
