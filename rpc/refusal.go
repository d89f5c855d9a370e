package rpc

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// What of a refusal travels, at most, in bytes. Together with the ids this stays
// below maxHeaderBytes in the worst case.
const (
	maxMessageBytes       = 512
	maxHintBytes          = 256
	maxStatusMessageBytes = 256
	maxRefusalResultBytes = 1 << 10
)

// grpcCode is the gRPC code that goes with a reason, see the package comment. The
// second result is false for a code that is none of ours.
func grpcCode(c lastword.Code) (codes.Code, bool) {
	switch c {
	case lastword.CodeInvalid:
		return codes.InvalidArgument, true
	case lastword.CodeHeld, lastword.CodeRequestConflict, lastword.CodeConflict:
		return codes.AlreadyExists, true
	case lastword.CodeQuota:
		return codes.ResourceExhausted, true
	case lastword.CodeExhausted:
		return codes.OutOfRange, true
	case lastword.CodeUnverified:
		return codes.PermissionDenied, true
	case lastword.CodeUnavailable, lastword.CodeStatusUnavailable:
		return codes.Unavailable, true
	case lastword.CodeUnknown, lastword.CodeMutationUnknown:
		return codes.Unknown, true
	case lastword.CodeInternal:
		return codes.Internal, true
	case lastword.CodeNotHolder, lastword.CodeTenureEnded, lastword.CodeCanceled,
		lastword.CodeStaleOwner, lastword.CodeReceiptExpired, lastword.CodeOutOfOrder,
		lastword.CodeRootMismatch, lastword.CodeFenceRegression, lastword.CodeFenceJump,
		lastword.CodeFenceRequired:
		return codes.FailedPrecondition, true
	}
	return codes.Unknown, false
}

// asError is err as one of our errors. An error that is none says nothing about
// what was done, so the outcome of a mutation is unknown; its text is not told,
// since it may name files, hosts or secrets of the authority.
func asError(op operation, err error) *lastword.Error {
	var e *lastword.Error
	if errors.As(err, &e) {
		if _, ours := grpcCode(e.Code); ours {
			return e
		}
	}
	over := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case op.mutates && over:
		return &lastword.Error{Code: lastword.CodeUnknown, Message: "the call ended before the authority knew its outcome", Hint: askAgain, Err: err}
	case op.mutates:
		return &lastword.Error{Code: lastword.CodeUnknown, Message: "the authority failed while it handled the call", Hint: askAgain, Err: err}
	case over:
		return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the call ended before the authority had an answer", Err: err}
	}
	return &lastword.Error{Code: lastword.CodeInternal, Message: "the authority failed while it handled the call", Err: err}
}

const askAgain = "repeat the call unchanged, or ask for the status"

// refused is a refusal as it travels: a gRPC status with one detail after a unary
// call, a failure in a session.
type refused struct {
	code   codes.Code
	text   string
	detail *wire.Refusal
}

func (r *refused) Error() string { return r.text }

// GRPCStatus makes gRPC answer with it.
func (r *refused) GRPCStatus() *status.Status {
	st := status.New(r.code, r.text)
	if r.detail == nil {
		return st
	}
	if detailed, err := st.WithDetails(r.detail); err == nil {
		return detailed
	}
	// Only text that is not UTF-8 ends here. Without its detail the caller
	// takes it as unknown, which is never wrong.
	return st
}

// refusal is e as it travels. Its cause stays here.
func refusal(op operation, resource lastword.Resource, e *lastword.Error) *refused {
	m := RefusalMessage(e)
	m.Message, m.Hint = clip(e.Message, maxMessageBytes), clip(e.Hint, maxHintBytes)
	if m.Op == "" {
		m.Op = op.name
	}
	if m.Resource == "" {
		m.Resource = string(resource)
	}
	if len(m.GetEnded().GetResult()) > maxRefusalResultBytes {
		m.Ended.Result, m.Ended.ResultOmitted = nil, true
	}
	code, _ := grpcCode(e.Code)
	text := m.Reason
	if m.Message != "" {
		text += ": " + m.Message
	}
	return &refused{code: code, text: clip(text, maxStatusMessageBytes), detail: m}
}

// refusalOf is what the other side said, if err is something it said.
func refusalOf(op operation, err error) (*lastword.Error, *wire.Refusal) {
	if r := (*refused)(nil); errors.As(err, &r) { // of a session
		if r.detail == nil {
			return nil, nil
		}
		return readRefusal(op, r.detail), r.detail
	}
	st, ok := status.FromError(err)
	if !ok {
		return nil, nil
	}
	for _, d := range st.Details() {
		if m, ok := d.(*wire.Refusal); ok {
			return readRefusal(op, m), m
		}
	}
	return nil, nil
}

func readRefusal(op operation, m *wire.Refusal) *lastword.Error {
	e := &lastword.Error{
		Code: lastword.Code(m.GetReason()), Op: m.GetOp(), Resource: lastword.Resource(m.GetResource()),
		Message: m.GetMessage(), Hint: m.GetHint(),
		Holder: m.GetHolder(), Fence: lastword.Token(m.GetFence()), Waiters: int(m.GetWaiters()),
	}
	if _, ours := grpcCode(e.Code); !ours {
		e.Code = lastword.CodeUnknown
		if !op.mutates {
			e.Code = lastword.CodeUnavailable
		}
		e.Message = "the other side gave a reason that this version does not know: " + clip(m.GetReason(), 64) + ": " + m.GetMessage()
	}
	// Figures beside the reason inform; a broken one is left out, for the
	// reason stands without it.
	e.Remaining, _ = duration("remaining", m.GetRemaining())
	e.Ended, _ = readEnding("ended", m.GetEnded())
	return e
}

// clip is s as valid UTF-8 of at most n bytes.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	const more = "…"
	return strings.ToValidUTF8(s[:n-len(more)], "") + more
}
