package lastword_test

import (
	"testing"

	"github.com/lastword/lastword"
)

// codes is the closed set of codes: those of authority and holder, then those of
// the resource.
var codes = []struct {
	name string
	code lastword.Code
	text string
}{
	{"CodeInvalid", lastword.CodeInvalid, "INVALID"},
	{"CodeHeld", lastword.CodeHeld, "HELD"},
	{"CodeNotHolder", lastword.CodeNotHolder, "NOT_HOLDER"},
	{"CodeRequestConflict", lastword.CodeRequestConflict, "REQUEST_CONFLICT"},
	{"CodeTenureEnded", lastword.CodeTenureEnded, "TENURE_ENDED"},
	{"CodeCanceled", lastword.CodeCanceled, "CANCELED"},
	{"CodeExhausted", lastword.CodeExhausted, "EXHAUSTED"},
	{"CodeQuota", lastword.CodeQuota, "QUOTA"},
	{"CodeUnavailable", lastword.CodeUnavailable, "UNAVAILABLE"},
	{"CodeUnknown", lastword.CodeUnknown, "UNKNOWN"},
	{"CodeInternal", lastword.CodeInternal, "INTERNAL"},
	{"CodeConflict", lastword.CodeConflict, "CONFLICT"},
	{"CodeStaleOwner", lastword.CodeStaleOwner, "STALE_OWNER"},
	{"CodeReceiptExpired", lastword.CodeReceiptExpired, "RECEIPT_EXPIRED"},
	{"CodeOutOfOrder", lastword.CodeOutOfOrder, "OUT_OF_ORDER"},
	{"CodeRootMismatch", lastword.CodeRootMismatch, "ROOT_MISMATCH"},
	{"CodeFenceRegression", lastword.CodeFenceRegression, "FENCE_REGRESSION"},
	{"CodeFenceJump", lastword.CodeFenceJump, "FENCE_JUMP"},
	{"CodeUnverified", lastword.CodeUnverified, "UNVERIFIED"},
	{"CodeStatusUnavailable", lastword.CodeStatusUnavailable, "STATUS_UNAVAILABLE"},
	{"CodeFenceRequired", lastword.CodeFenceRequired, "FENCE_REQUIRED"},
	{"CodeMutationUnknown", lastword.CodeMutationUnknown, "MUTATION_UNKNOWN"},
}

// verdicts is the closed set of protocol §4.
var verdicts = []struct {
	name    string
	verdict lastword.Verdict
	code    lastword.Code
	final   bool // settles the operation's number (protocol §1, seq)
}{
	{"Applied", lastword.Applied, "", false},
	{"Replayed", lastword.Replayed, "", true},
	{"Conflict", lastword.Conflict, "CONFLICT", true},
	{"StaleOwner", lastword.StaleOwner, "STALE_OWNER", true},
	{"ReceiptExpired", lastword.ReceiptExpired, "RECEIPT_EXPIRED", true},
	{"OutOfOrder", lastword.OutOfOrder, "OUT_OF_ORDER", false},
	{"RootMismatch", lastword.RootMismatch, "ROOT_MISMATCH", true},
	{"FenceRegression", lastword.FenceRegression, "FENCE_REGRESSION", false},
	{"FenceJump", lastword.FenceJump, "FENCE_JUMP", false},
	{"Unverified", lastword.Unverified, "UNVERIFIED", false},
	{"StatusUnavailable", lastword.StatusUnavailable, "STATUS_UNAVAILABLE", false},
	{"FenceRequired", lastword.FenceRequired, "FENCE_REQUIRED", false},
	{"MutationUnknown", lastword.MutationUnknown, "MUTATION_UNKNOWN", false},
}

func TestCodesAreAClosedSet(t *testing.T) {
	t.Parallel()
	declared := exported(t).codes
	if len(declared) != len(codes) {
		t.Errorf("%d codes are declared, the table has %d: a new code is a change of the protocol", len(declared), len(codes))
	}
	seen := map[lastword.Code]bool{}
	for _, c := range codes {
		if !declared[c.name] {
			t.Errorf("%s is not declared", c.name)
		}
		if string(c.code) != c.text {
			t.Errorf("%s is spelt %q, want %q", c.name, c.code, c.text)
		}
		if seen[c.code] {
			t.Errorf("%q stands for two codes", c.code)
		}
		seen[c.code] = true
	}
}

func TestVerdictsAreAClosedSet(t *testing.T) {
	t.Parallel()
	declared := exported(t).verdicts
	if len(declared) != len(verdicts) {
		t.Errorf("%d verdicts are declared, the table has %d: a new verdict is a change of the protocol", len(declared), len(verdicts))
	}
	for _, v := range verdicts {
		if !declared[v.name] {
			t.Errorf("%s is not declared", v.name)
		}
		if got := v.verdict.Code(); got != v.code {
			t.Errorf("%s: code %q, want %q", v.name, got, v.code)
		}
		if got := v.verdict.Final(); got != v.final {
			t.Errorf("%s: final %t, want %t", v.name, got, v.final)
		}
	}
	if lastword.Verdict("").Final() || lastword.Verdict("applied").Final() {
		t.Error("a verdict that is none settles a number")
	}
}

// APPLIED is the only verdict that changed the business data; a replay is its
// first answer again. Neither is an error, everything else is.
func TestEveryRefusalIsAnErrorOfItsOwnCode(t *testing.T) {
	t.Parallel()
	known := map[lastword.Code]bool{}
	for _, c := range codes {
		known[c.code] = true
	}
	for _, v := range verdicts {
		isError := v.verdict.Code() != ""
		if want := v.verdict != lastword.Applied && v.verdict != lastword.Replayed; isError != want {
			t.Errorf("%s: is an error: %t, want %t", v.name, isError, want)
		}
		if isError && !known[v.verdict.Code()] {
			t.Errorf("%s has a code that is none: %q", v.name, v.verdict.Code())
		}
	}
}
