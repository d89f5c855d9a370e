// Package core holds the rules of lastword as pure functions: (state, input,
// time) in, (state to make durable, answer) out. Authority, fences, holder and
// model all run these functions; there is no second copy of a rule.
//
// Time is an integer here. A [Tick] counts the store's own elapsed-time counter,
// a [Span] is a length in nanoseconds; nothing in this package reads a clock.
//
// # Guarantees
//
// A function depends on its arguments alone, never modifies what it was given
// and never blocks. Whatever a [Change] holds must be durable before anything of
// the answer beside it becomes visible; an answer with an empty Change depends
// on nothing but what was read.
//
// # Not guaranteed
//
// Atomicity and durability are the store's and the adapters' part: a rule decides
// on what it is shown, and the write must be conditional on just that.
package core

import "math"

// Tick is a value of a store's elapsed-time counter. It never runs faster than
// time (R8).
type Tick uint64

// Span is a length of elapsed time in nanoseconds.
type Span int64

// Ticks turns a duration into ticks: ⌈d / tick⌉ + 1. The extra tick is for the
// part of the present one that has already gone by, so that a lease is never
// shorter than its TTL. Of a tick without a length it is the largest number: what
// cannot be measured never ends.
func Ticks(d, tick Span) Tick {
	if d <= 0 {
		return 1
	}
	if tick <= 0 {
		return math.MaxUint64
	}
	return Tick((d-1)/tick) + 2
}

// plus is d ticks after t. It stops at the last tick: a deadline never wraps to an
// earlier one.
func (t Tick) plus(d Tick) Tick {
	if d > math.MaxUint64-t {
		return math.MaxUint64
	}
	return t + d
}

// Pace is how much a process may add to what it has watched after a gap of
// elapsed time between two looks: the gap, but never more than one tick, so that
// a frozen process that thaws finds nobody expired (R8).
func Pace(gap, tick Span) Span {
	return max(0, min(gap, tick))
}

// Clock is the time that a transition decides by.
type Clock struct {
	// Tick is the store's counter; a write that computes a deadline from it is
	// conditional on it.
	Tick Tick
	// Watched is for how long this process has itself watched the record stand
	// unchanged, measured by [Pace]. 0 if it did not.
	Watched Span
}
