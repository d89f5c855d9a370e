package authority_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
)

// signed is a grant of a fence that the authority of the world never issued.
func (w *world) signed(t *testing.T, signer *grant.Signer, r lastword.Resource, f lastword.Token) string {
	t.Helper()
	g, _, err := signer.Sign("", grant.Claims{
		Domain: domain, Resource: r, Owner: "lost", RequestID: "lost", LeaseID: "lost", Fence: f, Revision: 7,
		Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0).UTC(),
	})
	must(t, err)
	return g
}

// R10, KF-36 (3): a resource's report of a higher fence stops the grants of that
// resource, not of others, over a restart, until an operator resumes it.
func TestAReportStopsTheGrantsOfItsResourceUntilAnOperatorResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		ctx := t.Context()
		a := w.open(authority.Config{})
		tenure := mustAcquire(t, a, request("w1", "r1", 20*time.Second))
		e := epoch(t, a)
		above, err := lastword.MakeToken(e, tenure.Fence.Counter()+5)
		must(t, err)
		report := func(g string) (lastword.ReportAnswer, error) {
			return a.Report(ctx, lastword.Report{Resource: tenure.Resource, Grant: g, Reporter: "db-1"})
		}
		for what, g := range map[string]string{
			"nothing": "", "not a grant": "a.b.c", "of another resource": w.signed(t, w.signer, "other", above), "of another key": strange(t, w, above),
		} {
			if got, err := report(g); err == nil || got.Counted {
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		}
		if got, err := report(tenure.Grant); err != nil || got.Counted || got.Fence != 0 {
			t.Errorf("the present grant: %+v, %v", got, err)
		}
		if _, err := a.Renew(ctx, tenure.TenureRef); err != nil {
			t.Fatalf("after reports that do not count: %v", err)
		}
		for range 2 {
			got, err := report(w.signed(t, w.signer, tenure.Resource, above))
			if err != nil || !got.Counted || got.Fence != above {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		waiter := background(ctx, a, waiting("w2", "r2", 20*time.Second))
		if got := <-waiter; !errors.Is(got.err, lastword.ErrRegression) {
			t.Errorf("a waiter: %v", got.err)
		}
		_, err = a.Renew(ctx, tenure.TenureRef)
		wantCode(t, err, lastword.ErrRegression)
		other := request("w1", "r1", 20*time.Second)
		other.Resource = "another"
		mustAcquire(t, a, other)
		must(t, a.Close())

		a = w.open(authority.Config{}) // it is durable
		_, err = a.Acquire(ctx, request("w3", "r3", 20*time.Second))
		wantCode(t, err, lastword.ErrRegression)
		if st := status(t, a); st.Reported != above {
			t.Errorf("the status shows %+v", st)
		}
		_, err = a.Resume(ctx, tenure.Resource, above-1, "anna", "guessed")
		wantCode(t, err, lastword.ErrRequestConflict)
		_, err = a.Resume(ctx, tenure.Resource, above, "", "")
		wantCode(t, err, lastword.ErrInvalid)
		next, err := a.Resume(ctx, tenure.Resource, above, "anna", "the backup was of Tuesday")
		if err != nil || next <= above {
			t.Fatalf("resumed: next %s, %v", next, err)
		}
		got := mustAcquire(t, a, request("w3", "r4", 20*time.Second))
		if got.Fence != next || got.Previous.State != lastword.StateRevoked {
			t.Errorf("granted %+v, want fence %s", got, next)
		}
	})
}

func strange(t *testing.T, w *world, f lastword.Token) string {
	t.Helper()
	key, err := grant.NewKey()
	must(t, err)
	signer, err := grant.NewSigner(domain, key)
	must(t, err)
	return w.signed(t, signer, "a", f)
}

// A restored authority hears of an epoch that it has not reached: the report counts,
// and only an epoch above it brings the resource back.
func TestAReportOfALaterEpochCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.open(authority.Config{})
		far, err := lastword.MakeToken(epoch(t, a)+2, 3)
		must(t, err)
		r := request("w1", "r1", 20*time.Second).Resource
		got, err := a.Report(t.Context(), lastword.Report{Resource: r, Grant: w.signed(t, w.signer, r, far), Reporter: "db-1"})
		if err != nil || !got.Counted {
			t.Fatalf("%+v, %v", got, err)
		}
		_, err = a.Resume(t.Context(), r, far, "anna", "seen")
		wantCode(t, err, lastword.ErrRegression)
		for range 3 {
			_, err = a.NewEpoch(t.Context())
			must(t, err)
		}
		next, err := a.Resume(t.Context(), r, far, "anna", "seen")
		if err != nil || next <= far {
			t.Fatalf("next %s, %v", next, err)
		}
	})
}

// R12, T14: a proof comes with the grant and with a renewal, if one was asked for.
func TestAcquireAndRenewBringAStatusProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.open(authority.Config{})
		v := verifierOf(t, a)
		r := request("w1", "r1", 20*time.Second)
		if plain := mustAcquire(t, a, r); plain.StatusProof != "" {
			t.Error("a proof that nobody asked for")
		}
		r.ProofLife = 15 * time.Second
		tenure := mustAcquire(t, a, r) // a retry may ask for another
		g, err := open(t, v, tenure)
		must(t, err)
		check := func(proof string, seen grant.StatusMark) grant.StatusMark {
			t.Helper()
			s, err := v.OpenStatus(t.Context(), proof, grant.StatusWant{Grant: g, Now: time.Now(), Seen: seen})
			must(t, err)
			if c := s.Claims(); c.State != lastword.StateHeld || c.Expires.Sub(c.IssuedAt) != 15*time.Second {
				t.Errorf("%+v", c)
			}
			return s.Claims().Mark()
		}
		first := check(tenure.StatusProof, grant.StatusMark{})
		renewed, err := a.RenewProof(t.Context(), tenure.TenureRef, 15*time.Second)
		must(t, err)
		if mark := check(renewed.StatusProof, first); !first.Before(mark) {
			t.Errorf("%+v, then %+v", first, mark)
		}
		if plain, err := a.Renew(t.Context(), tenure.TenureRef); err != nil || plain.StatusProof != "" {
			t.Errorf("%+v, %v", plain, err)
		}
		r.ProofLife = -1
		_, err = a.Acquire(context.WithoutCancel(t.Context()), r)
		wantCode(t, err, lastword.ErrInvalid)
	})
}
