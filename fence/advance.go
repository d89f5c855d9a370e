package fence

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Advance registers the call's fence without a write (R16a): from then on nothing
// older is admitted. It is verified like a write; a tenure that is only PENDING is
// enough, and a grant of any class. A larger fence is stored, with a numbering that
// starts again; an equal one of the same lease changes nothing. It returns the
// record as it is then. Operation, Seq and payload of the call are not looked at.
//
// Errors are those of [Apply]. An unknown outcome is settled by calling it again.
func Advance[T Tx](ctx context.Context, g *Gate, p Place[T], c Call) (rec Record, err error) {
	var verdict lastword.Verdict
	seen := g.begin(OpAdvance, p)
	defer seen.end(ctx, &verdict, &err)
	w, err := g.enter(opAdvance, c)
	if err != nil {
		return Record{}, err
	}
	seen.w = w
	w.want.Class = lastword.ClassAdvance
	// A pending holder may register; one that has ended may not.
	if err := w.admitted(); errors.Is(err, lastword.ErrNotHolder) {
		return Record{}, err
	}
	if err := approach(ctx, w, p, w.prepare); err != nil {
		return Record{}, err
	}
	flushBefore(ctx, g, p.Name())
	out, err := rounds(ctx, w, func(ctx context.Context) (outcome, error) {
		return transact(ctx, w, p, register, func(ctx context.Context, tx T, out *outcome) error {
			return tx.Store(ctx, w.key, out.record, out.decision.Record, nil)
		})
	})
	switch {
	case err != nil:
		return Record{}, err
	case out.decision.Verdict == lastword.Applied:
		verdict = lastword.Applied
		w.remember()
		return out.decision.Record, nil
	}
	return Record{}, w.refuse(ctx, out, noting(w, p))
}

func register(rec Record, _ Known, a core.Attempt) core.Decision { return core.Advance(rec, a) }
