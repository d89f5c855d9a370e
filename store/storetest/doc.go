// Package storetest is the conformance kit of the store contract: [Run] drives any
// implementation of store.Store through it, [RunBenchmarks] measures all alike, and
// [Broken] holds stores with one named fault each, which Run must reject.
//
// The kit knows no implementation by name; differences are declared in the [Harness].
// The name of a case begins with the rule that it proves.
//
// # Guarantees
//
// Cases decide nothing by themselves: they run the rules of internal/core over the
// store, with their own ticks, and compare what the store kept with what it
// acknowledged. A case that is random is seeded, prints its seed, and plays in one
// goroutine, so that the same seed gives the same history.
//
// # Not guaranteed
//
// A crash is what the harness makes of it. That a disk keeps what it acknowledged
// when the power fails is not tested here.
package storetest
