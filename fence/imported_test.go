package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
)

// R14b, KF-16: the authority of imported tokens was restored and counts again from lower. As
// its answers tell what comes next, that contradicts the record, which is frozen until
// somebody has looked; then only a number above the stored one is admitted. An answer
// that does not tell it proves nothing, and everybody is only stale.
func TestAnImportedAuthorityThatWentBackFreezesTheRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var present fence.Imported
	tells := true
	etcd := statusFunc(func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		st := lastword.Status{
			Resource: q.Resource, State: lastword.StateHeld,
			Holder: lastword.TenureRef{Resource: q.Resource, LeaseID: present.Tenure, Fence: present.Token},
		}
		if tells {
			st.NextFence = present.Token + 1
		}
		return st, nil
	})
	gate := w.newGate(func(c *fence.Config) {
		c.Verifier, c.Imported, c.Mode, c.Status, c.StatusReuse = nil, true, fence.Query, etcd, -1
	})
	write := func(revision lastword.Token, operation string) error {
		present = fence.Imported{Token: revision, Tenure: "lease-" + revision.String(), Owner: "worker"}
		call := fence.Call{Resource: doc, Imported: &present, Content: []byte(operation), Mutation: lastword.Mutation{Operation: operation}}
		_, err := fence.Apply(t.Context(), gate, w.place, call, func(context.Context, *memfence.Tx) ([]byte, error) { return nil, nil })
		return err
	}
	if err := write(9000, "op-1"); err != nil {
		t.Fatal(err)
	}
	tells = false
	if err := write(41, "op-2"); !errors.Is(err, lastword.ErrStale) {
		t.Fatalf("an authority that does not tell: %v", err)
	}
	tells = true
	if err := write(42, "op-3"); !errors.Is(err, lastword.ErrRegression) {
		t.Fatalf("an authority that tells: %v", err)
	}
	if err := write(9001, "op-4"); !errors.Is(err, lastword.ErrRegression) {
		t.Fatalf("a frozen record: %v", err)
	}
	release := func() {
		t.Helper()
		act := fence.Act{Operator: "ann", Reason: "etcd was restored", At: time.Unix(1_800_000_000, 0)}
		if _, err := fence.Release(t.Context(), w.place, fence.Key{Domain: domain, Resource: doc}, 0, act); err != nil {
			t.Fatal(err)
		}
	}
	release()
	if err := write(43, "op-5"); !errors.Is(err, lastword.ErrRegression) {
		t.Fatalf("still behind, after a release: %v", err)
	}
	release()
	if err := write(9001, "op-6"); err != nil || w.record().Fence != 9001 {
		t.Fatalf("above the stored one: %v, fence %s", err, w.record().Fence)
	}
}
