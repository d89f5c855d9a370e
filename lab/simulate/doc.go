// Package simulate runs the rules of lastword through long, mixed, faulty runs: owners,
// two authority processes, a guarded resource and an operator under one seeded
// scheduler, with a time, a network and disks of its own. The rules are the functions
// of internal/core; grants are signed and opened by package grant, and writes go
// through the real fence.Gate over memfence, unless a run asks for speed instead.
//
// A run is a row of worlds, each with a fresh store and a fresh resource. What happens
// in a world is a plan: a list of rounds (acquire, writes, an end) and of faults, drawn
// from the run's seed and the world's number. How long a message takes is drawn from the
// message itself and not from a common stream of numbers, so that a plan with something
// left out is still the same plan otherwise. A failure is shrunk by leaving out.
//
// # Guarantees
//
// The same options give the same trace, whatever GOMAXPROCS: there are no goroutines,
// no iteration over maps and no clock in the simulated part. What is right is decided by
// an observer that knows what was granted and what was changed, and uses none of the
// rules under test. Each planned fault counts how often it fired and how often it changed
// something; a run in which one never did fails.
//
// # Not guaranteed
//
// A run that finds nothing shows nothing of what it did not draw. Engines, the wire and
// real processes are not simulated, nor are the loops of package authority around the
// rules: grouping of many calls into one commit, and the order of its queues.
package simulate
