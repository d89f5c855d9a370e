package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

const (
	annID       = "spiffe://lastword.test/ann"
	authorityID = "spiffe://lastword.test/authority"
)

// secured is a configuration with certificates of a development CA in dir, which has one
// for ann, too.
func secured(t *testing.T, dir string) (server.Config, identity.Config) {
	t.Helper()
	ca, authority, err := identity.InitCA(filepath.Join(dir, "pki"), "")
	if err != nil {
		t.Fatal(err)
	}
	ann, err := identity.Issue(filepath.Join(dir, "pki"), annID, identity.IssueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(dir)
	cfg.TLS = server.TLS{Cert: authority.CertFile, Key: authority.KeyFile, ClientCA: map[string]string{"": ca.CertFile}}
	return cfg, identity.Config{CertFile: ann.CertFile, KeyFile: ann.KeyFile, CAFiles: map[string]string{"": ca.CertFile}}
}

func dialAs(t *testing.T, s *running, cfg identity.Config) *rpc.Client {
	t.Helper()
	source, err := identity.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rpc.Dial(s.Addr().String(), rpc.ClientConfig{Identity: source, Authority: authorityID, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The server follows its policy and its certificates by itself.
func TestAServerFollowsPolicyAndCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg, ann := secured(t, dir)
	cfg.Policy = write(t, filepath.Join(dir, "policy.yaml"), "generation: 1\nrules: []\n", 0o600)
	s := start(t, cfg)
	c := dialAs(t, s, ann)
	r := request("doc/a", "1")
	r.Owner = ""
	if _, err := c.Acquire(t.Context(), r); !errors.Is(err, lastword.ErrUnverified) {
		t.Fatalf("without a rule: %v, want UNVERIFIED", err)
	}
	// A caller in the same process is bound by it, too.
	if _, err := s.Authority().Acquire(t.Context(), request("doc/a", "2")); !errors.Is(err, lastword.ErrUnverified) {
		t.Errorf("in the process: %v, want UNVERIFIED", err)
	}
	write(t, filepath.Join(dir, "new.yaml"), "generation: 2\nrules: [{who: "+annID+", acquire: doc/}]\n", 0o600)
	if err := os.Rename(filepath.Join(dir, "new.yaml"), cfg.Policy); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		tenure, err := c.Acquire(t.Context(), r)
		if err == nil {
			if tenure.PolicyGeneration != 2 || tenure.Owner != annID {
				t.Errorf("generation %d, owner %s", tenure.PolicyGeneration, tenure.Owner)
			}
			break
		}
		if !errors.Is(err, lastword.ErrUnverified) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	// A new authority certificate: seen by the next connection.
	before := s.Identity().Expires()
	if _, err := identity.Issue(filepath.Join(dir, "pki"), authorityID, identity.IssueConfig{Server: true, Force: true, Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); s.Identity().Expires().Equal(before); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new certificate was not taken in")
		}
	}
	if _, err := dialAs(t, s, ann).Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"}); err != nil {
		t.Error(err)
	}
	s.end(t)
	// The policy stays: a start without it, or with the older one, is refused.
	none := cfg
	none.Policy = ""
	if _, err := server.Open(t.Context(), none); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("without the policy: %v, want INVALID", err)
	}
	write(t, cfg.Policy, "generation: 1\nrules: []\n", 0o600)
	if _, err := server.Open(t.Context(), cfg); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("with the older policy: %v, want INVALID", err)
	}
}

// A start that is refused for another reason puts no policy in force.
func TestAStartThatIsRefusedRemembersNoPolicy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg, _ := secured(t, dir)
	cfg.Policy = write(t, filepath.Join(dir, "policy.yaml"), "generation: 1\nrules: []\n", 0o600)
	cfg.Witness = "file:" + write(t, filepath.Join(dir, "witness"), "no witness", 0o600)
	if _, err := server.Open(t.Context(), cfg); err == nil {
		t.Fatal("it started")
	}
	if identity.Remembers(filepath.Join(dir, "s.db.policy")) {
		t.Error("the policy was remembered")
	}
}

func TestSecuritySettingsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, _ := secured(t, dir)
	before := files(t, dir)
	for name, change := range map[string]func(*server.Config){
		"no key":                 func(c *server.Config) { c.TLS.Key = "" },
		"no certificate":         func(c *server.Config) { c.TLS.Cert = "" },
		"no authorities":         func(c *server.Config) { c.TLS.ClientCA = nil },
		"a caller's certificate": func(c *server.Config) { c.TLS.Cert, c.TLS.Key = pki(dir, "ann.crt"), pki(dir, "ann.key") },
		"another trust domain":   func(c *server.Config) { c.TLS.ClientCA = map[string]string{"no domain!": pki(dir, "ca.crt")} },
		"one domain twice": func(c *server.Config) {
			c.TLS.TrustDomain = "lastword.test"
			c.TLS.ClientCA["lastword.test"] = pki(dir, "ca.crt")
		},
		"tokens beside TLS":       func(c *server.Config) { c.DevTokens = pki(dir, "ca.crt") },
		"tokens and all networks": func(c *server.Config) { c.TLS, c.DevTokens, c.GRPC = server.TLS{}, "tokens", "0.0.0.0:0" },
		"a policy for nobody":     func(c *server.Config) { c.TLS, c.Policy = server.TLS{}, "policy" },
		"the domain of another":   func(c *server.Config) { c.TLS.TrustDomain = "other.test" },
		"no address":              func(c *server.Config) { c.GRPC = "nonsense" },
	} {
		cfg := good
		cfg.TLS.ClientCA = map[string]string{"": pki(dir, "ca.crt")}
		change(&cfg)
		if s, err := server.Open(t.Context(), cfg); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v, want INVALID", name, err)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	if after := files(t, dir); len(after) != len(before) {
		t.Errorf("files were made: %d, want %d", len(after), len(before))
	}
}

func pki(dir, name string) string { return filepath.Join(dir, "pki", name) }
