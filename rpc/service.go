package rpc

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// service turns calls into calls of the authority.
type service struct {
	wire.UnimplementedAuthorityServiceServer
	authority Authority
	cfg       ServerConfig
	stopping  context.Context // ends when the server begins to shut down
	sessions  atomic.Int64    // that are open
	owing     atomic.Int64    // of these, that have calls which are not begun
	crew      crew            // at work on their calls
	mutating  atomic.Int64    // calls under way that change something
}

// Acquire implements the service.
func (s *service) Acquire(ctx context.Context, m *wire.AcquireRequest) (*wire.AcquireResponse, error) {
	read := func() (r lastword.AcquireRequest, err error) {
		if err := s.identify(ctx, &m.Owner, true); err != nil {
			return r, err
		}
		if r, err = acquireRequest(m); err == nil && r.Wait > s.cfg.MaxWait {
			return r, invalid("wait %s: it is longer than %s, the longest this authority lets a caller wait", r.Wait, s.cfg.MaxWait)
		}
		if err == nil {
			err = s.allow(ctx, identity.Acquire, m.GetResource())
		}
		return r, err
	}
	return handle(ctx, s, opAcquire, m.GetResource(), read, func(r lastword.AcquireRequest) (*wire.AcquireResponse, error) {
		ctx, cancel := ctx, func() {}
		if r.Wait > 0 {
			ctx, cancel = s.untilShutdown(ctx)
		}
		defer cancel()
		t, err := s.acquire(ctx, r)
		return &wire.AcquireResponse{Tenure: tenureMessage(t)}, err
	})
}

// acquire tells a session, if ctx is a call of one, when the acquire begins to wait.
// Of an authority that does not say so, one that may wait counts as waiting.
func (s *service) acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	queued, ok := ctx.Value(queuedKey{}).(func())
	if !ok || r.Wait == 0 {
		return s.authority.Acquire(ctx, r)
	}
	if a, ok := s.authority.(Queuer); ok {
		return a.AcquireQueued(ctx, r, queued)
	}
	queued()
	return s.authority.Acquire(ctx, r)
}

// Renew implements the service.
func (s *service) Renew(ctx context.Context, m *wire.RenewRequest) (*wire.RenewResponse, error) {
	read := func() (renewalRequest, error) {
		if err := s.identify(ctx, &m.Owner, true); err != nil {
			return renewalRequest{}, err
		}
		r, err := renewal(m)
		if err == nil {
			err = s.allow(ctx, identity.Acquire, m.GetResource())
		}
		return r, err
	}
	return handle(ctx, s, opRenew, m.GetResource(), read, func(r renewalRequest) (*wire.RenewResponse, error) {
		if r.life > 0 {
			t, err := s.authority.RenewProof(ctx, r.ref, r.life)
			return &wire.RenewResponse{Tenure: tenureMessage(t)}, err
		}
		t, err := s.authority.Renew(ctx, r.ref)
		return &wire.RenewResponse{Tenure: tenureMessage(t)}, err
	})
}

// Release implements the service. It needs no permission: it only takes from the
// caller itself, and a holder that may no more should let go.
func (s *service) Release(ctx context.Context, m *wire.ReleaseRequest) (*wire.ReleaseResponse, error) {
	return handle(ctx, s, opRelease, m.GetResource(), s.ref(ctx, m, &m.Owner, false), func(ref lastword.TenureRef) (*wire.ReleaseResponse, error) {
		return &wire.ReleaseResponse{}, s.discreet(ctx, m.GetResource(), s.authority.Release(ctx, ref))
	})
}

// Complete implements the service.
func (s *service) Complete(ctx context.Context, m *wire.CompleteRequest) (*wire.CompleteResponse, error) {
	read := func() (lastword.TenureRef, error) {
		if err := s.identify(ctx, &m.Owner, true); err != nil {
			return lastword.TenureRef{}, err
		}
		ref, err := completion(m)
		if err == nil {
			err = s.allow(ctx, identity.Acquire, m.GetResource())
		}
		return ref, err
	}
	return handle(ctx, s, opComplete, m.GetResource(), read, func(ref lastword.TenureRef) (*wire.CompleteResponse, error) {
		return &wire.CompleteResponse{}, s.authority.Complete(ctx, ref, m.GetResult())
	})
}

// Cancel implements the service.
func (s *service) Cancel(ctx context.Context, m *wire.CancelRequest) (*wire.CancelResponse, error) {
	read := func() (attempt, error) {
		if err := s.identify(ctx, &m.Owner, true); err != nil {
			return attempt{}, err
		}
		a, err := cancelRequest(m)
		if err == nil { // what is not known yet leaves a record
			err = s.allow(ctx, identity.Acquire, m.GetResource())
		}
		return a, err
	}
	return handle(ctx, s, opCancel, m.GetResource(), read, func(a attempt) (*wire.CancelResponse, error) {
		return &wire.CancelResponse{}, s.authority.Cancel(ctx, a.resource, a.owner, a.requestID)
	})
}

// Status implements the service.
func (s *service) Status(ctx context.Context, m *wire.StatusRequest) (*wire.StatusResponse, error) {
	read := func() (proofRequest, error) {
		// A resource asks about tenures of others by their lease id: only a
		// question by request id is about an owner.
		if err := s.identify(ctx, &m.Owner, m.GetRequestId() != ""); err != nil {
			return proofRequest{}, err
		}
		q, err := statusRequest(m)
		if err == nil {
			err = s.allow(ctx, identity.Status, m.GetResource())
		}
		return q, err
	}
	return handle(ctx, s, opStatus, m.GetResource(), read, func(q proofRequest) (*wire.StatusResponse, error) {
		if q.life > 0 {
			st, proof, err := s.authority.Proof(ctx, q.query, q.life)
			return &wire.StatusResponse{Status: statusMessage(st), StatusProof: proof}, err
		}
		st, err := s.authority.Status(ctx, q.query)
		return &wire.StatusResponse{Status: statusMessage(st)}, err
	})
}

// Bundle implements the service. It asks for no identity: the bundle is public,
// and who cannot prove an identity yet may need it.
func (s *service) Bundle(ctx context.Context, m *wire.BundleRequest) (*wire.BundleResponse, error) {
	read := func() (struct{}, error) { return struct{}{}, checkKnown(m) }
	return handle(ctx, s, opBundle, "", read, func(struct{}) (*wire.BundleResponse, error) {
		b, err := s.authority.Bundle(ctx)
		return &wire.BundleResponse{Bundle: b}, err
	})
}

// ref reads a request that names a tenure, of a caller who may have it if that counts.
func (s *service) ref(ctx context.Context, m refMessage, owner *string, counts bool) func() (lastword.TenureRef, error) {
	return func() (lastword.TenureRef, error) {
		if err := s.identify(ctx, owner, true); err != nil {
			return lastword.TenureRef{}, err
		}
		ref, err := tenureRef(m)
		if err == nil && counts {
			err = s.allow(ctx, identity.Acquire, m.GetResource())
		}
		return ref, err
	}
}

// identify settles who the caller is. Where callers are authenticated, the
// identity replaces an owner that is left out, and another one is refused.
func (s *service) identify(ctx context.Context, owner *string, needed bool) error {
	if s.cfg.Identify == nil {
		if needed {
			return lastword.CheckID("owner", *owner)
		}
		return nil
	}
	id, err := s.caller(ctx)
	if err != nil {
		return err
	}
	if *owner != "" && *owner != id {
		return &lastword.Error{
			Code:    lastword.CodeUnverified,
			Message: "the owner of the request is not the caller's identity",
			Hint:    "leave the owner out, or name your own identity",
		}
	}
	if needed {
		*owner = id
	}
	return nil
}

// caller is the identity that the caller has proved.
func (s *service) caller(ctx context.Context) (string, error) {
	id, err := s.cfg.Identify(ctx)
	if err != nil {
		if e := (*lastword.Error)(nil); errors.As(err, &e) {
			return "", err
		}
		return "", &lastword.Error{Code: lastword.CodeUnverified, Message: "the caller's identity could not be established", Err: err}
	}
	if err := lastword.CheckID("owner", id); err != nil {
		return "", &lastword.Error{Code: lastword.CodeInternal, Message: "the caller's identity cannot serve as an owner", Err: err}
	}
	return id, nil
}

// untilShutdown ends ctx when the server begins to shut down: a wait may last
// longer than anybody waits for a shutdown. Its cause is deliberately no error of
// ours: whether a tenure was granted meanwhile is the authority's to say.
func (s *service) untilShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	return ctx, func() { stop(); cancel(nil) }
}

var errStopping = errors.New("the server is shutting down")

// handle reads the request, calls the authority, and turns errors into refusals.
func handle[Q, A any](ctx context.Context, s *service, op operation, resource string, read func() (Q, error), call func(Q) (*A, error)) (*A, error) {
	q, err := protect(ctx, s, op, resource, func() (*Q, error) {
		q, err := read()
		return &q, err
	})
	if err != nil {
		// Nothing was asked of the authority, so nothing is unknown.
		return nil, s.refuse(ctx, operation{op.name, false}, resource, err)
	}
	if op.mutates {
		s.mutating.Add(1)
		defer s.mutating.Add(-1)
	}
	a, err := protect(ctx, s, op, resource, func() (*A, error) { return call(*q) })
	if err != nil {
		return nil, s.refuse(ctx, op, resource, err)
	}
	return a, nil
}

// refuse is err as the caller gets it. What the authority itself did wrong is
// logged with its cause, which the caller is not told.
func (s *service) refuse(ctx context.Context, op operation, resource string, err error) error {
	e := asError(op, err)
	gone := ctx.Err() != nil && e.Code == lastword.CodeUnavailable // nothing was done for a caller that has gone: no fault
	if ownFault(e.Code) && !gone && !errors.Is(err, errPanicked) { // a panic is logged with its stack
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "call failed", slog.String("op", op.name),
			slog.String("resource", clip(resource, lastword.MaxIDBytes)), slog.Any("error", err))
	}
	known, _ := lastword.ParseResource(resource)
	return refusal(op, known, e)
}

func ownFault(c lastword.Code) bool {
	return c == lastword.CodeInternal || c == lastword.CodeUnknown || c == lastword.CodeMutationUnknown || c == lastword.CodeUnavailable
}

// protect turns a panic into an error. What a panic interrupted may have been
// done, so a mutation is then unknown, not INTERNAL, which says "not done".
func protect[A any](ctx context.Context, s *service, op operation, resource string, call func() (*A, error)) (a *A, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "panic", slog.String("op", op.name),
			slog.String("resource", clip(resource, lastword.MaxIDBytes)), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		a, err = nil, errPanicked
	}()
	return call()
}

var errPanicked = errors.New("it panicked")
