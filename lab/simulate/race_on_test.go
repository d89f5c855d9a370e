//go:build race

package simulate_test

// underRace says that the race detector runs: everything takes ten times as long.
const underRace = true
