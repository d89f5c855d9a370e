// Package soak runs rounds with real processes: an authority, workers that hold leases
// and write to a guarded SQLite database, and the faults of the fault matrix, drawn from
// a seed. What everybody asked and heard is written down, and checked afterwards against
// a model, against the authority's store and against the business rows.
//
// A run has a number of cells that play at the same time. A cell has two workers, a
// database of its own and a proxy on each way to the authority; all cells share the
// authority. In a round one worker acquires and writes, a fault befalls it, the other
// one takes over and writes, and the first one tries again with what it had.
//
// # Guarantees
//
// A fault stands at an exact point: a worker stops or ends itself where it was told to,
// and the round goes on when the kernel says that it has. Each fault counts how often it
// fired and how often it changed something, and a run in which a planned one never did
// fails. A checker that ran out of time fails the run. Processes are ended by their
// ids, and by the kernel if the run itself is killed.
//
// # Not guaranteed
//
// One seed gives one plan, not one order of events: the machine has its part in that.
// Package simulate is where a seed repeats a run exactly. Linux only: elsewhere a run
// is refused.
package soak
