package client

import (
	"context"

	"github.com/lastword/lastword"
)

// StatusProof is the newest status proof of the tenure, compact JWS: the one that came
// with the grant, the last renewal or [Lease.RefreshProof]. It needs no I/O. "" if
// [AcquireOptions.ProofLife] asked for none, or none has come. It may have expired: a
// resource refuses it then.
func (l *Lease) StatusProof() string {
	if p := l.proof.Load(); p != nil {
		return *p
	}
	return ""
}

// RefreshProof asks for a new status proof, which it returns and [Lease.StatusProof]
// has from then on. It is for a lease whose renewals come less often than its proofs
// expire, and for a resource that has refused one. It fails with
// [lastword.CodeNotHolder] once the tenure is over; a failed question says nothing about
// the lease.
func (l *Lease) RefreshProof(ctx context.Context) (string, error) {
	const op = "status proof"
	if err := l.refusal(op); err != nil {
		return "", err
	}
	prover, ok := l.c.authority.(Prover)
	if !ok || l.proofLife == 0 {
		return "", invalid(op, l.tenure.Resource, "the lease was acquired without status proofs")
	}
	_, proof, err := prover.Proof(ctx, lastword.StatusQuery{Resource: l.tenure.Resource, LeaseID: l.tenure.LeaseID}, l.proofLife)
	if err != nil {
		return "", err
	}
	if proof == "" {
		return "", &lastword.Error{Code: lastword.CodeNotHolder, Op: op, Resource: l.tenure.Resource, Message: "the tenure is over", Hint: "acquire again"}
	}
	l.keepProof(proof)
	return proof, nil
}

// renewal renews the tenure, with a status proof if the lease has them.
func (l *Lease) renewal(ctx context.Context) (lastword.Tenure, error) {
	prover, ok := l.c.authority.(Prover)
	if !ok || l.proofLife == 0 {
		return l.c.authority.Renew(ctx, l.tenure.TenureRef)
	}
	t, err := prover.RenewProof(ctx, l.tenure.TenureRef, l.proofLife)
	if err == nil && t.LeaseID == l.tenure.LeaseID {
		l.keepProof(t.StatusProof)
	}
	return t, err
}

func (l *Lease) keepProof(proof string) {
	if proof != "" {
		l.proof.Store(&proof)
	}
}
