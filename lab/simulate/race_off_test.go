//go:build !race

package simulate_test

const underRace = false
