package grant_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// Embedded use: the key lives in this process, and there is still no way around
// the seal.
func Example() {
	key, err := grant.NewKey()
	if err != nil {
		panic(err)
	}
	signer, err := grant.NewSigner("billing", key)
	if err != nil {
		panic(err)
	}
	bundle, err := signer.Bundle(grant.BundleInfo{Sequence: 1})
	if err != nil {
		panic(err)
	}
	verifier, err := grant.NewVerifier("billing", grant.StaticBundle(bundle), grant.VerifierConfig{})
	if err != nil {
		panic(err)
	}

	sealed, _, err := signer.Sign("", grant.Claims{
		Domain: "billing", Resource: "doc/a", Owner: "worker-a", RequestID: "r1", LeaseID: "l1",
		Fence: 41, Class: lastword.ClassWrite, TTL: 30 * time.Second,
		IssuedAt: time.Date(2026, 7, 19, 8, 30, 0, 0, time.UTC),
	})
	if err != nil {
		panic(err)
	}
	verified, err := verifier.Open(context.Background(), sealed, grant.Want{Resource: "doc/a", Owner: "worker-a"})
	fmt.Println(verified.Valid(), verified.Claims().Fence, err)

	verified, err = verifier.Open(context.Background(), sealed, grant.Want{Resource: "doc/b"})
	fmt.Println(verified.Valid(), grant.ReasonOf(err), errors.Is(err, lastword.ErrUnverified))
	fmt.Println(err)
	// Output:
	// true 41 <nil>
	// false RESOURCE_MISMATCH true
	// verify grant doc/b: UNVERIFIED: the grant is for another resource: RESOURCE_MISMATCH
}

func ExampleInspect() {
	key, err := grant.NewKey()
	if err != nil {
		panic(err)
	}
	signer, err := grant.NewSigner("billing", key)
	if err != nil {
		panic(err)
	}
	sealed, digest, err := signer.Sign("", grant.Claims{
		Domain: "billing", Resource: "doc/a", Owner: "worker-a", RequestID: "r1", LeaseID: "l1",
		Fence: 41, Class: lastword.ClassWrite, TTL: 30 * time.Second, IssuedAt: time.Unix(0, 0),
	})
	if err != nil {
		panic(err)
	}
	said, err := grant.Inspect(sealed)
	fmt.Println(said.Claims.Resource, said.Claims.Fence.Text(), said.Claims.TTL, err)
	fmt.Println(said.KeyID == key.ID(), said.Digest == digest)
	// Output:
	// doc/a 41 (0.41) 30s <nil>
	// true true
}

func ExampleInspectStatus() {
	key, err := grant.NewKey()
	if err != nil {
		panic(err)
	}
	signer, err := grant.NewSigner("billing", key)
	if err != nil {
		panic(err)
	}
	proof, err := signer.SignStatus(grant.StatusClaims{
		Domain: "billing", Resource: "doc/a", LeaseID: "l1", Fence: 41, GrantDigest: lastword.DigestOf([]byte("the grant")),
		State: lastword.StateHeld, Revision: 7, IssuedAt: time.Unix(1000, 0), Expires: time.Unix(1010, 0),
	})
	if err != nil {
		panic(err)
	}
	said, err := grant.InspectStatus(proof)
	fmt.Println(said.Claims.LeaseID, said.Claims.State, said.Claims.Expires.Sub(said.Claims.IssuedAt), said.KeyID == key.ID(), err)
	_, err = grant.InspectStatus("eyJ.e30.")
	fmt.Println(errors.Is(err, lastword.ErrUnverified), grant.ReasonOf(err))
	// Output:
	// l1 HELD 10s true <nil>
	// true ENCODING
}

func ExampleLoadOrCreateKey() {
	dir, err := os.MkdirTemp("", "lastword")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "signing-key.pem")

	first, created, err := grant.LoadOrCreateKey(path)
	fmt.Println(created, err)
	again, created, err := grant.LoadOrCreateKey(path)
	fmt.Println(created, err, first.ID() == again.ID())
	// Output:
	// true <nil>
	// false <nil> true
}

func ExampleParseBundle() {
	bundle, err := grant.ParseBundle([]byte(`{
		"lastword_domain": "billing",
		"spiffe_sequence": 11,
		"spiffe_refresh_hint": 300,
		"lastword_current_epoch": 5,
		"lastword_minimum_epoch": 3,
		"keys": [{
			"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
			"kid": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
			"x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
			"lastword_first_epoch": 4
		}]
	}`))
	fmt.Println(bundle.Domain(), bundle.Sequence(), bundle.CurrentEpoch(), bundle.MinimumEpoch(), bundle.RefreshHint(), err)
	// Output:
	// billing 11 5 3 5m0s <nil>
}
