//go:build race

package sqlstore_test

// small shrinks what takes long: under the race detector SQLite is ten times slower.
const small = true
