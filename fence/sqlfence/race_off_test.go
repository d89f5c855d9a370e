//go:build !race

package sqlfence_test

// raceOn shrinks what is heavy: the driver is ten times slower under -race.
const raceOn = false
