package grant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
)

// The fixed parts of a status proof.
const (
	// StatusType is the typ of a status proof's protected header. It keeps a proof
	// from being taken for a grant, and the reverse (T9).
	StatusType = "leasestatus.v1+jwt"
	// StatusVersion is the version in a proof's claims.
	StatusVersion = 1
	// MaxStatusLife is the longest time from a proof's issue to its expiry.
	MaxStatusLife = time.Minute
)

// StatusClaims are what a status proof says: while the authority answered, at this
// revision, the lease was HELD (or PENDING), and its grant is the one of this digest.
// It carries no next fence on purpose: who stole a key could write that, too (R14a).
type StatusClaims struct {
	Domain      string
	Resource    lastword.Resource
	LeaseID     string
	Fence       lastword.Token
	GrantDigest lastword.Digest // never none
	State       lastword.State  // HELD or PENDING
	// Epoch is the issuer epoch in which the authority answered, at least the
	// fence's: a tenure outlives a start of the authority.
	Epoch uint32
	// Revision is the resource's at the authority, at most MaxNumber.
	Revision uint64
	// IssuedAt and Expires are whole seconds from 1970 to 9999, at most MaxStatusLife
	// apart. The first is not later than the answer.
	IssuedAt, Expires time.Time
}

// Mark is how far the authority was when it answered.
func (c StatusClaims) Mark() StatusMark { return StatusMark{Epoch: c.Epoch, Revision: c.Revision} }

// StatusMark orders the answers about one resource. A resource that keeps the highest
// one it has seen is not fooled by an old proof (T14). The epoch comes first: in a
// restored store revisions begin again lower, under a new epoch.
type StatusMark struct {
	Epoch    uint32
	Revision uint64
}

// Before reports whether m is an older answer than o.
func (m StatusMark) Before(o StatusMark) bool {
	return m.Epoch < o.Epoch || m.Epoch == o.Epoch && m.Revision < o.Revision
}

func (c *StatusClaims) check() error {
	if _, err := lastword.ParseResource(string(c.Resource)); err != nil {
		return err
	}
	if err := lastword.CheckID("domain", c.Domain); err != nil {
		return err
	}
	if err := lastword.CheckID("lease id", c.LeaseID); err != nil {
		return err
	}
	issued, expires := c.IssuedAt.Unix(), c.Expires.Unix()
	switch {
	case !c.Fence.Valid():
		return fmt.Errorf("fence %d is not from 1 to %d", uint64(c.Fence), lastword.MaxToken)
	case c.GrantDigest.IsZero():
		return errors.New("no digest of the grant")
	case c.State != lastword.StateHeld && c.State != lastword.StatePending:
		return fmt.Errorf("state %q is not HELD or PENDING: of any other there is no proof", c.State)
	case c.Epoch < c.Fence.Epoch() || c.Epoch > lastword.MaxEpoch:
		return fmt.Errorf("epoch %d is below the fence's or above %d", c.Epoch, lastword.MaxEpoch)
	case c.Revision > MaxNumber:
		return fmt.Errorf("revision %d is above %d", c.Revision, MaxNumber)
	case issued < 0 || expires > lastSecond || c.IssuedAt.Nanosecond() != 0 || c.Expires.Nanosecond() != 0:
		return errors.New("issued-at and expiry are not whole seconds from 1970 to 9999")
	case expires <= issued || expires-issued > int64(MaxStatusLife/time.Second):
		return fmt.Errorf("expiry is not 1s to %v after issued-at", MaxStatusLife)
	}
	return nil
}

var statusMembers = []member{
	{name: "epoch", number: true},
	{name: "exp", number: true},
	{name: "fence", number: true},
	{name: "grant"},
	{name: "iat", number: true},
	{name: "iss"},
	{name: "lease"},
	{name: "resource"},
	{name: "revision", number: true},
	{name: "state"},
	{name: "version", number: true},
}

// appendStatus is to a proof what appendClaims is to a grant.
func appendStatus(dst []byte, c *StatusClaims, version, epoch uint64) []byte {
	dst = appendNumber(append(dst, `{"epoch":`...), epoch)
	dst = appendNumber(append(dst, `,"exp":`...), uint64(c.Expires.Unix()))
	dst = appendNumber(append(dst, `,"fence":`...), uint64(c.Fence))
	dst = appendDigest(append(dst, `,"grant":`...), c.GrantDigest)
	dst = appendNumber(append(dst, `,"iat":`...), uint64(c.IssuedAt.Unix()))
	dst = appendString(append(dst, `,"iss":`...), c.Domain)
	dst = appendString(append(dst, `,"lease":`...), c.LeaseID)
	dst = appendString(append(dst, `,"resource":`...), string(c.Resource))
	dst = appendNumber(append(dst, `,"revision":`...), c.Revision)
	dst = appendString(append(dst, `,"state":`...), string(c.State))
	dst = appendNumber(append(dst, `,"version":`...), version)
	return append(dst, '}')
}

// parsedStatus is a proof that has the right shape, type and version.
type parsedStatus struct {
	sealed
	claims StatusClaims
}

func parseStatus(proof string) (*parsedStatus, *Refusal) {
	var buf [maxSegment]byte
	p := &parsedStatus{}
	payload, why := p.unpack(proof, StatusType, &buf)
	if why == nil {
		why = p.readClaims(payload)
	}
	if why != nil {
		return nil, why
	}
	return p, nil
}

func (p *parsedStatus) readClaims(in []byte) *Refusal {
	var got [11]value
	if why := scanObject(string(in), statusMembers, got[:]); why != nil {
		return why
	}
	if got[10].num != StatusVersion {
		return &Refusal{Reason: ReasonVersion}
	}
	if !lastword.Token(got[2].num).Valid() {
		return &Refusal{Reason: ReasonFenceRange}
	}
	for i := range got {
		if got[i].num > MaxNumber {
			return &Refusal{Reason: ReasonNumber}
		}
	}
	digest, err := lastword.ParseDigest(got[3].text)
	if err != nil {
		return &Refusal{Reason: ReasonValue}
	}
	c := &p.claims
	*c = StatusClaims{
		Expires: time.Unix(int64(got[1].num), 0).UTC(), Fence: lastword.Token(got[2].num), GrantDigest: digest,
		IssuedAt: time.Unix(int64(got[4].num), 0).UTC(), Domain: got[5].text, LeaseID: got[6].text,
		Resource: lastword.Resource(got[7].text), Revision: got[8].num, State: lastword.State(got[9].text),
	}
	// An epoch that contradicts the fence has a reason of its own, behind the signature.
	p.domain, p.epoch = c.Domain, got[0].num
	p.odd = p.epoch < uint64(c.Fence.Epoch()) || p.epoch > uint64(lastword.MaxEpoch)
	c.Epoch = c.Fence.Epoch()
	if !p.odd {
		c.Epoch = uint32(p.epoch)
	}
	if c.check() != nil {
		return &Refusal{Reason: ReasonValue}
	}
	var again [1024]byte
	if !bytes.Equal(appendStatus(again[:0], c, got[10].num, p.epoch), in) {
		return &Refusal{Reason: ReasonNotCanonical}
	}
	return nil
}

// UnverifiedStatus is what a status proof says about itself: for people to look at, never
// to decide with.
type UnverifiedStatus struct {
	Claims    StatusClaims
	KeyID     string
	Algorithm string
}

const opInspectStatus = "inspect status proof"

// InspectStatus reads a status proof as strictly as [Verifier.OpenStatus] does, without a
// trust bundle, without checking the signature and without a clock. It fails with
// UNVERIFIED and a [Refusal] if the proof has not the right shape, type or version, or
// if its epoch contradicts its fence.
func InspectStatus(proof string) (UnverifiedStatus, error) {
	if len(proof) > MaxBytes {
		return UnverifiedStatus{}, refused(opInspectStatus, "", &Refusal{Reason: ReasonTooLarge})
	}
	p, why := parseStatus(proof)
	if why == nil && p.odd {
		why = &Refusal{Reason: ReasonEpoch}
	}
	if why != nil {
		return UnverifiedStatus{}, refused(opInspectStatus, "", why)
	}
	return UnverifiedStatus{Claims: p.claims, KeyID: p.kid, Algorithm: p.alg}, nil
}

// StatusWant is what a status proof must be bound to.
type StatusWant struct {
	// Grant is the grant that the proof must speak of, by resource, lease, fence and
	// digest. One that [Verifier.Open] did not fill matches no proof.
	Grant Verified
	// Pending admits PENDING beside HELD, which is enough to register a fence (R16a).
	Pending bool
	// Now is the resource's wall clock. Skew bounds how far it and the authority's can
	// be apart; it is not negative. A proof counts only while it is certainly alive: it
	// is refused as soon as Now + Skew has reached its expiry, and if it was issued
	// after Now + Skew.
	Now  time.Time
	Skew time.Duration
	// Seen is the highest mark that the resource has seen; an older proof is refused.
	Seen StatusMark
	// Bundle is as in [Want].
	Bundle BundleFloor
}

// VerifiedStatus is a status proof that [Verifier.OpenStatus] believed. Nothing else
// can fill it; the zero value is not valid (R14).
type VerifiedStatus struct{ c *StatusClaims }

// Valid reports whether OpenStatus filled v.
func (v VerifiedStatus) Valid() bool { return v.c != nil }

// Claims are what the proof says; nothing if v is not valid.
func (v VerifiedStatus) Claims() StatusClaims {
	if v.c == nil {
		return StatusClaims{}
	}
	return *v.c
}

const opStatus = "verify status proof"

// OpenStatus checks a status proof: shape, type, key, algorithm, signature, domain and
// issuer epoch as [Verifier.Open] does, then the grant it speaks of, the state, the two
// times and the mark. The first failure decides: an error of code UNVERIFIED whose
// [Refusal] has the reason. A negative Skew is [lastword.CodeInvalid].
//
// A proof that was opened before under the same bundle costs no signature check; what
// it is bound to, the times included, is compared every time.
func (v *Verifier) OpenStatus(ctx context.Context, proof string, want StatusWant) (VerifiedStatus, error) {
	resource := want.Grant.Claims().Resource
	if want.Skew < 0 {
		return VerifiedStatus{}, invalid(opStatus, resource, errors.New("the bound of the clock skew is negative"))
	}
	c, why := v.status(ctx, proof, &want)
	if why == nil {
		if reason := c.mismatch(&want); reason != "" {
			why = &Refusal{Reason: reason}
		}
	}
	if why != nil {
		return VerifiedStatus{}, refused(opStatus, resource, why)
	}
	return VerifiedStatus{c: c}, nil
}

// status is everything that does not depend on the caller.
func (v *Verifier) status(ctx context.Context, proof string, want *StatusWant) (*StatusClaims, *Refusal) {
	if len(proof) > MaxBytes {
		return nil, &Refusal{Reason: ReasonTooLarge}
	}
	t, again, unsure := v.present(ctx, want.Bundle)
	if unsure == nil {
		if c := t.statuses.get(proof); c != nil {
			return c, nil
		}
	}
	p, why := parseStatus(proof)
	if why == nil {
		why = unsure
	}
	if why == nil {
		t, why = v.believe(ctx, t, &p.sealed, again)
	}
	if why == nil && p.claims.Fence.Epoch() < t.bundle.d.minimum {
		why = &Refusal{Reason: ReasonEpochRevoked} // the fence's own epoch, too
	}
	if why != nil {
		return nil, why
	}
	c := p.claims
	t.statuses.put(proof, &c)
	return &c, nil
}

func (c *StatusClaims) mismatch(want *StatusWant) Reason {
	g := want.Grant.Claims()
	at := want.Now.Add(want.Skew)
	switch {
	case c.Resource != g.Resource:
		return ReasonResource
	case c.LeaseID != g.LeaseID || c.Fence != g.Fence || c.GrantDigest != want.Grant.Digest():
		return ReasonProofGrant
	case c.State != lastword.StateHeld && !want.Pending:
		return ReasonProofPending
	case c.IssuedAt.After(at):
		return ReasonProofAhead
	case !at.Before(c.Expires):
		return ReasonProofExpired
	case c.Mark().Before(want.Seen):
		return ReasonProofOld
	}
	return ""
}
