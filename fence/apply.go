package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// errLeave rolls a transaction back that has nothing to commit.
var errLeave = errors.New("fence: nothing to commit")

// effectError is what the caller's effect returned.
type effectError struct {
	op       string
	resource lastword.Resource
	err      error
}

func (e *effectError) Error() string {
	return fmt.Sprintf("%s %s: the effect failed, nothing was changed: %v", e.op, e.resource, e.err)
}

func (e *effectError) Unwrap() error { return e.err }

// errNotRun stands for a transaction whose function the place has not run.
var errNotRun = errors.New("fence: the place did not run the write")

// rule is [core.Admit] or [core.Advance].
type rule func(Record, Known, core.Attempt) core.Decision

// outcome is what one look at the record came to.
type outcome struct {
	record   Record // as it was read
	decision core.Decision
	receipt  lastword.Receipt
	own      uint64 // number in the operation's receipt, if that is of this tenure
}

// Apply makes one guarded write: check, effect, record and receipt are one
// transaction of the place. effect makes its changes through tx alone; it may be
// run several times, of which only the last counts, and what it returns, at most
// [lastword.MaxResultBytes], is kept in the receipt. If it fails or panics,
// nothing of the write stays and the operation keeps no number.
//
// APPLIED returns the receipt, and so does REPLAYED, which is no error: the first
// receipt of the operation, with Verdict REPLAYED (P4). Every other verdict is a
// *lastword.Error with the verdict as its Code, the highest stored fence as its
// Fence and the way out as its Hint. It is decided before or at the record and
// changes nothing (P1, P3); what it leaves as evidence is written after the
// roll-back (R16b), and if that fails the error of it is joined to the refusal.
//
// At a record in shadow (R18) such a write passes all the same: effect runs and is
// committed, and the receipt that is returned has the Verdict SHADOW(…), is not stored
// and consumes no number. The verdict is counted.
//
// An error that matches [lastword.ErrUnknownOutcome] says that the commit may have
// happened (P5). Applying the same call again, unchanged, settles it (R22); until
// then a holder's number is kept for that operation. An error of the effect is
// wrapped and matches what it matched before. Any other error is definite: nothing
// was changed.
func Apply[T Tx](ctx context.Context, g *Gate, p Place[T], c Call, effect func(ctx context.Context, tx T) (result []byte, err error)) (receipt lastword.Receipt, err error) {
	seen := g.begin(OpApply, p)
	defer seen.end(ctx, &receipt.Verdict, &err)
	w, err := g.enter(opApply, c)
	seen.w = w
	if effect == nil {
		return lastword.Receipt{}, w.invalid("no effect", "use Advance to register a fence without a write")
	}
	if err == nil {
		err = approach(ctx, w, p, func(ctx context.Context) error { return w.start(ctx, p.Name()) })
	}
	if err != nil {
		return tolerated(ctx, w, p, effect, err)
	}
	defer w.number.giveBack()
	flushBefore(ctx, g, p.Name())
	out, err := applyRounds(ctx, w, p, effect)
	switch {
	case err != nil:
		return tolerated(ctx, w, p, effect, err)
	case out.decision.Shadow:
		return w.passed(ctx, out, noting(w, p)), nil
	case out.decision.Verdict == lastword.Applied, out.decision.Verdict == lastword.Replayed:
		w.number.settle(out.decision.Seq, out.own, out.decision.Verdict)
		if out.decision.Verdict == lastword.Applied {
			w.remember()
		}
		return out.receipt, nil
	}
	w.number.settle(0, out.own, out.decision.Verdict)
	return lastword.Receipt{}, w.refuse(ctx, out, noting(w, p))
}

// start is a write's way up to the place: shape, holder, number, proof, status.
func (w *passage) start(ctx context.Context, place string) error {
	if err := w.writes(); err != nil {
		return err
	}
	if err := w.admitted(); err != nil {
		return err
	}
	if err := w.borrow(ctx, place); err != nil {
		return err
	}
	err := w.prepare(ctx)
	if err != nil {
		w.settleBy(err)
		w.number.giveBack()
	}
	return err
}

// settleBy ends the number with the verdict that err is, if it is one.
func (w *passage) settleBy(err error) {
	var e *lastword.Error
	if !errors.As(err, &e) {
		return
	}
	if v := lastword.Verdict(e.Code); v == lastword.Unverified || v == lastword.StatusUnavailable {
		w.number.settle(0, 0, v)
	}
}

// flushBefore writes evidence that an earlier call had to keep back. If that fails
// it waits on; it is no reason to refuse this call.
func flushBefore(ctx context.Context, g *Gate, place string) {
	if !g.pending.waits(place) || !g.pending.flushing.TryLock() {
		return
	}
	defer g.pending.flushing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, noteGrace)
	defer cancel()
	if err := g.pending.flush(ctx, place); err != nil {
		g.cfg.Logger.Warn("evidence of earlier refusals still waits", "place", place, "error", err)
	}
}

// applyRounds begins again, in a new transaction, as long as the record has seen
// more than the call had asked for.
func applyRounds[T Tx](ctx context.Context, w *passage, p Place[T], effect func(context.Context, T) ([]byte, error)) (outcome, error) {
	return rounds(ctx, w, func(ctx context.Context) (outcome, error) {
		return transact(ctx, w, p, core.Admit, func(ctx context.Context, tx T, out *outcome) error {
			if err := carryOut(ctx, w, tx, out, effect); err != nil {
				return err
			}
			w.committing(!out.decision.Shadow)
			return nil
		})
	})
}

// transact is one round: one transaction, in which store is run if the rule admits
// the attempt and has something to store.
func transact[T Tx](ctx context.Context, w *passage, p Place[T], r rule, store func(context.Context, T, *outcome) error) (outcome, error) {
	var out outcome
	ran := errNotRun
	err := p.Transact(ctx, w.key, func(ctx context.Context, tx T) error {
		w.committing(false)
		out, ran = judge(ctx, w, tx, r)
		switch {
		case ran != nil:
		case out.decision.Write, out.decision.Shadow:
			ran = store(ctx, tx, &out)
		default:
			ran = errLeave
		}
		return ran
	})
	return w.transacted(out, ran, err)
}

// rounds runs try until it comes to a verdict.
func rounds(ctx context.Context, w *passage, try func(context.Context) (outcome, error)) (outcome, error) {
	var last core.Again
	asked := false
	for range maxRounds {
		out, err := try(ctx)
		if err != nil {
			return out, err
		}
		d := out.decision
		if d.Verdict == lastword.FenceJump && w.attempt.Heard.Mode != Query && !asked && w.g.cfg.Status != nil {
			asked = true
			if w.confirmsJump(ctx) {
				continue
			}
		}
		if d.Again == "" {
			return out, nil
		}
		if err := w.again(ctx, d, out.record, last); err != nil {
			w.settleBy(err)
			return out, err
		}
		last = d.Again
	}
	err := w.outrun(last)
	w.settleBy(err)
	return outcome{}, err
}

// judge reads the record under its lock and decides by the rule.
func judge[T Tx](ctx context.Context, w *passage, tx T, r rule) (outcome, error) {
	rec, known, err := tx.Load(ctx, w.key, w.attempt.Operation)
	if err != nil {
		return outcome{}, err
	}
	if err := w.number.look(rec); err != nil {
		return outcome{}, err
	}
	out := outcome{record: rec, decision: r(rec, known, w.attempt)}
	of := out.decision.ReplayOf
	if of == "" && known.Receipt && out.decision.Again == "" {
		of = w.attempt.Operation
	}
	if of == "" {
		return out, nil
	}
	found, err := tx.Receipt(ctx, w.key, of)
	if err != nil {
		return outcome{}, err
	}
	if found.Domain != w.key.Domain || found.Resource != w.key.Resource || found.Operation != of {
		return outcome{}, &lastword.Error{
			Code: lastword.CodeInternal, Op: w.op, Resource: w.key.Resource,
			Message: "the place returned another operation's receipt",
		}
	}
	if found.LeaseID == w.attempt.LeaseID && found.Fence == w.attempt.Fence {
		out.own = found.Seq
	}
	out.receipt = found
	out.receipt.Verdict = lastword.Replayed
	return out, nil
}

// carryOut runs the effect and stores record and receipt beside it; in shadow it
// stores nothing.
func carryOut[T Tx](ctx context.Context, w *passage, tx T, out *outcome, effect func(context.Context, T) ([]byte, error)) error {
	// The lock may have been waited for; the tenure may be over since (R26).
	if err := w.admitted(); err != nil {
		return err
	}
	if err := tx.Pass(ctx, w.key); err != nil {
		return err
	}
	early, first := any(tx).(Early)
	if first = first && early.StoresEarly() && !out.decision.Shadow; first {
		out.receipt = w.receipt(out.decision, nil)
		if err := tx.Store(ctx, w.key, out.record, out.decision.Record, &out.receipt); err != nil {
			return err
		}
		if err := w.admitted(); err != nil { // it is Store that has waited
			return err
		}
	}
	result, err := effect(ctx, tx)
	if err != nil {
		return &effectError{op: w.op, resource: w.key.Resource, err: err}
	}
	if len(result) > lastword.MaxResultBytes {
		return w.invalid(fmt.Sprintf("the effect's result has %d bytes, more than %d", len(result), lastword.MaxResultBytes),
			"return a digest or a name of it")
	}
	if first {
		if len(result) == 0 {
			return nil
		}
		out.receipt.Result = bytes.Clone(result)
		return early.StoreResult(ctx, w.key, out.receipt.Operation, result)
	}
	out.receipt = w.receipt(out.decision, result)
	if out.decision.Shadow {
		out.receipt.Verdict = out.decision.Verdict.Shadow()
		return nil
	}
	return tx.Store(ctx, w.key, out.record, out.decision.Record, &out.receipt)
}

func (w *passage) receipt(d core.Decision, result []byte) lastword.Receipt {
	a := w.attempt
	return lastword.Receipt{
		Domain: w.key.Domain, Resource: w.key.Resource,
		Operation: a.Operation, Payload: a.Payload,
		Fence: a.Fence, Seq: d.Seq, LeaseID: a.LeaseID, GrantDigest: a.GrantDigest,
		Owner: w.claims.Owner, Caller: w.g.cfg.Caller, Root: a.Root,
		Result: bytes.Clone(result), AppliedAt: w.g.stamp(), Verdict: lastword.Applied,
	}
}

// committing notes whether a commit is under way: until it is, a write that ends
// without a verdict drops its number.
func (w *passage) committing(on bool) {
	if w.number != nil {
		w.number.keep = on
	}
}

// transacted reads what a transaction ended with. ran is how the place's last run
// of the write ended. Only a place that does not know whether it committed leaves
// the outcome open; an effect that failed was not committed, unless the place says that
// it may have committed itself.
func (w *passage) transacted(out outcome, ran, err error) (outcome, error) {
	var failed *effectError
	left := errors.Is(ran, errLeave)
	switch {
	case err == nil && (ran == nil || left), left && errors.Is(err, errLeave):
		return out, nil
	case err == nil: // a place that breaks its contract: who knows what it did
		w.number.unknown()
		return out, w.unknown(ran)
	case saidUnknown(err): // also of an effect that failed: it may have committed before
		w.number.unknown()
		return out, w.unknown(err)
	case errors.As(err, &failed):
		w.committing(false)
		return out, failed
	case errors.Is(err, lastword.ErrUnknownOutcome):
		w.number.unknown()
		return out, w.unknown(err)
	}
	w.committing(false)
	return out, w.failed(err)
}
