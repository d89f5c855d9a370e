package identity_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lastword/lastword/identity"
)

// Both sides of mutual TLS with certificates for development.
func Example() {
	dir, err := os.MkdirTemp("", "lastword-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	pki := filepath.Join(dir, "pki")
	ca, authority, err := identity.InitCA(pki, "example.test")
	if err != nil {
		fmt.Println(err)
		return
	}
	ann, err := identity.Issue(pki, "spiffe://example.test/ann", identity.IssueConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	source, err := identity.Open(identity.Config{
		CertFile: ann.CertFile, KeyFile: ann.KeyFile, CAFiles: map[string]string{"": ca.CertFile},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = source.ClientTLS(authority.ID)
	fmt.Println(source.ID(), "expects", authority.ID, err)
	_, err = source.ClientTLS("spiffe://other.test/authority")
	fmt.Println(err)
	// Output:
	// spiffe://example.test/ann expects spiffe://example.test/authority <nil>
	// INVALID: the authority "spiffe://other.test/authority" is of a trust domain without certificates here; there are those of ["example.test"]
}
