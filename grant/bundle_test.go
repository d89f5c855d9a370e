package grant_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

func TestBundleRoundTrip(t *testing.T) {
	w := newWorld(t)
	b, err := w.bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := grant.ParseBundle(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.Domain() != domain || got.Sequence() != 11 || got.CurrentEpoch() != 5 || got.MinimumEpoch() != 3 || got.RefreshHint() != 5*time.Minute {
		t.Fatalf("got %s", b)
	}
	again, err := got.Marshal()
	if err != nil || string(again) != string(b) {
		t.Fatalf("marshalled again (%v):\n%s\n%s", err, b, again)
	}
	v, err := grant.NewVerifier(domain, grant.StaticBundle(got), grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range epochForgeries(t, w) {
		if _, err := v.Open(t.Context(), f.grant, f.want); reasonOf(err) != string(f.reason) {
			t.Errorf("%s: %s", f.name, reasonOf(err))
		}
	}
	if _, err := v.Open(t.Context(), w.sign(t, claims(t)), want(t)); err != nil {
		t.Error(err)
	}
}

func TestZeroBundleSaysNothing(t *testing.T) {
	var b grant.Bundle
	if _, err := b.Marshal(); !errors.Is(err, lastword.ErrInvalid) {
		t.Error(err)
	}
	if b.Domain() != "" || b.Sequence() != 0 || b.CurrentEpoch() != 0 || b.MinimumEpoch() != 0 || b.RefreshHint() != 0 {
		t.Error("the zero value says something")
	}
}

// bundleForgery is a bundle, and what ParseBundle has to say to it.
type bundleForgery struct {
	name  string
	class string // of failure; "" is accepted
	in    string
	says  string
}

// T3, T7, T9, T22, protocol §3: bundles that contradict themselves, hold secrets or
// have two readings are refused; what is not known is ignored.
func bundleForgeries(t testing.TB, w *world) []bundleForgery {
	b, err := w.bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	first := `{"alg":"EdDSA","crv":"Ed25519","kid":"` + w.present.ID()
	in := func(old, replacement string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in %s", old, good)
		}
		return strings.Replace(good, old, replacement, 1)
	}
	zone := func(members string) string { return in(`"keys"`, `"lastword_zone_keys":[{`+members+`}],"keys"`) }
	return []bundleForgery{
		{"as it is", "", good, ""},
		{"an unknown member", "", in(`"keys"`, `"later":{"a":1},"keys"`), ""},
		{"an unknown kind of key", "", in(`"keys":[`, `"keys":[{"kty":"EC","crv":"P-256","kid":"x","x":"","y":""},{"kty":"new"},`), ""},
		{"empty", "shape", ``, "not the JSON"},
		{"an array", "shape", `[]`, "not the JSON"},
		{"a grant", "shape", w.sign(t, claims(t)), "not the JSON"},
		{"no members", "shape", `{}`, "lacks"},
		{"no sequence", "shape", in(`"spiffe_sequence":11,`, ``), "lacks"},
		{"sequence in other case", "shape", in(`"spiffe_sequence"`, `"Spiffe_Sequence"`), "lacks"},
		{"sequence twice", "shape", in(`"spiffe_sequence":11`, `"spiffe_sequence":11,"spiffe_sequence":12`), "duplicate"},
		{"sequence is a float", "shape", in(`"spiffe_sequence":11`, `"spiffe_sequence":11.0`), "not the JSON"},
		{"sequence is negative", "shape", in(`"spiffe_sequence":11`, `"spiffe_sequence":-1`), "not the JSON"},
		{"sequence 2^53", "value", in(`"spiffe_sequence":11`, `"spiffe_sequence":9007199254740992`), "sequence"},
		{"minimum above current", "value", in(`"lastword_minimum_epoch":3`, `"lastword_minimum_epoch":6`), "minimum"},
		{"current epoch too large", "value", in(`"lastword_current_epoch":5`, `"lastword_current_epoch":1048576`), "current"},
		{"refresh hint is negative", "value", in(`"spiffe_refresh_hint":300`, `"spiffe_refresh_hint":-1`), "refresh"},
		{"refresh hint overflows", "value", in(`"spiffe_refresh_hint":300`, `"spiffe_refresh_hint":9223372037`), "refresh"},
		{"no domain", "value", in(`"lastword_domain":"billing"`, `"lastword_domain":""`), "domain"},
		{"keys are null", "shape", `{"lastword_domain":"d","spiffe_sequence":1,"lastword_current_epoch":0,"lastword_minimum_epoch":0,"keys":null}`, "lacks"},
		{"private key", "secret", in(first, `{"d":"AAAA",`+first[1:]), "private"},
		{"symmetric key", "secret", in(`"keys":[`, `"keys":[{"kty":"oct","k":"AAAA","alg":"HS256","kid":"x"},`), "symmetric"},
		{"other alg", "key", in(first, strings.Replace(first, "EdDSA", "HS256", 1)), "alg"},
		{"no alg", "key", in(first, strings.Replace(first, `"alg":"EdDSA",`, ``, 1)), "alg"},
		{"kid of another key", "key", in(first, strings.Replace(first, w.present.ID(), "other", 1)), "thumbprint"},
		{"the same key twice", "key", in(`"keys":[`, `"keys":[`+good[strings.Index(good, first):strings.Index(good, `},{`)+1]+`,`), "twice"},
		{"epochs upside down", "key", in(`"lastword_first_epoch":4`, `"lastword_first_epoch":4,"lastword_last_epoch":3`), "before"},
		{"short x", "key", in(`"x":"`, `"x":"AAAA","y":"`), "public key"},
		{"deep", "shape", in(`"keys"`, `"later":`+strings.Repeat("[", 4)+strings.Repeat("]", 4)+`,"keys"`), "deep"},
		{"large", "shape", good + strings.Repeat(" ", grant.MaxBundleBytes), "bytes"},
		{"trailing bytes", "shape", good + `{}`, "not the JSON"},
		{"a status proof", "shape", w.proof(t, statusOf(t, w)), "not the JSON"},
		{"a key for one trust zone", "", zone(`"kid":"` + key(t, 7).ID() + `","alg":"HS256","lastword_first_epoch":4`), ""},
		{"a key for one trust zone with the key itself", "secret", zone(`"kid":"` + key(t, 7).ID() + `","alg":"HS256","k":"AAAA"`), "symmetric"},
		{"a key for one trust zone with another alg", "key", zone(`"kid":"` + key(t, 7).ID() + `","alg":"EdDSA"`), "alg HS256"},
		{"a key for one trust zone without a thumbprint", "key", zone(`"kid":"secret","alg":"HS256"`), "thumbprint"},
		{"a key for one trust zone that is a public one", "key", zone(`"kid":"` + w.present.ID() + `","alg":"HS256"`), "twice"},
	}
}

func TestParseBundle(t *testing.T) {
	for _, c := range bundleForgeries(t, newWorld(t)) {
		_, err := grant.ParseBundle([]byte(c.in))
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v does not say %q", c.name, err, c.says)
		}
	}
}

func TestSignerBundleRefusesContradictions(t *testing.T) {
	w := newWorld(t)
	last := uint32(1)
	for name, i := range map[string]grant.BundleInfo{
		"minimum above current":   {MinimumEpoch: 1},
		"sequence":                {Sequence: grant.MaxNumber + 1},
		"hint is a fraction":      {RefreshHint: time.Millisecond},
		"epochs of a foreign key": {Epochs: map[string]grant.EpochRange{"x": {}}},
		"epochs upside down":      {Epochs: map[string]grant.EpochRange{w.present.ID(): {First: 2, Last: &last}}},
	} {
		if _, err := w.signer.Bundle(i); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
