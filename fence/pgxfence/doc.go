// Package pgxfence guards business tables in PostgreSQL that are reached with pgx: the
// record of a resource, the receipt and the business statements are one transaction. The
// tables are those of package sqlfence, which may be used beside it.
//
// The caller brings the pool. There are three forms:
//
//   - [Fence.Apply] with a callback, in a transaction of its own. The check travels with
//     BEGIN, and record and receipt with COMMIT, so the fence adds no round trip.
//   - [Fence.Within] in a transaction of the caller: two round trips.
//   - [Fence.Send] with statements and no callback: BEGIN, check, statements and COMMIT
//     are one round trip, if the place has seen the record before, and two if not.
//
// Statements of the fence are executed as the pool executes its own
// (DefaultQueryExecMode). Behind PgBouncer in transaction mode that has to be
// pgx.QueryExecModeExec or pgx.QueryExecModeCacheDescribe, for the caller's statements
// as for these.
//
// # Guarantees
//
// What package fence guarantees, at every isolation level: the record is locked before
// anything beside it is read, it moves by one conditional statement whose row count
// decides (R15), and it commits with the effect and the receipt or not at all. A write
// of [Fence.Send] is decided on what was committed at some moment before, and stored only
// if that is still so. Deadlocks and serialization failures repeat the whole transaction,
// under the same operation id, until the context ends; they never look like a verdict
// (R16). A COMMIT whose fate is open is [lastword.ErrUnknownOutcome]; every other error
// left nothing behind. A connection with synchronous_commit = off is refused in the
// transaction itself, and so is a server with fsync = off.
//
// A call outlasts its context by at most a second for a COMMIT that is under way, and one
// for a roll-back, and one to ask what became of a transaction that has failed; a refusal by up to 250 ms more, to write its evidence.
//
// # Not guaranteed
//
// Writers that do not go through the fence are held off only from tables that are
// protected. An effect must use the transaction it is given, return the errors of its
// statements and leave Commit and Rollback alone; where it does not, the write is
// refused, or unknown if it has committed, and what it executed outside of the transaction
// is not fenced. Asynchronous
// replicas that are promoted lose what they have not received: declare that as a
// restore.
package pgxfence
