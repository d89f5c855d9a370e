package authority

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// Report takes a resource's word that there is a fence which this authority does not
// know to have issued, or issued twice (R10). It counts only with the signed grant of
// that fence, under a key that is not revoked, of whatever issuer epoch: else it is
// CodeUnverified. One that counts stops the grants and renewals of that resource, not of
// others, with CodeFenceRegression until [Authority.Resume]; it is durable when Report
// returns, and logged. One that contradicts nothing is answered with Counted false.
//
// Whoever has the key of the grants can stop a resource so: revoke the key, and resume.
func (a *Authority) Report(ctx context.Context, r lastword.Report) (out lastword.ReportAnswer, err error) {
	seen := a.begin(OpReport, r.Resource, 0)
	defer seen.end(ctx, &err)
	const op = "report"
	if _, err := lastword.ParseResource(string(r.Resource)); err != nil {
		return out, named(err, op, "")
	}
	if err := lastword.CheckID("reporter", r.Reporter); err != nil {
		return out, named(err, op, r.Resource)
	}
	told, err := a.reported(ctx, r)
	if err != nil {
		return out, named(err, op, r.Resource)
	}
	c := newCall(kindHolder, r.Reporter, store.Query{Resource: r.Resource})
	c.decide = func(rec core.Record, _ *core.Request, h core.Header, _ core.Clock) (core.Change, core.Answer) {
		return core.Report(rec, h, told.Fence, told.LeaseID)
	}
	res, err := a.loop.submit(ctx, c, 0)
	if err != nil {
		return out, named(err, op, r.Resource)
	}
	out = lastword.ReportAnswer{Counted: res.answer.Code == "", Fence: res.record.Reported}
	if res.answer.Code == "" && !res.answer.Repeated {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelError, "a resource reports a fence that this authority does not know: its grants are stopped",
			slog.String("resource", string(r.Resource)), slog.Uint64("fence", uint64(told.Fence)),
			slog.String("reporter", r.Reporter), slog.String("owner", told.Owner))
	}
	return out, nil
}

// reported opens the grant of a report. An issuer epoch above the present one is no
// objection here: it is what a report may be about.
func (a *Authority) reported(ctx context.Context, r lastword.Report) (grant.Claims, error) {
	b, err := a.signer.Bundle(grant.BundleInfo{Sequence: 1, CurrentEpoch: lastword.MaxEpoch})
	if err != nil {
		return grant.Claims{}, err
	}
	v, err := grant.NewVerifier(a.cfg.Domain, grant.StaticBundle(b), grant.VerifierConfig{Memory: -1})
	if err != nil {
		return grant.Claims{}, err
	}
	opened, err := v.Open(ctx, r.Grant, grant.Want{Resource: r.Resource, Class: lastword.ClassAdvance}) // that every grant admits
	return opened.Claims(), err
}

// Resume lets a resource be granted again that a report has stopped, for an operator
// (R10). reported is what Status shows; another number is CodeRequestConflict, so that
// nobody confirms what he has not seen. The next fence is above it. A tenure that is
// still open ends as REVOKED. It is durable when it returns the next fence; every
// attempt is logged and kept ([Config].Audit), with operator and reason. Of a resource
// that is not stopped, or not any more, it is CodeRequestConflict, too, and changes nothing.
func (a *Authority) Resume(ctx context.Context, resource lastword.Resource, reported lastword.Token, operator, reason string) (next lastword.Token, err error) {
	seen := a.begin(OpResume, resource, reported)
	defer seen.end(ctx, &err)
	const op = "resume"
	if err := checkRevoke(resource, reported, operator, reason); err != nil {
		return 0, named(err, op, resource)
	}
	ended, err := begin(ctx, a.cfg.Audit, Action{Name: ActionResume, Operator: operator, Reason: reason, Resource: resource, Fence: reported})
	if err != nil {
		return 0, named(err, op, resource)
	}
	next, err = a.resume(ctx, revocation{resource, reported, operator, reason})
	a.unkept(ended(outcome(err), nil))
	return next, named(err, op, resource)
}

func (a *Authority) resume(ctx context.Context, r revocation) (lastword.Token, error) {
	c := newCall(kindHolder, r.operator, store.Query{Resource: r.resource})
	c.decide = func(rec core.Record, _ *core.Request, h core.Header, clock core.Clock) (core.Change, core.Answer) {
		return core.Resume(rec, h, clock, r.fence)
	}
	res, err := a.loop.submit(ctx, c, 0)
	if err == nil {
		err = a.refusal(res)
	}
	if e := (*lastword.Error)(nil); errors.As(err, &e) && e.Code == lastword.CodeRequestConflict {
		e.Message, e.Hint = "nothing is reported of it, so that nothing is to be resumed", "'lastword status' shows what is reported; if this was asked before, it was done then"
	}
	if e := (*lastword.Error)(nil); errors.As(err, &e) && e.Code == lastword.CodeRequestConflict && res.record.Reported != 0 {
		e.Message, e.Hint = "what stops it is the reported fence "+res.record.Reported.Text(), "look at it, and confirm that one"
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, ActionResume, slog.String("resource", string(r.resource)), slog.Uint64("fence", uint64(r.fence)),
		slog.String("operator", r.operator), slog.String("reason", r.reason), slog.String("outcome", outcome(err)))
	if err != nil {
		return 0, err
	}
	return res.record.NextFence(res.header), nil
}

// stopped is the answer where nothing may be granted, or renewed, any more.
func stopped(res result) error {
	e := &lastword.Error{Code: lastword.CodeFenceRegression, Fence: res.record.Reported}
	switch {
	case res.record.Reported == 0:
		e.Message, e.Hint = "its record is of a later issuer epoch than the store", "the store was restored or exchanged: begin a new issuer epoch"
	case res.record.Reported.Epoch() > res.header.Epoch:
		e.Message = "a resource has reported fence " + res.record.Reported.Text() + ", of a later issuer epoch than the store's"
		e.Hint = "the store was restored or exchanged: begin a new issuer epoch, then resume"
	default:
		e.Message = "a resource has reported fence " + res.record.Reported.Text() + ", which this authority did not issue, or issued twice"
		e.Hint = "find out whether the store was restored or copied; then resume it, naming that fence"
	}
	return e
}
