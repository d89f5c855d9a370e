package grant_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

func zoneKey(t testing.TB) grant.Key {
	t.Helper()
	k, err := grant.NewZoneKey()
	must(t, err)
	return k
}

var zoneSecret = []byte(strings.Repeat("z", 32))

// zoneGrant is the good grant under an HS256 key that is the same in every run.
func zoneGrant(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zone.pem")
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "LASTWORD ZONE KEY", Bytes: zoneSecret}), 0o600))
	k, err := grant.LoadKey(path)
	must(t, err)
	s, err := grant.NewZoneSigner(domain, k)
	must(t, err)
	g, _, err := s.Sign("", claims(t))
	must(t, err)
	return g
}

// Protocol §3: an HS256 key works only where signer and verifier both say that they are
// one trust zone, and only while the bundle names it.
func TestOneTrustZoneIsSaidOnBothSides(t *testing.T) {
	k := zoneKey(t)
	if _, err := grant.NewSigner(domain, k); !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "one trust zone") {
		t.Fatalf("a signer that does not say so: %v", err)
	}
	s, err := grant.NewZoneSigner(domain, k, key(t, 0))
	must(t, err)
	b, err := s.Bundle(grant.BundleInfo{Sequence: 1, CurrentEpoch: 4, Epochs: map[string]grant.EpochRange{k.ID(): {First: 4}}})
	must(t, err)
	raw, err := b.Marshal()
	must(t, err)
	if again, err := grant.ParseBundle(raw); err != nil || strings.Contains(string(raw), `"k"`) || strings.Contains(string(raw), "oct") {
		t.Fatalf("the bundle does not come back, or holds a symmetric key (%v): %s", err, raw)
	} else if twice, _ := again.Marshal(); string(twice) != string(raw) {
		t.Fatalf("marshalled again:\n%s\n%s", raw, twice)
	}
	g, digest, err := s.Sign("", claims(t))
	must(t, err)
	open := func(bundle grant.Bundle, keys ...grant.Key) (grant.Verified, error) {
		v, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{OneTrustZone: keys})
		must(t, err)
		return v.Open(t.Context(), g, want(t))
	}
	if got, err := open(b, k); err != nil || got.Digest() != digest || got.Claims() != claims(t) {
		t.Fatalf("in one zone: %v", err)
	}
	if _, err := open(b); reasonOf(err) != "UNKNOWN_KEY" {
		t.Fatalf("a verifier that does not say so: %v", err)
	}
	if _, err := open(b, zoneKey(t)); reasonOf(err) != "UNKNOWN_KEY" {
		t.Fatalf("a verifier of another zone: %v", err)
	}
	without := bundleOf(t, grant.BundleInfo{Sequence: 2, CurrentEpoch: 4}, key(t, 0))
	if _, err := open(without, k); reasonOf(err) != "UNKNOWN_KEY" {
		t.Fatalf("a revoked zone key: %v", err)
	}
	late, err := s.Bundle(grant.BundleInfo{Sequence: 3, CurrentEpoch: 5, Epochs: map[string]grant.EpochRange{k.ID(): {First: 5}}})
	must(t, err)
	if _, err := open(late, k); reasonOf(err) != "EPOCH_OUTSIDE_KEY" {
		t.Fatalf("an epoch outside the zone key's range: %v", err)
	}
	if _, err := grant.NewVerifier(domain, grant.StaticBundle(b), grant.VerifierConfig{OneTrustZone: []grant.Key{key(t, 0)}}); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a private signing key at a verifier: %v", err)
	}

	// T8: the algorithm is the key's, whatever the header says.
	v, err := grant.NewVerifier(domain, grant.StaticBundle(b), grant.VerifierConfig{OneTrustZone: []grant.Key{k}})
	must(t, err)
	header, payload := split(t, g)
	ed := key(t, 0).ID()
	for name, forged := range map[string]string{
		"zone key as EdDSA":             seal(private(0), swap(t, header, "HS256", "EdDSA"), payload),
		"Ed25519 key as HS256":          b64([]byte(swap(t, header, k.ID(), ed))) + g[strings.IndexByte(g, '.'):],
		"Ed25519 signature by zone key": seal(private(0), header, payload),
	} {
		if _, err := v.Open(t.Context(), forged, want(t)); reasonOf(err) != "ALGORITHM" && reasonOf(err) != "SIGNATURE" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range len(g) {
		if _, err := v.Open(t.Context(), g[:i]+string([]byte{g[i] ^ 1})+g[i+1:], want(t)); !errors.Is(err, lastword.ErrUnverified) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
}

// A stock JOSE library checks a grant under a zone key.
func TestStockLibraryVerifiesZoneGrants(t *testing.T) {
	g := zoneGrant(t)
	token, err := jwt.ParseSigned(g, []jose.SignatureAlgorithm{jose.HS256})
	must(t, err)
	var c map[string]json.RawMessage
	must(t, token.Claims(zoneSecret, &c))
	if string(c["sub"]) != `"`+owner+`"` {
		t.Fatalf("got %s", c["sub"])
	}
}

// T17: a zone key's file is 0600, and never overwritten.
func TestZoneKeyFile(t *testing.T) {
	k, path := zoneKey(t), filepath.Join(t.TempDir(), "zone.pem")
	must(t, grant.SaveKey(path, k))
	if again, err := grant.LoadKey(path); err != nil || again.ID() != k.ID() || again.Algorithm() != "HS256" {
		t.Fatalf("%v, %v", again, err)
	}
	if err := grant.SaveKey(path, k); !errors.Is(err, lastword.ErrUnavailable) {
		t.Fatalf("overwritten: %v", err)
	}
	if err := grant.SaveKey(path+"2", grant.Key{}); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("the zero key: %v", err)
	}
}

// A ring takes zone keys only if it says that it is of one trust zone.
func TestZoneKeysInARing(t *testing.T) {
	r := newRing(t, 4)
	k := zoneKey(t)
	if _, err := r.Add(k); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	zone, err := grant.OpenRing(grant.RingConfig{Dir: r.Dir(), Domain: domain, OneTrustZone: true})
	must(t, err)
	must(t, second(zone.Add(k)))
	must(t, zone.Use(k.ID()))
	if err := r.Reload(); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a ring that does not say so: %v", err)
	}
	v, err := grant.NewVerifier(domain, grant.StaticBundle(bundleOfRing(t, zone)), grant.VerifierConfig{OneTrustZone: []grant.Key{k}})
	must(t, err)
	must(t, second(v.Open(t.Context(), grantAt(t, zone, 4), want(t))))
}
