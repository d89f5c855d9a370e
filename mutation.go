package lastword

import (
	"context"
	"time"
)

// Mutation is one guarded write, as a process builds it that has only a grant. A
// process with a lease passes the lease to Apply instead.
type Mutation struct {
	Grant     string // signed grant, compact JWS
	Seq       uint64 // number of the write inside the tenure and record; 0 takes the record's next one
	Operation string // operation id: the business intent, stable over retries and tenures
	Payload   Digest // of exactly the bytes that are executed
	Class     Class  // what the mutation is; "" is [ClassWrite]

	// StatusProof is a status proof of the grant, compact JWS, for records and gates
	// that want one; "" is none.
	StatusProof string
}

// Receipt is the durable record of one accepted mutation.
type Receipt struct {
	Domain      string
	Resource    Resource
	Operation   string
	Payload     Digest
	Fence       Token
	Seq         uint64
	LeaseID     string
	GrantDigest Digest
	Owner       string // of the grant
	Caller      string // authenticated caller at the resource; "" where none is
	Root        Digest
	Result      []byte // what the effect returned, at most [MaxResultBytes]
	// AppliedAt is the resource's wall clock. It is for people; nothing is
	// decided by it.
	AppliedAt time.Time
	// Verdict is [Applied] for the first answer and [Replayed] for every later one.
	Verdict Verdict
}

// Holder is what a guarded write needs to know of the tenure it is made under.
// client.Lease satisfies it. Implementations are safe for concurrent use.
type Holder interface {
	// Grant is the signed grant. It is immutable and needs no I/O (R29).
	Grant() string
	// State is the holder's present knowledge. No new effect starts unless
	// [HolderState.Admits].
	State() HolderState
	// Sequence lends the numbering of this tenure's writes at one record, which
	// record names ("kind:place domain/resource"). It waits while another write
	// of the tenure is under way there; the caller must call release once.
	Sequence(ctx context.Context, record string) (seq *Sequence, release func(), err error)
}

// Sequence is the state of a tenure's write numbers at one record. Rules: package
// internal/core; a zero value starts at 1.
type Sequence struct {
	Last uint64 // the highest number that was consumed
	Open string // the operation that alone may use the next number, "" if any may
}
