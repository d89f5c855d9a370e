package grant_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// R2: the same key and claims give the same bytes, in this signer and in another
// one that has the key in another place; the digest needs no signature.
func TestSignIsDeterministic(t *testing.T) {
	w := newWorld(t)
	later, err := grant.NewSigner(domain, w.retired, w.present)
	if err != nil {
		t.Fatal(err)
	}
	c := claims(t)
	first, digest, err := w.signer.Sign("", c)
	if err != nil {
		t.Fatal(err)
	}
	c.IssuedAt = c.IssuedAt.In(time.FixedZone("elsewhere", 3600)) // the same instant
	again, againDigest, err := later.Sign(w.present.ID(), c)
	if err != nil || again != first || againDigest != digest {
		t.Fatalf("after the key was rotated out: other bytes, or %v", err)
	}
	byDigest, err := later.Digest(w.present.ID(), c)
	if err != nil || byDigest != digest {
		t.Fatalf("Digest differs from Sign: %v", err)
	}
	if byHand := sha256.Sum256([]byte(first[:strings.LastIndexByte(first, '.')])); lastword.Digest(byHand) != digest {
		t.Fatal("the digest is not the SHA-256 of the signed bytes")
	}
	if other, _, err := later.Sign("", c); err != nil || other == first {
		t.Fatalf("another key, the same grant (%v)", err)
	}
}

// Every field of the claims is in the signed bytes and comes back.
func TestEveryFieldIsSigned(t *testing.T) {
	w := newWorld(t)
	base := w.sign(t, claims(t))
	for name, change := range map[string]func(*grant.Claims){
		"resource":   func(c *grant.Claims) { c.Resource = `doc/"quoted" \ path/ü` },
		"owner":      func(c *grant.Claims) { c.Owner = "\u2028 <b>&" },
		"request id": func(c *grant.Claims) { c.RequestID = `\` },
		"lease id":   func(c *grant.Claims) { c.LeaseID = `"` },
		"fence":      func(c *grant.Claims) { c.Fence = lastword.MaxToken },
		"revision":   func(c *grant.Claims) { c.Revision = grant.MaxNumber },
		"policy":     func(c *grant.Claims) { c.PolicyGeneration = 0 },
		"root":       func(c *grant.Claims) { c.Root = lastword.Digest{} },
		"class":      func(c *grant.Claims) { c.Class = lastword.ClassAdvance },
		"ttl":        func(c *grant.Claims) { c.TTL = 1 },
		"issued at":  func(c *grant.Claims) { c.IssuedAt = time.Unix(0, 0).UTC() },
	} {
		c := claims(t)
		change(&c)
		g := w.sign(t, c)
		u, err := grant.Inspect(g)
		if err != nil || u.Claims != c || g == base {
			t.Errorf("%s: got %+v, %v, want %+v", name, u.Claims, err, c)
		}
		_, payload := split(t, g)
		if !json.Valid([]byte(payload)) {
			t.Errorf("%s: no JSON: %s", name, payload)
		}
	}
}

// What no grant can carry is refused before anything is signed, by Digest as by Sign.
func TestSignRefusesWhatNoGrantCanCarry(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*grant.Claims){
		"zero":                 func(c *grant.Claims) { *c = grant.Claims{} },
		"another domain":       func(c *grant.Claims) { c.Domain = "staging" },
		"fence 0":              func(c *grant.Claims) { c.Fence = 0 },
		"fence 2^53":           func(c *grant.Claims) { c.Fence = lastword.MaxToken + 1 },
		"resource":             func(c *grant.Claims) { c.Resource = "a//b" },
		"no owner":             func(c *grant.Claims) { c.Owner = "" },
		"owner is no UTF-8":    func(c *grant.Claims) { c.Owner = "\xff" },
		"control character":    func(c *grant.Claims) { c.RequestID = "a\nb" },
		"no lease id":          func(c *grant.Claims) { c.LeaseID = "" },
		"no class":             func(c *grant.Claims) { c.Class = "" },
		"revision":             func(c *grant.Claims) { c.Revision = grant.MaxNumber + 1 },
		"policy generation":    func(c *grant.Claims) { c.PolicyGeneration = grant.MaxNumber + 1 },
		"no ttl":               func(c *grant.Claims) { c.TTL = 0 },
		"ttl too long":         func(c *grant.Claims) { c.TTL = grant.MaxTTL + 1 },
		"issued at a fraction": func(c *grant.Claims) { c.IssuedAt = c.IssuedAt.Add(1) },
		"issued before 1970":   func(c *grant.Claims) { c.IssuedAt = time.Unix(-1, 0) },
		"issued after 9999":    func(c *grant.Claims) { c.IssuedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"larger than a grant": func(c *grant.Claims) {
			c.Owner, c.RequestID, c.LeaseID = strings.Repeat(`"`, 512), strings.Repeat(`"`, 512), strings.Repeat(`"`, 512)
		},
	} {
		c := claims(t)
		change(&c)
		g, _, err := w.signer.Sign("", c)
		_, digestErr := w.signer.Digest("", c)
		if !errors.Is(err, lastword.ErrInvalid) || !errors.Is(digestErr, lastword.ErrInvalid) || g != "" {
			t.Errorf("%s: Sign %v, Digest %v", name, err, digestErr)
		}
	}
	if _, _, err := w.signer.Sign("unknown", claims(t)); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("unknown key: %v", err)
	}
}

// T22: a domain and four ids of the largest size and a class of 40 bytes fit, so only quotes and
// backslashes in them can make a legal request too large.
func TestLargestIDsFit(t *testing.T) {
	long := strings.Repeat("x", lastword.MaxIDBytes)
	k := key(t, 0)
	s, err := grant.NewSigner(long, k)
	if err != nil {
		t.Fatal(err)
	}
	c := grant.Claims{
		Domain: long, Resource: lastword.Resource(long), Owner: long, RequestID: long, LeaseID: long,
		Fence: lastword.MaxToken, Revision: grant.MaxNumber, PolicyGeneration: grant.MaxNumber,
		Root: lastword.DigestOf(nil), Class: lastword.Class(long[:40]), TTL: grant.MaxTTL,
		IssuedAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	g, _, err := s.Sign("", c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Bundle(grant.BundleInfo{CurrentEpoch: lastword.MaxEpoch})
	if err != nil {
		t.Fatal(err)
	}
	v, err := grant.NewVerifier(long, grant.StaticBundle(b), grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Open(t.Context(), g, grant.Want{Resource: c.Resource, Class: c.Class}); err != nil || got.Claims() != c {
		t.Fatalf("%d bytes: %v", len(g), err)
	}
}

func TestNewSignerRefusesWhatCannotWork(t *testing.T) {
	k := key(t, 0)
	for name, make := range map[string]func() (*grant.Signer, error){
		"no key":       func() (*grant.Signer, error) { return grant.NewSigner(domain) },
		"zero key":     func() (*grant.Signer, error) { return grant.NewSigner(domain, grant.Key{}) },
		"repeated key": func() (*grant.Signer, error) { return grant.NewSigner(domain, k, k) },
		"no domain":    func() (*grant.Signer, error) { return grant.NewSigner("", k) },
	} {
		if _, err := make(); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Protocol §3: a stock JOSE library checks our grants with our bundle and reads
// the fence as an exact number.
func TestStockLibraryVerifiesGrants(t *testing.T) {
	w := newWorld(t)
	c := claims(t)
	c.Fence = lastword.MaxToken
	g := w.sign(t, c)
	b, err := w.bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseSigned(g, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	h := token.Headers[0]
	keys := set.Key(h.KeyID)
	if len(keys) != 1 || h.ExtraHeaders[jose.HeaderType] != grant.Type || keys[0].Algorithm != h.Algorithm || !keys[0].IsPublic() {
		t.Fatalf("header %+v finds %d keys", h, len(keys))
	}
	var std jwt.Claims
	var own struct {
		Fence    uint64 `json:"fence"`
		Resource string `json:"resource"`
	}
	if err := token.Claims(keys[0], &std, &own); err != nil {
		t.Fatal(err)
	}
	if std.Issuer != domain || std.Subject != owner || std.ID != c.LeaseID || !std.IssuedAt.Time().Equal(c.IssuedAt) ||
		own.Fence != uint64(c.Fence) || own.Resource != string(resource) {
		t.Fatalf("got %+v %+v", std, own)
	}
	if err := token.Claims(set.Key(w.retired.ID())[0], &std); err == nil {
		t.Fatal("the other key verified it too")
	}
}
