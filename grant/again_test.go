package grant_test

import (
	"fmt"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// R2: whichever way it is asked for, and however often, a grant has the same bytes.
func TestAGrantThatIsSignedAgainHasTheSameBytes(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		c := claims(t)
		c.Resource = lastword.Resource(fmt.Sprint("doc/", i))
		want, digest, err := w.signer.Sign("", c)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got, d, err := w.signer.SignAgain("", c)
			if err != nil || got != want || d != digest {
				t.Fatalf("got %s, %v, %v; want %s, %v", got, d, err, want, digest)
			}
		}
	}
	for _, c := range []grant.Claims{{}, func() grant.Claims { c := claims(t); c.Domain = "another"; return c }()} {
		_, _, want := w.signer.Sign("", c)
		if _, _, err := w.signer.SignAgain("", c); want == nil || err == nil || err.Error() != want.Error() {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if _, _, err := w.signer.SignAgain("no such key", claims(t)); err == nil {
		t.Error("signed with a key that is not there")
	}
}

func BenchmarkSignAgain(b *testing.B) {
	w := newWorld(b)
	c := claims(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := w.signer.SignAgain("", c); err != nil {
			b.Fatal(err)
		}
	}
}
