package client_test

import (
	"testing"

	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/memstore"
)

// embedded is a real authority on a store in memory. It is closed with the test,
// after the clients that were made later.
func embedded(t *testing.T) *authority.Authority {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("test", key)
	if err != nil {
		t.Fatal(err)
	}
	a, err := authority.Open(t.Context(), memstore.New().Open(), signer, authority.Config{Domain: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}
