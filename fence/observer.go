package fence

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
)

// Observer is told what goes through a gate. It is told, never asked: when it hears of
// a call, the call's transaction is over and no number of a tenure is held.
//
// Guaranteed: it is called by the goroutine that made the call, just before that gets
// its answer, so that one that blocks keeps this answer from this caller and delays no
// other call. A panic of it is contained. With [Within] the transaction is the
// caller's, and open: one that blocks there holds it up.
type Observer interface {
	// Answered tells of one call that has its answer. ctx is the call's, and may
	// have ended.
	Answered(ctx context.Context, a Answer)
}

// Op is what was called.
type Op string

// The operations that an [Observer] is told of.
const (
	OpApply   Op = opApply
	OpWithin  Op = opWithin
	OpAdvance Op = opAdvance
	OpLookup  Op = "lookup"
)

// Answer is how one call at a gate ended.
type Answer struct {
	Op        Op
	Place     string     // [Place.Name]
	Mode      StatusMode // of the gate
	Domain    string
	Resource  lastword.Resource // "" if it could not be learnt
	Operation string            // "" of an advance
	Fence     lastword.Token    // of the verified grant, 0 if none was verified

	// Verdict is the resource's, APPLIED also of an advance, REPLAYED of a lookup that
	// found the receipt. It is "" where the resource has not decided: then Code says
	// why, EffectFailed that the caller's effect returned an error, and neither that a
	// lookup found nothing or that the effect panicked.
	Verdict      lastword.Verdict
	Code         lastword.Code
	EffectFailed bool

	Took time.Duration // by Config.Elapsed
}

// passing is a call that the observer will be told of.
type passing struct {
	g      *Gate // nil: nobody is told
	w      *passage
	answer Answer
	began  time.Duration
}

func (g *Gate) begin(op Op, place interface{ Name() string }) passing {
	if g.cfg.Observer == nil {
		return passing{}
	}
	return passing{g: g, answer: Answer{Op: op, Place: place.Name(), Mode: g.cfg.Mode, Domain: g.cfg.Domain}, began: g.cfg.Elapsed()}
}

// end tells how the call ended. verdict counts if there is no error.
func (p *passing) end(ctx context.Context, verdict *lastword.Verdict, err *error) {
	if p.g == nil {
		return
	}
	a := &p.answer
	a.Took = p.g.cfg.Elapsed() - p.began
	if p.w != nil {
		a.Resource, a.Operation, a.Fence = p.w.key.Resource, p.w.attempt.Operation, p.w.attempt.Fence
	}
	a.Verdict = *verdict
	if *err != nil {
		a.Verdict, a.Code, a.EffectFailed = verdictOf(*err)
	}
	defer func() { _ = recover() }() // a panic of an observer is no answer
	p.g.cfg.Observer.Answered(ctx, *a)
}

// verdictOf is what the error of a call says: the resource's verdict, or why there is
// none. What an effect returned is nobody's verdict, whatever it looks like.
func verdictOf(err error) (v lastword.Verdict, c lastword.Code, effectFailed bool) {
	if _, failed := errors.AsType[*effectError](err); failed {
		return "", "", true
	}
	e, ok := errors.AsType[*lastword.Error](err)
	if !ok {
		return "", lastword.CodeInternal, false
	}
	if v := lastword.Verdict(e.Code); isVerdict(v) {
		return v, "", false
	}
	return "", e.Code, false
}

func isVerdict(v lastword.Verdict) bool {
	switch v {
	case lastword.Applied, lastword.Replayed, lastword.Conflict, lastword.StaleOwner, lastword.ReceiptExpired,
		lastword.OutOfOrder, lastword.RootMismatch, lastword.FenceRegression, lastword.FenceJump, lastword.Unverified,
		lastword.StatusUnavailable, lastword.FenceRequired, lastword.MutationUnknown:
		return true
	}
	return false
}
