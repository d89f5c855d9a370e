package grant_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

const (
	domain   = "billing"
	resource = lastword.Resource("invoice-batch/2026-07-19")
	owner    = "spiffe://example.org/worker/a"
)

// private is a fixed key, so that grants and vectors are the same in every run.
func private(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('A'+n)), ed25519.SeedSize)))
}

func keyPEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func key(t testing.TB, n byte) grant.Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, keyPEM(t, private(n)), 0o600); err != nil {
		t.Fatal(err)
	}
	k, created, err := grant.LoadOrCreateKey(path)
	if err != nil || created {
		t.Fatalf("load key: created %v, %v", created, err)
	}
	return k
}

func fence(t testing.TB, epoch uint32, counter uint64) lastword.Token {
	t.Helper()
	f, err := lastword.MakeToken(epoch, counter)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func claims(t testing.TB) grant.Claims {
	return grant.Claims{
		Domain: domain, Resource: resource, Owner: owner,
		RequestID: "req-0191", LeaseID: "lease-7f3a", Fence: fence(t, 4, 41),
		Revision: 1234, PolicyGeneration: 7, Root: lastword.DigestOf([]byte("batch 2026-07-19")),
		Class: lastword.ClassWrite, TTL: 30 * time.Second,
		IssuedAt: time.Date(2026, 7, 19, 8, 30, 0, 0, time.UTC),
	}
}

func want(t testing.TB) grant.Want {
	c := claims(t)
	return grant.Want{Resource: resource, Owner: owner, Root: &c.Root, PolicyGeneration: 7, MinPolicyGeneration: 7}
}

// world is one domain with a key that signs, from epoch 2 on, and a retired one,
// up to epoch 3. Epochs 3 to 5 are good.
type world struct {
	present, retired grant.Key
	signer           *grant.Signer
	bundle           grant.Bundle
}

func info(w *world) grant.BundleInfo {
	last := uint32(3)
	return grant.BundleInfo{
		Sequence: 11, CurrentEpoch: 5, MinimumEpoch: 3, RefreshHint: 5 * time.Minute,
		Epochs: map[string]grant.EpochRange{w.present.ID(): {First: 4}, w.retired.ID(): {Last: &last}},
	}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{present: key(t, 0), retired: key(t, 1)}
	var err error
	if w.signer, err = grant.NewSigner(domain, w.present, w.retired); err != nil {
		t.Fatal(err)
	}
	if w.bundle, err = w.signer.Bundle(info(w)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) sign(t testing.TB, c grant.Claims) string {
	t.Helper()
	g, _, err := w.signer.Sign("", c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (w *world) verifier(t testing.TB, cfg grant.VerifierConfig) *grant.Verifier {
	t.Helper()
	v, err := grant.NewVerifier(domain, grant.StaticBundle(w.bundle), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// seal signs any header and payload, as a forger with the right key, or as an
// authority of another version, would.
func seal(key ed25519.PrivateKey, header, payload string) string {
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	return input + "." + b64(ed25519.Sign(key, []byte(input)))
}

func split(t testing.TB, g string) (header, payload string) {
	t.Helper()
	parts := strings.Split(g, ".")
	h, err1 := base64.RawURLEncoding.DecodeString(parts[0])
	p, err2 := base64.RawURLEncoding.DecodeString(parts[1])
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return string(h), string(p)
}

// swap replaces exactly one occurrence of old.
func swap(t testing.TB, s, old, replacement string) string {
	t.Helper()
	if strings.Count(s, old) != 1 {
		t.Fatalf("%q occurs %d times in %s", old, strings.Count(s, old), s)
	}
	return strings.Replace(s, old, replacement, 1)
}

func reasonOf(err error) string {
	if err == nil {
		return "opened"
	}
	if r := grant.ReasonOf(err); r != "" {
		return string(r)
	}
	return fmt.Sprintf("no refusal: %v", err)
}
