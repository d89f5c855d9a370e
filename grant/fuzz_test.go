package grant_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lastword/lastword/grant"
)

// T5, T6: whatever bytes come, only what was signed opens.
func FuzzOpenOnlySignedBytes(f *testing.F) {
	w := newWorld(f)
	v := w.verifier(f, grant.VerifierConfig{})
	good, need := w.sign(f, claims(f)), want(f)
	f.Add(good)
	for _, c := range forgeries(f, w) {
		f.Add(c.grant)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := v.Open(t.Context(), s, need)
		if (err == nil) != got.Valid() {
			t.Fatalf("valid %v with error %v", got.Valid(), err)
		}
		if err == nil && s != good {
			t.Fatalf("opened what nobody signed: %q", s)
		}
		if err != nil && grant.ReasonOf(err) == "" {
			t.Fatalf("refused without a reason: %v", err)
		}
	})
}

// T5: a changed byte at a place that the fuzzer chooses never verifies.
func FuzzNoChangedByteVerifies(f *testing.F) {
	w := newWorld(f)
	v := w.verifier(f, grant.VerifierConfig{})
	good, need := w.sign(f, claims(f)), want(f)
	f.Add(uint16(0), byte(1))
	f.Add(uint16(len(good)-1), byte(4))
	f.Fuzz(func(t *testing.T, at uint16, mask byte) {
		b := []byte(good)
		b[int(at)%len(b)] ^= mask
		if _, err := v.Open(t.Context(), string(b), need); (err == nil) != (mask == 0) {
			t.Fatalf("byte %d xor %d: %v", int(at)%len(b), mask, err)
		}
	})
}

// T6: what parses was spelled as the signer spells it: the claims read, under the
// same key id, give the same signed bytes.
func FuzzInspect(f *testing.F) {
	w := newWorld(f)
	f.Add(w.sign(f, claims(f)))
	for _, c := range forgeries(f, w) {
		f.Add(c.grant)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := grant.Inspect(s)
		if err != nil {
			if grant.ReasonOf(err) == "" || u != (grant.Unverified{}) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		s2, err := grant.NewSigner(u.Claims.Domain, w.present, w.retired)
		if err != nil {
			t.Fatal(err)
		}
		d, err := s2.Digest(u.KeyID, u.Claims)
		if (u.KeyID == w.present.ID() || u.KeyID == w.retired.ID()) && u.Algorithm == "EdDSA" && err != nil {
			t.Fatalf("parsed claims cannot be signed: %v", err)
		}
		// The epoch stands in the claims and in the fence; only where they agree can
		// the signer have written it.
		_, payload := split(t, s)
		agree := strings.Contains(payload, fmt.Sprintf(`,"epoch":%d,"fence":`, u.Claims.Epoch()))
		if err == nil && u.Algorithm == "EdDSA" && agree && d != u.Digest {
			t.Fatalf("the claims read give other bytes: %+v", u)
		}
	})
}

func FuzzParseBundle(f *testing.F) {
	w := newWorld(f)
	b, err := w.bundle.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := grant.ParseBundle(in)
		if err != nil {
			return
		}
		out, err := b.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := grant.ParseBundle(out)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if twice, err := again.Marshal(); err != nil || string(twice) != string(out) {
			t.Fatalf("%v:\n%s\n%s", err, out, twice)
		}
	})
}
