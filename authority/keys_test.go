package authority_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
)

// newRingWorld is a world whose signer follows a ring on disk.
func newRingWorld(t *testing.T) (*world, *grant.Ring) {
	t.Helper()
	w := newWorld(t)
	first, err := grant.NewKey()
	must(t, err)
	dir := filepath.Join(t.TempDir(), "ring")
	ring, err := grant.OpenRing(grant.RingConfig{Dir: dir, Domain: domain, First: first})
	must(t, err)
	w.signer = ring.Signer()
	return w, ring
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verifierOf is what a resource has of the authority's trust bundle.
func verifierOf(t *testing.T, a *authority.Authority) *grant.Verifier {
	t.Helper()
	v, err := grant.NewVerifier(domain, grant.FetchBundle(a.Bundle), grant.VerifierConfig{})
	must(t, err)
	return v
}

func open(t *testing.T, v *grant.Verifier, tenure lastword.Tenure) (grant.Verified, error) {
	t.Helper()
	return v.Open(t.Context(), tenure.Grant, grant.Want{Resource: tenure.Resource, Owner: tenure.Owner})
}

// R12, T14: a proof says what Status says, for as long as the tenure lasts, and a proof
// from before is older than what came after.
func TestAStatusProofFollowsTheTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.open(authority.Config{})
		v := verifierOf(t, a)
		tenure := mustAcquire(t, a, request("w1", "r1", 20*time.Second))
		g, err := open(t, v, tenure)
		must(t, err)
		q := lastword.StatusQuery{Resource: tenure.Resource, LeaseID: tenure.LeaseID}

		st, first, err := a.Proof(t.Context(), q, 0)
		must(t, err)
		need := grant.StatusWant{Grant: g, Now: time.Now(), Skew: time.Second}
		got, err := v.OpenStatus(t.Context(), first, need)
		must(t, err)
		c := got.Claims()
		if c.State != lastword.StateHeld || c.Revision != st.Revision || c.Epoch != epoch(t, a) || c.LeaseID != tenure.LeaseID ||
			c.GrantDigest != tenure.GrantDigest || c.Expires.Sub(c.IssuedAt) != 10*time.Second || time.Since(c.IssuedAt) >= time.Second {
			t.Fatalf("status %+v, proof %+v", st, c)
		}

		must(t, second(a.Renew(t.Context(), tenure.TenureRef)))
		_, renewed, err := a.Proof(t.Context(), q, time.Hour)
		must(t, err)
		need.Seen = c.Mark()
		later, err := v.OpenStatus(t.Context(), renewed, need)
		must(t, err)
		if life := later.Claims().Expires.Sub(later.Claims().IssuedAt); life != 20*time.Second {
			t.Fatalf("a proof lives for %v, want no more than the TTL", life)
		}
		need.Seen = later.Claims().Mark()
		if _, err := v.OpenStatus(t.Context(), first, need); grant.ReasonOf(err) != grant.ReasonProofOld {
			t.Fatalf("a proof from before the renewal: %v", err)
		}

		// A start of the authority begins a new epoch, in which the tenure goes on.
		b := w.open(authority.Config{})
		_, moved, err := b.Proof(t.Context(), q, 0)
		must(t, err)
		got, err = verifierOf(t, b).OpenStatus(t.Context(), moved, need)
		if err != nil || got.Claims().Epoch != 1 || got.Claims().Fence != tenure.Fence {
			t.Fatalf("got %+v, %v", got.Claims(), err)
		}

		must(t, b.Release(t.Context(), tenure.TenureRef))
		st, none, err := b.Proof(t.Context(), q, 0)
		if err != nil || none != "" || st.Asked != lastword.StateReleased {
			t.Fatalf("of a released lease: %q, %+v, %v", none, st, err)
		}
		next := mustAcquire(t, b, request("w2", "r2", 20*time.Second))
		if _, none, err := b.Proof(t.Context(), q, 0); err != nil || none != "" {
			t.Fatalf("of a lease that another one followed: %q, %v", none, err)
		}
		_, theirs, err := b.Proof(t.Context(), lastword.StatusQuery{Resource: next.Resource, LeaseID: next.LeaseID}, 0)
		must(t, err)
		if _, err := verifierOf(t, b).OpenStatus(t.Context(), theirs, grant.StatusWant{Grant: g, Now: time.Now()}); grant.ReasonOf(err) != grant.ReasonProofGrant {
			t.Fatalf("the successor's proof beside the old grant: %v", err)
		}
		for _, bad := range []func() error{
			func() error { _, _, err := b.Proof(t.Context(), lastword.StatusQuery{Resource: "a"}, 0); return err },
			func() error { _, _, err := b.Proof(t.Context(), q, -1); return err },
			func() error {
				_, _, err := b.Proof(t.Context(), lastword.StatusQuery{Resource: "a//b", LeaseID: "x"}, 0)
				return err
			},
		} {
			wantCode(t, bad(), lastword.ErrInvalid)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// R13: a rotation under a running authority refuses no tenure, and the bundle shows each
// step at once, whoever made it.
func TestARotationUnderARunningAuthority(t *testing.T) {
	w, ring := newRingWorld(t)
	defer w.close()
	a := w.open(authority.Config{})
	v := verifierOf(t, a)
	elsewhere, err := grant.OpenRing(grant.RingConfig{Dir: ring.Dir(), Domain: domain}) // another process
	must(t, err)
	acquire := func(i int) lastword.Tenure {
		r := request("w1", fmt.Sprint("r", i), time.Minute)
		r.Resource = lastword.Resource(fmt.Sprint("doc/", i))
		return mustAcquire(t, a, r)
	}
	first := acquire(1)
	must(t, second(open(t, v, first)))
	k, err := elsewhere.Add(grant.Key{})
	must(t, err)
	raw, err := a.Bundle(t.Context())
	must(t, err)
	if b, err := grant.ParseBundle(raw); err != nil || b.Sequence() != elsewhere.Info().Sequence {
		t.Fatalf("the bundle is not the ring's at once: %v", err)
	}
	must(t, elsewhere.Use(k.ID))
	must(t, a.Reload(t.Context()))
	next := acquire(2)
	if u, err := grant.Inspect(next.Grant); err != nil || u.KeyID != k.ID {
		t.Fatalf("signed with %s, %v", u.KeyID, err)
	}
	old, err := grant.Inspect(first.Grant)
	must(t, err)
	must(t, elsewhere.Retire(old.KeyID))
	must(t, a.Reload(t.Context()))
	for _, tenure := range []lastword.Tenure{first, next} {
		must(t, second(open(t, v, tenure)))
		again, err := a.Renew(t.Context(), tenure.TenureRef)
		if err != nil || again.Grant != tenure.Grant {
			t.Fatalf("R2: renewed with another grant: %v", err)
		}
	}
	if e := epoch(t, a); e != 0 {
		t.Fatalf("a rotation began epoch %d", e)
	}
}

// R13, T20: revoking the key that signs ends what it signed, begins an epoch above it,
// and lets the holders acquire again.
func TestRevokingTheSigningKeyUnderARunningAuthority(t *testing.T) {
	w, ring := newRingWorld(t)
	defer w.close()
	a := w.open(authority.Config{})
	v := verifierOf(t, a)
	tenure := mustAcquire(t, a, request("w1", "r1", time.Minute))
	must(t, second(open(t, v, tenure)))
	must(t, a.Reload(t.Context())) // changes nothing
	must(t, second(a.Renew(t.Context(), tenure.TenureRef)))

	elsewhere, err := grant.OpenRing(grant.RingConfig{Dir: ring.Dir(), Domain: domain})
	must(t, err)
	must(t, elsewhere.Revoke(ring.Signer().KeyID()))

	// From here on, before anybody reloads: the bundle refuses it.
	fresh := verifierOf(t, a)
	if _, err := open(t, fresh, tenure); grant.ReasonOf(err) != grant.ReasonUnknownKey {
		t.Fatalf("got %v", err)
	}
	// The holder is told so, and a resource that asks hears of no grant.
	_, err = a.Renew(t.Context(), tenure.TenureRef)
	wantCode(t, err, lastword.ErrNotHolder)
	_, err = a.Acquire(t.Context(), request("w1", "r1", time.Minute))
	wantCode(t, err, lastword.ErrTenureEnded)
	st, proof, err := a.Proof(t.Context(), lastword.StatusQuery{Resource: tenure.Resource, LeaseID: tenure.LeaseID}, 0)
	if err != nil || proof != "" || !st.Digest.IsZero() {
		t.Fatalf("got %+v, %q, %v", st, proof, err)
	}

	must(t, a.Reload(t.Context()))
	began := ring.Info() // a start that meets another step of the store takes a later epoch
	if began.CurrentEpoch < 1 || began.MinimumEpoch != 1 || began.NextEpoch != 0 {
		t.Fatalf("got %+v", began)
	}
	if st := status(t, a); st.State != lastword.StateFree && st.State != lastword.StateRevoked {
		t.Fatalf("the tenure is %s", st.State)
	}
	next := mustAcquire(t, a, request("w1", "r2", time.Minute))
	if next.Fence.Epoch() != began.CurrentEpoch || next.Fence <= tenure.Fence {
		t.Fatalf("fence %s after %s", next.Fence.Text(), tenure.Fence.Text())
	}
	must(t, second(open(t, fresh, next)))
	if _, err := open(t, v, next); err != nil { // one that has the old bundle asks once more
		t.Fatal(err)
	}
	must(t, a.Reload(t.Context()))
	must(t, second(a.Renew(t.Context(), next.TenureRef)))
	if e := epoch(t, a); e != began.CurrentEpoch {
		t.Fatalf("epoch %d after %d: every reload began one", e, began.CurrentEpoch)
	}
}

// T27: revoked epochs end the tenures of those epochs.
func TestRevokedEpochsEndTheirTenures(t *testing.T) {
	w, ring := newRingWorld(t)
	defer w.close()
	a := w.open(authority.Config{})
	old := mustAcquire(t, a, request("w1", "r1", time.Minute))
	e, err := a.NewEpoch(t.Context())
	if err != nil || e < 1 {
		t.Fatalf("epoch %d, %v", e, err)
	}
	must(t, second(a.Renew(t.Context(), old.TenureRef))) // a new epoch alone ends nothing
	must(t, ring.RevokeEpochs(1))
	must(t, a.Reload(t.Context()))
	_, err = a.Renew(t.Context(), old.TenureRef)
	wantCode(t, err, lastword.ErrNotHolder)
	next := mustAcquire(t, a, request("w2", "r2", time.Minute))
	must(t, second(open(t, verifierOf(t, a), next)))
}

// The bundle of several processes on one ring is one sequence, through starts, steps of
// the ring and new epochs.
func TestSeveralProcessesPublishOneSequence(t *testing.T) {
	w, ring := newRingWorld(t)
	defer w.close()
	seen := map[uint64]string{}
	var highest uint64
	look := func(all ...*authority.Authority) {
		t.Helper()
		for _, a := range all {
			raw, err := a.Bundle(context.Background())
			must(t, err)
			b, err := grant.ParseBundle(raw)
			must(t, err)
			if before, ok := seen[b.Sequence()]; ok && before != string(raw) || b.Sequence() < highest {
				t.Fatalf("sequence %d after %d:\n%s\n%s", b.Sequence(), highest, before, raw)
			}
			seen[b.Sequence()], highest = string(raw), b.Sequence()
		}
	}
	a := w.open(authority.Config{})
	look(a)
	b := w.open(authority.Config{RefreshHint: 20 * time.Second})
	look(a, b, a)
	must(t, second(ring.Add(grant.Key{})))
	look(b, a)
	must(t, second(a.NewEpoch(t.Context())))
	look(b, a, b)
	must(t, ring.Revoke(ring.Signer().KeyID()))
	look(a, b)
	must(t, b.Reload(t.Context()))
	must(t, a.Reload(t.Context()))
	look(a, b)
	if len(seen) < 6 {
		t.Fatalf("%d sequences", len(seen))
	}
}
