package identity_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
)

const (
	annToken = "ann-0123456789abcdef"
	benToken = "ben-0123456789abcdef"
)

func tokenFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	replace(t, path, []byte(text))
	return path
}

func token(t testing.TB, name, secret string) identity.Token {
	t.Helper()
	tok, err := identity.OpenToken(tokenFile(t, name+": "+secret+"\n"))
	check(t, err)
	return tok
}

func TestADevelopmentTokenSaysWhoCalls(t *testing.T) {
	t.Parallel()
	tokens, err := identity.OpenTokens(tokenFile(t, "ann: "+annToken+"\nben: "+benToken+"\n"))
	check(t, err)
	w := newWorld(t, settings{tokens: tokens})
	ann := w.dial(rpc.ClientConfig{Token: token(t, "ann", annToken)})
	if ann.Owner() != "ann" {
		t.Errorf("the owner is %q", ann.Owner())
	}
	tenure := acquire(t, ann, "doc/a", "1")
	if tenure.Owner != "ann" {
		t.Errorf("the owner is %q, want ann", tenure.Owner)
	}
	before := w.state()
	for name, c := range map[string]*rpc.Client{
		"no token":               w.dial(rpc.ClientConfig{}),
		"an unknown one":         w.dial(rpc.ClientConfig{Token: token(t, "ann", annToken+"x")}),
		"the start of one":       w.dial(rpc.ClientConfig{Token: token(t, "ann", annToken[:16])}),
		"another's":              w.dial(rpc.ClientConfig{Token: token(t, "ann", benToken)}),
		"one by one, an unknown": w.dial(rpc.ClientConfig{Token: token(t, "ann", annToken+"y"), OneByOne: true}),
	} {
		if _, err := c.Acquire(t.Context(), owned(ask("doc/b", "1"), "ann")); !errors.Is(err, lastword.ErrUnverified) {
			t.Errorf("%s: acquire: %v, want UNVERIFIED", name, err)
		} else if strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: the error holds a token: %v", name, err)
		}
		if err := c.Release(t.Context(), tenure.TenureRef); !errors.Is(err, lastword.ErrUnverified) {
			t.Errorf("%s: release: %v, want UNVERIFIED", name, err)
		}
	}
	if w.state() != before {
		t.Error("it changed something")
	}
}

// A token goes in plain text: it does not leave the machine, from neither side.
func TestTokensStayOnThisMachine(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"192.0.2.1:7420", "example.invalid:7420", "[2001:db8::1]:7420", ":7420", "0.0.0.0:7420"} {
		if _, err := rpc.Dial(addr, rpc.ClientConfig{Token: token(t, "ann", annToken)}); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v, want INVALID", addr, err)
		}
	}
}

func TestATokenFileIsReadStrictlyAndQuietly(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":            "",
		"a short token":    "ann: short-token-999",
		"a long one":       "ann: " + strings.Repeat("9", 513),
		"with blanks":      "ann: 'aaaa 9999 aaaa 9999'",
		"a list":           "ann: [aaaa99999999999999]",
		"no mapping":       "aaaa99999999999999",
		"twice":            "ann: aaaa99999999999999\nann: bbbb99999999999999",
		"one for two":      "ann: aaaa99999999999999\nben: aaaa99999999999999",
		"a SPIFFE id":      "spiffe://example.org/ann: aaaa99999999999999",
		"broken":           "ann: [aaaa99999999999999",
		"an anchor":        "ann: &x aaaa99999999999999",
		"a second mapping": "ann: aaaa99999999999999\n---\nben: bbbb99999999999999",
	} {
		path := tokenFile(t, strings.ReplaceAll(text, "short-token-999", "short-999"))
		_, err := identity.OpenTokens(path)
		if !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v, want INVALID", name, err)
		} else if strings.Contains(strings.ReplaceAll(err.Error(), path, ""), "999") {
			t.Errorf("%s: the error holds a token: %v", name, err)
		}
	}
	path := tokenFile(t, "ann: "+annToken)
	check(t, os.Chmod(path, 0o644))
	if _, err := identity.OpenTokens(path); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "0644") {
		t.Errorf("a file that others can read: %v", err)
	}
	if _, err := identity.OpenToken(tokenFile(t, "ann: "+annToken+"\nben: "+benToken)); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a caller's file with two: %v", err)
	}
	if tok := token(t, "ann", annToken); strings.Contains(fmt.Sprintf("%v %+v %#v %s", tok, tok, tok, tok), "0123") {
		t.Error("a token shows itself when it is printed")
	}
}
