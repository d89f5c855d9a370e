package lastword

import (
	"fmt"
	"strings"
	"time"
)

// Class is an operation class: what a grant may be used for. The empty class in a
// request means [ClassWrite].
type Class string

// The classes that every domain knows. Further ones are the domain's own.
const (
	// ClassWrite admits business mutations.
	ClassWrite Class = "write"
	// ClassAdvance admits only the registration of the fence (protocol §6).
	ClassAdvance Class = "advance"
)

// State is the state of a resource at the authority, or how a tenure ended.
type State string

// The states. A tenure that its owner's cancel ended, and a request that was cancelled
// before it was granted, are [StateCanceled]; a resource is never shown so.
const (
	StateFree     State = "FREE"
	StatePending  State = "PENDING"
	StateHeld     State = "HELD"
	StateExpired  State = "EXPIRED"
	StateReleased State = "RELEASED"
	StateRevoked  State = "REVOKED"
	StateCanceled State = "CANCELED"
)

// HolderState is what a holder knows of its own tenure (protocol §7).
type HolderState string

// The holder's states. EXPIRED and RELEASED are final.
const (
	HolderRequested HolderState = "REQUESTED"
	HolderHeld      HolderState = "HELD"
	HolderRenewing  HolderState = "RENEWING"
	HolderUnknown   HolderState = "OWNERSHIP_UNKNOWN"
	HolderExpired   HolderState = "EXPIRED"
	HolderReleased  HolderState = "RELEASED"
)

// Admits reports whether a new effect may start in this state: HELD and RENEWING
// only (R26).
func (s HolderState) Admits() bool { return s == HolderHeld || s == HolderRenewing }

// AcquireRequest asks for one tenure. A retry of the attempt, after an error or a
// lost reply, repeats it unchanged, RequestID included (R2, R27).
type AcquireRequest struct {
	Resource  Resource
	RequestID string        // unique per (owner, resource) and attempt
	Owner     string        // replaced by the authenticated identity where there is one
	TTL       time.Duration // wanted; the tenure says what was granted
	Wait      time.Duration // how long to queue behind a holder; 0 does not queue
	Root      Digest        // operation root; none if the work has no name
	Class     Class
	// ProofLife asks for a status proof beside the grant that lives so long, and not
	// longer than the authority allows; 0 asks for none. It may differ in a retry.
	ProofLife time.Duration
}

// TenureRef names one tenure: what renew, release and complete need to match (R5).
type TenureRef struct {
	Resource  Resource
	Owner     string
	RequestID string
	LeaseID   string
	Fence     Token
}

// Ending tells how a tenure ended. The zero value means that there was none.
type Ending struct {
	State     State // RELEASED, EXPIRED, REVOKED or CANCELED; "" for none
	Fence     Token
	LeaseID   string
	Owner     string
	Completed bool   // a result was accepted; a release alone is no completion
	Result    []byte // at most [MaxResultBytes]
}

// MaxResultBytes is the largest result that complete stores.
const MaxResultBytes = 16 << 10

// Tenure is the authority's answer to an acquire or a renewal.
type Tenure struct {
	TenureRef
	State            State // HELD, or PENDING before a take-over is confirmed
	Grant            string
	GrantDigest      Digest
	Revision         uint64 // of the resource at the authority, at the time of the answer
	PolicyGeneration uint64
	Root             Digest
	Class            Class
	TTL              time.Duration // granted: a lower bound for the holder (R8)

	// Remaining is what is left of TTL, measured when the authority had processed
	// the message whose answer this is: TTL for a first grant or a renewal, a
	// lower bound of what is left for a repeated acquire, 0 if only a renewal can
	// tell (R25).
	Remaining time.Duration
	// Waited says that the request was queued, so that trust must not be counted
	// from the moment the acquire was sent.
	Waited bool
	// Repeated says that the request id had been granted before (R2).
	Repeated bool
	// Previous tells how the tenure before ended (R1).
	Previous Ending
	// StatusProof is a signed status proof of the tenure, if one was asked for.
	StatusProof string
}

// StatusQuery asks for the state of a resource, or of one tenure of it when
// LeaseID or (Owner, RequestID) is given.
type StatusQuery struct {
	Resource  Resource
	LeaseID   string
	Owner     string
	RequestID string
}

// Status is a linearizable answer about a resource and, when one was named, about
// one tenure.
type Status struct {
	Resource  Resource
	State     State
	Holder    TenureRef     // of the current tenure while HELD or PENDING; its ids only if the query named one
	Digest    Digest        // of the current tenure's grant
	Remaining time.Duration // of the current tenure, a lower bound, 0 to TTL
	TTL       time.Duration // of the current tenure
	NextFence Token         // the number the next grant would carry
	Waiters   int
	Revision  uint64
	Last      Ending // of the tenure that ended last
	// Reported is the highest fence that a resource has reported and the authority did
	// not know: until an operator confirms nothing is granted or renewed. 0 for none.
	Reported Token

	// Asked is the tenure that the query named: its state, HELD or PENDING while
	// it is the current one, else how it ended, or [StateFree] if the authority
	// keeps no record of it. "" if the query named none.
	Asked State
	// AskedResult is what the asked tenure completed with, if it did.
	AskedCompleted bool
	AskedResult    []byte
}

// ParseDuration reads a duration as Go spells it ("30s", "1m30s"), not negative.
// Anything else is [CodeInvalid], an overflow and a duration of less than 1 ns
// included: neither may become 0, which means none or the default elsewhere.
// Bounds are the caller's.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	lost := d == 0 && strings.ContainsAny(s, "123456789")
	if err != nil || d < 0 || lost || s[0] == '+' || s[0] == '-' {
		return 0, &Error{Code: CodeInvalid, Message: fmt.Sprintf("duration %q: want a number with a unit, such as 500ms, 30s or 2m", clip(s))}
	}
	return d, nil
}
