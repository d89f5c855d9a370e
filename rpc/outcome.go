package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// question is one call as far as its errors need to know it.
type question struct {
	op       operation
	resource lastword.Resource
	wait     time.Duration
}

// ask makes one call and says what its failure means.
func ask[A any](ctx context.Context, c *Client, q question, call func(context.Context) (A, error)) (A, error) {
	var none A
	if ctx.Err() != nil {
		return none, q.notSent(ctx.Err())
	}
	ctx, cancel := c.within(ctx, q.wait)
	defer cancel()
	left := new(atomic.Bool)
	a, err := call(context.WithValue(ctx, leftKey{}, left))
	if err != nil {
		return none, q.failed(ctx, err, left.Load())
	}
	return a, nil
}

// failed is the error of a call that gRPC ended with err.
func (q question) failed(ctx context.Context, err error, left bool) error {
	var broken *brokenAnswer
	if errors.As(err, &broken) {
		return q.notUnderstood(broken.err)
	}
	if e, m := refusalOf(q.op, err); e != nil {
		if m.GetEnded().GetResultOmitted() {
			return &omittedResult{e}
		}
		return e
	}
	cause := err
	if ctx.Err() != nil {
		cause = ctx.Err() // so that errors.Is finds it
	}
	switch {
	case !left:
		return q.notSent(cause)
	case q.op.mutates:
		return q.unknown("no answer; it may or may not have been done", cause)
	}
	return q.error(lastword.CodeUnavailable, "no answer", "", cause)
}

// notSent is certain: nobody has seen the call.
func (q question) notSent(cause error) error {
	hint := ""
	if st, ok := status.FromError(cause); ok {
		cause, hint = errors.New(st.Message()), "is the authority running at this address?"
	}
	return q.error(lastword.CodeUnavailable, "the call was not sent", hint, cause)
}

func (q question) unknown(message string, cause error) error {
	return q.error(lastword.CodeUnknown, message, askAgain, cause)
}

// notUnderstood: there was an answer, so the call was probably done, but what it
// gave cannot be told.
func (q question) notUnderstood(cause error) error {
	if q.op.mutates {
		return q.unknown("the answer was not understood", cause)
	}
	return q.error(lastword.CodeInternal, "the answer was not understood", "", cause)
}

// refused is a request that was not worth sending.
func (q question) refused(err error) error {
	var e *lastword.Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Op = q.op.name
	out.Resource, _ = lastword.ParseResource(string(q.resource))
	return &out
}

func (q question) error(code lastword.Code, message, hint string, cause error) error {
	return &lastword.Error{Code: code, Op: q.op.name, Resource: q.resource, Message: message, Hint: hint, Err: cause}
}

type leftKey struct{}

// departures notes on a call's context that its headers were handed to a
// connection. gRPC reports that for every try of the call, in the call's own
// goroutine, before the call returns; a call without it put nothing on any wire.
type departures struct{}

// TagRPC implements stats.Handler.
func (departures) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (departures) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.OutHeader, *stats.OutPayload:
		if left, ok := ctx.Value(leftKey{}).(*atomic.Bool); ok {
			left.Store(true)
		}
	}
}

// TagConn implements stats.Handler.
func (departures) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (departures) HandleConn(context.Context, stats.ConnStats) {}

// brokenAnswer is an answer that cannot be what was asked for.
type brokenAnswer struct{ err error }

func (b *brokenAnswer) Error() string { return b.err.Error() }

// omittedResult is a refusal whose result was too large to come with it.
type omittedResult struct{ refusal *lastword.Error }

func (o *omittedResult) Error() string { return o.refusal.Error() }

// readTenureOf reads the answer about want; an empty field of want asks for
// nothing.
func readTenureOf(m *wire.Tenure, want lastword.TenureRef, err error) (lastword.Tenure, error) {
	if err != nil {
		return lastword.Tenure{}, err
	}
	t, err := readTenure(m)
	if err == nil && !answers(t.TenureRef, want) {
		err = invalid("it is about another tenure")
	}
	if err != nil {
		return lastword.Tenure{}, &brokenAnswer{err}
	}
	// The caller's own strings: one copy of each is kept, and not one for each tenure.
	t.Resource, t.RequestID = want.Resource, want.RequestID
	if want.Owner != "" {
		t.Owner = want.Owner
	}
	return t, nil
}

func answers(got, want lastword.TenureRef) bool {
	return got.Resource == want.Resource && got.RequestID == want.RequestID &&
		(want.Owner == "" || got.Owner == want.Owner) &&
		(want.LeaseID == "" || got.LeaseID == want.LeaseID) &&
		(want.Fence == 0 || got.Fence == want.Fence)
}

// readDone reads an answer that says no more than that it was done.
func readDone[A any](m *A, err error) (*A, error) {
	if err == nil && m == nil {
		err = &brokenAnswer{invalid("it answers another question")}
	}
	return m, err
}

func readStatusOf(m *wire.Status, q lastword.StatusQuery) (lastword.Status, error) {
	s, err := readStatus(m)
	if err == nil && s.Resource != q.Resource {
		err = invalid("it is about another resource")
	}
	if err == nil && (q.LeaseID != "" || q.RequestID != "") != (s.Asked != "") {
		err = invalid("asked %q: it does not fit the question", s.Asked)
	}
	if err != nil {
		return lastword.Status{}, &brokenAnswer{err}
	}
	return s, nil
}
