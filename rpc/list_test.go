package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

func TestAPageArrivesExactlyAndWithoutResults(t *testing.T) {
	f := granting()
	want := lastword.ListQuery{Prefix: "doc/ä%_", After: "doc/a", Limit: 7, All: true}
	held := lastword.Status{
		Resource: "doc/ä%_1", State: lastword.StateHeld, Digest: lastword.DigestOf(nil), Remaining: 1, TTL: 2,
		Holder:    lastword.TenureRef{Resource: "doc/ä%_1", Owner: "o", Fence: lastword.MaxToken},
		NextFence: lastword.MaxToken, Waiters: 3, Revision: 1<<64 - 1,
	}
	ended := lastword.Status{
		Resource: "doc/ä%_2", State: lastword.StateReleased, NextFence: 8,
		Last: lastword.Ending{State: lastword.StateReleased, Fence: 7, LeaseID: "l", Owner: "o", Completed: true, Result: []byte("kept back")},
	}
	f.list = func(_ context.Context, q lastword.ListQuery) (lastword.Page, error) {
		equal(t, "query", q, want)
		return lastword.Page{Resources: []lastword.Status{held, ended}, Next: "doc/ä%_9"}, nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	page, err := dial(t, addr).List(t.Context(), want)
	shown := ended
	shown.Last.Result = nil
	equal(t, "page", []any{page, err}, []any{lastword.Page{Resources: []lastword.Status{held, shown}, Next: "doc/ä%_9"}, nil})

	m, err := rawClient(t, addr).List(t.Context(), &wire.ListRequest{Prefix: want.Prefix, After: string(want.After), Limit: 7, All: true})
	if err != nil || !m.GetResources()[1].GetLast().GetResultOmitted() || m.GetResources()[0].GetLast() != nil {
		t.Errorf("the message does not say that a result is left out: %v, %v", m, err)
	}
}

func TestAListThatIsNoListIsRefusedBeforeTheAuthoritySeesIt(t *testing.T) {
	f := granting()
	f.list = func(context.Context, lastword.ListQuery) (lastword.Page, error) { return lastword.Page{}, nil }
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c := rawClient(t, addr)
	for name, m := range map[string]*wire.ListRequest{
		"a control character": {Prefix: "a\nb"},
		"a long prefix":       {Prefix: strings.Repeat("a", lastword.MaxIDBytes+1)},
		"after no resource":   {After: "a/"},
	} {
		_, err := c.List(t.Context(), m)
		if r := refusal(t, err); r.GetReason() != "INVALID" || status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want INVALID", name, err)
		}
	}
	if n := f.calls.Load(); n != 0 {
		t.Errorf("%d of them reached the authority", n)
	}
	for _, prefix := range []string{"", "/", "a/", "%", "*", strings.Repeat("a", lastword.MaxIDBytes)} {
		if _, err := c.List(t.Context(), &wire.ListRequest{Prefix: prefix}); err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
}

// KF-27: an authority that shows what was not asked for, or turns in circles, is not
// believed.
func TestAPageThatCannotBeOneIsNotUnderstood(t *testing.T) {
	st := func(r lastword.Resource) lastword.Status {
		return lastword.Status{Resource: r, State: lastword.StateFree, NextFence: 1}
	}
	for name, page := range map[string]lastword.Page{
		"another prefix":          {Resources: []lastword.Status{st("docs")}},
		"out of order":            {Resources: []lastword.Status{st("doc/c"), st("doc/b")}},
		"twice":                   {Resources: []lastword.Status{st("doc/c"), st("doc/c")}},
		"before after":            {Resources: []lastword.Status{st("doc/a")}},
		"next goes back":          {Resources: []lastword.Status{st("doc/c")}, Next: "doc/b1"},
		"next stands still":       {Next: "doc/b"},
		"a resource that is none": {Resources: []lastword.Status{st("doc/")}},
	} {
		f := granting()
		f.list = func(context.Context, lastword.ListQuery) (lastword.Page, error) { return page, nil }
		addr, _ := serve(t, f, rpc.ServerConfig{})
		_, err := dial(t, addr).List(t.Context(), lastword.ListQuery{Prefix: "doc/", After: "doc/b"})
		if e := wantCode(t, err, lastword.CodeInternal); e.Message != "the answer was not understood" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// KF-06, R7: what is revoked is named by its fence, and an operator stands for it.
func TestKF06ARevokeNamesFenceOperatorAndReason(t *testing.T) {
	f := granting()
	var got []string
	f.revoke = func(_ context.Context, r lastword.Resource, fence lastword.Token, operator, reason string) error {
		got = append(got, fmt.Sprint(r, fence, operator, reason))
		return nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	if err := dial(t, addr).Revoke(t.Context(), "doc/a", lastword.MaxToken, "op", "it hangs"); err != nil {
		t.Fatal(err)
	}
	equal(t, "revoked", got, []string{fmt.Sprint("doc/a", lastword.MaxToken, "op", "it hangs")})
	for name, m := range map[string]*wire.RevokeRequest{
		"no fence":        {Resource: "doc/a", Operator: "op", Reason: "r"},
		"a fence too big": {Resource: "doc/a", Operator: "op", Reason: "r", Fence: uint64(lastword.MaxToken) + 1},
		"no operator":     {Resource: "doc/a", Fence: 1, Reason: "r"},
		"no reason":       {Resource: "doc/a", Fence: 1, Operator: "op"},
		"a long reason":   {Resource: "doc/a", Fence: 1, Operator: "op", Reason: strings.Repeat("a", 513)},
		"no resource":     {Fence: 1, Operator: "op", Reason: "r"},
	} {
		_, err := rawClient(t, addr).Revoke(t.Context(), m)
		if r := refusal(t, err); r.GetReason() != "INVALID" || r.GetOp() != "revoke" {
			t.Errorf("%s: %v, want INVALID of revoke", name, err)
		}
	}
	if len(got) != 1 {
		t.Errorf("%q reached the authority", got)
	}
}

func TestAnOperatorIsWhoTheTransportSays(t *testing.T) {
	f := granting()
	var operators []string
	f.revoke = func(_ context.Context, _ lastword.Resource, _ lastword.Token, operator, _ string) error {
		operators = append(operators, operator)
		return nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{Identify: func(context.Context) (string, error) { return "me", nil }})
	c := rawClient(t, addr)
	m := &wire.RevokeRequest{Resource: "doc/a", Fence: 1, Reason: "r"}
	if _, err := c.Revoke(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m.Operator = "somebody else"
	_, err := c.Revoke(t.Context(), m)
	if refusal(t, err).GetReason() != "UNVERIFIED" {
		t.Errorf("err = %v, want UNVERIFIED", err)
	}
	equal(t, "operators", operators, []string{"me"})
}
