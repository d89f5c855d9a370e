// Package sqlfence guards business tables that database/sql reaches: the record of
// a resource, the receipt and the business statements are one transaction.
//
// The caller brings the driver and the pool. SQLite 3.37 or later is supported, with a
// driver whose errors have a method Code() int, as those of modernc.org/sqlite do; and
// PostgreSQL 13 or later, with one whose errors have SQLState() string, as those of
// github.com/jackc/pgx/v5/stdlib do. What follows is about SQLite; docs/postgresql.md says
// what differs on PostgreSQL, where package pgxfence needs fewer round trips.
//
//	db, err := sql.Open("sqlite", "file:app.db?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)")
//	err = sqlfence.Init(ctx, db) // once, as `lastword fence init` does
//	invoices, err := sqlfence.New(ctx, db, sqlfence.Config{Config: fence.Config{…}})
//	receipt, err := invoices.Apply(ctx, lease, "settle-4711", payload, func(ctx context.Context, tx *sql.Tx) error { … })
//
// The tables are ordinary ones, readable with any SQL tool: lastword_fence (the
// records), lastword_receipt, lastword_tombstone, lastword_refusal (counts) and
// lastword_quarantine. Names are compared byte by byte.
//
// # Guarantees
//
// What package fence guarantees, at every isolation that SQLite has: the write lock
// is taken before anything is read, the record moves by one conditional statement
// whose row count decides (R15), and it commits with the effect and the receipt or
// not at all. Busy, locked and snapshot errors repeat the whole transaction, under
// the same operation id, until the context ends; they never look like a verdict
// (R16). A COMMIT whose fate is open is [lastword.ErrUnknownOutcome]; every other
// error left nothing behind. A receipt is on disk before it is returned: a
// connection whose settings (synchronous, journal mode) could lose a commit is
// refused in the transaction itself.
//
// A call outlasts its context by at most the connection's busy_timeout (drivers that
// end a wait with the context, as modernc.org/sqlite does, do not use it up), the
// effect's own time and the time that the disk takes for one COMMIT; a refusal by
// up to 250 ms more, to write its evidence. Outside WAL a COMMIT waits for readers, too,
// up to the busy_timeout.
//
// # Not guaranteed
//
// Writers that do not go through this package are held off only where a table is
// protected ([Place.Protect]); docs/protect.md says what no trigger closes. An effect must use
// the transaction it is given, return the errors of its statements and leave COMMIT
// and ROLLBACK alone: SQLite itself rolls a transaction back after some errors (an
// interrupted or failed write, ON CONFLICT ROLLBACK), and what an effect that
// ignores that executes afterwards stands outside the fence. It is noticed at COMMIT
// and reported as unknown. Tables of an attached file are one transaction with the
// record only as far as SQLite makes them so: not over a power failure in WAL mode.
// Durability is what SQLite, file system and disk make of it; on macOS that needs
// PRAGMA fullfsync. A database in memory is as durable as the process.
package sqlfence
