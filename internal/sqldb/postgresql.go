package sqldb

import (
	"context"
	"errors"
	"net"
	"strings"
)

// PostgreSQL is the dialect of PostgreSQL 13 or later. The driver's errors must have a
// method SQLState() string, as those of github.com/jackc/pgx/v5 and github.com/lib/pq
// do. All tables of ours are in the schema [PostgreSQLSchema].
type PostgreSQL struct{}

// PostgreSQLSchema is the schema of our tables: lastword_fence is lastword.fence.
const PostgreSQLSchema = "lastword"

// migrationLock is the advisory lock of whoever changes the schema.
const migrationLock = "7207204837541"

// Name is "PostgreSQL".
func (PostgreSQL) Name() string { return "PostgreSQL" }

// Begin names the isolation level, which a role or a database may have changed: behind
// a lock, a statement has to see what was committed before the lock was had.
func (PostgreSQL) Begin() string { return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE" }

// Class sorts by SQLSTATE, and what the network says as [Unreachable]; https://www.postgresql.org/docs/current/errcodes-appendix.html.
func (PostgreSQL) Class(err error) Class {
	state := SQLState(err)
	if network := net.Error(nil); len(state) != 5 && errors.As(err, &network) && !network.Timeout() {
		return Unreachable
	}
	if len(state) != 5 {
		return Other
	}
	switch state {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock not available
		return Busy
	case "53300", "57P01", "57P02", "57P03", "57P05": // too many connections, shut down, starting, idle too long
		return Unreachable
	case "53100", "53200": // disk full, out of memory
		return Full
	case "25006": // read-only transaction: also a standby
		return ReadOnly
	case "42501", "3D000": // insufficient privilege, no such database
		return CannotOpen
	case "57014": // query cancelled
		return Interrupted
	}
	switch state[:2] {
	case "08":
		return Unreachable
	case "23":
		return Constraint
	case "28":
		return CannotOpen
	case "58", "XX":
		return IO
	}
	return Other
}

// Confirm is any statement: COMMIT of a transaction in which one has failed is answered
// with ROLLBACK, and that is no error to a driver that was asked for a plain statement.
func (PostgreSQL) Confirm() string { return "SELECT 1" }

// RolledBack is proved by an error that the server itself reports before it has
// written the commit: a serialization failure, a deadlock, a deferred constraint or
// trigger, a COMMIT that it could not find prepared. After it nothing of the transaction can come back. A connection that broke, a
// server that went down or a pooler that lost patience prove nothing; nor does a
// disk that failed, since the server may find the commit in its log when it comes up
// again. A COMMIT that was answered with ROLLBACK is one that the driver reports in words.
func (d PostgreSQL) RolledBack(err error) bool {
	var unsent interface{ SafeToRetry() bool }
	switch {
	case err == nil:
		return false
	case errors.As(err, &unsent) && unsent.SafeToRetry(): // no byte has left
		return true
	}
	state := SQLState(err)
	if len(state) != 5 {
		return strings.Contains(err.Error(), "commit unexpectedly resulted in rollback") ||
			strings.Contains(err.Error(), "pq: Could not complete operation in a failed transaction")
	}
	switch state[:2] {
	case "22", "23", "26", "42", "44", "P0":
		return true
	case "40":
		return state != "40003" // completion unknown
	}
	return false
}

// Table is the name with its schema.
func (PostgreSQL) Table(name string) string {
	return PostgreSQLSchema + "." + strings.TrimPrefix(name, Prefix)
}

// Tables are those of our schema, named as on every other engine.
func (PostgreSQL) Tables(ctx context.Context, q Querier) ([]string, error) {
	rows, err := q.QueryContext(ctx, `SELECT '`+Prefix+`' || c.relname FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = '`+PostgreSQLSchema+`' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return names(rows)
}

// Enter takes an advisory lock until the end of the transaction and makes the schema if
// it is not there: asking for it with IF NOT EXISTS would need the right to create it
// even where it is.
func (PostgreSQL) Enter(ctx context.Context, q Querier) error {
	if _, err := q.ExecContext(ctx, `SELECT pg_advisory_xact_lock(`+migrationLock+`)`); err != nil {
		return err
	}
	var there bool
	row := q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = '`+PostgreSQLSchema+`')`)
	if err := row.Scan(&there); err != nil || there {
		return err
	}
	_, err := q.ExecContext(ctx, `CREATE SCHEMA `+PostgreSQLSchema)
	return err
}

// SQLState is the code of five characters in an error of a PostgreSQL driver, "" if it
// has none.
func SQLState(err error) string {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.SQLState()
}
