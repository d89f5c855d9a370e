package authority

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// Revoke ends the tenure that has this very fence, for an operator (R7). A newer
// tenure of the resource is not touched: then it is CodeNotHolder, with the present
// holder, or with how the named tenure ended, as far as that is known. It is durable
// when it returns. Every attempt is logged, with operator and reason.
//
// The holder learns of it with its next renewal or question. A write that it sends
// meanwhile, or has sent, is refused for certain only once a newer fence has reached
// the resource.
func (a *Authority) Revoke(ctx context.Context, resource lastword.Resource, fence lastword.Token, operator, reason string) (err error) {
	seen := a.begin(OpRevoke, resource, fence)
	defer seen.end(ctx, &err)
	if err := checkRevoke(resource, fence, operator, reason); err != nil {
		return named(err, "revoke", resource)
	}
	c := newCall(kindHolder, operator, store.Query{Resource: resource})
	c.decide = func(rec core.Record, _ *core.Request, h core.Header, clock core.Clock) (core.Change, core.Answer) {
		return core.Revoke(rec, h, clock, fence)
	}
	res, err := a.loop.submit(ctx, c, 0)
	if err == nil {
		err = otherFence(alreadyOver(a.refusal(res), res, fence), resource)
	}
	a.audit(ctx, revocation{resource, fence, operator, reason}, res, err)
	return named(err, "revoke", resource)
}

// alreadyOver adds to NOT_HOLDER how the tenure of this fence ended: a repetition
// learns that nothing is left to do.
func alreadyOver(err error, res result, fence lastword.Token) error {
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != lastword.CodeNotHolder || res.record.Lease.Fence != fence {
		return err
	}
	_, e.Ended = core.Asked(res.record, nil, res.record.Lease.ID)
	e.Message, e.Hint = "this tenure is over already: "+string(e.Ended.State), ""
	return e
}

// otherFence has the hint for an operator, who wants to acquire nothing.
func otherFence(err error, resource lastword.Resource) error {
	var e *lastword.Error
	if errors.As(err, &e) && e.Code == lastword.CodeNotHolder && e.Ended.State == "" {
		e.Hint = "nothing was ended; look at the status of " + string(resource) + ", and name the fence that is to end"
	}
	return err
}

type revocation struct {
	resource         lastword.Resource
	fence            lastword.Token
	operator, reason string
}

// audit logs who tried to revoke what, why, and what came of it.
func (a *Authority) audit(ctx context.Context, r revocation, res result, err error) {
	outcome := string(lastword.StateRevoked)
	if err != nil {
		outcome = string(lastword.CodeInternal)
		if e := (*lastword.Error)(nil); errors.As(err, &e) {
			outcome = string(e.Code)
		}
	}
	attrs := []slog.Attr{
		slog.String("resource", string(r.resource)), slog.Uint64("fence", uint64(r.fence)),
		slog.String("operator", r.operator), slog.String("reason", r.reason), slog.String("outcome", outcome),
	}
	if err == nil {
		attrs = append(attrs, slog.String("owner", res.record.Lease.Owner))
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "revoke", attrs...)
}
