package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

var dialect = sqldb.SQLite{}

// The statements. main. keeps a TEMP table of the same name from getting in between.
const (
	// sqlLock takes SQLite's write lock, the only lock there is, without touching
	// a page: no record need exist, and nothing is added to what COMMIT writes. It
	// must be the first statement of the transaction. database/sql begins a
	// deferred one unless the driver was told otherwise in the DSN, which is the
	// caller's. A deferred transaction that reads first and writes later fails with
	// SQLITE_BUSY_SNAPSHOT if anybody wrote in between, whatever the busy_timeout;
	// one that writes first has read nothing, so it waits as BEGIN IMMEDIATE does.
	sqlLock = `UPDATE main.lastword_fence SET frozen = frozen WHERE FALSE`

	// sqlLoad reads the settings of the connection beside the record: they may not
	// change inside a transaction, so what it finds holds for the COMMIT. Whether
	// something outlived a record is looked up only where there is none (R19).
	sqlLoad = `SELECT s.synchronous, j.journal_mode, f.fence IS NOT NULL,
	coalesce(f.fence, 0), coalesce(f.lease_id, ''), coalesce(f.grant_digest, ''), coalesce(f.root, ''),
	coalesce(f.last_seq, 0), coalesce(f.last_operation, ''), coalesce(f.last_payload, ''),
	coalesce(f.policy, ''), coalesce(f.status_mode, ''), coalesce(f.frozen, 0), coalesce(f.step, 0),
	coalesce(f.bundle_sequence, 0), coalesce(f.min_epoch, 0), coalesce(f.min_policy_generation, 0),
	coalesce(f.imported, 0), coalesce(f.heard_epoch, 0), coalesce(f.heard_revision, 0), coalesce(f.restored, p.mark, 0),
	f.fence IS NOT NULL AND coalesce(p.mark, 0) > f.restored,
	CASE WHEN f.fence IS NULL THEN
		EXISTS (SELECT 1 FROM main.lastword_receipt WHERE domain = ?1 AND resource = ?2)
		OR EXISTS (SELECT 1 FROM main.lastword_tombstone WHERE domain = ?1 AND resource = ?2)
	ELSE FALSE END,
	r.operation IS NOT NULL, coalesce(r.payload, ''), t.pruned_at IS NOT NULL
FROM pragma_synchronous AS s CROSS JOIN pragma_journal_mode AS j
LEFT JOIN main.lastword_fence AS f ON f.domain = ?1 AND f.resource = ?2
LEFT JOIN main.lastword_restored AS p ON p.domain = ?1
LEFT JOIN main.lastword_receipt AS r ON r.domain = ?1 AND r.resource = ?2 AND r.operation = ?3
LEFT JOIN main.lastword_tombstone AS t ON t.domain = ?1 AND t.resource = ?2 AND t.operation_digest = ?4`

	sqlInsert = `INSERT INTO main.lastword_fence (domain, resource, fence, lease_id, grant_digest, root,
	last_seq, last_operation, last_payload, policy, status_mode, frozen, step,
	bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT DO NOTHING`

	sqlUpdate = `UPDATE main.lastword_fence SET fence = ?3, lease_id = ?4, grant_digest = ?5, root = ?6, last_seq = ?7, last_operation = ?8,
	last_payload = ?9, policy = ?10, status_mode = ?11, frozen = ?12, step = ?13,
	bundle_sequence = ?14, min_epoch = ?15, min_policy_generation = ?16, imported = ?17,
	heard_epoch = ?18, heard_revision = ?19, restored = ?20
WHERE domain = ?1 AND resource = ?2 AND fence = ?21 AND lease_id = ?22 AND grant_digest = ?23 AND root = ?24 AND last_seq = ?25 AND
	last_operation = ?26 AND last_payload = ?27 AND policy = ?28 AND status_mode = ?29 AND
	frozen = ?30 AND step = ?31 AND bundle_sequence = ?32 AND min_epoch = ?33 AND
	min_policy_generation = ?34 AND imported = ?35 AND heard_epoch = ?36 AND heard_revision = ?37 AND
	restored = ?38`

	// sqlUpdateNumber is sqlUpdate for a further write of the same tenure, which
	// changes few columns: the condition is the same. Numbered parameters cost a
	// driver more than those without.
	sqlUpdateNumber = `UPDATE main.lastword_fence SET last_seq = ?, last_operation = ?, last_payload = ?,
	heard_epoch = ?, heard_revision = ?
WHERE domain = ? AND resource = ? AND fence = ? AND lease_id = ? AND grant_digest = ? AND root = ? AND last_seq = ? AND
	last_operation = ? AND last_payload = ? AND policy = ? AND status_mode = ? AND
	frozen = ? AND step = ? AND bundle_sequence = ? AND min_epoch = ? AND
	min_policy_generation = ? AND imported = ? AND heard_epoch = ? AND heard_revision = ? AND
	restored = ?`

	sqlInsertReceipt = `INSERT INTO main.lastword_receipt (domain, resource, operation, payload, fence, seq,
	lease_id, grant_digest, owner, caller, root, result, applied_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	sqlReceipt = `SELECT payload, fence, seq, lease_id, grant_digest, owner, caller, root, result, applied_at
FROM main.lastword_receipt WHERE domain = ?1 AND resource = ?2 AND operation = ?3`

	sqlCountRefusal = `INSERT INTO main.lastword_refusal
	(domain, resource, verdict, times, last_why, last_fence, last_lease_id, last_claimant, last_at)
VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (domain, resource, verdict) DO UPDATE SET times = times + 1, last_why = excluded.last_why,
	last_fence = excluded.last_fence, last_lease_id = excluded.last_lease_id,
	last_claimant = excluded.last_claimant, last_at = excluded.last_at`

	// The first of a claimant stays and counts; sqlQuarantineLast is for the later
	// ones, each in the place of the one before.
	sqlQuarantineFirst = `INSERT INTO main.lastword_quarantine
	(domain, resource, claimant, place, times, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at)
VALUES (?1, ?2, ?3, 'first', 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (domain, resource, claimant, place) DO UPDATE SET times = times + 1
RETURNING times`

	sqlQuarantineLast = `INSERT INTO main.lastword_quarantine
	(domain, resource, claimant, place, times, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at)
VALUES (?1, ?2, ?3, 'last', 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (domain, resource, claimant, place) DO UPDATE SET verdict = excluded.verdict, why = excluded.why,
	fence = excluded.fence, lease_id = excluded.lease_id, operation = excluded.operation, seq = excluded.seq,
	payload = excluded.payload, content = excluded.content, noted_at = excluded.noted_at`

	sqlAct = `INSERT INTO main.lastword_act (domain, resource, kind, operator, reason, fence_before, fence_after, mark, at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`

	sqlActs = `SELECT kind, operator, reason, fence_before, fence_after, mark, at FROM (
	SELECT * FROM main.lastword_act WHERE domain = ?1 AND (resource = ?2 OR resource = '') ORDER BY number DESC LIMIT ?3
) ORDER BY number`

	sqlMarkRestored = `INSERT INTO main.lastword_restored (domain, mark) VALUES (?1, ?2)
ON CONFLICT (domain) DO UPDATE SET mark = excluded.mark`

	sqlRestored = `SELECT mark FROM main.lastword_restored WHERE domain = ?1`

	sqlRecords = `SELECT resource FROM main.lastword_fence WHERE domain = ?1 AND resource > ?2 ORDER BY resource LIMIT ?3`

	sqlRefusals = `SELECT verdict, times FROM main.lastword_refusal WHERE domain = ?1 AND resource = ?2`

	sqlQuarantine = `SELECT claimant, verdict, why, fence, lease_id, operation, seq, payload, content, noted_at
FROM main.lastword_quarantine WHERE domain = ?1 AND resource = ?2 ORDER BY claimant, place`
)

// checkEngine tells a database that is not SQLite, or too old, from one that fails.
func checkEngine(ctx context.Context, op string, db *sql.DB) error {
	if db == nil {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: "the database is nil", Hint: "open it with sql.Open"}
	}
	var version string
	err := sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) error {
		return db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	})
	switch {
	case err == nil && !recent(version):
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op,
			Message: "SQLite " + version + " is too old", Hint: "use a driver with SQLite 3.37 or later"}
	case err == nil:
		return nil
	case ctx.Err() == nil && dialect.Class(err) == sqldb.Other && !unnamed(err, "sql: database is closed"):
		return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Err: err,
			Message: "the database does not answer as SQLite does", Hint: "only SQLite is supported, through a driver whose errors have a method Code() int"}
	}
	return explain(op, err)
}

// recent: STRICT tables came with 3.37.
func recent(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return errors.Join(err1, err2) == nil && (major > 3 || major == 3 && minor >= 37)
}

// checkDurable refuses a connection whose COMMIT may return before it is on disk, or
// whose transactions are not undone by a crash. PRAGMA synchronous: 2 is FULL, 3 is
// EXTRA. In DELETE mode a commit is the unlinking of the journal, and only EXTRA
// syncs the directory; without it a power failure can bring the journal back, which
// undoes a commit whose receipt has left the house.
func checkDurable(synchronous int, journal string) error {
	const hint = "open the connections with PRAGMA journal_mode = WAL and PRAGMA synchronous = FULL"
	switch strings.ToLower(journal) {
	case "wal", "truncate", "persist":
		if synchronous < 2 {
			return unfit("the connection has PRAGMA synchronous = "+strconv.Itoa(synchronous)+
				": a power failure could undo a write that was acknowledged", hint)
		}
	case "delete":
		if synchronous < 3 {
			return unfit("the connection has PRAGMA synchronous = "+strconv.Itoa(synchronous)+
				" in journal mode DELETE: a power failure could undo a write that was acknowledged", hint+", or synchronous = EXTRA")
		}
	default:
		return unfit("the connection has PRAGMA journal_mode = "+journal+": a crash would leave half a transaction", hint)
	}
	return nil
}
