// Package fence is the gate at the resource: it admits a write only with a
// verified grant whose fence is not older than the newest one the resource has
// durably accepted, in the same transaction as the write itself.
//
// The package holds what all guarded places share: verification, the question to
// the authority, the numbering of a tenure's writes and what is left of a refusal.
// A leaf package (sqlfence, memfence, …) brings the transaction. The rules are in
// internal/core.
//
// # Guarantees
//
// Once a place has durably accepted a write, or the registration, of a newer
// fence, no write of an older one changes it (P1). A failed proof changes nothing
// (P3). One operation id has at most one effect at a record (P4). An outcome that
// could not be learnt is [lastword.ErrUnknownOutcome] and nothing else (P5).
//
// # Not guaranteed
//
// That an old write fails at the instant of expiry: until the newer fence has
// reached the record, an older write whose status was answered before the take-
// over, or that asks for none, may still be accepted. A status proof compares two wall
// clocks, within [Config.ProofSkew]. Imported tokens ([Config.Imported]) are believed. A
// restored place is safe once that is declared ([DeclareRestored]). Effects outside the place's
// transaction are not covered, nor writers that bypass the gate.
package fence

import (
	"context"
	"log/slog"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// StatusSource answers what the authority knows of a tenure. The embedded
// authority and the remote client satisfy it. A source that has heard nothing
// returns an error, never an old answer, and it returns when ctx ends.
type StatusSource interface {
	Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error)
}

// Config says whom a gate believes. Domain and Verifier are required; Status is,
// unless Mode is [FenceOnly].
type Config struct {
	Domain   string
	Verifier *grant.Verifier
	Status   StatusSource

	// Mode is what new records are created with and old ones tightened to; "" is
	// [Query]. With [Proof] a call carries a status proof, or the authority is asked
	// if it carries none and Status is given.
	Mode StatusMode
	// ProofSkew bounds how far the wall clocks of this resource and of the authority
	// can be apart; 0 is 2 s. It is the user's to make true: a proof of a tenure that
	// has ended is believed that much longer than it lives if it is not.
	ProofSkew time.Duration
	// Policy is what new records are created with, and what old ones change to
	// with the next larger fence; "" keeps theirs, and is [Ordered] for new ones.
	Policy Policy
	// Step is how far a fence may jump without the authority's confirmation (R14a): a
	// new record takes it, an old one only if it is smaller. 0 keeps theirs, and is
	// [DefaultStep] for new ones.
	Step uint64
	// Imported makes this the gate of records that carry a token of an authority which
	// the user already runs (R14b): calls bring [Call.Imported] and no grant, and
	// Verifier is not used. Whoever calls the gate is believed, so it is the caller's
	// authentication that keeps a forged number out (P3). A record is one or the other.
	Imported bool
	// Scope, if not "", is the only resource, or with a trailing slash the prefix
	// of the only resources, that this gate admits.
	Scope string
	// Caller is the authenticated caller; "" if there is none to compare.
	Caller string
	// Rollout says that records here may still be in shadow (R18): a call that is refused
	// before its record is read (no grant, UNVERIFIED, STATUS_UNAVAILABLE) then looks at
	// the record, and passes if that is in shadow. It lets nothing pass by itself.
	Rollout bool
	// MinPolicyGeneration is the lowest policy generation admitted.
	MinPolicyGeneration uint64

	// StatusReuse is how long a HELD answer may be reused, counted from when the
	// question was sent; 0 is 1 s, negative never reuses.
	StatusReuse time.Duration
	// AskTimeout bounds one question; 0 is 2 s.
	AskTimeout time.Duration

	// Reporter, if not nil, is told at once when a record is frozen, with the grant that
	// shows why (R10). The authority's client satisfies it.
	Reporter Reporter

	// Elapsed is monotonic elapsed time; nil takes the process's, in which a
	// suspend counts. Now is the wall clock that receipts show to people; nil takes
	// the system's.
	Elapsed func() time.Duration
	Now     func() time.Time
	Logger  *slog.Logger // nil discards
	// Observer is told of every call that has its answer; nil is nobody. See
	// [Observer] for what one that blocks or panics can and cannot do.
	Observer Observer
}

// Reporter takes reports of fences to the authority. It returns when ctx ends.
type Reporter interface {
	Report(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error)
}

// Prover is a [lastword.Holder] that carries a status proof beside its grant, as the
// lease of package client does when asked to. "" is none.
type Prover interface{ StatusProof() string }

// Imported is a tenure of an authority that is not ours (R14b): an etcd create revision
// and its lease, a Consul LockIndex and its session.
type Imported struct {
	// Token is strictly larger for every tenure of the resource, and never reset.
	Token lastword.Token
	// Tenure names this one there; Owner who has it. Both are ids.
	Tenure, Owner string
	Root          lastword.Digest // none if the work has no name
}

// Call is one guarded write at the door. Exactly one of Holder and
// Mutation.Grant is given: a holder brings grant, state and numbering with it. At a
// gate for imported tokens it is Imported, and Resource is needed.
type Call struct {
	// Resource must be the grant's; "" takes the grant's word for it, within the
	// gate's Scope.
	Resource lastword.Resource
	Holder   lastword.Holder
	Mutation lastword.Mutation
	Imported *Imported
	// Content is the payload itself, if the caller has it: its digest fills
	// Mutation.Payload, and a conflict keeps its first bytes for people. nil is not
	// given; an empty payload is not nil.
	Content []byte
}
