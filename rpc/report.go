package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

var (
	opReport = operation{"report", true}
	opResume = operation{"resume", true}
)

// Report implements the service.
func (s *service) Report(ctx context.Context, m *wire.ReportRequest) (*wire.ReportResponse, error) {
	read := func() (lastword.Report, error) {
		if s.cfg.Identify == nil {
			if err := lastword.CheckID("reporter", m.GetReporter()); err != nil {
				return lastword.Report{}, err
			}
		} else if err := s.identify(ctx, &m.Reporter, true); err != nil {
			return lastword.Report{}, err
		}
		r, err := reportRequest(m)
		if err == nil { // a resource that may ask may also tell
			err = s.allow(ctx, identity.Status, m.GetResource())
		}
		return r, err
	}
	return handle(ctx, s, opReport, m.GetResource(), read, func(r lastword.Report) (*wire.ReportResponse, error) {
		a, err := s.authority.Report(ctx, r)
		return &wire.ReportResponse{Counted: a.Counted, Reported: uint64(a.Fence)}, err
	})
}

// Resume implements the service.
func (s *service) Resume(ctx context.Context, m *wire.ResumeRequest) (*wire.ResumeResponse, error) {
	read := func() (revocation, error) {
		if s.cfg.Identify == nil {
			if err := lastword.CheckID("operator", m.GetOperator()); err != nil {
				return revocation{}, err
			}
		} else if err := s.identify(ctx, &m.Operator, true); err != nil {
			return revocation{}, err
		}
		r, err := resumeRequest(m)
		if err == nil { // it is for operators, as a revocation
			err = s.allow(ctx, identity.Revoke, m.GetResource())
		}
		return r, err
	}
	return handle(ctx, s, opResume, m.GetResource(), read, func(r revocation) (*wire.ResumeResponse, error) {
		next, err := s.authority.Resume(ctx, r.resource, r.fence, r.operator, r.reason)
		return &wire.ResumeResponse{NextFence: uint64(next)}, err
	})
}

// Report implements [Authority].
func (c *Client) Report(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error) {
	m := &wire.ReportRequest{Resource: string(r.Resource), Grant: r.Grant, Reporter: r.Reporter}
	q := question{op: opReport, resource: r.Resource}
	if _, err := reportRequest(m); err != nil {
		return lastword.ReportAnswer{}, q.refused(err)
	}
	return ask(ctx, c, q, func(ctx context.Context) (lastword.ReportAnswer, error) {
		a, err := c.calls.Report(ctx, m)
		if err != nil {
			return lastword.ReportAnswer{}, err
		}
		fence := lastword.Token(a.GetReported())
		if fence != 0 && !fence.Valid() || a.GetCounted() && fence == 0 {
			return lastword.ReportAnswer{}, &brokenAnswer{invalid("reported %d: it is no fence", a.GetReported())}
		}
		return lastword.ReportAnswer{Counted: a.GetCounted(), Fence: fence}, nil
	})
}

// Resume implements [Authority].
func (c *Client) Resume(ctx context.Context, resource lastword.Resource, reported lastword.Token, operator, reason string) (lastword.Token, error) {
	m := &wire.ResumeRequest{Resource: string(resource), Reported: uint64(reported), Operator: operator, Reason: reason}
	q := question{op: opResume, resource: resource}
	if _, err := resumeRequest(m); err != nil {
		return 0, q.refused(err)
	}
	return ask(ctx, c, q, func(ctx context.Context) (lastword.Token, error) {
		a, err := c.calls.Resume(ctx, m)
		if err == nil && a.GetNextFence() > uint64(lastword.MaxToken) {
			err = &brokenAnswer{invalid("next_fence %d: it is no fence", a.GetNextFence())}
		}
		return lastword.Token(a.GetNextFence()), err
	})
}

func reportRequest(m *wire.ReportRequest) (r lastword.Report, err error) {
	if err := checkKnown(m); err != nil {
		return r, err
	}
	if r.Resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return r, err
	}
	if n := len(m.GetGrant()); n == 0 || n > grant.MaxBytes {
		return r, invalid("grant of %d bytes: a report counts only with the signed grant of the fence", n)
	}
	r.Grant, r.Reporter = m.GetGrant(), m.GetReporter()
	return r, checkIDs(may("reporter", r.Reporter))
}

func resumeRequest(m *wire.ResumeRequest) (r revocation, err error) {
	if err := checkKnown(m); err != nil {
		return r, err
	}
	if r.resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return r, err
	}
	if r.fence = lastword.Token(m.GetReported()); !r.fence.Valid() {
		err := invalid("reported %d: want the fence that was reported, from 1 to %d", m.GetReported(), lastword.MaxToken)
		err.Hint = "status shows it"
		return r, err
	}
	r.operator, r.reason = m.GetOperator(), m.GetReason()
	return r, checkIDs(may("operator", r.operator), must("reason", r.reason))
}

// lifeMessage is a life of a status proof; nil asks for none.
func lifeMessage(life time.Duration) *durationpb.Duration {
	if life == 0 {
		return nil
	}
	return durationpb.New(life)
}

// proofLife reads it.
func proofLife(m *durationpb.Duration) (time.Duration, error) {
	if err := checkKnown(m); m != nil && err != nil {
		return 0, err
	}
	return duration("proof_life", m)
}

// readProof refuses a proof that nobody could have asked for.
func readProof(proof string) error {
	if len(proof) > grant.MaxBytes {
		return invalid("status_proof has %d bytes", len(proof))
	}
	return nil
}

// RenewProof implements [Authority].
func (c *Client) RenewProof(ctx context.Context, ref lastword.TenureRef, life time.Duration) (lastword.Tenure, error) {
	m := &wire.RenewRequest{
		Resource: string(ref.Resource), Owner: ref.Owner, RequestId: ref.RequestID, LeaseId: ref.LeaseID, Fence: uint64(ref.Fence),
		ProofLife: lifeMessage(life),
	}
	q := question{op: opRenew, resource: ref.Resource}
	if _, err := renewal(m); err != nil {
		return lastword.Tenure{}, q.refused(err)
	}
	return ask(ctx, c, q, func(ctx context.Context) (lastword.Tenure, error) {
		a, err := c.send(ctx, q, &wire.SessionCall{Request: &wire.SessionCall_Renew{Renew: m}})
		return readTenureOf(a.GetRenew().GetTenure(), ref, err)
	})
}

// proofRequest is a status question that asks for a proof, too, if life is not 0.
type proofRequest struct {
	query lastword.StatusQuery
	life  time.Duration
}

// Proof implements [Authority].
func (c *Client) Proof(ctx context.Context, query lastword.StatusQuery, life time.Duration) (lastword.Status, string, error) {
	m := &wire.StatusRequest{
		Resource: string(query.Resource), LeaseId: query.LeaseID, Owner: query.Owner, RequestId: query.RequestID,
		ProofLife: lifeMessage(max(life, 0)),
	}
	q := question{op: opStatus, resource: query.Resource}
	if life == 0 {
		m.ProofLife = durationpb.New(defaultProofLife)
	}
	if _, err := statusRequest(m); err != nil {
		return lastword.Status{}, "", q.refused(err)
	}
	if life < 0 {
		return lastword.Status{}, "", q.refused(invalid("proof_life %s: it is negative", life))
	}
	type answer struct {
		status lastword.Status
		proof  string
	}
	got, err := ask(ctx, c, q, func(ctx context.Context) (answer, error) {
		a, err := c.send(ctx, q, &wire.SessionCall{Request: &wire.SessionCall_Status{Status: m}})
		if err != nil {
			return answer{}, err
		}
		st, err := readStatusOf(a.GetStatus().GetStatus(), query)
		if err == nil {
			if err = readProof(a.GetStatus().GetStatusProof()); err != nil {
				err = &brokenAnswer{err}
			}
		}
		return answer{st, a.GetStatus().GetStatusProof()}, err
	})
	return got.status, got.proof, err
}

// defaultProofLife is asked for where the caller leaves it to the authority, since 0
// asks for none on the wire.
const defaultProofLife = 10 * time.Second

func statusRequest(m *wire.StatusRequest) (r proofRequest, err error) {
	if r.query, err = statusQuery(m); err != nil {
		return r, err
	}
	if r.life, err = proofLife(m.GetProofLife()); err == nil && r.life > 0 && r.query.LeaseID == "" {
		err = invalid("proof_life: a status proof is of a lease; name its lease_id")
	}
	return r, err
}

// renewalRequest is a renewal that asks for a proof, too, if life is not 0.
type renewalRequest struct {
	ref  lastword.TenureRef
	life time.Duration
}

func renewal(m *wire.RenewRequest) (r renewalRequest, err error) {
	if r.ref, err = tenureRef(m); err == nil {
		r.life, err = proofLife(m.GetProofLife())
	}
	return r, err
}
