package rpc_test

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func TestEveryCallArrivesAndIsAnsweredExactly(t *testing.T) {
	extreme := lastword.TenureRef{Resource: "doc/ä b", Owner: "spiffe://example.org/w", RequestID: "req-1", LeaseID: "l", Fence: lastword.MaxToken}
	ask := lastword.AcquireRequest{
		Resource: extreme.Resource, RequestID: extreme.RequestID, Owner: extreme.Owner,
		TTL: math.MaxInt64, Wait: 59*time.Minute + 1, Root: lastword.DigestOf([]byte("root")), Class: lastword.ClassAdvance,
	}
	tenure := lastword.Tenure{
		TenureRef: extreme, State: lastword.StatePending, Grant: "a.b.c", GrantDigest: lastword.DigestOf(nil),
		Revision: math.MaxUint64, PolicyGeneration: math.MaxUint64 - 1, Root: ask.Root, Class: ask.Class,
		TTL: math.MaxInt64, Remaining: math.MaxInt64 - 1, Waited: true, Repeated: true,
		Previous: lastword.Ending{State: lastword.StateRevoked, Fence: lastword.MaxToken - 1, LeaseID: "k", Owner: "o", Completed: true, Result: make([]byte, lastword.MaxResultBytes)},
	}
	query := lastword.StatusQuery{Resource: extreme.Resource, LeaseID: "l", Owner: extreme.Owner, RequestID: "req-1"}
	status := lastword.Status{
		Resource: extreme.Resource, State: lastword.StateHeld, Holder: extreme, Digest: tenure.GrantDigest,
		Remaining: 1, TTL: math.MaxInt64, NextFence: lastword.MaxToken, Waiters: math.MaxUint32, Revision: math.MaxUint64,
		Last:  lastword.Ending{State: lastword.StateCanceled, Fence: 7, LeaseID: "k", Owner: "o"},
		Asked: lastword.StateCanceled, AskedCompleted: true, AskedResult: []byte{0, 1},
	}
	result, bundle := make([]byte, lastword.MaxResultBytes), []byte("{\"keys\":[]}\x00\xff")

	f := &fake{
		acquire: func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
			equal(t, "acquire request", r, ask)
			return tenure, nil
		},
		renew: func(_ context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
			equal(t, "renew request", r, extreme)
			return tenure, nil
		},
		release: func(_ context.Context, r lastword.TenureRef) error {
			equal(t, "release request", r, extreme)
			return nil
		},
		complete: func(_ context.Context, r lastword.TenureRef, b []byte) error {
			equal(t, "complete request", r, extreme)
			equal(t, "result", b, result)
			return nil
		},
		cancel: func(_ context.Context, r lastword.Resource, owner, id string) error {
			equal(t, "cancel request", []string{string(r), owner, id}, []string{string(extreme.Resource), extreme.Owner, extreme.RequestID})
			return nil
		},
		status: func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
			equal(t, "status query", q, query)
			return status, nil
		},
		bundle: func(context.Context) ([]byte, error) { return bundle, nil },
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c, ctx := dial(t, addr), t.Context()

	got, err := c.Acquire(ctx, ask)
	equal(t, "acquire", []any{got, err}, []any{tenure, nil})
	got, err = c.Renew(ctx, extreme)
	equal(t, "renew", []any{got, err}, []any{tenure, nil})
	equal(t, "release", c.Release(ctx, extreme), nil)
	equal(t, "complete", c.Complete(ctx, extreme, result), nil)
	equal(t, "cancel", c.Cancel(ctx, extreme.Resource, extreme.Owner, extreme.RequestID), nil)
	st, err := c.Status(ctx, query)
	equal(t, "status", []any{st, err}, []any{status, nil})
	b, err := c.Bundle(ctx)
	equal(t, "bundle", []any{b, err}, []any{bundle, nil})
	if n := f.calls.Load(); n != 7 {
		t.Errorf("the authority was called %d times, want 7", n)
	}
}

func TestJSONShowsStatesAndDigestsAsPeopleReadThem(t *testing.T) {
	addr, _ := serve(t, granting(), rpc.ServerConfig{})
	a, err := rawClient(t, addr).Acquire(t.Context(), &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o"})
	if err != nil {
		t.Fatal(err)
	}
	j := protojson.Format(a)
	var back wire.AcquireResponse
	if err := protojson.Unmarshal([]byte(j), &back); err != nil {
		t.Fatal(err)
	}
	equal(t, "state", back.GetTenure().GetState(), "HELD")
	equal(t, "digest", back.GetTenure().GetGrantDigest(), lastword.DigestOf([]byte("e30.e30")).String())
}

func TestAnAnswerThatCannotBeIsNotUsed(t *testing.T) {
	broken := map[string]func(*lastword.Tenure){
		"no fence":                    func(a *lastword.Tenure) { a.Fence = 0 },
		"a fence above 2^53-1":        func(a *lastword.Tenure) { a.Fence = lastword.MaxToken + 1 },
		"another resource":            func(a *lastword.Tenure) { a.Resource = "doc/b" },
		"another request":             func(a *lastword.Tenure) { a.RequestID = "req-2" },
		"another owner":               func(a *lastword.Tenure) { a.Owner = "worker-b" },
		"more left than the TTL":      func(a *lastword.Tenure) { a.Remaining = a.TTL + 1 },
		"negative remaining":          func(a *lastword.Tenure) { a.Remaining = -1 },
		"a state that is no tenure's": func(a *lastword.Tenure) { a.State = lastword.StateFree },
		"an ending without a fence":   func(a *lastword.Tenure) { a.Previous = lastword.Ending{State: lastword.StateExpired} },
	}
	for name, change := range broken {
		t.Run(name, func(t *testing.T) {
			f := granting()
			f.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
				a := grantOf(r)
				change(&a)
				return a, nil
			}
			addr, _ := serve(t, f, rpc.ServerConfig{})
			got, err := dial(t, addr).Acquire(t.Context(), req)
			wantCode(t, err, lastword.CodeUnknown)
			equal(t, "tenure", got, lastword.Tenure{})
		})
	}
}
