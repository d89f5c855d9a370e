package fence

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// passed is the end of a write that its record let pass in shadow (R18): it is counted,
// and its number is free for the next one.
func (w *passage) passed(ctx context.Context, out outcome, write func(context.Context, Evidence) error) lastword.Receipt {
	d := w.final(ctx, out)
	e := w.evidence(d, out.record)
	e.Verdict = d.Verdict.Shadow()
	_ = w.note(ctx, d, out.record, e, write) // it was logged, and the write has passed
	out.receipt.Verdict = e.Verdict
	return out.receipt
}

// tolerated looks, after a refusal from before the record was read, whether the record
// is in shadow, and lets the write pass then (R18). Otherwise the refusal stands.
func tolerated[T Tx](ctx context.Context, w *passage, p Place[T], effect func(context.Context, T) ([]byte, error), refusal error) (lastword.Receipt, error) {
	out, ok := w.tolerable(refusal)
	if !ok {
		return lastword.Receipt{}, refusal
	}
	w.number = nil // whatever becomes of this, it consumes none
	ran := errNotRun
	err := p.Transact(ctx, w.key, func(ctx context.Context, tx T) error {
		ran = tolerate(ctx, w, tx, &out, effect)
		return ran
	})
	if errors.Is(ran, errEnforced) {
		return lastword.Receipt{}, refusal
	}
	if _, err := w.transacted(out, ran, err); err != nil {
		return lastword.Receipt{}, err
	}
	return w.passed(ctx, out, noting(w, p)), nil
}

// toleratedWithin is tolerated in a transaction that is the caller's.
func toleratedWithin[T Tx](ctx context.Context, w *passage, p Place[T], tx T, refusal error) (lastword.Receipt, error) {
	out, ok := w.tolerable(refusal)
	if !ok {
		return lastword.Receipt{}, refusal
	}
	err := tolerate(ctx, w, tx, &out, func(context.Context, T) ([]byte, error) { return nil, nil })
	switch {
	case errors.Is(err, errEnforced):
		return lastword.Receipt{}, refusal
	case err != nil:
		return lastword.Receipt{}, w.failed(err)
	}
	return w.passed(ctx, out, keeping(w, p)), nil
}

// errEnforced: the record is not in shadow.
var errEnforced = errors.New("fence: the record is in enforce")

// tolerable is what the refusal would be at a record; ok is false if no record's mode
// changes anything about it.
func (w *passage) tolerable(refusal error) (out outcome, ok bool) {
	v, _, _ := verdictOf(refusal)
	if v != lastword.FenceRequired && v != lastword.Unverified && v != lastword.StatusUnavailable {
		return out, false
	}
	if !w.g.cfg.Rollout || w.key.Resource == "" || !w.g.cfg.admits(w.key.Resource) || w.writes() != nil {
		return out, false
	}
	out.decision = core.Decision{Verdict: v, Shadow: true}
	return out, true
}

func tolerate[T Tx](ctx context.Context, w *passage, tx T, out *outcome, effect func(context.Context, T) ([]byte, error)) error {
	rec, _, err := tx.Load(ctx, w.key, w.attempt.Operation)
	if err != nil {
		return err
	}
	if !rec.Shadow {
		return errEnforced
	}
	out.record = rec
	return carryOut(ctx, w, tx, out, effect)
}
