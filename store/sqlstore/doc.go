// Package sqlstore keeps authority state in one SQLite file, which people can open
// with sqlite3 and read. The caller brings the driver.
//
// The tables are lastword_header (one row), lastword_record (one row for each
// resource, never deleted) and lastword_request (one row for each request id).
//
// # Guarantees
//
// It passes storetest.Run. What Commit reports as applied was synced to the disk:
// every connection is in WAL mode with synchronous=FULL, and was asked whether it
// is. A batch is one transaction that takes the write lock at its start; each record
// is written by one conditional statement whose row count decides (R15). Names are
// compared byte by byte (KF-28).
//
// One process at a time has the file: a lock on PATH.lock, of the path with all
// symbolic links resolved, is held for the life of a [Store] and released by the
// kernel when the process dies, however it dies. A second one is refused, and so
// are a file with several hard links, another program's database, a damaged file and
// a schema newer than this code, each before anything is changed.
//
// A file that Open makes has mode 0600, and the ones that SQLite puts beside it, too: who
// reads them knows the ids of all tenures. The mode of an existing file stays as it is.
//
// Other programs may read the file meanwhile. One that locks it for writing delays
// Commit until its context ends; busy errors are never seen (KF-22). One that writes
// to it is noticed at the next Commit or at the next Read that is not answered from
// memory.
//
// [Restore] puts a backup in the place of a store that nobody serves, whole or not at
// all, and keeps what was there. [Witness] keeps the mark of another store (R10).
//
// # Not guaranteed
//
// The lock is advisory: a program that does not know it can write to the file, and
// file systems without working locks or syncs (many network ones) void everything.
// A file that is moved, removed or exchanged is noticed at the next Read or Commit, by
// its inode, and one whose header is another store's by its identity. What is written
// over the bytes of the open file is not noticed for certain; neither is a raw copy that
// is put back between two runs: that is the witness's part (R10). After an i/o error
// in COMMIT the store refuses everything until it is opened again, because only
// recovery can tell what stands in the log.
//
// After a crash the file PATH.lock stays behind; it is in nobody's way.
package sqlstore
