package lastword_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lastword/lastword"
)

// sentinels pairs every sentinel with its code.
var sentinels = []struct {
	name string
	err  error
	code lastword.Code
}{
	{"ErrInvalid", lastword.ErrInvalid, "INVALID"},
	{"ErrHeld", lastword.ErrHeld, "HELD"},
	{"ErrNotHolder", lastword.ErrNotHolder, "NOT_HOLDER"},
	{"ErrRequestConflict", lastword.ErrRequestConflict, "REQUEST_CONFLICT"},
	{"ErrTenureEnded", lastword.ErrTenureEnded, "TENURE_ENDED"},
	{"ErrCanceled", lastword.ErrCanceled, "CANCELED"},
	{"ErrExhausted", lastword.ErrExhausted, "EXHAUSTED"},
	{"ErrQuota", lastword.ErrQuota, "QUOTA"},
	{"ErrUnavailable", lastword.ErrUnavailable, "UNAVAILABLE"},
	{"ErrInternal", lastword.ErrInternal, "INTERNAL"},
	{"ErrConflict", lastword.ErrConflict, "CONFLICT"},
	{"ErrStale", lastword.ErrStale, "STALE_OWNER"},
	{"ErrReceiptExpired", lastword.ErrReceiptExpired, "RECEIPT_EXPIRED"},
	{"ErrOutOfOrder", lastword.ErrOutOfOrder, "OUT_OF_ORDER"},
	{"ErrRootMismatch", lastword.ErrRootMismatch, "ROOT_MISMATCH"},
	{"ErrRegression", lastword.ErrRegression, "FENCE_REGRESSION"},
	{"ErrFenceJump", lastword.ErrFenceJump, "FENCE_JUMP"},
	{"ErrUnverified", lastword.ErrUnverified, "UNVERIFIED"},
	{"ErrStatusUnavailable", lastword.ErrStatusUnavailable, "STATUS_UNAVAILABLE"},
	{"ErrFenceRequired", lastword.ErrFenceRequired, "FENCE_REQUIRED"},
	{"ErrUnknownOutcome", lastword.ErrUnknownOutcome, "UNKNOWN"},
}

func TestEverySentinelIsInTheTable(t *testing.T) {
	t.Parallel()
	declared := exported(t).sentinels
	if len(declared) != len(sentinels) {
		t.Errorf("%d sentinels are declared, the table has %d: %v", len(declared), len(sentinels), declared)
	}
	for _, s := range sentinels {
		if !declared[s.name] {
			t.Errorf("%s is not declared", s.name)
		}
	}
}

func TestErrorsMatchTheSentinelOfTheirCodeAndNoOther(t *testing.T) {
	t.Parallel()
	for _, c := range codes {
		err := error(&lastword.Error{Code: c.code, Op: "apply", Resource: "doc/a", Message: "something"})
		wrapped := fmt.Errorf("outer: %w", err)
		matched := 0
		for _, s := range sentinels {
			want := s.code == c.code || s.code == lastword.CodeUnknown && c.code == lastword.CodeMutationUnknown
			if got := errors.Is(err, s.err); got != want {
				t.Errorf("errors.Is(%s, %s) = %t, want %t", c.code, s.name, got, want)
			}
			if got := errors.Is(wrapped, s.err); got != want {
				t.Errorf("wrapped: errors.Is(%s, %s) = %t, want %t", c.code, s.name, got, want)
			}
			if want {
				matched++
			}
		}
		if matched != 1 {
			t.Errorf("%s matches %d sentinels, want 1", c.code, matched)
		}
	}
}

// P5: nothing but UNKNOWN and MUTATION_UNKNOWN leaves an outcome open, and
// neither is an answer of the other side.
func TestOnlyTwoCodesLeaveTheOutcomeOpen(t *testing.T) {
	t.Parallel()
	for _, c := range codes {
		want := c.code == lastword.CodeUnknown || c.code == lastword.CodeMutationUnknown
		if got := errors.Is(&lastword.Error{Code: c.code}, lastword.ErrUnknownOutcome); got != want {
			t.Errorf("%s: got %t, want %t", c.code, got, want)
		}
	}
	if errors.Is(context.DeadlineExceeded, lastword.ErrUnknownOutcome) {
		t.Error("a foreign error became an unknown outcome")
	}
}

// Two errors of one code are two events. Only a sentinel, which is nothing but a
// code, matches by code.
func TestAnErrorThatSaysMoreIsNoSentinel(t *testing.T) {
	t.Parallel()
	err := &lastword.Error{Code: lastword.CodeHeld, Op: "acquire", Resource: "doc/a"}
	for name, target := range map[string]*lastword.Error{
		"operation": {Code: lastword.CodeHeld, Op: "acquire"},
		"resource":  {Code: lastword.CodeHeld, Resource: "doc/a"},
		"message":   {Code: lastword.CodeHeld, Message: "m"},
		"hint":      {Code: lastword.CodeHeld, Hint: "h"},
		"holder":    {Code: lastword.CodeHeld, Holder: "a"},
		"fence":     {Code: lastword.CodeHeld, Fence: 41},
		"remaining": {Code: lastword.CodeHeld, Remaining: time.Second},
		"waiters":   {Code: lastword.CodeHeld, Waiters: 1},
		"ending":    {Code: lastword.CodeHeld, Ended: lastword.Ending{State: lastword.StateExpired}},
		"lease":     {Code: lastword.CodeHeld, Ended: lastword.Ending{LeaseID: "l"}},
		"cause":     {Code: lastword.CodeHeld, Err: context.Canceled},
		"no code":   {},
	} {
		if errors.Is(err, target) {
			t.Errorf("an error with nothing but code and %s served as a sentinel", name)
		}
	}
	if errors.Is(err, (*lastword.Error)(nil)) {
		t.Error("nil served as a sentinel")
	}
	if errors.Is(&lastword.Error{Message: "m"}, &lastword.Error{}) {
		t.Error("two errors without a code matched")
	}
	unknown := &lastword.Error{Code: lastword.CodeMutationUnknown, Message: "m"}
	if errors.Is(unknown, &lastword.Error{Code: lastword.CodeUnknown, Message: "m"}) {
		t.Error("an unknown outcome matched another one")
	}
	if !errors.Is(err, err) {
		t.Error("an error is not itself")
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outer: %w", &lastword.Error{Code: lastword.CodeUnknown, Err: context.DeadlineExceeded})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lastword.ErrUnknownOutcome) {
		t.Errorf("%v: cause or code got lost", err)
	}
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != lastword.CodeUnknown {
		t.Errorf("errors.As found %+v", e)
	}
}

func TestErrorIsOneLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  lastword.Error
		want string
	}{
		{lastword.Error{Code: lastword.CodeHeld}, "HELD"},
		{lastword.Error{Code: lastword.CodeHeld, Op: "acquire"}, "acquire: HELD"},
		{lastword.Error{Code: lastword.CodeHeld, Resource: "doc/a"}, "doc/a: HELD"},
		{lastword.Error{Code: lastword.CodeHeld, Op: "acquire", Resource: "doc/a"}, "acquire doc/a: HELD"},
		{
			lastword.Error{Code: lastword.CodeHeld, Op: "acquire", Resource: "doc/a", Message: "held by worker-1", Hint: "wait with --wait"},
			"acquire doc/a: HELD: held by worker-1 (wait with --wait)",
		},
		{
			lastword.Error{Code: lastword.CodeUnknown, Op: "renew", Resource: "doc/a", Message: "no answer", Hint: "ask for the status", Err: context.DeadlineExceeded},
			"renew doc/a: UNKNOWN: no answer: context deadline exceeded (ask for the status)",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}
