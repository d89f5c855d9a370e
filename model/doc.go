// Package model explores, exhaustively, what the rules of lastword allow: every
// order in which clients, authority processes, messages and faults can come. The
// rules are the functions of internal/core, the very ones that production runs; the
// model's own part is the wiring alone: who sends what, what is durable, which
// message is under way.
//
// A [Scope] is a list of worlds, each a bounded cast with the faults that may befall
// it. [Run] searches one scope breadth first, so that the counter-example it prints
// is a shortest one. A [Variant] is the same wiring with one named thing broken; a
// check that no variant violates proves nothing.
//
// Time is an integer. A message that is lost is one that is never delivered; a
// client or a process that is paused is one that takes no step.
//
// Properties look at what is done and at what is said: at effects, at verdicts and
// records of the place, at answers of the authority, at what a holder believes. Each
// world states what must be reachable in it, and a run in which that is not reached
// fails as one with a violation does.
//
// What the wiring has of its own is what core leaves to its callers: that a write is
// conditional on what was read (package store), what a process counts as watched and
// when it moves the counter (package authority), which question a gate asks (package
// fence). [Variant] breaks these, the conformance tests drive them through real
// stores and fences.
//
// # Guarantees
//
// The exploration of a world is complete and exact: states are compared in full,
// never by a hash alone, and nothing is reduced but as a world's bounds say. Core's
// functions depend on their arguments alone, so each is called once for each distinct
// question and its answer is kept. Two runs of one scope visit the same states and
// print the same events. Every property is violated by a variant, and every condition
// of internal/core is made wrong once: testdata/mutants.txt has those that the model
// does not notice, with the reason.
//
// # Not guaranteed
//
// What lies outside a world's bounds, which [Scopes] tell. Signatures, engines, wire
// formats, the queue of waiting clients and the hand-over (PENDING) are not in the
// model; clocks differ in phase but not in rate. A keeper's process looks at every
// tick, which ends a tenure as early as it can. Liveness is checked for one fair order
// of steps after the faults have stopped, from every reachable state. The number of
// interleavings is exact below 2^53 − 1; from there on it is a lower bound, and says so
// ([Report.InterleavingsAtLeast]).
package model
