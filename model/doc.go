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
// # Guarantees
//
// The exploration of a world is complete and exact: states are compared in full,
// never by a hash alone, and nothing is reduced. Core's functions depend on their
// arguments alone, so each is called once for each distinct question and its answer
// is kept. Two runs of one scope visit the same states and print the same events.
//
// # Not guaranteed
//
// What lies outside a world's bounds, which [Scopes] tell. Signatures, engines, wire
// formats and the queue of waiting clients are not in the model; clocks differ in
// phase but not in rate. Liveness is checked for one fair order of steps after the
// faults have stopped, from every reachable state.
package model
