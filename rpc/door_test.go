package rpc_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// refusal is the typed detail of err, which must be there.
func refusal(t *testing.T, err error) *wire.Refusal {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*wire.Refusal); ok {
			return r
		}
	}
	t.Fatalf("err = %v, want a refusal", err)
	return nil
}

// KF-20: no duration becomes 0, negative, a default or a longer one.
func TestDurationsOutOfRangeAreRefusedByName(t *testing.T) {
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c := rawClient(t, addr)
	const maxS = math.MaxInt64 / int64(time.Second)
	bad := map[string]*durationpb.Duration{
		"minus one second":      {Seconds: -1},
		"minus one nanosecond":  {Nanos: -1},
		"mixed signs":           {Seconds: 1, Nanos: -1},
		"mixed signs, other":    {Seconds: -1, Nanos: 1},
		"nanos of a second":     {Nanos: 1_000_000_000},
		"largest nanos":         {Nanos: math.MaxInt32},
		"smallest nanos":        {Nanos: math.MinInt32},
		"one nanosecond over":   {Seconds: maxS, Nanos: int32(math.MaxInt64-maxS*int64(time.Second)) + 1},
		"one second over":       {Seconds: maxS + 1},
		"2^50 s":                {Seconds: 1 << 50},
		"2^53 s":                {Seconds: 1 << 53},
		"2^62 s":                {Seconds: 1 << 62},
		"largest":               {Seconds: math.MaxInt64, Nanos: 999_999_999},
		"smallest":              {Seconds: math.MinInt64},
		"wraps to a short time": {Seconds: 18446744074}, // × 10^9 is 290448384 in 64 bits
	}
	for name, d := range bad {
		t.Run(name, func(t *testing.T) {
			for _, field := range []string{"ttl", "wait"} {
				m := &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o"}
				if field == "ttl" {
					m.Ttl = d
				} else {
					m.Wait = d
				}
				_, err := c.Acquire(t.Context(), m)
				r := refusal(t, err)
				if r.GetReason() != "INVALID" || status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(r.GetMessage(), field+":") {
					t.Errorf("%s: %v, want INVALID that names it", field, err)
				}
			}
		})
	}
	if n := f.calls.Load(); n != 0 {
		t.Errorf("%d of them reached the authority", n)
	}
}

func TestAWaitAboveTheBoundIsRefusedNotShortened(t *testing.T) {
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{MaxWait: time.Minute})
	c, r := dial(t, addr), req
	r.Wait = time.Minute + 1
	_, err := c.Acquire(t.Context(), r)
	if e := wantCode(t, err, lastword.CodeInvalid); !strings.Contains(e.Message, "wait") || f.calls.Load() != 0 {
		t.Errorf("err = %v, calls = %d; want a refusal at the door", err, f.calls.Load())
	}
	r.Wait = time.Minute
	if _, err := c.Acquire(t.Context(), r); err != nil {
		t.Errorf("the longest wait: %v", err)
	}
}

func TestTheDoorRefusesWhatIsNoRequestByName(t *testing.T) {
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c := rawClient(t, addr)
	acquire := func(change func(*wire.AcquireRequest)) error {
		m := &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o"}
		change(m)
		_, err := c.Acquire(t.Context(), m)
		return err
	}
	renew := func(change func(*wire.RenewRequest)) error {
		m := &wire.RenewRequest{Resource: "doc/a", RequestId: "r", Owner: "o", LeaseId: "l", Fence: 1}
		change(m)
		_, err := c.Renew(t.Context(), m)
		return err
	}
	long := strings.Repeat("x", lastword.MaxIDBytes+1)
	zeros := "sha256:" + strings.Repeat("0", 64)
	for _, test := range []struct {
		field, why string
		err        error
	}{
		{"resource", "empty", acquire(func(m *wire.AcquireRequest) { m.Resource = "" })},
		{"resource", "not canonical", acquire(func(m *wire.AcquireRequest) { m.Resource = "doc//a" })},
		{"resource", "long", acquire(func(m *wire.AcquireRequest) { m.Resource = long })},
		{"request_id", "empty", acquire(func(m *wire.AcquireRequest) { m.RequestId = "" })},
		{"request_id", "control", acquire(func(m *wire.AcquireRequest) { m.RequestId = "a\nb" })},
		{"owner", "empty", acquire(func(m *wire.AcquireRequest) { m.Owner = "" })},
		{"owner", "long", acquire(func(m *wire.AcquireRequest) { m.Owner = long })},
		{"class", "control", acquire(func(m *wire.AcquireRequest) { m.Class = "\x00" })},
		{"root", "no digest", acquire(func(m *wire.AcquireRequest) { m.Root = "abc" })},
		{"root", "upper case", acquire(func(m *wire.AcquireRequest) { m.Root = "sha256:" + strings.Repeat("A", 64) })},
		{"root", "zeros", acquire(func(m *wire.AcquireRequest) { m.Root = zeros })},
		{"lease_id", "empty", renew(func(m *wire.RenewRequest) { m.LeaseId = "" })},
		{"fence", "zero", renew(func(m *wire.RenewRequest) { m.Fence = 0 })},
		{"fence", "2^53", renew(func(m *wire.RenewRequest) { m.Fence = 1 << 53 })},
		{"fence", "largest", renew(func(m *wire.RenewRequest) { m.Fence = math.MaxUint64 })},
		{"owner", "status, without", second(c.Status(t.Context(), &wire.StatusRequest{Resource: "doc/a", RequestId: "r"}))},
		{"owner", "status, alone", second(c.Status(t.Context(), &wire.StatusRequest{Resource: "doc/a", Owner: "o"}))},
		{"lease_id", "status, control", second(c.Status(t.Context(), &wire.StatusRequest{Resource: "doc/a", LeaseId: "\t"}))},
		{"owner", "cancel, empty", second(c.Cancel(t.Context(), &wire.CancelRequest{Resource: "doc/a", RequestId: "r"}))},
		{"result", "long", second(c.Complete(t.Context(), &wire.CompleteRequest{Resource: "doc/a", RequestId: "r", Owner: "o", LeaseId: "l", Fence: 1, Result: make([]byte, lastword.MaxResultBytes+1)}))},
		{"resource", "release", second(c.Release(t.Context(), &wire.ReleaseRequest{Owner: "o"}))},
	} {
		r := refusal(t, test.err)
		if r.GetReason() != "INVALID" || !strings.HasPrefix(r.GetMessage(), test.field) {
			t.Errorf("%s (%s): %v, want INVALID that names it", test.field, test.why, test.err)
		}
	}
	if n := f.calls.Load(); n != 0 {
		t.Errorf("%d of them reached the authority", n)
	}
}

func second[A any](_ A, err error) error { return err }

// A later version may add a field that restricts the request.
func TestAFieldThatTheAuthorityDoesNotKnowIsRefused(t *testing.T) {
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c := rawClient(t, addr)
	extra := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	unknown := func(m proto.Message) { m.ProtoReflect().SetUnknown(extra) }

	a := &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o"}
	unknown(a)
	nested := &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Ttl: durationpb.New(1)}
	unknown(nested.Ttl)
	b := &wire.BundleRequest{}
	unknown(b)
	s := &wire.StatusRequest{Resource: "doc/a"}
	unknown(s)
	for _, err := range []error{
		second(c.Acquire(t.Context(), a)), second(c.Acquire(t.Context(), nested)),
		second(c.Bundle(t.Context(), b)), second(c.Status(t.Context(), s)),
	} {
		if r := refusal(t, err); r.GetReason() != "INVALID" || !strings.Contains(r.GetMessage(), "does not know") {
			t.Errorf("err = %v", err)
		}
	}
	if n := f.calls.Load(); n != 0 {
		t.Errorf("%d of them reached the authority", n)
	}
}

func TestTheClientRefusesTheSameWithoutSending(t *testing.T) {
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c, ctx := dial(t, addr), t.Context()
	badReq, badRef := req, ref
	badReq.TTL = -1
	badRef.Fence = lastword.MaxToken + 1
	for op, err := range map[string]error{
		"acquire":  second(c.Acquire(ctx, badReq)),
		"renew":    second(c.Renew(ctx, badRef)),
		"release":  c.Release(ctx, badRef),
		"complete": c.Complete(ctx, ref, make([]byte, lastword.MaxResultBytes+1)),
		"cancel":   c.Cancel(ctx, "doc/\xff", "o", "r"),
		"status":   second(c.Status(ctx, lastword.StatusQuery{Resource: "doc/.."})),
	} {
		if e := wantCode(t, err, lastword.CodeInvalid); e.Op != op {
			t.Errorf("%s: %v names another operation", op, err)
		}
	}
	if n := f.calls.Load(); n != 0 {
		t.Errorf("%d of them reached the authority", n)
	}
}

func TestAnIdentityReplacesTheOwnerAndRefusesAnother(t *testing.T) {
	var owners []string
	note := func(owner string) { owners = append(owners, owner) }
	f := granting()
	f.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		note(r.Owner)
		return grantOf(r), nil
	}
	f.renew = func(_ context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
		note(r.Owner)
		return lastword.Tenure{TenureRef: r, State: lastword.StateHeld}, nil
	}
	f.release = func(_ context.Context, r lastword.TenureRef) error { note(r.Owner); return nil }
	f.complete = func(_ context.Context, r lastword.TenureRef, _ []byte) error { note(r.Owner); return nil }
	f.cancel = func(_ context.Context, _ lastword.Resource, owner, _ string) error { note(owner); return nil }
	f.status = func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		note(q.Owner)
		return lastword.Status{Resource: q.Resource, State: lastword.StateFree, Asked: lastword.StateFree}, nil
	}
	f.bundle = func(context.Context) ([]byte, error) { return nil, nil }
	addr, _ := serve(t, f, rpc.ServerConfig{Identify: func(context.Context) (string, error) { return "spiffe://x/a", nil }})
	c, ctx := dial(t, addr), t.Context()

	calls := func(owner string) []error {
		r, h := req, ref
		r.Owner, h.Owner = owner, owner
		return []error{
			second(c.Acquire(ctx, r)), second(c.Renew(ctx, h)), c.Release(ctx, h), c.Complete(ctx, h, nil),
			c.Cancel(ctx, h.Resource, owner, h.RequestID),
			second(c.Status(ctx, lastword.StatusQuery{Resource: h.Resource, Owner: owner, RequestID: h.RequestID})),
		}
	}
	for _, owner := range []string{"", "spiffe://x/a"} {
		owners = nil
		for _, err := range calls(owner) {
			if err != nil {
				t.Errorf("owner %q: %v", owner, err)
			}
		}
		equal(t, "owners", strings.Join(owners, " "), strings.TrimSpace(strings.Repeat(" spiffe://x/a", 6)))
	}
	owners = nil
	for _, err := range calls("spiffe://x/b") {
		wantCode(t, err, lastword.CodeUnverified)
	}
	equal(t, "owners that got through", len(owners), 0)

	// A resource asks about the tenures of others.
	if _, err := c.Status(ctx, lastword.StatusQuery{Resource: "doc/a", LeaseID: "l"}); err != nil || owners[0] != "" {
		t.Errorf("status by lease id: %v, owner %q", err, owners)
	}
}

func TestACallerWithoutIdentityIsRefusedButMayReadTheBundle(t *testing.T) {
	f := granting()
	f.bundle = func(context.Context) ([]byte, error) { return []byte("{}"), nil }
	addr, _ := serve(t, f, rpc.ServerConfig{Identify: func(context.Context) (string, error) { return "", context.Canceled }})
	for op, err := range everyCall(t.Context(), dial(t, addr)) {
		if op == "bundle" {
			equal(t, op, err, nil)
			continue
		}
		wantCode(t, err, lastword.CodeUnverified)
	}
}
