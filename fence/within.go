package fence

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Within makes the check of one guarded write in a transaction that is the
// caller's own: record and receipt are stored in tx, and the caller makes its
// changes in the same tx and commits it. What is returned is provisional until
// then: only the commit makes it true, and a commit whose reply was lost is settled
// like any other (R22). After an error the caller must roll back; nothing else
// keeps a refused write out.
//
// At a record in shadow (R18) a write that would be refused passes: what is returned has
// the Verdict SHADOW(…), and the caller goes on as after APPLIED.
//
// The authority, if the record wants to hear it, is asked while the transaction is
// open, for at most [Config.AskTimeout] each time.
//
// Evidence that must outlive the roll-back (R16b) cannot be written inside tx. The
// gate keeps it, up to a bound, and writes it with the next [Apply] or [Advance] at
// the place or with [Gate.Flush]; a process that ends before loses it, a freeze
// included.
//
// A holder's number is settled by the next write of its tenure at the record, which
// sees under the record's lock whether this one was committed. One write per record
// and transaction is meant: a second one would wait for its number while others
// wait for the transaction.
func Within[T Tx](ctx context.Context, g *Gate, p Place[T], tx T, c Call) (receipt lastword.Receipt, err error) {
	seen := g.begin(OpWithin, p)
	defer seen.end(ctx, &receipt.Verdict, &err)
	w, err := g.enter(opWithin, c)
	seen.w = w
	if err == nil {
		err = approachWithin(ctx, w, p, func(ctx context.Context) error { return w.start(ctx, p.Name()) })
	}
	if err != nil {
		return toleratedWithin(ctx, w, p, tx, err)
	}
	defer w.number.giveBack()
	out, err := rounds(ctx, w, func(ctx context.Context) (outcome, error) {
		out, err := judge(ctx, w, tx, core.Admit)
		if err != nil {
			return out, w.failed(err)
		}
		return out, nil
	})
	if err != nil {
		return toleratedWithin(ctx, w, p, tx, err)
	}
	return finishWithin(ctx, w, p, tx, out)
}

func finishWithin[T Tx](ctx context.Context, w *passage, p Place[T], tx T, out outcome) (lastword.Receipt, error) {
	if out.decision.Verdict == lastword.Applied {
		w.committing(true) // from here on the caller may commit it
		err := carryOut(ctx, w, tx, &out, func(context.Context, T) ([]byte, error) { return nil, nil })
		w.number.await()
		if err != nil {
			return lastword.Receipt{}, w.failed(err)
		}
		return out.receipt, nil
	}
	if out.decision.Shadow {
		if err := carryOut(ctx, w, tx, &out, func(context.Context, T) ([]byte, error) { return nil, nil }); err != nil {
			return lastword.Receipt{}, w.failed(err)
		}
		return w.passed(ctx, out, keeping(w, p)), nil
	}
	w.number.settle(0, out.own, out.decision.Verdict)
	if out.decision.Verdict == lastword.Replayed {
		return out.receipt, nil
	}
	return lastword.Receipt{}, w.refuse(ctx, out, keeping(w, p))
}

// keeping keeps evidence for later: the transaction is the caller's, and open.
func keeping[T Tx](w *passage, p Place[T]) func(context.Context, Evidence) error {
	return func(_ context.Context, e Evidence) error { return keep(w, p, e) }
}
