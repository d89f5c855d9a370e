// Package lab is the laboratory: experiments with real processes, real signals and
// a real database, whose results are data that can be checked again.
//
// # Guarantees
//
// An experiment orders its processes by what they said, never by how long something
// takes: a process that is to be asleep is stopped by SIGSTOP and waited for, one
// that takes over waits at the authority. Each run has processes, ports and a
// directory of its own and leaves none of them behind. A result is what was read
// from the databases and from the answers; nothing in it is written down beforehand.
//
// # Not guaranteed
//
// One run shows one order of events. What holds in every order is the model's part.
package lab
