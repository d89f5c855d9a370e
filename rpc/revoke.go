package rpc

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

var opRevoke = operation{"revoke", true}

// revocation is what an operator wants to end.
type revocation struct {
	resource         lastword.Resource
	fence            lastword.Token
	operator, reason string
}

// Revoke implements the service.
func (s *service) Revoke(ctx context.Context, m *wire.RevokeRequest) (*wire.RevokeResponse, error) {
	read := func() (revocation, error) {
		if s.cfg.Identify == nil {
			if err := lastword.CheckID("operator", m.GetOperator()); err != nil {
				return revocation{}, err
			}
		} else if err := s.identify(ctx, &m.Operator, true); err != nil {
			return revocation{}, err
		}
		r, err := revokeRequest(m)
		if err == nil {
			err = s.allow(ctx, identity.Revoke, m.GetResource())
		}
		return r, err
	}
	return handle(ctx, s, opRevoke, m.GetResource(), read, func(r revocation) (*wire.RevokeResponse, error) {
		return &wire.RevokeResponse{}, s.authority.Revoke(ctx, r.resource, r.fence, r.operator, r.reason)
	})
}

// Revoke implements [Authority].
func (c *Client) Revoke(ctx context.Context, resource lastword.Resource, fence lastword.Token, operator, reason string) error {
	m := &wire.RevokeRequest{Resource: string(resource), Fence: uint64(fence), Operator: operator, Reason: reason}
	q := question{op: opRevoke, resource: resource}
	if _, err := revokeRequest(m); err != nil {
		return q.refused(err)
	}
	_, err := ask(ctx, c, q, func(ctx context.Context) (*wire.RevokeResponse, error) { return c.calls.Revoke(ctx, m) })
	return err
}

func revokeRequest(m *wire.RevokeRequest) (r revocation, err error) {
	if err := checkKnown(m); err != nil {
		return r, err
	}
	if r.resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return r, err
	}
	if r.fence = lastword.Token(m.GetFence()); !r.fence.Valid() {
		err := invalid("fence %d: want the fence of the tenure that is to end, from 1 to %d", m.GetFence(), lastword.MaxToken)
		err.Hint = "status shows it; no tenure is revoked by its resource alone"
		return r, err
	}
	r.operator, r.reason = m.GetOperator(), m.GetReason()
	return r, checkIDs(may("operator", r.operator), must("reason", r.reason))
}
