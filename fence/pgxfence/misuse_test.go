package pgxfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/pgxfence"
)

// An effect, or a statement, that switches synchronous_commit off would be acknowledged
// before it is on disk.
func TestAnEffectThatMakesItsCommitLossyIsRefused(t *testing.T) { // durable before visible
	const effect, receipt = `SELECT count(*) FROM effect WHERE operation = $1`, `SELECT count(*) FROM lastword.receipt WHERE operation = $1`
	const insert = `INSERT INTO effect (resource, operation, value) VALUES ('r', $1, 'v')`
	forms := map[string]func(ctx context.Context, f *pgxfence.Fence, h *holder, operation, set string) error{
		"Send": func(ctx context.Context, f *pgxfence.Fence, h *holder, operation, set string) error {
			_, err := f.Send(ctx, h, operation, []byte("v"), pgxfence.Statement{SQL: insert, Args: []any{operation}}, pgxfence.Statement{SQL: set})
			return err
		},
	}
	for name, result := range map[string][]byte{"Apply": nil, "Apply, with a result": []byte("x")} {
		forms[name] = func(ctx context.Context, f *pgxfence.Fence, h *holder, operation, set string) error {
			call := fence.Call{Holder: h, Content: []byte("v"), Mutation: lastword.Mutation{Operation: operation}}
			_, err := fence.Apply(ctx, f.Gate(), f.Place(), call, func(ctx context.Context, tx *pgxfence.Tx) ([]byte, error) {
				if _, err := tx.Pgx().Exec(ctx, insert, operation); err != nil {
					return nil, err
				}
				_, err := tx.Pgx().Exec(ctx, set)
				return result, err
			})
			return err
		}
	}
	for name, apply := range forms {
		for _, set := range []string{"SET LOCAL synchronous_commit = off", "SET synchronous_commit = off"} {
			t.Run(name+", "+set, func(t *testing.T) {
				pool := openPool(t, database(t))
				s := newSeal(t)
				f, h := guard(t, pool, s.config()), s.holder("r", "a", 1)
				for _, round := range []string{"cold", "remembered"} {
					err := apply(t.Context(), f, h, round, set)
					if !errors.Is(err, lastword.ErrInvalid) || errors.Is(err, lastword.ErrUnknownOutcome) || !strings.Contains(err.Error(), "could be lost") {
						t.Errorf("%s: %v", round, err)
					}
					if n := count(t, pool, effect, round) + count(t, pool, receipt, round); n != 0 {
						t.Errorf("%s: %d rows are there", round, n)
					}
					if err := apply(t.Context(), f, h, round, "SET LOCAL synchronous_commit = local"); err != nil {
						t.Errorf("%s, local: %v", round, err)
					}
				}
			})
		}
	}
}

func TestWhatIsMissingIsSaidBeforeAnythingBegins(t *testing.T) {
	pool := openPool(t, database(t))
	s := newSeal(t)
	f, ctx, h := guard(t, pool, s.config()), t.Context(), s.holder("r", "a", 1)
	var lost *client.Lease // of an Acquire whose error was overlooked
	ran := false
	effect := func(context.Context, pgx.Tx) error { ran = true; return nil }
	m := lastword.Mutation{Operation: "op", Grant: h.Grant()}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	one := pgxfence.Statement{SQL: "SELECT 1"}
	for name, call := range map[string]func() error{
		"Apply, no effect":         func() error { _, err := f.Apply(ctx, h, "op", nil, nil); return err },
		"ApplyMutation, no effect": func() error { _, err := f.ApplyMutation(ctx, "r", m, nil); return err },
		"Apply, nil lease":         func() error { _, err := f.Apply(ctx, lost, "op", nil, effect); return err },
		"Within, nil lease":        func() error { _, err := f.Within(ctx, tx, lost, "op", nil); return err },
		"Send, nil lease":          func() error { _, err := f.Send(ctx, lost, "op", nil, one); return err },
		"Send, empty":              func() error { _, err := f.Send(ctx, h, "op", nil, one, pgxfence.Statement{}); return err },
		"Send, blank":              func() error { _, err := f.SendMutation(ctx, "r", m, pgxfence.Statement{SQL: " \n"}); return err },
		"Advance, nil lease":       func() error { _, err := f.Advance(ctx, "r", lost); return err },
		"Resolve, nil lease":       func() error { _, _, err := f.Resolve(ctx, "r", lost, "op"); return err },
	} {
		if err := call(); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ran {
		t.Error("the effect was run")
	}
	if r, err := f.Send(ctx, h, "op", nil, one); err != nil || r.Verdict != lastword.Applied {
		t.Errorf("after all of it: %s, %v", r.Verdict, err)
	}
}
