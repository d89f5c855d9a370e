// Package bench measures lastword against what people use today, as the workloads W1
// to W8 of docs/performance.md say.
//
// # Guarantees
//
// Both sides of every comparison are measured in one run, in turns, by the same loops
// (package load), with server and load generator in processes of their own on either
// side. What is compared are the medians of the rounds; every claim is a ratio. A peer
// whose server is not installed is named as missing, with its package, and left out. A
// measurement that fails ends the run with its error: there are no figures of a lock
// that did not lock. Nothing is left behind, also not when the run is interrupted.
//
// # Not guaranteed
//
// That the figures hold elsewhere: only ratios travel, and those only roughly. That
// other work on the machine has not disturbed them: a round on a busy machine is as
// good as the machine was quiet. The peers differ in what they promise, too, which no
// figure shows.
package bench
