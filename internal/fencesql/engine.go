package fencesql

import (
	"context"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// Engine is what differs between the databases: how a record is locked, read and
// written. It is [SQLite] or [PostgreSQL].
type Engine interface {
	sqldb.Dialect

	// Schema is the tables.
	Schema() sqldb.Schema
	// Closing is what closes the tables of others to writers that bypass the fence.
	Closing() protect.Engine
	// Check refuses a database that is another engine's, or too old.
	Check(ctx context.Context, c Conn) error
	// Hot are the statements of every write, for a driver that prepares them.
	Hot() []string
	// Calm is ctx for a statement that waits for nothing once the record is locked.
	Calm(ctx context.Context) context.Context

	// lock is what has to be done before a record is read.
	lock(ctx context.Context, c Conn) error
	load(ctx context.Context, t *Tx, key fence.Key, operation string) (loaded, error)
	look(ctx context.Context, c Conn, key fence.Key, operation string) (loaded, error)
	store(ctx context.Context, t *Tx, w change) error
	pass(ctx context.Context, t *Tx, key fence.Key) error
	// forget removes what a restored database must not remember (R20).
	forget(ctx context.Context, t *Tx, domain string) error
	text() *texts
	hint(sqldb.Class) hint
	wayOut() string // of a caller's transaction that something is in the way of
}

// loaded is a record and what is known beside it.
type loaded struct {
	record fence.Record
	known  fence.Known
	pruned uint64 // the record's pruning watermark
	xact   string // the transaction that read it, on PostgreSQL
	unsafe error  // why a COMMIT of this connection could be lost; nil if it could not
}

// change is one step of a record.
type change struct {
	key       fence.Key
	old, next fence.Record
	receipt   *lastword.Receipt
}

// hint is what an error says to a person.
type hint struct{ message, hint string }
