package core

import "github.com/lastword/lastword"

// Record is what the authority keeps for one resource. The counter is durable for
// ever: it is never stored in, expired with, or deleted with the lease.
type Record struct {
	Resource lastword.Resource
	// Revision grows by one with every write; a write is conditional on it. 0
	// means that the record does not exist yet.
	Revision uint64
	// Epoch and Counter are of the last fence issued. In a later epoch the counter
	// starts again.
	Epoch   uint32
	Counter uint64
	// Lease is the current tenure, or the last one. Its zero value: there was none.
	Lease Lease
	// Previous tells how the tenure before Lease ended (R1).
	Previous lastword.Ending
	// Reported is the highest fence that a resource has reported and this record does
	// not know (R10): until an operator resumes, nothing is granted or renewed. 0 for
	// none.
	Reported lastword.Token
}

// Lease is one tenure as the authority keeps it.
type Lease struct {
	ID               string
	Owner            string
	RequestID        string
	Fence            lastword.Token
	Root             lastword.Digest
	Class            lastword.Class
	PolicyGeneration uint64
	TTL              Span // granted
	Ticks            Tick // granted, in ticks of the store's counter
	Deadline         Tick // first tick at which it is expired
	GrantedRevision  uint64
	IssuedAt         int64  // Unix seconds, for the grant; nothing is decided by it
	KeyID            string // that signed the grant
	State            lastword.State
	EndedTick        Tick
	Completed        bool
	Result           []byte
}

// Request is the durable record of one request id of one owner at one resource
// (R2). It outlives the tenure.
type Request struct {
	Owner     string
	ID        string
	Params    lastword.Digest // of what must not differ in a repetition
	LeaseID   string          // "" if it was cancelled before it was granted
	Fence     lastword.Token
	State     lastword.State // HELD or PENDING while it is the current tenure
	Completed bool
	Result    []byte
	EndedTick Tick
}

// Header is the store's own state: one per store.
type Header struct {
	// Exists is false for a store that has never been started.
	Exists bool
	// Identity names this store; it is chosen when the store is initialised.
	Identity string
	// Domain is the domain whose fences are issued from it, fixed with Identity.
	Domain string
	// TickSpan is the length of a tick, fixed when the store is initialised.
	TickSpan Span
	// Epoch is the issuer epoch. Every step is conditional on it (R10).
	Epoch uint32
	// Tick is the elapsed-time counter.
	Tick Tick
	// Floor: tenures granted in an epoch below it have ended (R10, regression).
	Floor uint32
	// HoldUntil: before this tick nothing is granted (R10, regression).
	HoldUntil Tick
	// Witnessed says that a witness outside the store exists, so that its absence
	// is a regression.
	Witnessed bool
}

// Change is what must be durable before an answer is visible. The zero value
// changes nothing.
type Change struct {
	Write    bool
	Record   Record
	Requests []Request
}

// Answer is what a transition of the authority replies once its Change is durable.
type Answer struct {
	// Code is "" when the step was accepted.
	Code lastword.Code
	// Lease is the tenure that was granted, renewed or asked for; with HELD the
	// one in the way.
	Lease Lease
	// Previous tells how the tenure before Lease ended.
	Previous lastword.Ending
	// Ended, with TENURE_ENDED, tells how the tenure of the request ended.
	Ended lastword.Ending
	// Repeated says that the step had been accepted before.
	Repeated bool
	// Blocked, with HELD, says that no tenure is in the way but a delay (R3).
	Blocked bool
}

// Live reports whether l is valid: held or pending, and not at or past its
// deadline (R4: now < deadline).
func (l Lease) Live(h Header, c Clock) bool {
	return l.open() && !l.lapsed(h, c)
}

func (l Lease) open() bool {
	return l.State == lastword.StateHeld || l.State == lastword.StatePending
}

// lapsed: the store's counter reached the deadline, or this process itself watched
// the record stand unchanged for the whole TTL, or a regression ended it (R8, R10).
func (l Lease) lapsed(h Header, c Clock) bool {
	return c.Tick >= l.Deadline || c.Watched >= l.TTL || l.Fence.Epoch() < h.Floor
}

func (l Lease) matches(ref lastword.TenureRef) bool {
	return l.ID != "" && l.ID == ref.LeaseID && l.Owner == ref.Owner && l.Fence == ref.Fence
}

// ending tells how l ended. Who tells it of a lease that has lapsed settles first.
func (l Lease) ending() lastword.Ending {
	if l.ID == "" {
		return lastword.Ending{}
	}
	return lastword.Ending{
		State: l.State, Fence: l.Fence, LeaseID: l.ID, Owner: l.Owner,
		Completed: l.Completed, Result: l.Result,
	}
}

// request is the request record that belongs to l.
func (l Lease) request() Request {
	return Request{
		Owner: l.Owner, ID: l.RequestID, Params: Params(l.TTL, l.Root, l.Class),
		LeaseID: l.ID, Fence: l.Fence, State: l.State,
		Completed: l.Completed, Result: l.Result, EndedTick: l.EndedTick,
	}
}

func (r Request) ending() lastword.Ending {
	return lastword.Ending{
		State: r.State, Fence: r.Fence, LeaseID: r.LeaseID, Owner: r.Owner,
		Completed: r.Completed, Result: r.Result,
	}
}

func (r *Request) matches(ref lastword.TenureRef) bool {
	return r != nil && r.LeaseID != "" && r.LeaseID == ref.LeaseID && r.Owner == ref.Owner && r.Fence == ref.Fence
}

// Prunable reports whether r may be forgotten: its tenure or its waiting has been
// over for retention ticks (R2).
func (r Request) Prunable(now, retention Tick) bool {
	open := r.State == lastword.StateHeld || r.State == lastword.StatePending
	return !open && now >= r.EndedTick && now-r.EndedTick >= retention
}

// next is rec as a write makes it.
func (rec Record) next() Record {
	rec.Revision++
	return rec
}

// end is rec with its lease ended, and the change that says so.
func (rec Record) end(state lastword.State, at Tick) Change {
	next := rec.next()
	next.Lease.State = state
	next.Lease.EndedTick = at
	requests := append(make([]Request, 0, 2), next.Lease.request()) // room for what a grant or a cancel adds
	return Change{Write: true, Record: next, Requests: requests}
}

// settle marks a lapsed lease as expired. A process that judges by its own
// watching must make that durable before it says so; past the counter's deadline
// the mark only saves the next look.
func (rec Record) settle(h Header, c Clock) (Record, Change) {
	if !rec.Lease.open() || !rec.Lease.lapsed(h, c) {
		return rec, Change{}
	}
	change := rec.end(lastword.StateExpired, min(c.Tick, rec.Lease.Deadline))
	return change.Record, change
}
