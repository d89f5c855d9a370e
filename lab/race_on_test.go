//go:build race

package lab

// raceOn shrinks what is heavy: the SQLite driver is ten times slower under -race.
const raceOn = true
