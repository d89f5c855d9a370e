package fence_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	issuing "github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/store/memstore"
)

// current is the authority that answers now.
type current struct {
	atomic.Pointer[issuing.Authority]
}

func (c *current) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	return c.Load().Status(ctx, q)
}

func (c *current) Report(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error) {
	return c.Load().Report(ctx, r)
}

// KF-36 (3), KF-17, X20: the authority loses its volume and begins at 1 again, with the
// same key. The gate notices with the first low fence, freezes the record, and reports
// the grant that it has admitted: the new authority grants nothing of this resource any
// more until an operator resumes it, above everything that was ever granted. It goes on
// with other resources.
func TestAnAuthorityThatLostItsVolumeIsStoppedByTheReportOfTheGate(t *testing.T) {
	for name, tenures := range map[string]int{"behind": 1, "level": 3} {
		t.Run(name, func(t *testing.T) {
			key, err := grant.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			signer, err := grant.NewSigner(domain, key)
			if err != nil {
				t.Fatal(err)
			}
			now := &current{}
			start := func() *issuing.Authority {
				a, err := issuing.Open(context.WithoutCancel(t.Context()), memstore.New().Open(), signer, issuing.Config{Domain: domain})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = a.Close() })
				now.Store(a)
				return a
			}
			first := start()
			place := memfence.New(t.Name())
			v, err := grant.NewVerifier(domain, grant.FetchBundle(first.Bundle), grant.VerifierConfig{})
			if err != nil {
				t.Fatal(err)
			}
			g, err := fence.NewGate(fence.Config{Domain: domain, Verifier: v, Status: now, Reporter: now, StatusReuse: -1})
			if err != nil {
				t.Fatal(err)
			}
			write := func(tenure lastword.Tenure, operation string) error {
				c := fence.Call{Mutation: lastword.Mutation{Grant: tenure.Grant, Operation: operation, Payload: lastword.DigestOf([]byte(operation))}}
				_, err := fence.Apply(t.Context(), g, place, c, set(operation))
				return err
			}
			take := func(a *issuing.Authority, r lastword.Resource, id string) (lastword.Tenure, error) {
				return a.Acquire(t.Context(), lastword.AcquireRequest{Resource: r, Owner: "w", RequestID: id, TTL: 20 * time.Second})
			}
			// next is the n-th tenure of the resource at a.
			next := func(a *issuing.Authority, n int) (tenure lastword.Tenure) {
				for i := range n {
					var err error
					if i > 0 {
						if err = a.Release(t.Context(), tenure.TenureRef); err != nil {
							t.Fatal(err)
						}
					}
					if tenure, err = take(a, doc, string(rune('a'+i))); err != nil {
						t.Fatal(err)
					}
				}
				return tenure
			}
			lost := next(first, 3)
			if err := write(lost, "op-1"); err != nil {
				t.Fatal(err)
			}

			second := start()
			low := next(second, tenures)
			if low.Fence > lost.Fence {
				t.Fatalf("the new authority grants %s", low.Fence.Text())
			}
			if err := write(low, "op-2"); !errors.Is(err, lastword.ErrRegression) {
				t.Fatalf("a write with fence %s: %v", low.Fence, err)
			}
			in, err := fence.Inspect(t.Context(), g, place, doc)
			if err != nil || !in.Record.Frozen || in.Record.Fence != lost.Fence {
				t.Fatalf("%+v, %v", in, err)
			}
			if _, err := second.Renew(t.Context(), low.TenureRef); !errors.Is(err, lastword.ErrRegression) {
				t.Errorf("renewed: %v", err)
			}
			if err := second.Release(t.Context(), low.TenureRef); err != nil {
				t.Errorf("released: %v", err)
			}
			if _, err := take(second, doc, "later"); !errors.Is(err, lastword.ErrRegression) {
				t.Errorf("granted: %v", err)
			}
			if _, err := take(second, "doc/other", "other"); err != nil {
				t.Errorf("another resource: %v", err)
			}

			above, err := second.Resume(t.Context(), doc, lost.Fence, "ops", "the volume was lost; the key is ours")
			if err != nil || above <= lost.Fence {
				t.Fatalf("resumed: next %s, %v", above, err)
			}
			if _, err := fence.Release(t.Context(), place, fence.Key{Domain: domain, Resource: doc}, 0,
				fence.Act{Operator: "ops", Reason: "the volume was lost", At: time.Unix(1_800_000_000, 0)}); err != nil {
				t.Fatal(err)
			}
			fresh, err := take(second, doc, "fresh")
			if err != nil || fresh.Fence != above {
				t.Fatalf("%+v, %v", fresh, err)
			}
			if err := write(fresh, "op-3"); err != nil {
				t.Fatal(err)
			}
			for what, old := range map[string]lastword.Tenure{"the lost tenure": lost, "the low one": low} {
				if err := write(old, "op-4"); !errors.Is(err, lastword.ErrStale) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// Whether the report arrives changes nothing at the resource, and a gate without a
// memory of the grant says so and goes on.
func TestAReportThatFailsLeavesTheRefusalAsItIs(t *testing.T) {
	w := newWorld(t)
	reports := 0
	w.gate = w.newGate(func(c *fence.Config) {
		c.AskTimeout = 10 * time.Millisecond
		c.Reporter = reporterFunc(func(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error) {
			reports++
			if r.Resource != doc || r.Grant == "" || r.Reporter == "" {
				t.Errorf("reported %+v", r)
			}
			<-ctx.Done() // a reporter that hangs
			return lastword.ReportAnswer{}, ctx.Err()
		})
	})
	h := w.acquire()
	w.mustApply(h, "op-1", 1)
	w.next-- // the same fence once more
	twin := w.acquire()
	twin.claims.LeaseID = "twin"
	g, _, err := w.signer.Sign("", twin.claims)
	if err != nil {
		t.Fatal(err)
	}
	twin.grant = g
	_, err = w.apply(twin, "op-2")
	wantCode(t, err, lastword.CodeFenceRegression)
	if reports != 2 || !w.record().Frozen { // the stored one, and the twin
		t.Errorf("%d reports, the record is %+v", reports, w.record())
	}
	if _, err := w.apply(twin, "op-2"); err == nil || reports != 2 {
		t.Errorf("%d reports of a record that is frozen already, %v", reports, err)
	}
}

type reporterFunc func(context.Context, lastword.Report) (lastword.ReportAnswer, error)

func (f reporterFunc) Report(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error) {
	return f(ctx, r)
}
