package identity_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
)

func TestADevelopmentCAIsEnoughForBothSides(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	ca, authority, err := identity.InitCA(dir, "")
	check(t, err)
	ann, err := identity.Issue(dir, "spiffe://lastword.test/team/ann", identity.IssueConfig{})
	check(t, err)
	if want := filepath.Join(dir, "team-ann.crt"); ann.CertFile != want {
		t.Errorf("the certificate is in %s, want %s", ann.CertFile, want)
	}
	if left := time.Until(ann.NotAfter); left > identity.DefaultLife || left < identity.DefaultLife-time.Minute {
		t.Errorf("it is good for %v, want a day", left)
	}
	open(t, identity.Config{CertFile: authority.CertFile, KeyFile: authority.KeyFile, CAFiles: map[string]string{"": ca.CertFile}, Purpose: identity.ForServer})
	open(t, identity.Config{CertFile: ann.CertFile, KeyFile: ann.KeyFile, CAFiles: map[string]string{"lastword.test": ca.CertFile}})
	// Each is for its own use alone.
	_, err = identity.Open(identity.Config{CertFile: ann.CertFile, KeyFile: ann.KeyFile, CAFiles: map[string]string{"": ca.CertFile}, Purpose: identity.ForServer})
	if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), string(identity.OtherPurpose)) {
		t.Errorf("a caller's certificate as a server's: %v", err)
	}
	check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		info, _ := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %04o, want %04o", path, info.Mode().Perm(), want)
		}
		if strings.HasPrefix(d.Name(), ".lastword") {
			t.Errorf("%s was left", path)
		}
		return err
	}))
}

func TestTheDevelopmentCARefuses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	ca, _, err := identity.InitCA(dir, "example.org")
	check(t, err)
	ann, err := identity.Issue(dir, annID, identity.IssueConfig{})
	check(t, err)
	before := contents(t, dir)
	refuse := func(name, want string, err error) {
		t.Helper()
		if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want INVALID with %q", name, err, want)
		}
		if after := contents(t, dir); after != before {
			t.Errorf("%s: it changed the files", name)
		}
	}
	_, _, err = identity.InitCA(dir, "example.org")
	refuse("a second CA", "is not empty", err)
	_, _, err = identity.InitCA(filepath.Join(t.TempDir(), "x"), "EXAMPLE")
	refuse("a bad trust domain", "trust domain", err)
	_, _, err = identity.InitCA("", "")
	refuse("no directory", "no directory", err)
	issue := func(id string, cfg identity.IssueConfig) error { _, err := identity.Issue(dir, id, cfg); return err }
	refuse("what is there", "exists", issue(annID, identity.IssueConfig{}))
	refuse("what is there by another path", "exists", issue("spiffe://example.org/authority", identity.IssueConfig{}))
	refuse("the CA's own files", "those of the CA", issue("spiffe://example.org/ca", identity.IssueConfig{Force: true}))
	refuse("another domain", "another trust domain", issue("spiffe://other.org/ann", identity.IssueConfig{}))
	refuse("a bad id", "SPIFFE id", issue("spiffe://example.org/../ann", identity.IssueConfig{}))
	refuse("a life that is too long", "life", issue(benID, identity.IssueConfig{Life: 2 * identity.CALife}))
	refuse("a life that is too short", "life", issue(benID, identity.IssueConfig{Life: time.Second}))
	refuse("a CA that has expired", "has expired", issue(benID, identity.IssueConfig{Now: func() time.Time { return ca.NotAfter }}))
	check(t, os.Mkdir(filepath.Join(dir, "ben.crt"), 0o700))
	if err := issue(benID, identity.IssueConfig{Force: true}); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory in the place of a certificate: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "ben.key")); err == nil {
		t.Error("a key was made whose certificate has no place")
	}
	check(t, os.Remove(filepath.Join(dir, "ben.crt")))
	_, err = identity.Issue(t.TempDir(), benID, identity.IssueConfig{})
	refuse("no CA", "lastword ca init", err)
	check(t, os.Chmod(ca.KeyFile, 0o644))
	refuse("a key that others can read", "lets others reach it", issue(benID, identity.IssueConfig{}))
	check(t, os.Chmod(ca.KeyFile, 0o600))

	again, err := identity.Issue(dir, annID, identity.IssueConfig{Force: true})
	check(t, err)
	if contents(t, dir) == before || again.CertFile != ann.CertFile {
		t.Error("force replaced nothing")
	}
	open(t, identity.Config{CertFile: ann.CertFile, KeyFile: ann.KeyFile, CAFiles: map[string]string{"": ca.CertFile}})
}

func TestAnAuthoritysCertificateIsGoodForTheHostsThatAreNamed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	ca, authority, err := identity.InitCA(dir, "", "db.example.org", "DB.example.org", "192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7")
	check(t, err)
	good := func(file string, hosts ...string) {
		t.Helper()
		b, err := os.ReadFile(file)
		check(t, err)
		block, _ := pem.Decode(b)
		cert, err := x509.ParseCertificate(block.Bytes)
		check(t, err)
		if got := len(cert.DNSNames) + len(cert.IPAddresses); got != len(hosts) {
			t.Errorf("%s is good for %v and %v", file, cert.DNSNames, cert.IPAddresses)
		}
		for _, h := range hosts {
			if err := cert.VerifyHostname(h); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	good(authority.CertFile, "localhost", "127.0.0.1", "::1", "db.example.org", "192.0.2.7", "2001:db8::7")
	open(t, identity.Config{CertFile: authority.CertFile, KeyFile: authority.KeyFile, CAFiles: map[string]string{"": ca.CertFile}, Purpose: identity.ForServer})
	other, err := identity.Issue(dir, "spiffe://lastword.test/other", identity.IssueConfig{Server: true, Hosts: []string{"10.0.0.1"}})
	check(t, err)
	good(other.CertFile, "localhost", "127.0.0.1", "::1", "10.0.0.1")
	ann, err := identity.Issue(dir, "spiffe://lastword.test/ann", identity.IssueConfig{})
	check(t, err)
	good(ann.CertFile)
	before := contents(t, dir)
	for _, host := range []string{
		"", ".", "a..b", "a.", "-a", "a-", "*.example.org", "db:7421", "[::1]", "::1%lo", "fe80::1%eth0", "192.0.2.256", "192.0.2", "a b", "a/b", "a_b", "ä", "a\x00",
		strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a",
	} {
		if err := identity.CheckHost(host); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("host %q: %v, want INVALID", host, err)
		}
		if _, err := identity.Issue(dir, "spiffe://lastword.test/x", identity.IssueConfig{Server: true, Hosts: []string{host}}); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("host %q was issued: %v", host, err)
		}
	}
	if _, err := identity.Issue(dir, "spiffe://lastword.test/x", identity.IssueConfig{Hosts: []string{"a"}}); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a caller with a host: %v", err)
	}
	if _, err := identity.Issue(dir, "spiffe://lastword.test/x", identity.IssueConfig{Server: true, Hosts: make([]string, identity.MaxHosts+1)}); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("too many hosts: %v", err)
	}
	if after := contents(t, dir); after != before {
		t.Error("what was refused has changed the files")
	}
	nothing := filepath.Join(t.TempDir(), "pki")
	if _, _, err := identity.InitCA(nothing, "", "a:1"); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a CA with a bad host: %v", err)
	}
	if _, err := os.Lstat(nothing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a CA with a bad host has left %s: %v", nothing, err)
	}
}

// Certificate and key are two files: of those who issue at once one is last with both.
func TestOfSeveralWhoIssueAtOnceOneIsLastWithBothFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	ca, _, err := identity.InitCA(dir, "example.org")
	check(t, err)
	for range 8 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				_, err := identity.Issue(dir, annID, identity.IssueConfig{Force: true})
				check(t, err)
			})
		}
		all.Wait()
		open(t, identity.Config{CertFile: filepath.Join(dir, "ann.crt"), KeyFile: filepath.Join(dir, "ann.key"), CAFiles: map[string]string{"": ca.CertFile}})
	}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var all strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		check(t, err)
		all.WriteString(e.Name() + "\n" + string(b))
	}
	return all.String()
}
