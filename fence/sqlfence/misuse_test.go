package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// An effect that switches synchronous_commit off would be acknowledged before it is on disk.
func TestAnEffectThatMakesItsCommitLossyIsRefused(t *testing.T) { // durable before visible
	for _, path := range paths {
		if path.failure != nil {
			continue
		}
		for _, set := range []string{"SET LOCAL synchronous_commit = off", "SET synchronous_commit = off", "SELECT set_config('synchronous_commit', 'off', TRUE)"} {
			t.Run(set+path.name, func(t *testing.T) {
				e := engines["PostgreSQL"](t)
				h := e.seal.holder("r", "a", 1)
				if path.remembered {
					e.put(t, h, "first")
				}
				apply := func(operation, set string) error {
					call := fence.Call{Holder: h, Content: []byte("v"), Mutation: lastword.Mutation{Operation: operation}}
					_, err := fence.Apply(t.Context(), e.fence.Gate(), e.fence.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
						if err := e.write(ctx, tx.SQL(), "r", operation, "v"); err != nil {
							return nil, err
						}
						_, err := tx.SQL().ExecContext(ctx, set)
						return path.result, err
					})
					return err
				}
				err := apply("op", set)
				if !errors.Is(err, lastword.ErrInvalid) || errors.Is(err, lastword.ErrUnknownOutcome) || !strings.Contains(err.Error(), "could be lost") {
					t.Errorf("got %v", err)
				}
				if n := count(t, e.db, e.effects, "op") + count(t, e.db, e.receipts, "op"); n != 0 {
					t.Errorf("%d rows are there", n)
				}
				if err := apply("op", strings.Replace(set, "off", "local", 1)); err != nil {
					t.Errorf("local: %v", err)
				}
				e.put(t, h, "next") // the connection is as before
			})
		}
	}
}

func TestWhatIsMissingIsSaidBeforeAnythingBegins(t *testing.T) {
	for engine, open := range engines {
		t.Run(engine, func(t *testing.T) {
			e := open(t)
			ctx, h := t.Context(), e.seal.holder("r", "a", 1)
			var lost *client.Lease // of an Acquire whose error was overlooked
			ran := false
			effect := func(context.Context, *sql.Tx) error { ran = true; return nil }
			tx, err := e.db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			for name, call := range map[string]func() error{
				"Apply, no effect": func() error { _, err := e.fence.Apply(ctx, h, "op", nil, nil); return err },
				"ApplyMutation, no effect": func() error {
					_, err := e.fence.ApplyMutation(ctx, "r", lastword.Mutation{Operation: "op", Grant: h.Grant()}, nil)
					return err
				},
				"Apply, nil lease":        func() error { _, err := e.fence.Apply(ctx, lost, "op", nil, effect); return err },
				"Within, nil lease":       func() error { _, err := e.fence.Within(ctx, tx, lost, "op", nil); return err },
				"Advance, nil lease":      func() error { _, err := e.fence.Advance(ctx, "r", lost); return err },
				"Resolve, nil lease":      func() error { _, _, err := e.fence.Resolve(ctx, "r", lost, "op"); return err },
				"Resolve, nothing at all": func() error { _, _, err := e.fence.Resolve(ctx, "", lost, "op"); return err },
			} {
				if err := call(); !errors.Is(err, lastword.ErrInvalid) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if ran {
				t.Error("the effect was run")
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			e.put(t, h, "op") // the number was not taken
		})
	}
}

// What is ended stays ended, so a slip of the pen must not be kept, and whoever has made it
// must not believe that something has ended.
func TestTheEndOfARollOutThatNeverWasIsRefused(t *testing.T) { // R18
	for engine, open := range engines {
		t.Run(engine, func(t *testing.T) {
			e := open(t)
			place := e.fence.Place()
			e.put(t, e.seal.holder("r", "a", 1), "op")
			table := "doc"
			if e.lite {
				table = "kept"
			}
			if _, err := e.db.ExecContext(t.Context(), "CREATE TABLE "+table+"s (id text NOT NULL PRIMARY KEY, body text)"); err != nil {
				t.Fatal(err)
			}
			if !e.lite {
				t.Cleanup(func() { _, _ = e.db.Exec("DROP TABLE docs; DELETE FROM lastword.protected") }) // the database is lent
			}
			if err := place.Shadow(t.Context(), domain, "job/", anna); err != nil {
				t.Fatal(err)
			}
			if _, err := place.Protect(t.Context(), sqlfence.Protection{Domain: domain, Table: table + "s", Template: "doc/{id}"}, anna); err != nil {
				t.Fatal(err)
			}
			for _, typo := range []string{"do", "DOC/", "doc/%", "doc/*", " ", "jobs/", "JOB/", "R", "r/", "j"} {
				if _, err := place.Enforce(t.Context(), domain, typo, anna); !errors.Is(err, lastword.ErrInvalid) {
					t.Errorf("%q: %v", typo, err)
				}
			}
			if _, err := place.Enforce(t.Context(), "another", "doc/", anna); !errors.Is(err, lastword.ErrInvalid) {
				t.Errorf("another domain: %v", err)
			}
			for prefix, want := range map[string]int{"r": 0, "doc/": 0, "doc/a": 0, "job/": 1} {
				if n, err := place.Enforce(t.Context(), domain, prefix, anna); err != nil || n != want {
					t.Errorf("%q: %d, %v", prefix, n, err)
				}
			}
			for _, again := range []string{"job/", "job/%"} { // it is over already
				if n, err := place.Enforce(t.Context(), domain, again, anna); err != nil || n != 0 {
					t.Errorf("%q again: %d, %v", again, n, err)
				}
			}
			all, err := place.Rollouts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, r := range all {
				kept = append(kept, r.Prefix)
			}
			if want := []string{"doc/", "doc/a", "job/", "r"}; !slices.Equal(kept, want) && !slices.Equal(kept, []string{"doc/", "job/", "r"}) {
				t.Errorf("kept %q, want %q", kept, want)
			}
			if n, err := place.Enforce(t.Context(), domain, "", anna); err != nil || n != 0 {
				t.Errorf("everything: %d, %v", n, err)
			}
		})
	}
}
