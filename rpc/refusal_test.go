package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

func wantCode(t *testing.T, err error, code lastword.Code) lastword.Error {
	t.Helper()
	var e *lastword.Error
	if !errors.As(err, &e) {
		t.Fatalf("err = %v (%T), want a *lastword.Error of %s", err, err, code)
	}
	if e.Code != code {
		t.Fatalf("err = %v, want %s", err, code)
	}
	return *e
}

var reasons = map[lastword.Code]codes.Code{
	lastword.CodeInvalid:           codes.InvalidArgument,
	lastword.CodeHeld:              codes.AlreadyExists,
	lastword.CodeNotHolder:         codes.FailedPrecondition,
	lastword.CodeRequestConflict:   codes.AlreadyExists,
	lastword.CodeTenureEnded:       codes.FailedPrecondition,
	lastword.CodeCanceled:          codes.FailedPrecondition,
	lastword.CodeExhausted:         codes.OutOfRange,
	lastword.CodeQuota:             codes.ResourceExhausted,
	lastword.CodeUnavailable:       codes.Unavailable,
	lastword.CodeUnknown:           codes.Unknown,
	lastword.CodeInternal:          codes.Internal,
	lastword.CodeConflict:          codes.AlreadyExists,
	lastword.CodeStaleOwner:        codes.FailedPrecondition,
	lastword.CodeReceiptExpired:    codes.FailedPrecondition,
	lastword.CodeOutOfOrder:        codes.FailedPrecondition,
	lastword.CodeRootMismatch:      codes.FailedPrecondition,
	lastword.CodeFenceRegression:   codes.FailedPrecondition,
	lastword.CodeFenceJump:         codes.FailedPrecondition,
	lastword.CodeUnverified:        codes.PermissionDenied,
	lastword.CodeStatusUnavailable: codes.Unavailable,
	lastword.CodeFenceRequired:     codes.FailedPrecondition,
	lastword.CodeMutationUnknown:   codes.Unknown,
}

var sentinels = []error{
	lastword.ErrInvalid, lastword.ErrHeld, lastword.ErrNotHolder, lastword.ErrRequestConflict, lastword.ErrTenureEnded,
	lastword.ErrCanceled, lastword.ErrExhausted, lastword.ErrQuota, lastword.ErrUnavailable, lastword.ErrInternal,
	lastword.ErrConflict, lastword.ErrStale, lastword.ErrReceiptExpired, lastword.ErrOutOfOrder, lastword.ErrRootMismatch,
	lastword.ErrRegression, lastword.ErrFenceJump, lastword.ErrUnverified, lastword.ErrStatusUnavailable,
	lastword.ErrFenceRequired, lastword.ErrUnknownOutcome,
}

func TestEveryRefusalIsTheSameErrorOnBothSidesOfEveryCall(t *testing.T) {
	for code, want := range reasons {
		t.Run(string(code), func(t *testing.T) {
			said := &lastword.Error{
				Code: code, Op: "said", Resource: "doc/a", Message: "why", Hint: "way out",
				Holder: "worker-b", Fence: lastword.MaxToken, Remaining: 12*time.Second + 1, Waiters: 7,
				Ended: lastword.Ending{State: lastword.StateReleased, Fence: 40, LeaseID: "l", Owner: "o", Completed: true, Result: []byte("r")},
			}
			addr, _ := serve(t, failing(fmt.Errorf("wrapped: %w", said)), rpc.ServerConfig{})
			for op, err := range everyCall(t.Context(), dial(t, addr)) {
				equal(t, op, err, error(said))
				for _, s := range sentinels {
					if got, want := errors.Is(err, s), errors.Is(said, s); got != want {
						t.Errorf("%s: errors.Is(%v, %v) = %v, want %v", op, err, s, got, want)
					}
				}
			}
			_, err := rawClient(t, addr).Bundle(t.Context(), &wire.BundleRequest{})
			if got := status.Code(err); got != want {
				t.Errorf("gRPC code = %s, want %s", got, want)
			}
		})
	}
}

func TestARefusalNamesOperationAndResourceWhereTheAuthorityDidNot(t *testing.T) {
	addr, _ := serve(t, failing(&lastword.Error{Code: lastword.CodeQuota, Message: "m"}), rpc.ServerConfig{})
	for op, err := range everyCall(t.Context(), dial(t, addr)) {
		e := wantCode(t, err, lastword.CodeQuota)
		want := lastword.Resource("doc/a")
		if op == "bundle" || op == "list" || op == "watch" {
			want = ""
		}
		equal(t, op, []any{e.Op, e.Resource}, []any{op, want})
	}
}

func TestAnErrorThatIsNoneOfOursLeavesTheOutcomeOpenAndItsTextAtHome(t *testing.T) {
	for _, err := range []error{errors.New("secret /var/lib/x"), context.Canceled, &lastword.Error{Code: "NONSENSE", Message: "secret"}} {
		addr, _ := serve(t, failing(err), rpc.ServerConfig{})
		for op, err := range everyCall(t.Context(), dial(t, addr)) {
			if errors.Is(err, lastword.ErrUnknownOutcome) != mutates(op) {
				t.Errorf("%s: %v: unknown outcome, want that of mutations only", op, err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v tells the text of a foreign error", op, err)
			}
		}
	}
}

// A panic interrupts the authority at an unknown place, so only a call that
// changes nothing is INTERNAL, "not done".
func TestAPanicOfTheAuthorityReachesNobody(t *testing.T) {
	boom := func() error { panic("boom at secret place") }
	f := &fake{
		acquire: func(context.Context, lastword.AcquireRequest) (lastword.Tenure, error) {
			return lastword.Tenure{}, boom()
		},
		renew:    func(context.Context, lastword.TenureRef) (lastword.Tenure, error) { return lastword.Tenure{}, boom() },
		release:  func(context.Context, lastword.TenureRef) error { return boom() },
		complete: func(context.Context, lastword.TenureRef, []byte) error { return boom() },
		cancel:   func(context.Context, lastword.Resource, string, string) error { return boom() },
		status:   func(context.Context, lastword.StatusQuery) (lastword.Status, error) { return lastword.Status{}, boom() },
		bundle:   func(context.Context) ([]byte, error) { return nil, boom() },
	}
	log, logger := newLog()
	addr, _ := serve(t, f, rpc.ServerConfig{Logger: logger})
	for op, err := range everyCall(t.Context(), dial(t, addr)) {
		code := lastword.CodeInternal
		if mutates(op) {
			code = lastword.CodeUnknown
		}
		e := wantCode(t, err, code)
		if s := e.Error() + e.Hint; strings.Contains(s, "boom") || strings.Contains(s, ".go:") {
			t.Errorf("%s: the caller is shown %q", op, s)
		}
	}
	if s := log.String(); strings.Count(s, "boom at secret place") != 7 || !strings.Contains(s, "rpc_test") {
		t.Errorf("the log does not show every panic with its stack:\n%s", s)
	}
}

func TestAPanicOutsideTheAuthorityIsInternal(t *testing.T) {
	log, logger := newLog()
	addr, _ := serve(t, granting(), rpc.ServerConfig{
		Logger:   logger,
		Identify: func(context.Context) (string, error) { panic("boom") },
	})
	_, err := dial(t, addr).Acquire(t.Context(), req)
	wantCode(t, err, lastword.CodeInternal)
	if !strings.Contains(log.String(), "boom") {
		t.Error("the panic was not logged")
	}
}

// The strictest gRPC libraries accept 8 KiB of trailers.
func TestTheLargestRefusalFitsInTrailers(t *testing.T) {
	id := strings.Repeat("ä", lastword.MaxIDBytes/2)
	said := &lastword.Error{
		Code: lastword.CodeTenureEnded, Resource: lastword.Resource(id), Message: strings.Repeat("ä", 10_000), Hint: strings.Repeat("ü", 10_000),
		Holder: id, Fence: lastword.MaxToken, Remaining: 1<<63 - 1, Waiters: 1 << 40,
		Ended: lastword.Ending{State: lastword.StateReleased, Fence: lastword.MaxToken, LeaseID: id, Owner: id, Completed: true, Result: bytes.Repeat([]byte{255}, 1<<10)},
	}
	addr, _ := serve(t, failing(said), rpc.ServerConfig{})
	conn := raw(t, addr)
	var trailer map[string][]string
	err := conn.Invoke(t.Context(), wire.AuthorityService_Bundle_FullMethodName, &wire.BundleRequest{}, &wire.BundleResponse{}, grpc.Trailer((*trailerOf)(&trailer)))
	size := 3 * len(status.Convert(err).Message())
	for k, vs := range trailer {
		for _, v := range vs {
			size += len(k) + len(v)*4/3 + 32
		}
	}
	if len(status.Convert(err).Details()) != 1 || size < 4<<10 || size > 8<<10 {
		t.Errorf("trailers of %d bytes, details %v; want one detail within 8 KiB", size, status.Convert(err).Details())
	}
	_, err = dial(t, addr).Acquire(t.Context(), req)
	if e := wantCode(t, err, lastword.CodeTenureEnded); e.Ended.Result == nil || e.Waiters != 1<<32-1 {
		t.Errorf("got %+v", e)
	}
}

func TestAResultTooLargeForARefusalIsFetched(t *testing.T) {
	result := bytes.Repeat([]byte{7}, lastword.MaxResultBytes)
	said := &lastword.Error{
		Code: lastword.CodeTenureEnded, Op: "acquire", Resource: "doc/a",
		Ended: lastword.Ending{State: lastword.StateReleased, Fence: 40, LeaseID: "l", Completed: true, Result: result},
	}
	f := failing(said)
	f.status = func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		equal(t, "query", q, lastword.StatusQuery{Resource: "doc/a", Owner: req.Owner, RequestID: req.RequestID})
		return lastword.Status{Resource: q.Resource, State: lastword.StateFree, Asked: lastword.StateReleased, AskedCompleted: true, AskedResult: result}, nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	_, err := dial(t, addr).Acquire(t.Context(), req)
	equal(t, "error", err, error(said))

	f.status = failing(lastword.ErrUnavailable).status
	_, err = dial(t, addr).Acquire(t.Context(), req)
	if e := wantCode(t, err, lastword.CodeTenureEnded); e.Ended.Result != nil || !e.Ended.Completed || !strings.Contains(e.Hint, "status") {
		t.Errorf("without the status: %+v", e)
	}
}

func TestAReasonOfANewerAuthorityLeavesTheOutcomeOpen(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "x").WithDetails(&wire.Refusal{Reason: "NEWER", Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, serveStatus(t, st.Err()))
	for op, err := range everyCall(t.Context(), c) {
		code := lastword.CodeUnavailable
		if mutates(op) {
			code = lastword.CodeUnknown
		}
		if e := wantCode(t, err, code); !strings.Contains(e.Message, "NEWER") {
			t.Errorf("%s: %v does not name the reason", op, err)
		}
	}
}

func TestACallThatTheAuthorityDoesNotKnowIsRefusedNotUnknown(t *testing.T) {
	addr, _ := serve(t, granting(), rpc.ServerConfig{})
	conn := raw(t, addr)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/lastword.v1.AuthorityService/Newer")
	if err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(&wire.BundleResponse{})
	st := status.Convert(err)
	if errors.Is(err, io.EOF) || st.Code() != codes.Unimplemented || len(st.Details()) != 1 {
		t.Fatalf("err = %v %v, want UNIMPLEMENTED with a refusal", err, st.Details())
	}
	equal(t, "reason", st.Details()[0].(*wire.Refusal).GetReason(), "INVALID")
}
