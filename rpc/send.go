package rpc

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// send makes a call through the session, or as a unary one while there is none. A
// call that certainly has not been begun when its session ends is made once more,
// as gRPC does with a unary call.
func (c *Client) send(ctx context.Context, q question, call *wire.SessionCall) (*wire.SessionAnswer, error) {
	const tries = 2
	for try := 0; c.session != nil && try < tries; try++ {
		l := c.session.get()
		if l == nil {
			break
		}
		e := &errand{call: call, kind: lane(q), left: departure(ctx), done: make(chan struct{})}
		e.deadline, _ = ctx.Deadline()
		a, err := l.do(ctx, e)
		switch {
		case errors.Is(err, errNotBegun):
			// The writer may still have the call that was not begun in its hands.
			call = &wire.SessionCall{Request: call.GetRequest()}
			continue
		case err != nil:
			return nil, err
		}
		if f := a.GetFailure(); f != nil {
			return nil, &refused{code: codes.Code(f.GetCode()), text: f.GetMessage(), detail: f.GetRefusal()}
		}
		return a, nil
	}
	return c.unary(ctx, q, call)
}

// lane is the queue of a call: whoever holds something passes whoever wants it.
func lane(q question) int {
	switch {
	case q.op == opStatus, q.op == opAcquire && q.wait == 0:
		return ofOthers
	case q.op == opAcquire:
		return ofWaits
	}
	return ofHolders
}

// departure is where a call notes that it has left.
func departure(ctx context.Context) *atomic.Bool {
	if left, ok := ctx.Value(leftKey{}).(*atomic.Bool); ok {
		return left
	}
	return new(atomic.Bool)
}

// unary makes one call by itself.
func (c *Client) unary(ctx context.Context, q question, call *wire.SessionCall) (*wire.SessionAnswer, error) {
	a := &wire.SessionAnswer{}
	var err error
	switch r := call.GetRequest().(type) {
	case *wire.SessionCall_Acquire:
		m, stub := &wire.SessionAnswer_Acquire{}, c.calls
		if q.wait > 0 {
			stub = c.waits
		}
		m.Acquire, err = stub.Acquire(ctx, r.Acquire)
		a.Answer = m
	case *wire.SessionCall_Renew:
		m := &wire.SessionAnswer_Renew{}
		m.Renew, err = c.calls.Renew(ctx, r.Renew)
		a.Answer = m
	case *wire.SessionCall_Release:
		m := &wire.SessionAnswer_Release{}
		m.Release, err = c.calls.Release(ctx, r.Release)
		a.Answer = m
	case *wire.SessionCall_Complete:
		m := &wire.SessionAnswer_Complete{}
		m.Complete, err = c.calls.Complete(ctx, r.Complete)
		a.Answer = m
	case *wire.SessionCall_Cancel:
		m := &wire.SessionAnswer_Cancel{}
		m.Cancel, err = c.calls.Cancel(ctx, r.Cancel)
		a.Answer = m
	case *wire.SessionCall_Status:
		m := &wire.SessionAnswer_Status{}
		m.Status, err = c.calls.Status(ctx, r.Status)
		a.Answer = m
	}
	return a, err
}
