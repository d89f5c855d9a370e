// Package load runs the loops that measure a lock service: clients that each cycle
// keys of their own, clients that hand one key on, leases that are kept alive. The
// loops are the same for lastword and for its peers; only the [Target] differs.
//
// A loop runs in a process of its own ([Serve]), which takes one [Order] a line and
// answers with one [Figures] a line, so that nobody's load generator shares a
// process with the one who compares.
//
// # Guarantees
//
// Every target is driven by the same code, with the same clocks and the same count
// of clients. A cycle or hand-over counts only if both of its ends lie in the window,
// which begins after the clients are connected and warm. A lock that two clients held
// at once, and a call that failed, end the run with an error: there are no figures of
// a lock that does not lock. A client that still waits at the end of a window counts
// with the time that it has waited. Serve ends with its input, so that a driver
// outlives nobody.
//
// # Not guaranteed
//
// Load generator and server share the machine, and with it the cores: the figures are
// those of the pair. Loops are closed: a client that waits asks for nothing else, so
// latencies are those at the measured rate and not at another one.
package load
