package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// codeExits is the contract, written down once more.
var codeExits = map[lastword.Code]int{
	lastword.CodeInvalid:           2,
	lastword.CodeHeld:              121,
	lastword.CodeNotHolder:         122,
	lastword.CodeTenureEnded:       122,
	lastword.CodeRequestConflict:   1,
	lastword.CodeCanceled:          1,
	lastword.CodeExhausted:         1,
	lastword.CodeQuota:             1,
	lastword.CodeInternal:          1,
	lastword.CodeUnavailable:       123,
	lastword.CodeUnknown:           123,
	lastword.CodeMutationUnknown:   123,
	lastword.CodeStatusUnavailable: 123,
	lastword.CodeConflict:          124,
	lastword.CodeStaleOwner:        124,
	lastword.CodeReceiptExpired:    124,
	lastword.CodeOutOfOrder:        124,
	lastword.CodeRootMismatch:      124,
	lastword.CodeFenceRegression:   124,
	lastword.CodeFenceJump:         124,
	lastword.CodeUnverified:        124,
	lastword.CodeFenceRequired:     124,
}

func TestEveryCodeHasItsExitCode(t *testing.T) {
	t.Parallel()
	for code, want := range codeExits {
		e := &lastword.Error{Code: code, Op: "apply", Resource: "doc/a"}
		for _, err := range []error{e, fmt.Errorf("wrapped: %w", e), errors.Join(e, errors.New("its evidence was not kept"))} {
			if got := exitCode(err); got != want {
				t.Errorf("%v: exit code %d, want %d", err, got, want)
			}
		}
	}
}

// A new code has to be thought about here.
func TestNoCodeIsMissingInTheTable(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "../../errors.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			n += len(spec.Names)
		}
		return true
	})
	if n != len(codeExits) {
		t.Errorf("package lastword has %d codes, the table %d", n, len(codeExits))
	}
}

func TestOtherErrorsHaveTheirExitCode(t *testing.T) {
	t.Parallel()
	unjudged := &lastword.Error{Code: lastword.CodeUnverified, Err: &grant.Refusal{Reason: grant.ReasonBundleUnavailable}}
	forged := &lastword.Error{Code: lastword.CodeUnverified, Err: &grant.Refusal{Reason: grant.ReasonSignature}}
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing went wrong", nil, 0},
		{"an error of nobody we know", errors.New("disk full"), 1},
		{"the context ended", context.Canceled, 1},
		{"usage", &usageError{"lastword acquire", "no RESOURCE given"}, 2},
		{"a grant that was not judged, because nobody could be asked", unjudged, 123},
		{"a grant that was judged", forged, 124},
		{"an answer that was printed already", quietly{1}, 1},
		{"a code of a later version", &lastword.Error{Code: "NEWER"}, 1},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

func TestAMessageStaysInItsLine(t *testing.T) {
	t.Parallel()
	got := oneLine("first\nsecond\x1b[2J\tthird\n")
	if strings.ContainsAny(got, "\n\x1b\t") || !strings.Contains(got, "first; second") {
		t.Errorf("got %q", got)
	}
}

func TestAnEmptyVariableCountsAsNotSet(t *testing.T) {
	t.Parallel()
	env := environment([]string{"A=1", "B=", "A=2", "AB=3"})
	if v, ok := env("A"); v != "2" || !ok {
		t.Errorf("A: %q, %v; the last one counts", v, ok)
	}
	for _, name := range []string{"B", "C"} {
		if v, ok := env(name); ok {
			t.Errorf("%s: %q counts as set", name, v)
		}
	}
}

func TestQuotedNamesSurviveAShell(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"host/12/ABC": "host/12/ABC", "two words": "'two words'", "it's": `'it'\''s'`, "": "''", "$(reboot)": "'$(reboot)'",
	} {
		if got := quoted(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// docs/cli.md is where scripts look it up.
func TestTheDocumentedExitCodesAreTheRealOnes(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			rows[strings.TrimSpace(cells[1])] = cells[3]
		}
	}
	for code, exit := range codeExits {
		for number, reasons := range rows {
			if got, want := strings.Contains(reasons, "`"+string(code)+"`"), number == strconv.Itoa(exit); got != want {
				t.Errorf("%s in the row of exit code %s: %v, want %v", code, number, got, want)
			}
		}
	}
}
