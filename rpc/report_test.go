package rpc_test

import (
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
)

var (
	_ client.Prover  = (*rpc.Client)(nil)
	_ client.Prover  = (*authority.Authority)(nil)
	_ fence.Reporter = (*rpc.Client)(nil)
	_ fence.Reporter = (*authority.Authority)(nil)
	_ fence.Watcher  = (*rpc.Client)(nil)
	_ fence.Watcher  = (*authority.Authority)(nil)
	_ fence.Prover   = (*client.Lease)(nil)
)

// R10, R12: proofs, reports and resumes mean over the wire, through a session and one
// by one, what they mean in the process.
func TestProofsReportsAndResumesTravel(t *testing.T) {
	for name, cfg := range map[string]rpc.ClientConfig{"session": {}, "one by one": {OneByOne: true}} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t, authority.Config{})
			addr, _ := serve(t, a, rpc.ServerConfig{})
			c := dialWith(t, addr, cfg)
			ctx := t.Context()
			tenure, err := c.Acquire(ctx, lastword.AcquireRequest{Resource: "doc/a", Owner: "w", RequestID: "r", TTL: 20 * time.Second, ProofLife: 9 * time.Second})
			if err != nil || tenure.StatusProof == "" {
				t.Fatalf("%v, proof of %d bytes", err, len(tenure.StatusProof))
			}
			renewed, err := c.RenewProof(ctx, tenure.TenureRef, 9*time.Second)
			if err != nil || renewed.StatusProof == "" || renewed.StatusProof == tenure.StatusProof {
				t.Fatalf("renewed: %v", err)
			}
			if plain, err := c.Renew(ctx, tenure.TenureRef); err != nil || plain.StatusProof != "" {
				t.Fatalf("%+v, %v", plain, err)
			}
			q := lastword.StatusQuery{Resource: "doc/a", LeaseID: tenure.LeaseID}
			st, proof, err := c.Proof(ctx, q, 0)
			if err != nil || proof == "" || st.Asked != lastword.StateHeld {
				t.Fatalf("%+v, %v", st, err)
			}
			_, _, err = c.Proof(ctx, lastword.StatusQuery{Resource: "doc/a"}, time.Second)
			wantCode(t, err, lastword.CodeInvalid)
			_, _, err = c.Proof(ctx, q, -time.Second)
			wantCode(t, err, lastword.CodeInvalid)
			b, err := c.Bundle(ctx)
			if err != nil {
				t.Fatal(err)
			}
			bundle, err := grant.ParseBundle(b)
			if err != nil {
				t.Fatal(err)
			}
			v, _ := grant.NewVerifier(bundle.Domain(), grant.StaticBundle(bundle), grant.VerifierConfig{})
			opened, err := v.Open(ctx, tenure.Grant, grant.Want{Resource: "doc/a"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.OpenStatus(ctx, proof, grant.StatusWant{Grant: opened, Now: time.Now()}); err != nil {
				t.Error(err)
			}

			got, err := c.Report(ctx, lastword.Report{Resource: "doc/a", Grant: tenure.Grant, Reporter: "db"})
			if err != nil || got.Counted || got.Fence != 0 {
				t.Errorf("a report of what is known: %+v, %v", got, err)
			}
			_, err = c.Report(ctx, lastword.Report{Resource: "doc/a", Grant: "e30.e30.AA", Reporter: "db"})
			wantCode(t, err, lastword.CodeUnverified)
			_, err = c.Report(ctx, lastword.Report{Resource: "doc/a", Reporter: "db"})
			wantCode(t, err, lastword.CodeInvalid)
			_, err = c.Report(ctx, lastword.Report{Resource: "doc/a", Grant: tenure.Grant})
			wantCode(t, err, lastword.CodeInvalid)
			_, err = c.Resume(ctx, "doc/a", tenure.Fence, "anna", "nothing stops it")
			wantCode(t, err, lastword.CodeRequestConflict)
		})
	}
}
