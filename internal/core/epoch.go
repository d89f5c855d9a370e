package core

import (
	"strings"

	"github.com/lastword/lastword"
)

// LongestTTL is the largest TTL that any authority grants (24 h). It stands in where
// the longest one granted is not known.
const LongestTTL Span = 24 * 60 * 60 * 1e9

// Witness is the small durable place outside the store's backup set (R10). Every
// write of it is a compare-and-set.
//
// Each start plans a number of its own, also when it finds one that was never
// finished: that one may be of a process which is slow, on a copy of the store, and
// two stores must never run under one epoch. So while starts are under way the
// store's epoch may be any from Current to Pending.
type Witness struct {
	// Current is the issuer epoch in force.
	Current uint32
	// Pending is the highest epoch that any start has planned. It never goes back.
	Pending uint32
	// Starting says that a start is under way, or was never finished.
	Starting bool
	// First, with Starting, says that no start has ever finished: the store may
	// still be empty.
	First bool
	// Longest is the longest TTL ever granted.
	Longest Span
	// Store is the identity of the store it belongs to.
	Store string
}

// knows reports whether the store's epoch is one that the witness has heard of.
func (w Witness) knows(epoch uint32) bool {
	return epoch == w.Current || w.Starting && epoch > w.Current && epoch <= w.Pending
}

// copyMark ends the identity of a store that is a copy. Identities have no spaces.
const copyMark = " copy"

// Copied is h as a copy of the store has it: whoever starts on it finds a regression,
// with the witness of the store and without one (R10).
func (h Header) Copied() Header {
	if _, copied := h.Original(); !copied {
		h.Identity += copyMark
	}
	h.Witnessed = true
	return h
}

// Original is the identity of the store, or of the one that it is a copy of.
func (h Header) Original() (identity string, copied bool) {
	return strings.CutSuffix(h.Identity, copyMark)
}

// Start is what a starting process has to do (R10): make Witness durable first,
// then set the store's epoch to Epoch in one step conditional on the epoch it read
// there, then make [Witness.Settled] durable. Only then may it grant. When a
// condition does not hold, another start came between: look and plan again, or ask
// [Compare], and go on with the store's epoch.
type Start struct {
	// Code is "", FENCE_REGRESSION or EXHAUSTED.
	Code lastword.Code
	// Why says in a few words what was found, with a Code.
	Why string
	// Adopted says that the witness was missing beside a store that is not marked
	// witnessed, and is made anew. Its Longest is [LongestTTL]; who has looked
	// through the store's records may lower it to the longest TTL found there.
	Adopted bool
	Witness Witness
	Epoch   uint32
}

// PlanStart decides on what a starting process found: the store's header and the
// witness, nil if it is missing. The very first start of an empty store is epoch 0;
// h.Identity is then the one chosen for it, and the store is initialised with the
// identity that the planned witness names.
//
// Both must be of one moment, here and for [Compare]: read the store, the witness
// and the store again until the epoch is the same. Else a start of another process
// between the two looks like a regression.
func PlanStart(h Header, w *Witness) Start {
	_, copied := h.Original()
	switch {
	case !h.Exists && w == nil:
		return Start{Witness: Witness{Starting: true, First: true, Store: h.Identity}}
	case !h.Exists && w.Starting && w.First:
		return begin(*w, w.Current) // the very first start was interrupted, or is slow
	case !h.Exists:
		return regression("the store is empty, but its witness knows an epoch")
	case copied:
		return regression("the store is a copy that a backup has made")
	case w == nil && h.Witnessed:
		return regression("the store is marked witnessed and its witness is missing")
	case w == nil:
		plan := begin(Witness{Current: h.Epoch, Longest: LongestTTL, Store: h.Identity}, h.Epoch)
		plan.Adopted = true
		return plan
	case w.Store != h.Identity:
		return regression("the witness belongs to another store")
	case !w.knows(h.Epoch):
		return regression("the store's epoch is not the witness's")
	}
	next := *w
	next.First = false // the store exists: from now on an empty one is a loss
	return begin(next, h.Epoch)
}

// Against is s, or a regression if something else, such as the trust bundle, has heard of
// an epoch that is not below the planned one: then store and witness went back together.
// It has to be read before both, or another process's start looks like one.
func (s Start) Against(known ...uint32) Start {
	for _, epoch := range known {
		if s.Code == "" && epoch >= s.Epoch {
			return regression("the trust bundle knows a later issuer epoch than store and witness")
		}
	}
	return s
}

// begin plans the next number above all that were ever planned, for a store that was
// found in epoch found.
func begin(w Witness, found uint32) Start {
	planned := max(w.Current, w.Pending, found)
	if planned >= lastword.MaxEpoch {
		return exhausted()
	}
	w.Current, w.Pending, w.Starting = found, planned+1, true
	return Start{Witness: w, Epoch: w.Pending}
}

func exhausted() Start {
	return Start{Code: lastword.CodeExhausted, Why: "the last issuer epoch is in use; the way out is a new domain"}
}

func regression(why string) Start {
	return Start{Code: lastword.CodeFenceRegression, Why: why}
}

// Settled is the witness once the store's epoch is its pending one.
func (w Witness) Settled() Witness {
	if !w.Starting {
		return w
	}
	return w.At(w.Pending)
}

// At is the witness once a process goes on with epoch, which it found in the store
// and which the witness knows. A start that planned a later one may still finish.
// Durable before that process grants anything: until then a backup of the store from
// before that epoch would pass for the store.
func (w Witness) At(epoch uint32) Witness {
	if !w.knows(epoch) {
		return w
	}
	w.Current, w.First = epoch, false
	w.Starting = w.Starting && epoch < w.Pending
	return w
}

// PlanAdvance is the operator's way out of a regression (R10): an epoch above every
// one that was found, in which the tenures found have ended and the first grants
// wait until every lost tenure must be over. The same three steps as a start; after a
// crash between them the regression is found again, until the store has the new
// header. Without a witness the wait is [LongestTTL]: who knows better passes a
// witness with nothing but Longest. For an empty store, h has the identity and the
// tick that are chosen for it.
func PlanAdvance(h Header, w *Witness, found ...uint32) (Start, Header) {
	highest := h.Epoch
	old := Witness{Longest: LongestTTL}
	if w != nil {
		old = *w
		highest = max(highest, w.Current, w.Pending)
	}
	for _, epoch := range found {
		highest = max(highest, epoch)
	}
	if highest >= lastword.MaxEpoch {
		return exhausted(), h
	}
	plan := Start{Epoch: highest + 1, Witness: Witness{
		Current: highest + 1, Pending: highest + 1, Starting: true, Longest: old.Longest, Store: h.Identity,
	}}
	h.Exists = true
	h.Epoch = plan.Epoch
	h.Floor = plan.Epoch
	h.HoldUntil = max(h.HoldUntil, h.Tick.plus(Ticks(old.Longest, h.TickSpan)))
	return plan, h
}

// Drift is what a running process finds when it compares its epoch with store and
// witness.
type Drift int

// The findings.
const (
	// Steady: nothing changed.
	Steady Drift = iota
	// Moved: another process started; make [Witness.At] of the store's epoch
	// durable and go on with that epoch.
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
