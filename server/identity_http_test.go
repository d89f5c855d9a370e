package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/server"
)

// web is a client that knows the authority as curl does, by the name in its certificate;
// "" has no certificate of its own.
func web(t *testing.T, dir, name string) *http.Client {
	t.Helper()
	text, err := os.ReadFile(pki(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		t.Fatal("no CA")
	}
	if name != "" {
		own, err := tls.LoadX509KeyPair(pki(dir, name+".crt"), pki(dir, name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: patience}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func fetch(t *testing.T, c *http.Client, method, url, body, token string) page {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	p := page{status: res.StatusCode, header: res.Header, text: string(b)}
	_ = json.Unmarshal(b, &p.object)
	return p
}

// The pages that anybody may see, and those that show what a list shows.
var (
	public  = []string{"/healthz", "/readyz", "/openapi.json", "/.well-known/lastword/bundle.json"}
	private = []string{"/", "/metrics"}
)

func wantPages(t *testing.T, who string, c *http.Client, at, token string, status int, paths []string) {
	t.Helper()
	for _, path := range paths {
		p := fetch(t, c, http.MethodGet, at+path, "", token)
		if p.status != status {
			t.Errorf("%s for %s: %d %s, want %d", path, who, p.status, p.text, status)
		}
		if status == http.StatusForbidden && (!strings.Contains(p.text, "UNVERIFIED") || strings.Contains(p.text, "secret")) {
			t.Errorf("%s for %s: %s", path, who, p.text)
		}
	}
}

// Calls need a certificate, and so do the pages that show what a list shows: who may
// list everything sees them (T18). Probes and verifiers need none.
func TestWhichPagesNeedACertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg, _ := secured(t, dir)
	if _, err := identity.Issue(filepath.Join(dir, "pki"), "spiffe://lastword.test/ops", identity.IssueConfig{}); err != nil {
		t.Fatal(err)
	}
	cfg.HTTP = "0.0.0.0:0"
	cfg.Policy = write(t, filepath.Join(dir, "policy.yaml"),
		"generation: 1\nrules: [{who: "+annID+", acquire: doc/, list: doc/}, {who: spiffe://lastword.test/ops, list: /}]\n", 0o600)
	r := start(t, cfg)
	at := "https://localhost:" + port(t, r)
	nobody, ann, ops := web(t, dir, ""), web(t, dir, "ann"), web(t, dir, "ops")
	p := fetch(t, ann, "POST", at+"/v1/acquire", `{"resource":"doc/secret","request_id":"r1","ttl":"60s"}`, "")
	if tenure, _ := p.object["tenure"].(map[string]any); p.status != http.StatusOK || tenure["owner"] != annID {
		t.Fatalf("acquire: %d %s", p.status, p.text)
	}
	p = fetch(t, nobody, "POST", at+"/v1/acquire", `{"resource":"doc/b","request_id":"r1","ttl":"60s"}`, "")
	if p.status != http.StatusForbidden || p.object["reason"] != "UNVERIFIED" || p.object["outcome"] != "not_done" {
		t.Errorf("without a certificate: %d %s", p.status, p.text)
	}
	for who, c := range map[string]*http.Client{"nobody": nobody, "ann": ann, "ops": ops} {
		wantPages(t, who, c, at, "", http.StatusOK, public)
	}
	wantPages(t, "nobody", nobody, at, "", http.StatusForbidden, private)
	wantPages(t, "ann", ann, at, "", http.StatusForbidden, private)
	wantPages(t, "ops", ops, at, "", http.StatusOK, private)
	if p := fetch(t, ops, "GET", at+"/", "", ""); !strings.Contains(p.text, "doc/secret") || !strings.Contains(p.text, "curl --cert CERT") {
		t.Errorf("the status page: %s", p.text)
	}
	// Who is not ready says so to anybody, and to nobody why.
	if err := r.Authority().Close(); err != nil {
		t.Fatal(err)
	}
	if p := fetch(t, nobody, "GET", at+"/readyz", "", ""); p.status != http.StatusServiceUnavailable || p.text != "not ready\n" {
		t.Errorf("readyz: %d %q", p.status, p.text)
	}
	r.end(t)
}

func port(t *testing.T, r *running) string {
	t.Helper()
	_, port, err := net.SplitHostPort(r.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Without a policy a certificate is enough.
func TestWithoutAPolicyEveryCallerSeesThePages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg, _ := secured(t, dir)
	r := start(t, cfg)
	at := "https://" + r.HTTPAddr().String()
	wantPages(t, "nobody", web(t, dir, ""), at, "", http.StatusForbidden, private)
	wantPages(t, "ann", web(t, dir, "ann"), at, "", http.StatusOK, private)
	r.end(t)
}

func TestTokensOpenTheSameDoors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config(dir)
	cfg.DevTokens = write(t, filepath.Join(dir, "tokens.yaml"), "ann: ann-0123456789abcdef\nops: ops-0123456789abcdef\n", 0o600)
	cfg.Policy = write(t, filepath.Join(dir, "policy.yaml"), "generation: 1\nrules: [{who: ann, acquire: doc/}, {who: ops, list: /}]\n", 0o600)
	r := start(t, cfg)
	at, c := "http://"+r.HTTPAddr().String(), &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer c.CloseIdleConnections()
	for token, want := range map[string]int{"": http.StatusForbidden, "ann-0123456789abcdef": http.StatusOK, "ops-0123456789abcdef": http.StatusForbidden} {
		p := fetch(t, c, "POST", at+"/v1/acquire", `{"resource":"doc/secret","request_id":"r1","ttl":"60s"}`, token)
		if p.status != want {
			t.Errorf("acquire with %q: %d %s, want %d", token, p.status, p.text, want)
		}
	}
	wantPages(t, "nobody", c, at, "", http.StatusOK, public)
	wantPages(t, "nobody", c, at, "", http.StatusForbidden, private)
	wantPages(t, "ann", c, at, "ann-0123456789abcdef", http.StatusForbidden, private)
	wantPages(t, "ops", c, at, "ops-0123456789abcdef", http.StatusOK, private)
	r.end(t)
}

// With tokens, HTTP stays on this machine, too.
func TestTokensKeepHTTPOnLoopback(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config(dir)
	cfg.HTTP = "0.0.0.0:0"
	cfg.DevTokens = write(t, filepath.Join(dir, "tokens.yaml"), "ann: ann-0123456789abcdef\n", 0o600)
	_, err := server.Open(t.Context(), cfg)
	checkRefusal(t, err, lastword.CodeInvalid, "not a loopback address")
}
