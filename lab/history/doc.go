// Package history holds what callers of an authority wrote down, and looks through it.
//
// # Guarantees
//
// The verifier knows nothing of how the authority works: it compares what was promised
// to callers with what was promised to others, and with what the store kept.
//
// # Not guaranteed
//
// What nobody asked is not in a history. A call without an answer says nothing.
package history
