package identity_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
)

const somePolicy = `
generation: 7
rules:
  - who: spiffe://example.org/jobs/
    acquire: [reports/, nightly]
  - who: spiffe://example.org/jobs/deep/one
    acquire: archive/
    classes: [write, prune]
  - who: spiffe://example.org/ops/ann
    status: /
    list: [reports/, "nightly"]
    watch: /
    revoke: reports/
  - who: spiffe://other.org/
    acquire: shared
  - who: carl
    acquire: /
`

func parse(t testing.TB, text string) *identity.Policy {
	t.Helper()
	p, err := identity.ParsePolicy([]byte(text))
	check(t, err)
	return p
}

// T25: what nobody has allowed is refused, and names count segment by segment.
func TestAPolicyAllowsWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	p := parse(t, somePolicy)
	if p.Generation() != 7 {
		t.Errorf("the generation is %d, want 7", p.Generation())
	}
	for _, c := range []struct {
		who, resource string
		class         lastword.Class
		want          bool
	}{
		{"spiffe://example.org/jobs/a", "reports/x", "", true},
		{"spiffe://example.org/jobs/a", "reports/x/y", "write", true},
		{"spiffe://example.org/jobs/a/b", "nightly", "write", true},
		{"spiffe://example.org/jobs/a", "reports", "write", false},
		{"spiffe://example.org/jobs/a", "reports2/x", "write", false},
		{"spiffe://example.org/jobs/a", "Reports/x", "write", false},
		{"spiffe://example.org/jobs/a", "nightly/x", "write", false},
		{"spiffe://example.org/jobs/a", "reports/x", "prune", false},
		{"spiffe://example.org/jobs/a", "reports/x", "advance", false},
		{"spiffe://example.org/jobs", "reports/x", "write", false},
		{"spiffe://example.org/jobs2/a", "reports/x", "write", false},
		{"spiffe://example.org.evil.org/jobs/a", "reports/x", "write", false},
		{"spiffe://example.com/jobs/a", "reports/x", "write", false},
		{"spiffe://example.org/jobs/deep/one", "archive/x", "prune", true},
		{"spiffe://example.org/jobs/deep/one", "archive/x", "write", true},
		{"spiffe://example.org/jobs/deep/one", "reports/x", "write", true},
		{"spiffe://example.org/jobs/deep/one", "reports/x", "prune", false},
		{"spiffe://example.org/ops/ann", "reports/x", "write", false},
		{"spiffe://other.org/any/body", "shared", "write", true},
		{"spiffe://other.org/any/body", "shared/x", "write", false},
		{"carl", "any/thing", "write", true},
		{"carla", "any/thing", "write", false},
		{"", "any/thing", "write", false},
	} {
		generation, ok := p.Admit(c.who, lastword.Resource(c.resource), c.class)
		if ok != c.want || ok && generation != 7 {
			t.Errorf("%s for %s on %s: %v under %d, want %v", c.who, c.class, c.resource, ok, generation, c.want)
		}
	}
	const ann, job = "spiffe://example.org/ops/ann", "spiffe://example.org/jobs/a"
	for _, c := range []struct {
		who    string
		action identity.Action
		name   string
		want   bool
	}{
		{ann, identity.Status, "any/thing", true},
		{ann, identity.Watch, "", true},
		{ann, identity.Watch, "rep", true},
		{ann, identity.List, "reports/", true},
		{ann, identity.List, "reports/2026", true},
		{ann, identity.List, "reports", false}, // it would show reports2
		{ann, identity.List, "nightly", false}, // and this nightly2
		{ann, identity.List, "", false},
		{ann, identity.Revoke, "reports/x", true},
		{ann, identity.Revoke, "nightly", false},
		{ann, identity.Acquire, "reports/x", false},
		{job, identity.Status, "reports/x", true}, // what may be acquired may be seen
		{job, identity.Status, "nightly", true},
		{job, identity.Status, "archive/x", false},
		{job, identity.List, "reports/", false},
		{job, identity.Watch, "reports/", false},
		{job, identity.Revoke, "reports/x", false},
		{job, "something else", "reports/x", false},
		{"spiffe://nobody.org/x", identity.Status, "reports/x", false},
	} {
		if got := p.May(c.who, c.action, c.name); got != c.want {
			t.Errorf("%s to %s %q: %v, want %v", c.who, c.action, c.name, got, c.want)
		}
	}
}

func TestAPolicyIsReadStrictly(t *testing.T) {
	t.Parallel()
	rule := func(s string) string { return "generation: 1\nrules:\n  - " + s + "\n" }
	for text, want := range map[string]string{
		"":                                                  "it has no generation",
		"generation: 1":                                     "no list of rules",
		"rules: []":                                         "it has no generation",
		"generation: 0\nrules: []":                          "want a number",
		"generation: -1\nrules: []":                         "want a number",
		"generation: 1.0\nrules: []":                        "want a number",
		"generation: 0x10\nrules: []":                       "want a number",
		"generation: 07\nrules: []":                         "want a number",
		"generation: 1e3\nrules: []":                        "want a number",
		"generation: 1_000\nrules: []":                      "want a number",
		"generation: [1]\nrules: []":                        "want a plain value",
		"generation: null\nrules: []":                       "want a plain value",
		"generation: !!int 1\nrules: []":                    "want a plain value",
		"generation: &x 1\nrules: []":                       "want a plain value",
		"generation: 9007199254740992":                      "want a number",
		"generation: 1\nrules: {}":                          "no list of rules",
		"generation: 1\nrules: none":                        "no list of rules",
		"generation: 1\nrules: []\nrulez: []":               `line 3: "rulez" is no member`,
		"generation: 1\ngeneration: 2\nrules: []":           "line 2: ",
		"Generation: 1\nrules: []":                          "no member of a policy",
		"generation: 1\nrules: []\n---\ngeneration: 2\n":    "more than one document",
		"generation: 1\nrules: []\n...\nx":                  "more than one document",
		"- generation: 1":                                   "want names with values",
		"generation: 1\nrules: [":                           "line ",
		rule("who: carl"):                                   "allows nothing",
		rule("acquire: /"):                                  "does not say who",
		rule("{who: carl, acquire: []}"):                    "the list is empty",
		rule("{who: carl, acquire: null}"):                  "want a plain value",
		rule("{who: carl, acquire: [a], classes: []}"):      "the list is empty",
		rule("{who: carl, status: [a], classes: [write]}"):  "nothing to acquire",
		rule("{who: carl, acquire: a, allow: b}"):           `"allow" is no member of a rule`,
		rule("{who: carl, acquire: a, acquire: b}"):         "line 3: ",
		rule("{who: carl, acquire: a//b}"):                  "empty segment",
		rule("{who: carl, acquire: a/../b}"):                "segment",
		rule("{who: carl, acquire: /a}"):                    "segment",
		rule("{who: carl, acquire: a//}"):                   "segment",
		rule("{who: carl, acquire: ''}"):                    "empty",
		rule("{who: 'carl*', acquire: a}"):                  "want a name",
		rule("{who: spiffe://example.org, acquire: a}"):     "no path",
		rule("{who: spiffe://example.org/*, acquire: a}"):   "path segment characters",
		rule("{who: spiffe://example.org/a//, acquire: a}"): "path cannot",
		rule("{who: spiffe://Example.org/, acquire: a}"):    "trust domain",
		rule("{who: spiffe://, acquire: a}"):                "SPIFFE id",
		rule("{who: &w carl, acquire: a}"):                  "want a plain value",
		rule("{who: carl, acquire: &x [a], revoke: *x}"):    "want a list",
		rule("{<<: {who: carl}, acquire: [a]}"):             "want a plain value",
		rule("[who, carl]"):                                 "want names with values",
	} {
		_, err := identity.ParsePolicy([]byte(text))
		if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want INVALID with %q", text, err, want)
		}
	}
}

func TestADigestIsOfWhatAPolicySays(t *testing.T) {
	t.Parallel()
	a := parse(t, "generation: 1\nrules:\n- {who: a, acquire: [x, y/], classes: [write]}\n- {who: b, status: /}\n")
	same := parse(t, "rules:\n# other words\n- who: 'b'\n  status: ['/']\n- acquire: [y/, x]\n  who: a\ngeneration: 1\n")
	other := parse(t, "generation: 1\nrules:\n- {who: a, acquire: [x, y], classes: [write]}\n- {who: b, status: /}\n")
	if a.Digest() != same.Digest() {
		t.Error("the same rules in other words have another digest")
	}
	if a.Digest() == other.Digest() {
		t.Error("other rules have the same digest")
	}
}

// policyFile is a policy that a test changes.
type policyFile struct {
	*identity.PolicyFile
	path, state string
}

func newPolicy(t testing.TB, text string) policyFile {
	t.Helper()
	dir := t.TempDir()
	f := policyFile{path: filepath.Join(dir, "policy.yaml"), state: filepath.Join(dir, "state")}
	replace(t, f.path, []byte(text))
	p, err := identity.OpenPolicy(identity.PolicyConfig{File: f.path, State: f.state})
	check(t, err)
	f.PolicyFile = p
	return f
}

func (f policyFile) change(t testing.TB, text string) {
	t.Helper()
	replace(t, f.path, []byte(text))
	_, err := f.Reload()
	check(t, err)
}

// T26: a policy does not go back, neither while it is in force nor over a start, and
// other rules take another generation. A file that cannot be used changes nothing.
func TestAPolicyNeverGoesBack(t *testing.T) {
	t.Parallel()
	const seven = "generation: 7\nrules: [{who: a, acquire: x}]\n"
	f := newPolicy(t, seven)
	for name, text := range map[string]string{
		"a lower generation":                 "generation: 6\nrules: [{who: a, acquire: x}]\n",
		"other rules in the same generation": "generation: 7\nrules: [{who: a, acquire: [x, y]}]\n",
		"broken":                             "generation: 8\nrules: [{who: a, acquire: [x, y}]\n",
		"empty":                              "",
		"unknown members":                    "generation: 8\nrules: []\nallow: all\n",
	} {
		replace(t, f.path, []byte(text))
		if changed, err := f.Reload(); err == nil || changed {
			t.Errorf("%s: changed %v, error %v", name, changed, err)
		}
		if _, ok := f.Admit("a", "x", ""); !ok || f.Policy().Generation() != 7 {
			t.Errorf("%s: it is in force", name)
		}
	}
	check(t, os.Remove(f.path))
	if _, err := f.Reload(); !errors.Is(err, lastword.ErrUnavailable) {
		t.Errorf("no file: %v, want UNAVAILABLE", err)
	}
	f.change(t, "# the same\n"+seven)
	f.change(t, "generation: 9\nrules: [{who: a, acquire: y}]\n")
	if _, ok := f.Admit("a", "x", ""); ok {
		t.Error("the old policy is still in force")
	}
	if got, ok := f.Admit("a", "y", ""); !ok || got != 9 {
		t.Errorf("the new policy: %v under %d", ok, got)
	}
	// A start with the old file.
	replace(t, f.path, []byte(seven))
	if _, err := identity.OpenPolicy(identity.PolicyConfig{File: f.path, State: f.state}); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "does not go back") {
		t.Errorf("a start with the old file: %v", err)
	}
	replace(t, f.state, []byte("{}"))
	if _, err := identity.OpenPolicy(identity.PolicyConfig{File: f.path, State: f.state}); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a start with a broken memory: %v", err)
	}
}

func TestABrokenPolicyRaisesOneAlarm(t *testing.T) {
	t.Parallel()
	f := newPolicy(t, "generation: 1\nrules: []\n")
	var seen log
	p, err := identity.OpenPolicy(identity.PolicyConfig{File: f.path, State: f.state, Logger: seen.logger()})
	check(t, err)
	ctx, stop := contextOf(t)
	done := make(chan struct{})
	go func() { defer close(done); p.Follow(ctx, time.Millisecond) }()
	replace(t, f.path, []byte("rules"))
	until(t, "the alarm", func() bool { return strings.Contains(seen.String(), "level=ERROR") })
	replace(t, f.path, []byte("generation: 2\nrules: []\n"))
	until(t, "the change", func() bool { return p.Policy().Generation() == 2 })
	stop()
	<-done
	if n := strings.Count(seen.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d alarms, want 1:\n%s", n, seen.String())
	}
}

// FuzzParsePolicy: any text is a policy or an error, and what is one says the same when
// its digest is made again.
func FuzzParsePolicy(f *testing.F) {
	f.Add(somePolicy)
	f.Add("generation: 1\nrules: [{who: /, acquire: /}]")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := identity.ParsePolicy([]byte(text))
		if err != nil {
			if !errors.Is(err, lastword.ErrInvalid) {
				t.Fatalf("%v is not INVALID", err)
			}
			return
		}
		if p.Generation() == 0 || p.Generation() > identity.MaxGeneration {
			t.Fatalf("generation %d", p.Generation())
		}
	})
}

func ExampleParsePolicy() {
	p, err := identity.ParsePolicy([]byte(`
generation: 3
rules:
  - who: spiffe://example.org/jobs/   # everything below jobs
    acquire: [reports/]               # everything below reports
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, resource := range []lastword.Resource{"reports/2026", "reports2/x"} {
		generation, ok := p.Admit("spiffe://example.org/jobs/nightly", resource, lastword.ClassWrite)
		fmt.Println(resource, ok, generation)
	}
	// Output:
	// reports/2026 true 3
	// reports2/x false 3
}
