//go:build !race

package sqlstore_test

const small = false
