package core

import "github.com/lastword/lastword"

// Witness is the small durable place outside the store's backup set (R10).
type Witness struct {
	// Current is the issuer epoch in force.
	Current uint32
	// Pending is the epoch of a start that is under way (Starting): Current + 1, or
	// 0 at the very first one.
	Pending  uint32
	Starting bool
	// Longest is the longest TTL ever granted.
	Longest Span
	// Store is the identity of the store it belongs to.
	Store string
}

// knows reports whether the store's epoch is one that the witness has heard of.
func (w Witness) knows(epoch uint32) bool {
	return epoch == w.Current || w.Starting && epoch == w.Pending
}

// Start is what a starting process has to do (R10): make Witness durable first,
// then set the store's epoch to Epoch in one step conditional on the epoch it read
// there, then make [Witness.Settled] durable. Only then may it grant.
type Start struct {
	// Code is "", FENCE_REGRESSION or EXHAUSTED.
	Code lastword.Code
	// Why says in a few words what was found, with a Code.
	Why string
	// Adopted says that the witness was missing beside a store that is not marked
	// witnessed, and is made anew.
	Adopted bool
	Witness Witness
	Epoch   uint32
}

// PlanStart decides on what a starting process found: the store's header and the
// witness, nil if it is missing. The very first start of an empty store is epoch 0;
// h.Identity is then the one chosen for it, and the store is initialised with the
// identity that the planned witness names.
func PlanStart(h Header, w *Witness) Start {
	switch {
	case !h.Exists && w == nil:
		return Start{Witness: Witness{Starting: true, Store: h.Identity}}
	case !h.Exists && w.Starting && w.Pending == 0:
		return Start{Witness: *w} // the very first start was interrupted
	case !h.Exists:
		return regression("the store is empty, but its witness knows an epoch")
	case w == nil && h.Witnessed:
		return regression("the store is marked witnessed and its witness is missing")
	case w == nil:
		plan := begin(Witness{Current: h.Epoch, Store: h.Identity})
		plan.Adopted = true
		return plan
	case w.Store != h.Identity:
		return regression("the witness belongs to another store")
	case !w.knows(h.Epoch):
		return regression("the store's epoch is not the witness's")
	}
	return begin(*w)
}

func begin(w Witness) Start {
	if !w.Starting {
		if w.Current >= lastword.MaxEpoch {
			return Start{Code: lastword.CodeExhausted, Why: "the last issuer epoch is in use"}
		}
		w.Pending, w.Starting = w.Current+1, true
	}
	return Start{Witness: w, Epoch: w.Pending}
}

func regression(why string) Start {
	return Start{Code: lastword.CodeFenceRegression, Why: why}
}

// Settled is the witness once the store's epoch is its pending one.
func (w Witness) Settled() Witness {
	if w.Starting {
		w.Current, w.Pending, w.Starting = w.Pending, 0, false
	}
	return w
}

// PlanAdvance is the operator's way out of a regression (R10): an epoch above every
// one that was found, in which the tenures found have ended and the first grants
// wait until every lost tenure must be over. The same three steps as a start.
func PlanAdvance(h Header, w *Witness, found ...uint32) (Start, Header) {
	highest := h.Epoch
	var old Witness
	if w != nil {
		old = *w
		highest = max(highest, w.Current, w.Pending)
	}
	for _, epoch := range found {
		highest = max(highest, epoch)
	}
	if highest >= lastword.MaxEpoch {
		return Start{Code: lastword.CodeExhausted, Why: "the last issuer epoch is in use"}, h
	}
	plan := Start{Epoch: highest + 1, Witness: Witness{
		Current: highest, Pending: highest + 1, Starting: true, Longest: old.Longest, Store: h.Identity,
	}}
	h.Exists = true
	h.Epoch = plan.Epoch
	h.Floor = plan.Epoch
	h.HoldUntil = h.Tick + Ticks(old.Longest, h.TickSpan)
	return plan, h
}

// Drift is what a running process finds when it compares its epoch with store and
// witness.
type Drift int

// The findings.
const (
	// Steady: nothing changed.
	Steady Drift = iota
	// Moved: another process started; go on with the store's epoch.
	Moved
	// Regressed: the store or the witness does not belong to this run any more;
	// stop granting.
	Regressed
)

// Compare decides on the epoch that a process holds, the one it finds in the store
// and the witness, nil if it is missing (R10, "another process's start").
func Compare(held uint32, h Header, w *Witness) Drift {
	switch {
	case w == nil && h.Witnessed, !h.Exists:
		return Regressed
	case w == nil && h.Epoch == held:
		return Steady
	case w == nil:
		return Regressed
	case w.Store != h.Identity || !w.knows(h.Epoch):
		return Regressed
	case h.Epoch < held:
		return Regressed
	case h.Epoch != held:
		return Moved
	}
	return Steady
}
