// Package protect closes tables of the user to writers that bypass the fence (R16c,
// R17): it writes the triggers, keeps the list of protected tables and of roll-outs
// (R18) in the database itself, and looks whether what it wrote is still there.
//
// A row belongs to a resource, by a [Template] such as doc/{id}. A row may change while
// a pass for its resource is open in the transaction. Who opens a pass, and when, is the
// adapters' business; nothing here decides about a fence.
//
// # Guarantees
//
// While the triggers of a table are there and on, every INSERT, UPDATE, DELETE, upsert
// and REPLACE, whatever program makes it, is refused unless a pass for the resource of
// each row that it changes, removes or makes is open in its transaction. On PostgreSQL
// that covers COPY, TRUNCATE, partitions, inheritance and a session_replication_role. A
// trigger that is missing, off or not as it was written is found by [Inspect].
//
// # Not guaranteed
//
// Who may change the schema can remove triggers (DROP TRIGGER, ALTER TABLE, DROP TABLE),
// and so can a superuser. A program that opens SQLite's file itself may also switch
// triggers off for its own connection, write with incremental blob I/O, put other bytes
// in the file's place, or open a pass by hand. Rights are what closes that, where the
// engine has them.
package protect
