package server_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// T17: no page, and no answer but a holder's own to its acquire or renewal, holds a grant;
// none at all holds a private key; and no call takes a grant, a proof or a token in its URL, where logs and
// proxies would keep it.
func TestT17NoPageAndNoURLHoldsASecret(t *testing.T) {
	t.Parallel()
	s := start(t, config(t.TempDir()))
	r := request("doc/a", "1")
	r.ProofLife = 30 * time.Second
	held, err := s.client.Acquire(t.Context(), r)
	if err != nil || held.StatusProof == "" {
		t.Fatal(held.StatusProof, err)
	}
	secrets := map[string]string{}
	for name, sealed := range map[string]string{"grant": held.Grant, "status proof": held.StatusProof} {
		parts := strings.Split(sealed, ".")
		secrets["the claims of the "+name], secrets["the signature of the "+name] = parts[1], parts[2]
	}
	file, err := os.ReadFile(s.Files().Key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(file)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	seed := private.(ed25519.PrivateKey).Seed()
	secrets["the key, as its file has it"] = strings.Split(string(file), "\n")[1]
	secrets["the key, as a JWK has it"] = base64.RawURLEncoding.EncodeToString(seed)
	secrets["the key, in base64"] = base64.RawStdEncoding.EncodeToString(seed)
	secrets["the key, in hexadecimal"] = hex.EncodeToString(seed)
	secrets["the key, raw"] = string(seed)

	ref := map[string]any{
		"resource": "doc/a", "owner": held.Owner, "request_id": held.RequestID, "lease_id": held.LeaseID, "fence": held.Fence.String(),
	}
	post := func(path string, body map[string]any) page {
		t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return s.call(t, http.MethodPost, path, string(b))
	}
	pages := map[string]page{
		"an acquire that is refused": post("/v1/acquire", map[string]any{"resource": "doc/a", "owner": "b", "request_id": "2", "ttl": "10s", "class": "write"}),
		"a grant where none belongs": post("/v1/renew", map[string]any{"resource": "doc/a", "grant": held.Grant}),
		"a grant as a lease":         post("/v1/renew", map[string]any{"resource": "doc/a", "owner": held.Owner, "request_id": "1", "lease_id": held.Grant, "fence": "1"}),
	}
	for _, path := range []string{
		"/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/.well-known/lastword/bundle.json", "/v1/status?resource=doc/a",
		"/v1/status?resource=doc/a&lease_id=" + held.LeaseID, "/v1/leases", "/nothing", "/?grant=" + held.Grant,
	} {
		pages[path] = s.call(t, http.MethodGet, path, "")
	}
	if renewed := post("/v1/renew", ref); !strings.Contains(renewed.text, held.Grant) || strings.Contains(renewed.text, secrets["the key, as a JWK has it"]) {
		t.Errorf("a renewal: %d", renewed.status)
	}
	for name, p := range pages {
		if p.status == 0 || p.text == "" {
			t.Errorf("%s: nothing was answered: %+v", name, p)
		}
		if (p.status == http.StatusNotFound) != (name == "/nothing") {
			t.Errorf("%s: %d", name, p.status)
		}
		for what, secret := range secrets {
			if strings.Contains(p.text, secret) {
				t.Errorf("%s shows %s", name, what)
			}
		}
	}
	if !strings.Contains(pages["/v1/leases"].text, "doc/a") || !strings.Contains(pages["/v1/status?resource=doc/a"].text, "HELD") {
		t.Error("the pages show nothing of the lease: nothing was tested")
	}
	paths, _ := pages["/openapi.json"].object["paths"].(map[string]any)
	if len(paths) < 5 {
		t.Fatalf("%d paths are described", len(paths))
	}
	for path, methods := range paths {
		operations, _ := methods.(map[string]any)
		for method, o := range operations {
			operation, _ := o.(map[string]any)
			parameters, _ := operation["parameters"].([]any)
			for _, p := range parameters {
				parameter, _ := p.(map[string]any)
				name, _ := parameter["name"].(string)
				for _, secret := range []string{"grant", "proof", "token", "key"} {
					if strings.Contains(strings.ToLower(name), secret) && name != "proof_life" && name != "page_token" {
						t.Errorf("%s %s takes %s in its URL", method, path, name)
					}
				}
			}
		}
	}
}
