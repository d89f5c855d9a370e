// Package fencesql is what the SQL adapters of package fence share: the tables in
// which a guarded database keeps its records, the statements on them, and how a
// record becomes a row and back. It opens nothing, begins nothing and commits
// nothing: transactions are the adapters'.
//
// On PostgreSQL two functions of the database do what has to be one round trip:
// lastword.load locks a record and then, by later statements, reads what stands
// beside it, and lastword.store is the one conditional write (R15). They decide
// nothing about a fence; the rules are those of internal/core.
//
// # Guarantees
//
// What [Tx] stores is read back as it was given. A write on a record that is not
// the one it was decided on changes nothing and is [ErrChanged].
//
// # Not guaranteed
//
// Nothing here is atomic by itself, and nothing is durable before the adapter's
// COMMIT was acknowledged.
package fencesql
