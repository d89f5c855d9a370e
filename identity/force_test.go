package identity_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword/identity"
)

// Force replaces what is of the same id and kind, and nothing else.
func TestForceReplacesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	_, authority, err := identity.InitCA(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	const domain = "spiffe://" + identity.DefaultDomain
	issued, err := identity.Issue(dir, domain+"/a/b", identity.IssueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id, file string
		cfg      identity.IssueConfig
		want     string
	}{
		"another identity":    {domain + "/a-b", issued.KeyFile, identity.IssueConfig{Force: true}, "is of " + domain + "/a/b"},
		"a server's":          {authority.ID, authority.KeyFile, identity.IssueConfig{Force: true}, "is for a server"},
		"a caller's":          {domain + "/a/b", issued.KeyFile, identity.IssueConfig{Force: true, Server: true}, "is for callers"},
		"its own":             {domain + "/a/b", issued.KeyFile, identity.IssueConfig{Force: true}, ""},
		"its own of a server": {authority.ID, authority.KeyFile, identity.IssueConfig{Force: true, Server: true}, ""},
	} {
		before, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = identity.Issue(dir, c.id, c.cfg)
		after, _ := os.ReadFile(c.file)
		switch changed := string(before) != string(after); {
		case c.want == "" && (err != nil || !changed):
			t.Errorf("%s: not replaced: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || changed):
			t.Errorf("%s: replaced %t: %v", name, changed, err)
		}
	}
}
