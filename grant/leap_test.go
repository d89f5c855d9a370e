package grant_test

import (
	"testing"

	"github.com/lastword/lastword/grant"
)

// R13, T27: one bundle whose sequence nobody can have counted to would be the last one
// that a resource ever takes. It is refused where a floor is known, by the verifier's own
// and by the resource's; what follows from the epoch is none.
func TestABundleFarAheadOfTheFloorIsRefused(t *testing.T) {
	w := newWorld(t)
	at := func(sequence uint64, current uint32) grant.BundleSource {
		b, err := w.signer.Bundle(grant.BundleInfo{Sequence: sequence, CurrentEpoch: current, MinimumEpoch: 3})
		if err != nil {
			t.Fatal(err)
		}
		return grant.StaticBundle(b)
	}
	g, _, err := w.signer.Sign("", claims(t))
	if err != nil {
		t.Fatal(err)
	}
	floor := grant.BundleFloor{Sequence: 11, MinimumEpoch: 3}
	for _, c := range []struct {
		what     string
		sequence uint64
		current  uint32
		want     grant.Reason
	}{
		{"the largest sequence", 1<<53 - 1, 9, grant.ReasonBundleLeap},
		{"one more than can be missed", 11 + 4097, 9, grant.ReasonBundleLeap},
		{"all that can be missed", 11 + 4096, 9, ""},
		{"a sequence of a far epoch", 100_001, 100_000, ""},
	} {
		v, err := grant.NewVerifier(claims(t).Domain, at(c.sequence, c.current), grant.VerifierConfig{})
		if err != nil {
			t.Fatal(err)
		}
		wanted := want(t)
		wanted.Bundle = floor
		if _, err := v.Open(t.Context(), g, wanted); grant.ReasonOf(err) != c.want {
			t.Errorf("%s, floor of the resource: %v", c.what, err)
		}
		if next, newer := v.Beyond(floor); newer != (c.want == "") || newer && next.Sequence != c.sequence {
			t.Errorf("%s: beyond the floor %+v, %v", c.what, next, newer)
		}
		v, err = grant.NewVerifier(claims(t).Domain, at(c.sequence, c.current), grant.VerifierConfig{Floor: floor})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Open(t.Context(), g, want(t)); grant.ReasonOf(err) != c.want {
			t.Errorf("%s, floor of the verifier: %v", c.what, err)
		}
	}
}
