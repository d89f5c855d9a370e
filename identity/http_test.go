package identity_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/identity"
)

// webClient calls over HTTP, with any certificate, and believes anybody.
type webClient struct {
	t      testing.TB
	at     string
	client *http.Client
	token  []string // Authorization headers
}

func (w *world) http(certs ...tls.Certificate) *webClient {
	w.t.Helper()
	c := &webClient{t: w.t, at: "http://" + w.web}
	transport := &http.Transport{}
	if w.source != nil {
		c.at = "https://" + w.web
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
		if len(certs) > 0 {
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
		}
	}
	c.client = &http.Client{Transport: transport, Timeout: patience}
	w.t.Cleanup(c.client.CloseIdleConnections)
	return c
}

func (w *world) httpAs(id string) *webClient { return w.http(w.ca.leaf(id)) }

// reply is what came back.
type reply struct {
	status int
	text   string
	object map[string]any
	closes bool // the connection, after it
	reused bool // the connection, for it
}

func (r reply) refused() bool {
	return r.status == http.StatusForbidden && r.object["reason"] == "UNVERIFIED" && r.object["outcome"] == "not_done"
}

func (c *webClient) do(method, path, body string) (r reply, err error) {
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { r.reused = i.Reused }}
	q, err := http.NewRequestWithContext(httptrace.WithClientTrace(c.t.Context(), trace), method, c.at+path, strings.NewReader(body))
	check(c.t, err)
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "application/json")
	}
	q.Header["Authorization"] = c.token
	res, err := c.client.Do(q)
	if err != nil {
		return r, err
	}
	defer func() { _ = res.Body.Close() }()
	r.status, r.closes = res.StatusCode, res.Close
	b, err := bufio.NewReader(res.Body).ReadBytes('\n') // a watch has no end of its own
	if err != nil && !errors.Is(err, io.EOF) {
		return r, err
	}
	r.text = string(b)
	if res.StatusCode != http.StatusOK || !strings.Contains(path, "/watch") {
		_, _ = io.Copy(io.Discard, res.Body)
	}
	_ = json.Unmarshal(b, &r.object)
	return r, nil
}

func (c *webClient) call(method, path, body string) reply {
	c.t.Helper()
	r, err := c.do(method, path, body)
	check(c.t, err)
	return r
}

func (c *webClient) acquire(resource, id string) map[string]any {
	c.t.Helper()
	r := c.call("POST", "/v1/acquire", fmt.Sprintf(`{"resource":%q,"request_id":%q,"ttl":"60s"}`, resource, id))
	if r.status != http.StatusOK {
		c.t.Fatalf("acquire %s: %d %s", resource, r.status, r.text)
	}
	return r.object["tenure"].(map[string]any)
}

// webMatrix are the calls of [matrix], with these words in place of owner.
func webMatrix(resource, owner string) map[string][3]string {
	ref := fmt.Sprintf(`{"resource":%q,"owner":%q,"request_id":"none","lease_id":"none","fence":"1"}`, resource, owner)
	ask := func(id, class string) string {
		return fmt.Sprintf(`{"resource":%q,"owner":%q,"request_id":%q,"ttl":"60s","class":%q}`, resource, owner, id, class)
	}
	return map[string][3]string{
		"acquire":       {"POST", "/v1/acquire", ask("new", "write")},
		"acquire prune": {"POST", "/v1/acquire", ask("prune", "prune")},
		"renew":         {"POST", "/v1/renew", ref},
		"release":       {"POST", "/v1/release", ref},
		"complete":      {"POST", "/v1/complete", ref},
		"cancel":        {"POST", "/v1/cancel", fmt.Sprintf(`{"resource":%q,"owner":%q,"request_id":"none"}`, resource, owner)},
		"status":        {"GET", "/v1/status?resource=" + resource, ""},
		"list":          {"GET", "/v1/leases?prefix=" + resource + "/", ""},
		"watch":         {"GET", "/v1/watch?prefix=" + resource + "/", ""},
		"revoke":        {"POST", "/v1/revoke", fmt.Sprintf(`{"resource":%q,"fence":"1","operator":%q,"reason":"because"}`, resource, owner)},
	}
}

// T1 over HTTP: the owner is who the certificate is for, whatever the request says, and
// neither a lease nor a grant is of use to another caller.
func TestT1OverHTTPTheOwnerIsWhoTheCertificateIsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	ann, ben := w.httpAs(annID), w.httpAs(benID)
	held := ann.acquire("doc/a", "1")
	if held["owner"] != annID {
		t.Errorf("the owner is %v, want %s", held["owner"], annID)
	}
	before := w.state()
	for _, call := range []string{"renew", "release", "complete"} {
		body := `{"resource":"doc/a","request_id":"1","lease_id":%q,"fence":"1"%s}`
		own := ben.call("POST", "/v1/"+call, fmt.Sprintf(body, held["lease_id"], ""))
		if own.status != http.StatusConflict || own.object["reason"] != "NOT_HOLDER" {
			t.Errorf("%s by another one: %d %s, want NOT_HOLDER", call, own.status, own.text)
		}
		posing := ben.call("POST", "/v1/"+call, fmt.Sprintf(body, held["lease_id"], `,"owner":"`+annID+`"`))
		if !posing.refused() {
			t.Errorf("%s in another one's name: %d %s, want UNVERIFIED", call, posing.status, posing.text)
		}
	}
	if w.state() != before {
		t.Error("it changed something")
	}
	place := memfence.New("docs")
	grant := held["grant"].(string)
	err := write(t.Context(), w.gate(benID, 0), place, grant, "stolen", "")
	if !errors.Is(err, lastword.ErrUnverified) || !strings.Contains(err.Error(), "another owner") {
		t.Errorf("ben with ann's grant: %v, want UNVERIFIED, OWNER_MISMATCH", err)
	}
	check(t, write(t.Context(), w.gate(annID, 0), place, grant, "own", ""))
	// Both doors know the same caller: a repetition by gRPC is the same tenure (R2).
	again, err := w.as(annID).Acquire(t.Context(), ask("doc/a", "1"))
	check(t, err)
	if !again.Repeated || again.LeaseID != held["lease_id"] {
		t.Errorf("over gRPC it is another tenure: %+v", again)
	}
}

// T2 over HTTP: no certificate, no call; and a bad one does not even get a connection.
func TestT2OverHTTPTakesNoCallWithoutAGoodCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	held := w.httpAs(annID).acquire("doc/a", "1")
	before := w.state()
	for _, bad := range badCertificates(t, w.ca) {
		c := w.http(bad.certs...)
		for name, m := range webMatrix("doc/a", annID) {
			r, err := c.do(m[0], m[1], m[2])
			if bad.want == identity.NoCertificate {
				if err != nil || !r.refused() || !r.closes || !strings.Contains(r.text, string(identity.NoCertificate)) {
					t.Errorf("%s without a certificate: %d %s, %v", name, r.status, r.text, err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
				t.Errorf("%s with %s: %d, %v, want a handshake that fails", name, bad.name, r.status, err)
			}
			break // one call is enough to see a handshake
		}
	}
	if after := w.state(); after != before {
		t.Errorf("it changed something:\n%s\n%s", before, after)
	}
	r := w.httpAs(annID).call("POST", "/v1/renew", fmt.Sprintf(`{"resource":"doc/a","request_id":"1","lease_id":%q,"fence":"1"}`, held["lease_id"]))
	if r.status != http.StatusOK {
		t.Errorf("the good certificate: %d %s", r.status, r.text)
	}
}

// T25 over HTTP: who may do what, call by call. T18: what is not allowed is refused in
// the same words whether or not there is anything, and changes nothing.
func TestT18AndT25OverHTTPThePolicyMatrix(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, `
generation: 5
rules:
  - {who: spiffe://example.org/holder, acquire: [yes/, free/]}
  - {who: spiffe://example.org/worker, acquire: yes/}
  - {who: spiffe://example.org/pruner, acquire: yes/, classes: [prune]}
  - {who: spiffe://example.org/gate, status: yes/}
  - {who: spiffe://example.org/lister, list: yes/}
  - {who: spiffe://example.org/watcher, watch: yes/}
  - {who: spiffe://example.org/operator, revoke: yes/}
`)
	w := newWorld(t, settings{policy: policy.PolicyFile})
	holder := w.httpAs("spiffe://example.org/holder")
	if got := holder.acquire("yes/held", "1")["policy_generation"]; got != "5" {
		t.Errorf("the grant has generation %v, want 5", got)
	}
	holder.acquire("free/there", "1")
	for who, may := range map[string][]string{
		"worker":   {"acquire", "renew", "release", "complete", "cancel", "status"},
		"pruner":   {"acquire prune", "renew", "release", "complete", "cancel", "status"},
		"gate":     {"release", "status"},
		"lister":   {"release", "list"},
		"watcher":  {"release", "watch"},
		"operator": {"release", "revoke"},
		"nobody":   {"release"},
	} {
		id := "spiffe://example.org/" + who
		c := w.httpAs(id)
		for name, m := range webMatrix("yes/held", id) {
			before := w.state()
			r := c.call(m[0], m[1], m[2])
			if r.refused() == slices.Contains(may, name) {
				t.Errorf("%s to %s: %d %s", who, name, r.status, r.text)
			}
			if w.state() != before && !slices.Contains([]string{"cancel", "revoke"}, name) {
				t.Errorf("%s to %s changed something", who, name)
			}
			if name == "revoke" && r.status == http.StatusOK {
				holder.acquire("yes/held", "2")
			}
		}
		hidden, missing := webMatrix("free/there", id), webMatrix("free/gone!", id)
		for name := range hidden {
			before := w.state()
			there := c.call(hidden[name][0], hidden[name][1], hidden[name][2])
			not := c.call(missing[name][0], missing[name][1], missing[name][2])
			if there.status != not.status || strings.ReplaceAll(there.text, "free/there", "") != strings.ReplaceAll(not.text, "free/gone!", "") {
				t.Errorf("%s to %s: %s, and of what is not there: %s", who, name, there.text, not.text)
			}
			if there.status == http.StatusOK || there.object["holder"] != nil || there.object["fence"] != nil {
				t.Errorf("%s to %s: it tells of the holder: %s", who, name, there.text)
			}
			if w.state() != before {
				t.Errorf("%s to %s changed something", who, name)
			}
		}
	}
}

// A connection is judged with each call, and one that is judged anew goes, so that its
// caller comes with the certificate that it has then.
func TestOverHTTPAnAuthorityThatIsTakenOutIsOutForOpenConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	c := w.httpAs(annID)
	c.acquire("doc/a", "1")
	other := newPKI(t, "example.org")
	w.server.trust(t, other)
	if _, err := w.source.Reload(); err != nil && identity.ReasonOf(err) == "" {
		t.Fatal(err)
	}
	r := c.call("GET", "/v1/status?resource=doc/a", "")
	if !r.reused || !r.refused() || !r.closes || !strings.Contains(r.text, string(identity.Untrusted)) {
		t.Errorf("on the connection of before: reused %t, closes %t, %d %s", r.reused, r.closes, r.status, r.text)
	}
	if r := w.http(other.leaf(annID)).call("GET", "/v1/status?resource=doc/a", ""); r.status != http.StatusOK {
		t.Errorf("of the new authority: %d %s", r.status, r.text)
	}
}

func TestOverHTTPAConnectionIsAskedToGoWithItsAge(t *testing.T) {
	t.Parallel()
	for age, closes := range map[time.Duration]bool{time.Nanosecond: true, time.Hour: false} {
		c := newWorld(t, settings{maxAge: age}).httpAs(annID)
		for _, r := range []reply{
			c.call("GET", "/v1/status?resource=doc/a", ""),
			c.call("POST", "/v1/acquire", `{"resource":"doc/a","request_id":"1","ttl":"30s"}`),
		} {
			if r.status != http.StatusOK || r.closes != closes {
				t.Errorf("after %s: %d, it closes: %t", age, r.status, r.closes)
			}
		}
	}
}

// A page of another origin cannot use a browser's certificate, whatever name it has
// given the authority.
func TestOverHTTPAnotherOriginIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	for origin, want := range map[string]int{
		"https://authority.example.org": http.StatusOK, "http://authority.example.org": http.StatusForbidden, "https://evil.example": http.StatusForbidden,
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+w.web+"/v1/status?resource=doc/a", nil)
		check(t, err)
		q.Host = "authority.example.org" // with TLS it is the certificate that says who it is
		q.Header.Set("Origin", origin)
		res, err := w.httpAs(annID).client.Do(q)
		check(t, err)
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("from %s: %d, want %d", origin, res.StatusCode, want)
		}
	}
}

// HTTP/2 would put many requests on a connection, which the bounds do not count.
func TestOverHTTPThereIsOneRequestAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settings{})
	leaf := w.ca.leaf(annID)
	conn, err := (&tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{leaf},
	}}).DialContext(t.Context(), "tcp", w.web)
	check(t, err)
	defer func() { _ = conn.Close() }()
	if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("it speaks %q", got)
	}
	old, err := (&tls.Dialer{Config: &tls.Config{
		MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true, Certificates: []tls.Certificate{leaf},
	}}).DialContext(t.Context(), "tcp", w.web)
	if err == nil {
		_ = old.Close()
		t.Error("it speaks TLS 1.2")
	}
}

// A development token is in the Authorization header, once.
func TestOverHTTPATokenSaysWhoCalls(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	check(t, os.WriteFile(file, []byte("ann: ann-0123456789abcdef\nben: ben-0123456789abcdef\n"), 0o600))
	tokens, err := identity.OpenTokens(file)
	check(t, err)
	policy := newPolicy(t, "generation: 1\nrules: [{who: ann, acquire: doc/}]\n")
	w := newWorld(t, settings{tokens: tokens, policy: policy.PolicyFile})
	const ann, ben = "Bearer ann-0123456789abcdef", "Bearer ben-0123456789abcdef"
	for _, wrong := range [][]string{nil, {""}, {ann, ann}, {ann, ben}, {"Bearer ann-0123456789abcdeg"}, {"bearer ann-0123456789abcdef"}, {"Basic YW5uOmFubg=="}} {
		c := w.http()
		c.token = wrong
		for name, m := range webMatrix("doc/a", "") {
			if r := c.call(m[0], m[1], m[2]); !r.refused() || strings.Contains(r.text, "0123456789") {
				t.Errorf("%s with %q: %d %s", name, wrong, r.status, r.text)
			}
		}
	}
	c := w.http()
	c.token = []string{ann}
	if held := c.acquire("doc/a", "1"); held["owner"] != "ann" {
		t.Errorf("the owner is %v", held["owner"])
	}
	if r := c.call("POST", "/v1/acquire", `{"resource":"other","request_id":"1","ttl":"60s"}`); !r.refused() {
		t.Errorf("what the policy does not allow: %d %s", r.status, r.text)
	}
	c.token = []string{ben}
	if r := c.call("GET", "/v1/status?resource=doc/a", ""); !r.refused() {
		t.Errorf("by another one: %d %s", r.status, r.text)
	}
}

// A watch over HTTP that is not allowed any more shows nothing more, and says why.
func TestOverHTTPAWatchEndsWithItsRight(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, "generation: 1\nrules: [{who: spiffe://example.org/ann, watch: /}, {who: spiffe://example.org/ben, acquire: /}]\n")
	w := newWorld(t, settings{policy: policy.PolicyFile})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.web+"/v1/watch", nil)
	check(t, err)
	res, err := w.httpAs(annID).client.Do(q)
	check(t, err)
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"complete":true`) {
		t.Fatalf("it began with %s", lines.Text())
	}
	policy.change(t, "generation: 2\nrules: [{who: spiffe://example.org/ben, acquire: /}]\n")
	w.httpAs(benID).acquire("doc/a", "1")
	if !lines.Scan() || !strings.Contains(lines.Text(), `"reason":"UNVERIFIED"`) || lines.Scan() {
		t.Errorf("it ended with %s", lines.Text())
	}
}
