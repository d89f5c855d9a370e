package sqlfence

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/fencesql"
)

// Prune removes the receipts of a record that r lets go (R19), under the record's lock,
// some hundred in one transaction. What was pruned answers RECEIPT_EXPIRED. It returns
// how many were pruned, also with an error. It needs the right to delete receipts, which
// guarded writes do not.
func (p *Place) Prune(ctx context.Context, key fence.Key, r fence.Retention) (pruned int, err error) {
	if r.Before.IsZero() || r.At.IsZero() {
		return 0, &lastword.Error{Code: lastword.CodeInvalid, Op: "prune", Resource: key.Resource,
			Message: "no time before which receipts may go, or none to write down", Hint: "give both"}
	}
	for after := ""; ; {
		var n int
		var next string
		err := p.locked(ctx, key, func(ctx context.Context, tx *Tx) (err error) {
			n, next, err = fencesql.Prune(ctx, tx.tables, key, r, after)
			return err
		})
		if err != nil {
			return pruned, err
		}
		if pruned, after = pruned+n, next; next == "" {
			return pruned, nil
		}
	}
}

// Dismiss removes what is in quarantine of one claimant, or of all (""), for an operator
// who has looked at it; act says so for ever, in the same transaction (T16).
func (p *Place) Dismiss(ctx context.Context, key fence.Key, claimant string, act fence.Act) (dismissed int64, err error) {
	act.Kind = fence.ActDismissed
	if err := act.Check("dismiss", key.Resource); err != nil {
		return 0, err
	}
	err = p.locked(ctx, key, func(ctx context.Context, tx *Tx) error {
		rec, _, err := tx.Load(ctx, key, "")
		if err != nil {
			return err
		}
		if dismissed, err = fencesql.Dismiss(ctx, tx.tables, key, claimant); err != nil {
			return err
		}
		act.Before, act.After = rec.Fence, rec.Fence
		return tx.Keep(ctx, key, act)
	})
	return dismissed, err
}
