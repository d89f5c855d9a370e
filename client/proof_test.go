package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// R12: a lease that was asked for proofs carries one, and a new one with each renewal.
func TestALeaseCarriesAStatusProofAndRefreshesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := embedded(t)
		start := time.Now()
		c, err := client.New(a, client.Config{Owner: "w", Elapsed: func() time.Duration { return time.Since(start) }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		plain, err := c.Acquire(t.Context(), "doc/plain", client.AcquireOptions{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if plain.StatusProof() != "" {
			t.Error("a proof that nobody asked for")
		}
		if _, err := plain.RefreshProof(t.Context()); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("refreshed: %v", err)
		}
		l, err := c.Acquire(t.Context(), "doc/a", client.AcquireOptions{TTL: 30 * time.Second, ProofLife: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		first := l.StatusProof()
		if first == "" {
			t.Fatal("no proof beside the grant")
		}
		time.Sleep(11 * time.Second) // one renewal
		synctest.Wait()
		second := l.StatusProof()
		if second == "" || second == first {
			t.Error("the renewal brought no new proof")
		}
		third, err := l.RefreshProof(t.Context())
		if err != nil || third == "" || l.StatusProof() != third {
			t.Errorf("refreshed: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.RefreshProof(context.WithoutCancel(t.Context())); !errors.Is(err, lastword.ErrNotHolder) {
			t.Errorf("after the release: %v", err)
		}
		for _, life := range []time.Duration{-1, 999 * time.Millisecond, time.Minute + 1} {
			if _, err := c.Acquire(t.Context(), "doc/b", client.AcquireOptions{ProofLife: life}); !errors.Is(err, lastword.ErrInvalid) {
				t.Errorf("life %v: %v", life, err)
			}
		}
	})
}
