package sqlfence_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

// R13, T27: the highest bundle that a record was written under is in the database. A
// bundle that was rolled back is refused there after a restart of the resource too, and
// nothing changes; a process that only lags behind asks for the newer one and goes on.
func TestABundleThatWasRolledBackIsRefusedAfterARestart(t *testing.T) {
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := sealOf(key)
	if err != nil {
		t.Fatal(err)
	}
	at := func(sequence uint64, minimum uint32) grant.Bundle {
		b, err := s.signer.Bundle(grant.BundleInfo{Sequence: sequence, CurrentEpoch: 3, MinimumEpoch: minimum})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	path := filepath.Join(t.TempDir(), "app.db")
	db := openDB(t, path, durable)
	mustExec(t, db, business)
	if err := sqlfence.Init(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	token, err := lastword.MakeToken(2, 41)
	if err != nil {
		t.Fatal(err)
	}
	g := s.grant("doc/a", "w1", token)
	// apply is a process of its own: it opens the database, writes, and ends.
	apply := func(source grant.BundleSource, operation string) error {
		t.Helper()
		v, err := grant.NewVerifier(domain, source, grant.VerifierConfig{})
		if err != nil {
			t.Fatal(err)
		}
		db := openDB(t, path, durable)
		defer db.Close()
		f, err := sqlfence.New(t.Context(), db, sqlfence.Config{Config: fence.Config{Domain: domain, Verifier: v, Mode: fence.FenceOnly}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		call := fence.Call{Resource: "doc/a", Content: []byte(operation), Mutation: lastword.Mutation{Grant: g, Operation: operation}}
		_, err = fence.Apply(t.Context(), f.Gate(), f.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
			return nil, write(ctx, tx.SQL(), "doc/a", operation, operation)
		})
		return err
	}
	record := func() fence.Inspection {
		t.Helper()
		place, err := sqlfence.OpenPlace(t.Context(), db, "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = place.Close() }()
		seen, err := place.Inspect(t.Context(), fence.Key{Domain: domain, Resource: "doc/a"})
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	if err := apply(grant.StaticBundle(at(12, 2)), "op-1"); err != nil {
		t.Fatal(err)
	}
	if r := record().Record; r.BundleSequence != 12 || r.MinEpoch != 2 {
		t.Fatalf("the record has sequence %d and minimum epoch %d", r.BundleSequence, r.MinEpoch)
	}
	before := record().Record
	for name, b := range map[string]grant.Bundle{"an older bundle": at(11, 2), "one with a lower minimum": at(11, 1)} {
		err := apply(grant.StaticBundle(b), "op-2")
		if grant.ReasonOf(err) != grant.ReasonBundleRollback {
			t.Errorf("%s: %v", name, err)
		}
		if record().Record != before {
			t.Errorf("%s: the record changed", name)
		}
	}
	var effects int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM effect`).Scan(&effects); err != nil || effects != 1 {
		t.Fatalf("%d effects, %v", effects, err)
	}
	// A process that lags: what it remembers is old, what it can fetch is not.
	var fetches int
	raw := func(b grant.Bundle) []byte {
		out, err := b.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	lagging := grant.FetchBundle(func(context.Context) ([]byte, error) {
		if fetches++; fetches == 1 {
			return raw(at(11, 2)), nil
		}
		return raw(at(13, 2)), nil
	})
	if err := apply(lagging, "op-3"); err != nil || fetches != 2 {
		t.Fatalf("after %d fetches: %v", fetches, err)
	}
	if r := record().Record; r.BundleSequence != 13 || r.LastSeq != 2 {
		t.Fatalf("got %+v", r)
	}
}
