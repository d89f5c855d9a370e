package fence

import (
	"context"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

// Record is what a guarded place keeps for one (domain, resource). An engine may
// spread it over columns; it must give back exactly what it was given, but for Lost,
// Unraised and Shadow, which are looked up and never stored. While its data lives it is never deleted (R19), and its fence is never lowered (P1).
type Record = core.FenceRecord

// Known is what a place remembers of one operation id.
type Known = core.KnownOperation

// Policy is the order rule of a record.
type Policy = core.Policy

// The policies (protocol §4).
const (
	Ordered = core.Ordered
	Latest  = core.Latest
	Once    = core.Once
)

// StatusMode says what a record wants to hear of the authority before it admits.
type StatusMode = core.StatusMode

// The status modes, from the loosest to the strictest. What a record has stored
// can only be tightened.
const (
	FenceOnly = core.FenceOnly
	Proof     = core.Proof
	Query     = core.Query
)

// DefaultStep is how far a fence may jump inside one epoch without the authority's
// confirmation (R14a).
const DefaultStep = core.DefaultStep

// Mark orders the authority's answers about one resource.
type Mark = core.Mark

// BundleFloor is how new a trust bundle has to be.
type BundleFloor = grant.BundleFloor

// Key names a record.
type Key struct {
	Domain   string
	Resource lastword.Resource
}

// Place is what an engine implements: one atomic unit at a time. T is the engine's
// transaction, which the business effect also uses.
//
// Implementations are safe for concurrent use. Errors are *lastword.Error:
// CodeMutationUnknown only when the fate of a commit is really open, or an effect may have
// committed the transaction by itself, whatever fn has returned; an engine's
// busy, deadlock and serialization errors are retried inside Transact, as a whole,
// until ctx ends, and never look like a verdict (R16).
type Place[T Tx] interface {
	// Name tells this place apart from every other one the process uses, such as
	// "sqlite:/var/lib/app.db". It is no secret.
	Name() string

	// Transact runs fn in one transaction and commits it if fn returns nil;
	// otherwise, and if fn panics, nothing of it stays. The record of key is
	// locked for the whole of fn, also if it does not exist yet. fn may be run
	// several times; only the last run counts.
	Transact(ctx context.Context, key Key, fn func(ctx context.Context, tx T) error) error

	// Note makes evidence durable in a transaction of its own, after the one that
	// refused was rolled back (R16b).
	Note(ctx context.Context, key Key, e Evidence) error

	// Find is the receipt of an operation, read without moving a fence (R21). It
	// reads the newest committed state.
	Find(ctx context.Context, key Key, operation string) (r lastword.Receipt, found bool, err error)

	// Bundle is the newest trust bundle of domain that was brought to this place, for
	// whatever record, as it was committed last (R13).
	Bundle(ctx context.Context, domain string) (BundleFloor, error)

	// RaiseBundle makes durable, in a transaction of its own, that seen was brought here.
	// It lowers neither number.
	RaiseBundle(ctx context.Context, domain string, seen BundleFloor) error

	// Inspect is the record and what was noted beside it. A record that does not
	// exist is no error.
	Inspect(ctx context.Context, key Key) (Inspection, error)

	// Records are the resources of domain that have a record and come after after, in
	// byte order, at most limit.
	Records(ctx context.Context, domain string, after lastword.Resource, limit int) ([]lastword.Resource, error)
}

// Tx is one transaction at a place, as the gate uses it.
type Tx interface {
	// Load reads the record under its lock, and what is known of operation ("" for
	// none). In a transaction that is not of Transact but the caller's own ([Within]),
	// it takes that lock itself, and holds it until the transaction ends. It sees
	// what the transaction has stored before. Of a record that does not exist it says
	// with Lost whether receipts or tombstones of its resource are there (R19), and
	// its Restored is what [Tx.MarkRestored] has set for the domain. Of a record that
	// exists it says with Unraised whether that is above the record's own (R20). Of one that
	// does not exist, Shadow says what a new one begins with (R18).
	Load(ctx context.Context, key Key, operation string) (Record, Known, error)

	// Pass opens the place, for this transaction alone, to business statements on what
	// belongs to key (R16c). It is called once a write is admitted and before its
	// effect; [Apply]'s transactions close it again by themselves. A place that is not
	// closed to anybody does nothing.
	Pass(ctx context.Context, key Key) error

	// Receipt reads the receipt of an operation that Load, or the record, named.
	Receipt(ctx context.Context, key Key, operation string) (lastword.Receipt, error)

	// Store writes next, and the receipt if it is not nil, in this transaction. It
	// is one conditional write on the record being the one that Load returned
	// (old); the row count decides (R15). Something else there is an error, never
	// an overwrite. It never replaces a receipt. The receipt's Verdict is APPLIED.
	Store(ctx context.Context, key Key, old, next Record, receipt *lastword.Receipt) error

	// Jumped is the fence that was refused with FENCE_JUMP at the record last, as
	// [Place.Note] has kept it; 0 if none was.
	Jumped(ctx context.Context, key Key) (lastword.Token, error)

	// Unraised is the first record of domain whose own mark is below mark: a restore of
	// the whole place was declared and has not reached it (R20). found says whether there
	// is one, whatever it is called.
	Unraised(ctx context.Context, domain string, mark uint64) (first lastword.Resource, found bool, err error)

	// Keep stores what an operator did, in this transaction and for ever.
	Keep(ctx context.Context, key Key, act Act) error

	// MarkRestored sets the mark of the window after a restore of the whole domain,
	// in milliseconds since 1970, in this transaction; 0 ends it (R20). A mark also ends
	// every roll-out of the domain: whether one had ended before, only what was lost
	// could tell.
	MarkRestored(ctx context.Context, domain string, mark uint64) error

	// Restored is that mark, 0 if there is none.
	Restored(ctx context.Context, domain string) (uint64, error)
}

// Early is a [Tx] that has not locked the record it told, but only remembers it: its
// Store decides whether that is still so, and takes the lock. It comes before the effect
// then, so that no effect runs for a write that is overtaken.
type Early interface {
	// StoresEarly reports whether Store is to come before the effect.
	StoresEarly() bool
	// StoreResult puts what the effect has returned into the receipt that was stored.
	StoreResult(ctx context.Context, key Key, operation string, result []byte) error
}

// Evidence is what a refusal leaves behind.
type Evidence struct {
	Verdict lastword.Verdict // Refusals counts it, whatever else is asked for
	Why     string
	// Fence is the refused grant's; with Freeze, it is the one that the record
	// carried when the refusal was decided.
	Fence    lastword.Token
	LeaseID  string
	Claimant string // owner of the refused grant
	// Freeze asks for the record to be frozen ([Frozen]), if it still carries Fence;
	// if it does not, that is no error.
	Freeze bool
	// Quarantine, if not nil, keeps the refused operation: per resource and
	// claimant the first and the last one, the rest is counted.
	Quarantine *Quarantined
	At         time.Time // the place's wall clock, for people
}

// Quarantined is an operation that was refused with CONFLICT.
type Quarantined struct {
	Operation string
	Seq       uint64
	Payload   lastword.Digest
	Content   []byte // the payload's first [MaxQuarantineBytes], if the caller gave it
}

// Frozen is rec, stopped until a larger issuer epoch or an operator opens it.
func Frozen(rec Record) Record { return core.Freeze(rec) }

// Closed is rec raised to the authority's next fence − 1 and closed: only a grant
// made later is admitted (R20). It never lowers the fence. 0 raises nothing.
func Closed(rec Record, next lastword.Token) Record { return core.Close(rec, next) }

// MaxQuarantineBytes bounds what is kept of one quarantined payload.
const MaxQuarantineBytes = 4 << 10

// Inspection is what [Place.Inspect] tells.
type Inspection struct {
	Record   Record
	Refusals map[lastword.Verdict]uint64 // noted ones
	// Estimated says that what bypasses the fence in a roll-out, SHADOW(FENCE_REQUIRED), was
	// too often to keep each: some, drawn by chance, stand for the others, and a count may
	// be 0 where there were few.
	Estimated  bool
	Quarantine []Evidence // per claimant the first, and the last if it is another one
	Acts       []Act      // the newest [MaxActs], oldest first
}
