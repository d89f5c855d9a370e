package authority

import (
	"context"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// AdvanceRequest is an operator's confirmation (R10). Operator and Reason are required
// by [AdvanceEpoch].
type AdvanceRequest struct {
	Operator, Reason string
	// Above are issuer epochs that were found elsewhere, such as those of the records
	// of resources: the new one is larger.
	Above []uint32
	// LongestTTL is the longest TTL that was ever granted, for a witness that is missing
	// and cannot tell it; 0 is as long as the configuration allows.
	LongestTTL time.Duration
	// Restored says that the store was put back, also if it looks as it was seen last.
	Restored bool
}

// Advanced tells what an advance will do, or has done.
type Advanced struct {
	Epoch uint32 // the new issuer epoch
	// Regression says why the store is not where it was seen last; "" if it is. With
	// one, the tenures in the store end, and nothing is granted for Wait of the time in
	// which an authority runs.
	Regression string
	Wait       time.Duration
	Longest    time.Duration // the longest TTL that may have been lost, which Wait outlasts
	// What was found: the epoch of the store, and of the witness the current one and
	// the highest one that was ever planned.
	Store            uint32
	Witness, Planned uint32
	WitnessMissing   bool
}

func (p plan) told() Advanced {
	a := Advanced{Epoch: p.Epoch, Regression: p.regression, Store: p.read.Epoch, WitnessMissing: p.mark == nil}
	if p.mark != nil {
		a.Witness, a.Planned = p.mark.Current, p.mark.Pending
	}
	if p.next.HoldUntil > p.next.Tick && p.regression != "" {
		a.Wait = time.Duration(p.next.HoldUntil-p.next.Tick) * time.Duration(p.next.TickSpan)
		a.Longest = time.Duration(p.Witness.Longest)
	}
	return a
}

// PlanAdvance tells what [AdvanceEpoch] would do, and writes nothing.
func PlanAdvance(ctx context.Context, s store.Store, signer *grant.Signer, cfg Config, r AdvanceRequest) (Advanced, error) {
	cfg, e, err := forAdvance(signer, cfg, r)
	if err != nil {
		return Advanced{}, named(err, ActionAdvance, "")
	}
	for range startAttempts {
		p, stable, err := planStart(ctx, s, cfg, e)
		if err == nil && stable {
			err = p.err()
		}
		if err != nil || stable {
			return p.told(), named(err, ActionAdvance, "")
		}
	}
	return Advanced{}, named(&lastword.Error{Code: lastword.CodeUnavailable, Message: "the witness kept changing", Hint: "try again"}, ActionAdvance, "")
}

// AdvanceEpoch begins a new issuer epoch on a store that no authority serves, for an
// operator: 1 + the largest that witness, store, records, trust bundle and r know. If
// the store is not where the witness saw it last, this is the confirmation that R10
// waits for: the tenures in the store end, and first grants wait for the longest TTL
// that may have been lost. Otherwise tenures go on. The next start takes one epoch
// more. It fails with [lastword.CodeExhausted] in the last epoch. Without a signer, since
// the keys were lost, too, nobody knows which epoch the trust bundle had: say it in r.
func AdvanceEpoch(ctx context.Context, s store.Store, signer *grant.Signer, cfg Config, r AdvanceRequest) (told Advanced, err error) {
	cfg, e, err := forAdvance(signer, cfg, r)
	if err == nil {
		err = checkOperator(r.Operator, r.Reason)
	}
	if err != nil {
		return told, named(err, ActionAdvance, "")
	}
	action := Action{Name: ActionAdvance, Operator: r.Operator, Reason: r.Reason, Details: map[string]string{"domain": cfg.Domain}}
	if len(r.Above) > 0 {
		action.Details["above"] = fmt.Sprint(r.Above)
	}
	if r.LongestTTL > 0 {
		action.Details["longest_ttl"] = r.LongestTTL.String()
	}
	if r.Restored {
		action.Details["restored"] = "yes"
	}
	ended, err := begin(ctx, cfg.Audit, action)
	if err != nil {
		return told, named(err, ActionAdvance, "")
	}
	defer func() {
		text := outcome(err)
		if err == nil {
			text = fmt.Sprintf("%s: epoch %d", OutcomeDone, told.Epoch)
			if told.Regression != "" {
				text += ", over a regression: " + told.Regression
			}
		}
		err = named(ended(text, err), ActionAdvance, "")
	}()
	cfg.Audit = nil // it is kept here, under the operator's name
	for range startAttempts {
		p, stable, err := planStart(ctx, s, cfg, e)
		if err == nil && stable {
			err = p.err()
		}
		if err != nil {
			return told, err
		}
		if !stable {
			continue
		}
		told = p.told()
		if _, done, err := announce(ctx, s, cfg, p); err != nil || done {
			if err == nil && signer != nil {
				_, err = signer.Publish(told.Epoch, cfg.RefreshHint)
			}
			return told, err
		}
	}
	return told, &lastword.Error{Code: lastword.CodeUnavailable, Message: "other processes kept starting on the same store", Hint: "stop them first"}
}

func forAdvance(signer *grant.Signer, cfg Config, r AdvanceRequest) (Config, evidence, error) {
	cfg, err := cfg.withDefaults()
	cfg.OnRegression = Advance
	for _, epoch := range r.Above {
		if err == nil && epoch > lastword.MaxEpoch {
			err = invalid("epoch %d is above the last one, %d", epoch, lastword.MaxEpoch)
		}
	}
	if err == nil && r.LongestTTL < 0 {
		err = invalid("a longest ttl of %v", r.LongestTTL)
	}
	return cfg, evidence{signer: signer, above: r.Above, longest: core.Span(r.LongestTTL), restored: r.Restored}, err
}

func checkOperator(operator, reason string) error {
	if err := lastword.CheckID("operator", operator); err != nil {
		return err
	}
	return lastword.CheckID("reason", reason)
}

// MovableWitness is a [Witness] whose mark can be taken away.
type MovableWitness interface {
	Witness
	// Retire removes mark and reports whether it was there. It is durable when it
	// returns true.
	Retire(ctx context.Context, mark Mark) (bool, error)
}

// InitWitness makes cfg.Witness the witness of a store that no authority serves, for an
// operator (R10), and marks the store as witnessed: from then on a start that does not
// find it is a regression. With from, the mark is moved: made at the new place first,
// then taken away from the old one; after an interruption it may be repeated. Without,
// the store is adopted as it stands, which is for a store that never had a witness, or
// one that is known to be as it was left.
//
// It fails with [lastword.CodeFenceRegression] if the store is not where from, or the
// trust bundle, saw it last, or is marked as witnessed and has lost its witness: then
// [AdvanceEpoch] is the way.
func InitWitness(ctx context.Context, s store.Store, signer *grant.Signer, cfg Config, from MovableWitness, operator, reason string) (mark Mark, err error) {
	const op = ActionInitWitness
	cfg, err = cfg.withDefaults()
	if err == nil {
		err = checkOperator(operator, reason)
	}
	if err != nil {
		return mark, named(err, op, "")
	}
	how := "adopt"
	if from != nil {
		how = "move"
	}
	ended, err := begin(ctx, cfg.Audit, Action{Name: op, Operator: operator, Reason: reason, Details: map[string]string{"domain": cfg.Domain, "how": how}})
	if err != nil {
		return mark, named(err, op, "")
	}
	defer func() {
		text := outcome(err)
		if err == nil {
			text = fmt.Sprintf("%s: epoch %d", OutcomeDone, mark.Current)
		}
		err = named(ended(text, err), op, "")
	}()
	if mark, err = initial(ctx, s, signer, cfg, from); err != nil {
		return mark, err
	}
	return mark, move(ctx, s, cfg, from, mark)
}

// initial is the mark that the new witness is to have.
func initial(ctx context.Context, s store.Store, signer *grant.Signer, cfg Config, from MovableWitness) (Mark, error) {
	known, err := evidence{signer: signer}.epochs()
	if err != nil {
		return Mark{}, err
	}
	var source Witness = NewMemoryWitness() // which knows nothing
	if from != nil {
		source = from
	}
	h, old, stable, err := observe(ctx, s, source)
	switch {
	case err != nil:
		return Mark{}, err
	case !stable:
		return Mark{}, &lastword.Error{Code: lastword.CodeUnavailable, Message: "the witness changed meanwhile", Hint: "stop the authority first"}
	case !h.Exists:
		e := invalid("the store is empty: no authority has ever been started on it")
		e.Hint = "the first start makes its witness"
		return Mark{}, e
	case h.Domain != cfg.Domain:
		return Mark{}, invalid("the store issues the fences of domain %q, not of %q", h.Domain, cfg.Domain)
	}
	target, err := cfg.Witness.Load(ctx)
	if err != nil {
		return Mark{}, notDone(err, "the witness did not answer")
	}
	if from != nil && old == nil && target != nil && target.Store == h.Identity {
		old = target // an interrupted move, whose last step was done
	}
	if from != nil && old == nil {
		return Mark{}, invalid("there is no witness to move")
	}
	p := plan{Start: core.PlanStart(h, old).Against(known...), read: h, mark: old}
	if err := p.err(); err != nil {
		return Mark{}, err
	}
	if old != nil {
		return *old, nil
	}
	adopted, err := adopt(ctx, s, p.Start)
	if err != nil {
		return Mark{}, err
	}
	return Mark{Current: h.Epoch, Pending: h.Epoch, Longest: adopted.Witness.Longest, Store: h.Identity}, nil
}

// move puts mark at its place, marks the store, and takes it away from where it was.
func move(ctx context.Context, s store.Store, cfg Config, from MovableWitness, mark Mark) error {
	now, err := cfg.Witness.Load(ctx)
	if err != nil {
		return notDone(err, "the witness did not answer")
	}
	if now == nil || *now != mark {
		// A mark of the same store that knows less is what an interrupted move has left.
		if now != nil && (from == nil || now.Store != mark.Store || now.Current > mark.Current || now.Pending > mark.Pending) {
			e := invalid("there is a witness at the new place already, and it says something else")
			e.Hint = "look at both; name another place"
			return e
		}
		ok, err := cfg.Witness.Swap(ctx, now, mark)
		if err != nil {
			return notDone(err, "the witness did not answer")
		}
		if !ok {
			return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the new witness changed meanwhile", Hint: "stop the authority first"}
		}
	}
	view, err := s.Read(ctx)
	if err != nil {
		return err
	}
	if h := view.Header; !h.Witnessed {
		next := h
		next.Witnessed = true
		applied, err := s.Commit(ctx, store.Step{Epoch: h.Epoch, OnTick: true, Tick: h.Tick, Header: &next})
		if err != nil {
			return err
		}
		if !applied[0] {
			return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the store changed meanwhile", Hint: "stop the authority first"}
		}
	}
	if from == nil {
		return nil
	}
	old, err := from.Load(ctx)
	if err != nil {
		return notDone(err, "the witness did not answer")
	}
	if old == nil {
		return nil
	}
	ok, err := from.Retire(ctx, mark)
	if err == nil && !ok {
		err = &lastword.Error{Code: lastword.CodeUnavailable, Message: "the old witness changed meanwhile", Hint: "stop the authority first"}
	}
	return err
}
