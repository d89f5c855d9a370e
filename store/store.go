// Package store is the contract of authority state: what an engine must offer so
// that an authority can keep its leases in it.
//
// A store decides nothing. It reads linearizably, and it applies steps that are
// each conditional on what was read: the issuer epoch, optionally the elapsed-time
// counter, and the revision of one record. The rules are in internal/core and run
// above it, in package authority.
//
// # Guarantees
//
// An implementation that passes storetest.Run keeps R1 to R8 and R10's step under
// the authority: no number twice, nothing acknowledged and then lost, no step on
// an old view.
//
// # Not guaranteed
//
// A store knows no time but the counter in its header, which processes advance. It
// does not notice that its own files were exchanged; that is the witness's part.
package store

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Record is what a store keeps for one resource. An engine may spread it over
// columns; it must give back exactly what it was given. It is never deleted: the
// counter outlives every lease (R1, R6).
type Record = core.Record

// Lease is the tenure inside a [Record].
type Lease = core.Lease

// Request is the record of one request id of one owner at one resource (R2). It
// belongs to the resource's [Record]: whoever writes one writes both in one step.
type Request = core.Request

// Header is the store's own state. There is one.
type Header = core.Header

// Mark is what the witness of a store holds (R10). An engine that can compare and set
// can keep it, for another store.
type Mark = core.Witness

// Query names a resource to read and, optionally, one of its request records: by
// (Owner, RequestID), or by LeaseID.
type Query struct {
	Resource  lastword.Resource
	Owner     string
	RequestID string
	LeaseID   string
}

// Entry answers one [Query]. Record has the queried Resource and Revision 0 if
// nothing was ever written for it; Request is nil if there is none.
type Entry struct {
	Record  Record
	Request *Request
}

// View is one linearizable reading: header and entries belong to one moment, and
// no write that was acknowledged before the call is missing. Entries stand in the
// order of the queries.
type View struct {
	Header  Header
	Entries []Entry
}

// Step is one atomic write. It is applied whole or not at all, and only if all of
// its conditions hold at that moment. Steps of one batch are applied in order; a
// later one sees what an earlier one wrote, and one that fails does not fail the
// others.
type Step struct {
	// Create is the condition that the store has no header yet; Header is then its
	// first one. The other conditions do not apply.
	Create bool
	// Epoch is the condition that the header's epoch is this one (R10). Always.
	Epoch uint32
	// OnTick adds the condition that the header's counter is Tick: set on every
	// step that computed a deadline from it (R8).
	OnTick bool
	Tick   core.Tick

	// Header, if not nil, replaces the header.
	Header *Header
	// Record, if not nil, replaces the record of its resource on the condition
	// that the stored revision is Record.Revision − 1 (0: that there is none).
	Record *Record
	// Requests are written, and then Forget are deleted, with Record; a step
	// without Record has neither.
	Requests []Request
	Forget   []RequestKey
}

// RequestKey names a request record of the step's resource.
type RequestKey struct{ Owner, ID string }

// Ended is a request record whose tenure or waiting is over.
type Ended struct {
	Resource lastword.Resource
	Request  Request
}

// Store keeps the state of one authority domain. Implementations are safe for
// concurrent use, by several processes unless they refuse a second one when they
// are opened. They keep byte-distinct names apart (KF-28).
//
// Errors are *lastword.Error. CodeUnavailable says that certainly nothing was
// written, CodeUnknown that it may have been, CodeInternal that a step breaks the
// contract ([Check]) and nothing was written. An engine's busy, deadlock and
// serialization errors are retried inside, as a whole, until ctx ends (KF-22).
type Store interface {
	// Read is linearizable. Its Header has Exists false on an empty store.
	Read(ctx context.Context, queries ...Query) (View, error)

	// Commit applies the steps and reports for each whether it was applied. What
	// it reports as applied is durable: it survives a crash of process and
	// machine. On an error nothing is reported and each step may or may not have
	// been applied, as the error's code says.
	Commit(ctx context.Context, steps ...Step) (applied []bool, err error)

	// List returns up to limit records whose resource begins with prefix and is
	// greater than after, in byte order.
	List(ctx context.Context, prefix string, after lastword.Resource, limit int) ([]Record, error)

	// Ended returns up to limit request records whose EndedTick is not above
	// until and whose tenure or waiting is over, the oldest first.
	Ended(ctx context.Context, until core.Tick, limit int) ([]Ended, error)

	// Close ends this handle. What was acknowledged stays.
	Close() error
}

// Sole is a [Store] that may have one user only: while a handle is open, nothing else
// reads or writes the state. An authority on it may answer a release before that is
// durable (R6), since whoever could be misled asks the same authority.
type Sole interface {
	Store
	Sole() bool
}
