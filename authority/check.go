package authority

import (
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

func (a *Authority) checkAcquire(r lastword.AcquireRequest) error {
	if err := checkRequest(r.Resource, r.Owner, r.RequestID); err != nil {
		return err
	}
	if err := lastword.CheckID("class", string(r.Class)); err != nil {
		return err
	}
	if r.TTL < a.cfg.MinTTL || r.TTL > a.cfg.MaxTTL {
		return invalid("ttl %v: want %v to %v", r.TTL, a.cfg.MinTTL, a.cfg.MaxTTL)
	}
	if r.ProofLife < 0 {
		return invalid("proof life %v is negative", r.ProofLife)
	}
	if r.Wait < 0 || r.Wait > a.cfg.MaxWait {
		return invalid("wait %v: want 0 to %v", r.Wait, a.cfg.MaxWait)
	}
	return nil
}

// signable refuses what no grant can carry before it is granted: ids that are
// allowed each by itself can be too long together.
func (a *Authority) signable(r lastword.AcquireRequest, leaseID string) error {
	_, err := a.signer.Digest("", grant.Claims{
		Domain: a.cfg.Domain, Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID, LeaseID: leaseID,
		Fence: lastword.MaxToken, Revision: grant.MaxNumber, PolicyGeneration: grant.MaxNumber,
		Root: r.Root, Class: r.Class, TTL: r.TTL, IssuedAt: time.Unix(1<<33, 0).UTC(),
	})
	return err
}

func checkRequest(resource lastword.Resource, owner, requestID string) error {
	if _, err := lastword.ParseResource(string(resource)); err != nil {
		return err
	}
	if err := lastword.CheckID("owner", owner); err != nil {
		return err
	}
	return lastword.CheckID("request id", requestID)
}

func checkRef(ref lastword.TenureRef) error {
	if err := checkRequest(ref.Resource, ref.Owner, ref.RequestID); err != nil {
		return err
	}
	if !ref.Fence.Valid() {
		return invalid("fence %d: want 1 to %d", ref.Fence, lastword.MaxToken)
	}
	return lastword.CheckID("lease id", ref.LeaseID)
}

func checkRevoke(resource lastword.Resource, fence lastword.Token, operator, reason string) error {
	if _, err := lastword.ParseResource(string(resource)); err != nil {
		return err
	}
	if !fence.Valid() {
		return invalid("fence %d: name the fence that is to be revoked", fence)
	}
	if err := lastword.CheckID("operator", operator); err != nil {
		return err
	}
	return lastword.CheckID("reason", reason)
}

func invalid(format string, args ...any) *lastword.Error {
	return &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}
