package sqlstore

import "github.com/lastword/lastword/internal/sqldb"

// schema of the store. Numbers are at most 2^63 − 1. TEXT compares byte by byte
// (collation BINARY in a UTF-8 database); digests are spelled as everywhere; ” is
// none.
var schema = sqldb.Schema{
	Name:   "store",
	Tables: []string{"lastword_header", "lastword_record", "lastword_request"},
	Alone:  true,
	Steps: [][]string{{
		`CREATE TABLE lastword_header (
			one        INTEGER PRIMARY KEY CHECK (one = 1),
			identity   TEXT    NOT NULL,
			domain     TEXT    NOT NULL,
			tick_span  INTEGER NOT NULL,
			epoch      INTEGER NOT NULL,
			tick       INTEGER NOT NULL,
			floor      INTEGER NOT NULL,
			hold_until INTEGER NOT NULL,
			witnessed  INTEGER NOT NULL
		) STRICT`,
		`CREATE TABLE lastword_record (
			resource          TEXT    NOT NULL PRIMARY KEY,
			revision          INTEGER NOT NULL CHECK (revision > 0),
			epoch             INTEGER NOT NULL,
			counter           INTEGER NOT NULL,
			state             TEXT    NOT NULL,
			owner             TEXT    NOT NULL,
			fence             INTEGER NOT NULL,
			deadline          INTEGER NOT NULL,
			lease_id          TEXT    NOT NULL,
			request_id        TEXT    NOT NULL,
			root              TEXT    NOT NULL,
			class             TEXT    NOT NULL,
			policy_generation INTEGER NOT NULL,
			ttl               INTEGER NOT NULL,
			ticks             INTEGER NOT NULL,
			granted_revision  INTEGER NOT NULL,
			issued_at         INTEGER NOT NULL,
			key_id            TEXT    NOT NULL,
			ended_tick        INTEGER NOT NULL,
			completed         INTEGER NOT NULL,
			result            BLOB,
			previous_state     TEXT    NOT NULL,
			previous_fence     INTEGER NOT NULL,
			previous_lease_id  TEXT    NOT NULL,
			previous_owner     TEXT    NOT NULL,
			previous_completed INTEGER NOT NULL,
			previous_result    BLOB
		) STRICT, WITHOUT ROWID`,
		`CREATE TABLE lastword_request (
			resource   TEXT    NOT NULL,
			owner      TEXT    NOT NULL,
			request_id TEXT    NOT NULL,
			state      TEXT    NOT NULL,
			fence      INTEGER NOT NULL,
			lease_id   TEXT    NOT NULL,
			params     BLOB,
			ended_tick INTEGER NOT NULL,
			completed  INTEGER NOT NULL,
			result     BLOB,
			PRIMARY KEY (resource, owner, request_id)
		) STRICT, WITHOUT ROWID`,
		`CREATE INDEX lastword_request_ended ON lastword_request (ended_tick) WHERE state NOT IN ('HELD', 'PENDING')`,
	}, {
		// The fence that a resource has reported and that stops the record; 0 is none.
		`ALTER TABLE lastword_record ADD COLUMN reported INTEGER NOT NULL DEFAULT 0`,
	}},
}

const (
	headerColumns = `identity, domain, tick_span, epoch, tick, floor, hold_until, witnessed`

	recordColumns = `resource, revision, epoch, counter, state, owner, fence, deadline, lease_id, request_id,
		root, class, policy_generation, ttl, ticks, granted_revision, issued_at, key_id, ended_tick, completed, result,
		previous_state, previous_fence, previous_lease_id, previous_owner, previous_completed, previous_result, reported`

	requestColumns = `owner, request_id, state, fence, lease_id, params, ended_tick, completed, result`
)

// The statements of the writing connection. Each condition of a step that a row can
// hold is part of the statement.
const (
	sqlDataVersion  = `PRAGMA data_version`
	sqlHeader       = `SELECT ` + headerColumns + ` FROM lastword_header WHERE one = 1`
	sqlCreateHeader = `INSERT INTO lastword_header (one, ` + headerColumns + `) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	sqlUpdateHeader = `UPDATE lastword_header SET identity = ?, domain = ?, tick_span = ?, epoch = ?, tick = ?, floor = ?, hold_until = ?, witnessed = ?
		WHERE one = 1 AND epoch = ? AND tick = ?`

	sqlCreateRecord = `INSERT INTO lastword_record (` + recordColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	sqlUpdateRecord = `UPDATE lastword_record SET revision = ?, epoch = ?, counter = ?, state = ?, owner = ?, fence = ?, deadline = ?,
		lease_id = ?, request_id = ?, root = ?, class = ?, policy_generation = ?, ttl = ?, ticks = ?, granted_revision = ?,
		issued_at = ?, key_id = ?, ended_tick = ?, completed = ?, result = ?, previous_state = ?, previous_fence = ?,
		previous_lease_id = ?, previous_owner = ?, previous_completed = ?, previous_result = ?,
		reported = ?
		WHERE resource = ? AND revision = ?`

	sqlPutRequest = `INSERT INTO lastword_request (resource, ` + requestColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (resource, owner, request_id) DO UPDATE SET state = excluded.state, fence = excluded.fence, lease_id = excluded.lease_id,
		params = excluded.params, ended_tick = excluded.ended_tick, completed = excluded.completed, result = excluded.result`
	sqlForgetRequest = `DELETE FROM lastword_request WHERE resource = ? AND owner = ? AND request_id = ?`

	sqlRecord       = `SELECT ` + recordColumns + ` FROM lastword_record WHERE resource = ?`
	sqlSomeRequests = `SELECT ` + requestColumns + ` FROM lastword_request WHERE resource = ? LIMIT ?`
	sqlSomeNames    = `SELECT owner, request_id FROM lastword_request WHERE resource = ? LIMIT ?`
	sqlRequest      = `SELECT ` + requestColumns + ` FROM lastword_request WHERE resource = ? AND owner = ? AND request_id = ?`
)

// The statements of the reading connection. There is no index by lease id: it would
// make every grant write a third more pages.
const (
	sqlRequestByLease = `SELECT ` + requestColumns + ` FROM lastword_request WHERE resource = ? AND lease_id = ? LIMIT 1`

	sqlList = `SELECT ` + recordColumns + ` FROM lastword_record WHERE resource > ? AND resource >= ? ORDER BY resource LIMIT ?`

	sqlListBelow = `SELECT ` + recordColumns + ` FROM lastword_record WHERE resource > ? AND resource >= ? AND resource < ? ORDER BY resource LIMIT ?`

	sqlEnded = `SELECT resource, ` + requestColumns + ` FROM lastword_request
		WHERE state NOT IN ('HELD', 'PENDING') AND ended_tick <= ? ORDER BY ended_tick, resource, owner, request_id LIMIT ?`
)
