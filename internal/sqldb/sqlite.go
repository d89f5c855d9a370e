package sqldb

import (
	"context"
	"database/sql"
	"errors"
)

// SQLite is the dialect of SQLite 3.37 or later (STRICT tables). The driver's errors
// must have a method Code() int with the (extended) result code, as those of
// modernc.org/sqlite do.
type SQLite struct{}

// Primary result codes, https://sqlite.org/rescode.html. An extended code holds its
// primary one in the low byte.
const (
	sqlitePerm       = 3
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteReadOnly   = 8
	sqliteInterrupt  = 9
	sqliteIO         = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteProtocol   = 15
	sqliteConstraint = 19
	sqliteAuth       = 23
	sqliteNotADB     = 26
)

// Name is "SQLite".
func (SQLite) Name() string { return "SQLite" }

// Begin takes the write lock at once. A deferred transaction would take it at its
// first write and fail there with SQLITE_BUSY_SNAPSHOT if somebody wrote since its
// first read; no busy time-out helps against that.
func (SQLite) Begin() string { return "BEGIN IMMEDIATE" }

// Class sorts by primary result code.
func (SQLite) Class(err error) Class {
	switch sqliteCode(err) {
	case sqliteBusy, sqliteLocked, sqliteProtocol:
		return Busy
	case sqliteConstraint:
		return Constraint
	case sqliteFull:
		return Full
	case sqliteReadOnly:
		return ReadOnly
	case sqliteIO:
		return IO
	case sqliteCantOpen, sqlitePerm, sqliteAuth:
		return CannotOpen
	case sqliteCorrupt, sqliteNotADB:
		return NotADatabase
	case sqliteInterrupt:
		return Interrupted
	}
	return Other
}

// RolledBack is proved only by BUSY and a failed deferred constraint. They are found
// before the first frame of the commit is written and leave the transaction open, so
// that ROLLBACK ends it. After FULL and I/O errors the transaction is undone in this
// process, but its last frame may stand in the log without having been synced: the
// recovery after a crash would find it and bring it back.
func (d SQLite) RolledBack(err error) bool {
	switch d.Class(err) {
	case Busy, Constraint:
		return true
	}
	return false
}

// Tables reads sqlite_schema.
func (SQLite) Tables(ctx context.Context, q Querier) ([]string, error) {
	rows, err := q.QueryContext(ctx, `SELECT name FROM sqlite_schema
		WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	return names(rows)
}

// Confirm is nothing: COMMIT fails where there is no transaction.
func (SQLite) Confirm() string { return "" }

// Table is the name as it is.
func (SQLite) Table(name string) string { return name }

// Enter does nothing: whoever writes is alone.
func (SQLite) Enter(context.Context, Querier) error { return nil }

func names(rows *sql.Rows) (all []string, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, rows.Err()
}

func sqliteCode(err error) int {
	coded, ok := err.(interface{ Code() int }) // most come as the driver made them: to unwrap costs more than to look
	if !ok && !errors.As(err, &coded) {
		return 0
	}
	return coded.Code() & 0xff
}
