package grant

import (
	"testing"

	"github.com/lastword/lastword"
)

// T22: what is used stays, and no more is kept than two generations.
func TestSignaturesThatAreUsedAreKeptAndNoMoreThanTheBound(t *testing.T) {
	m := signatures{half: 4}
	of := func(i int) lastword.Digest { return lastword.DigestOf([]byte{byte(i)}) }
	used := signature{1}
	m.put(of(0), used)
	for i := 1; i < 100; i++ {
		m.put(of(i), signature{2})
		if got, found := m.get(of(0)); !found || got != used {
			t.Fatalf("what is used is gone after %d others", i)
		}
		if n := len(m.young) + len(m.old); n > 8 {
			t.Fatalf("%d are kept, want at most 8", n)
		}
	}
	if _, found := m.get(of(1)); found {
		t.Error("nothing is ever forgotten")
	}
}
