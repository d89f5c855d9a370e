// Package sqldb is what the SQL leaves share: what differs between engines
// ([Dialect]), classes of errors, migrations, the outcome of a transaction and its
// repetition as a whole.
//
// It imports no driver. The caller registers one and names it; engine errors are
// recognised by their code, through a method that the driver's error type has.
//
// # Guarantees
//
// A transaction that [Transact] reports as rolled back left nothing behind, and one
// that it reports as committed was acknowledged by the engine's COMMIT. A connection
// of [OpenSQLite] was set up as [SQLiteConfig] says and the engine confirmed it. A
// schema newer than the code, a database of another program and a table of ours that
// is not ours are refused before anything is changed.
//
// # Not guaranteed
//
// Durability is what the engine and the disk make of it. A driver whose errors have
// no code is not understood: its errors are all [Other], which is safe (never
// repeated, and unknown at COMMIT) but not friendly.
package sqldb
