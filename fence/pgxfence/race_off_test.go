//go:build !race

package pgxfence_test

// raceOn shrinks what is heavy: the driver is ten times slower under -race.
const raceOn = false
