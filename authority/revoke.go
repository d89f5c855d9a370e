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
// when it returns. Every attempt is logged and kept ([Config].Audit), with operator and
// reason, before anything is done; where that fails nothing is done.
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
	ended, err := begin(ctx, a.cfg.Audit, Action{Name: ActionRevoke, Operator: operator, Reason: reason, Resource: resource, Fence: fence})
	if err != nil {
		return named(err, "revoke", resource)
	}
	err = a.revoke(ctx, revocation{resource, fence, operator, reason})
	a.unkept(ended(outcome(err), nil))
	return named(err, "revoke", resource)
}

func (a *Authority) revoke(ctx context.Context, r revocation) error {
	c := newCall(kindHolder, r.operator, store.Query{Resource: r.resource})
	c.decide = func(rec core.Record, _ *core.Request, h core.Header, clock core.Clock) (core.Change, core.Answer) {
		return core.Revoke(rec, h, clock, r.fence)
	}
	res, err := a.loop.submit(ctx, c, 0)
	if err == nil {
		err = otherFence(alreadyOver(a.refusal(res), res, r.fence), r.resource)
	}
	a.log(ctx, r, res, err)
	return named(err, "revoke", r.resource)
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

// log says who tried to revoke what, why, and what came of it.
func (a *Authority) log(ctx context.Context, r revocation, res result, err error) {
	attrs := []slog.Attr{
		slog.String("resource", string(r.resource)), slog.Uint64("fence", uint64(r.fence)),
		slog.String("operator", r.operator), slog.String("reason", r.reason), slog.String("outcome", revoked(err)),
	}
	if err == nil {
		attrs = append(attrs, slog.String("owner", res.record.Lease.Owner))
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "revoke", attrs...)
}

func revoked(err error) string {
	if err == nil {
		return string(lastword.StateRevoked)
	}
	return outcome(err)
}
