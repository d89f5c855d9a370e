package rpc

import (
	"context"
	"iter"
	"time"

	"github.com/lastword/lastword"
)

// Authority is what the wire serves. Implementations are safe for concurrent use
// and return errors that are, or wrap, a [*lastword.Error]; of any other error the
// caller is told only that the outcome is unknown. [*Client] satisfies it too.
type Authority interface {
	// Acquire asks for one tenure (R1 to R3). It returns early when ctx ends.
	Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error)
	// Renew extends the tenure (R5).
	Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error)
	// Release ends the tenure (R6).
	Release(ctx context.Context, ref lastword.TenureRef) error
	// Complete stores the tenure's result, at most [lastword.MaxResultBytes] (R6b).
	Complete(ctx context.Context, ref lastword.TenureRef, result []byte) error
	// Cancel ends the tenure or the waiting of one attempt (R6a).
	Cancel(ctx context.Context, resource lastword.Resource, owner, requestID string) error
	// Status tells the state of a resource and of one tenure (R9).
	Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error)
	// List is one page of resources, in byte order (R9).
	List(ctx context.Context, q lastword.ListQuery) (lastword.Page, error)
	// Revoke ends the tenure that has this very fence, for an operator (R7).
	Revoke(ctx context.Context, resource lastword.Resource, fence lastword.Token, operator, reason string) error
	// Proof is Status of the tenure that q names by its lease, and a signed status
	// proof of it, "" if it is neither HELD nor PENDING (R12).
	Proof(ctx context.Context, q lastword.StatusQuery, life time.Duration) (lastword.Status, string, error)
	// RenewProof is Renew with a status proof in its answer.
	RenewProof(ctx context.Context, ref lastword.TenureRef, life time.Duration) (lastword.Tenure, error)
	// Report takes a resource's word that there is a fence which the authority does
	// not know (R10).
	Report(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error)
	// Resume lets a resource be granted again that a report has stopped, for an
	// operator (R10).
	Resume(ctx context.Context, resource lastword.Resource, reported lastword.Token, operator, reason string) (next lastword.Token, err error)
	// Watch shows the resources with a prefix as they are, then a sight with Complete,
	// and then what changes, until it ends with an error or the loop that ranges over
	// it ends. A reader that is slow costs bounded memory.
	Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error]
	// Bundle is the serialized trust bundle, a JSON Web Key Set.
	Bundle(ctx context.Context) ([]byte, error)
}

// Queuer is an [Authority] that says when an acquire begins to wait. A session then
// counts it no longer among the calls that the authority is at work on.
type Queuer interface {
	// AcquireQueued is Acquire. It calls queued, which returns at once, from any
	// goroutine and at most once: when the call is decided and waits for its turn.
	AcquireQueued(ctx context.Context, r lastword.AcquireRequest, queued func()) (lastword.Tenure, error)
}

// MaxRequestBytes is the largest request that a server reads, and the largest
// message of a session.
const MaxRequestBytes = 64 << 10

// maxAnswerBytes is the largest answer that a client reads: far above every
// answer of this service, far below what would hurt.
const maxAnswerBytes = 1 << 20

// maxHeaderBytes bounds the headers and trailers of a call. Refusals travel in
// trailers, and 8 KiB is what the strictest gRPC libraries accept.
const maxHeaderBytes = 8 << 10

// operation is one call of the service. One that mutates can leave its outcome
// open; one that only reads has none.
type operation struct {
	name    string
	mutates bool
}

var (
	opAcquire  = operation{"acquire", true}
	opRenew    = operation{"renew", true}
	opRelease  = operation{"release", true}
	opComplete = operation{"complete", true}
	opCancel   = operation{"cancel", true}
	opStatus   = operation{"status", false}
	opBundle   = operation{"bundle", false}
	opSession  = operation{"session", false}
)
