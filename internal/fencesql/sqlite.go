package fencesql

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// SQLite is SQLite 3.37 or later.
type SQLite struct{ sqldb.SQLite }

const (
	// sqliteLock takes SQLite's write lock, the only lock there is, without touching
	// a page: no record need exist, and nothing is added to what COMMIT writes. It
	// must be the first statement of the transaction. database/sql begins a
	// deferred one unless the driver was told otherwise in the DSN, which is the
	// caller's. A deferred transaction that reads first and writes later fails with
	// SQLITE_BUSY_SNAPSHOT if anybody wrote in between, whatever the busy_timeout;
	// one that writes first has read nothing, so it waits as BEGIN IMMEDIATE does.
	sqliteLock = `UPDATE main.lastword_fence SET frozen = frozen WHERE FALSE`

	sqliteBegin = `BEGIN`

	// sqliteLoad reads the settings of the connection beside the record: they may not
	// change inside a transaction, so what it finds holds for the COMMIT. Whether
	// something outlived a record is looked up only where there is none (R19).
	sqliteLoad = `SELECT s.synchronous, j.journal_mode, f.fence IS NOT NULL,
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
	r.operation IS NOT NULL, coalesce(r.payload, ''), t.pruned_at IS NOT NULL, coalesce(f.pruned, 0),
	EXISTS (SELECT 1 FROM main.lastword_rollout AS o WHERE o.domain = ?1 AND o.shadow = 1) AND
	coalesce((SELECT o.shadow FROM main.lastword_rollout AS o WHERE o.domain = ?1 AND (o.prefix = '' OR o.prefix = ?2 OR
		substr(o.prefix, -1) = '/' AND substr(?2, 1, length(o.prefix)) = o.prefix) ORDER BY length(o.prefix) DESC LIMIT 1), 0)
FROM pragma_synchronous AS s CROSS JOIN pragma_journal_mode AS j
LEFT JOIN main.lastword_fence AS f ON f.domain = ?1 AND f.resource = ?2
LEFT JOIN main.lastword_restored AS p ON p.domain = ?1
LEFT JOIN main.lastword_receipt AS r ON r.domain = ?1 AND r.resource = ?2 AND r.operation = ?3
LEFT JOIN main.lastword_tombstone AS t ON t.domain = ?1 AND t.resource = ?2 AND t.operation_digest = ?4`

	sqliteInsert = `INSERT INTO main.lastword_fence (domain, resource, fence, lease_id, grant_digest, root,
	last_seq, last_operation, last_payload, policy, status_mode, frozen, step,
	bundle_sequence, min_epoch, min_policy_generation, imported, heard_epoch, heard_revision, restored)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT DO NOTHING`

	sqliteUpdate = `UPDATE main.lastword_fence SET fence = ?3, lease_id = ?4, grant_digest = ?5, root = ?6, last_seq = ?7, last_operation = ?8,
	last_payload = ?9, policy = ?10, status_mode = ?11, frozen = ?12, step = ?13,
	bundle_sequence = ?14, min_epoch = ?15, min_policy_generation = ?16, imported = ?17,
	heard_epoch = ?18, heard_revision = ?19, restored = ?20
WHERE domain = ?1 AND resource = ?2 AND fence = ?21 AND lease_id = ?22 AND grant_digest = ?23 AND root = ?24 AND last_seq = ?25 AND
	last_operation = ?26 AND last_payload = ?27 AND policy = ?28 AND status_mode = ?29 AND
	frozen = ?30 AND step = ?31 AND bundle_sequence = ?32 AND min_epoch = ?33 AND
	min_policy_generation = ?34 AND imported = ?35 AND heard_epoch = ?36 AND heard_revision = ?37 AND
	restored = ?38`

	// sqliteUpdateNumber is sqliteUpdate for a further write of the same tenure, which
	// changes few columns: the condition is the same. Numbered parameters cost a
	// driver more than those without.
	sqliteUpdateNumber = `UPDATE main.lastword_fence SET last_seq = ?, last_operation = ?, last_payload = ?,
	heard_epoch = ?, heard_revision = ?
WHERE domain = ? AND resource = ? AND fence = ? AND lease_id = ? AND grant_digest = ? AND root = ? AND last_seq = ? AND
	last_operation = ? AND last_payload = ? AND policy = ? AND status_mode = ? AND
	frozen = ? AND step = ? AND bundle_sequence = ? AND min_epoch = ? AND
	min_policy_generation = ? AND imported = ? AND heard_epoch = ? AND heard_revision = ? AND
	restored = ?`

	sqliteInsertReceipt = `INSERT INTO main.lastword_receipt (domain, resource, operation, payload, fence, seq,
	lease_id, grant_digest, owner, caller, root, result, applied_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// Schema is the tables.
func (SQLite) Schema() sqldb.Schema { return sqliteSchema }

// Closing closes its tables.
func (SQLite) Closing() protect.Engine { return protect.SQLite{} }

// Check tells a database that is not SQLite, or too old, from one that fails.
func (e SQLite) Check(ctx context.Context, c Conn) error {
	var version string
	err := c.Row(ctx, "SELECT sqlite_version()").Scan(&version)
	switch {
	case err == nil && !recent(version):
		return &lastword.Error{Code: lastword.CodeInvalid,
			Message: "SQLite " + version + " is too old", Hint: "use a driver with SQLite 3.37 or later"}
	case err != nil && ctx.Err() == nil && e.Class(err) == sqldb.Other && !unnamed(err, "sql: database is closed"):
		return &lastword.Error{Code: lastword.CodeInvalid, Err: err,
			Message: "the database does not answer as SQLite does, nor as PostgreSQL",
			Hint:    "only these are supported, through a driver whose errors have a method Code() int or SQLState() string"}
	}
	return err
}

// Hot are the statements of every write.
func (SQLite) Hot() []string {
	return []string{
		sqliteLock, sqliteBegin, sqliteLoad, sqliteSame, sqliteInsert, sqliteUpdate, sqliteUpdateNumber, sqliteInsertReceipt, sqliteTexts.Receipt,
	}
}

// Calm is ctx without its end: a driver starts a goroutine for every statement whose
// context can end, and whoever has the lock waits for nothing.
func (SQLite) Calm(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func (SQLite) text() *texts { return &sqliteTexts }

func (SQLite) lock(ctx context.Context, c Conn) error {
	_, err := c.Exec(ctx, sqliteLock)
	return err
}

func (e SQLite) load(ctx context.Context, t *Tx, key fence.Key, operation string) (loaded, error) {
	if l, found, err := e.recall(ctx, t, key, operation); found || err != nil {
		return l, err
	}
	return e.look(ctx, t.conn, key, operation)
}

func (SQLite) look(ctx context.Context, c Conn, key fence.Key, operation string) (loaded, error) {
	var l loaded
	var synchronous int
	var journal string
	err := l.scan(c.Row(ctx, sqliteLoad, key.Domain, string(key.Resource), operation, digestOf(operation)), operation, &synchronous, &journal)
	l.unsafe = checkDurable(synchronous, journal)
	return l, err
}

func (e SQLite) store(ctx context.Context, t *Tx, w change) error {
	if t.theirs { // the adapter has marked its own
		if err := e.stillOpen(ctx, t.conn); err != nil {
			return err
		}
	}
	now, err := recordArgs(w.next)
	if err != nil {
		return err
	}
	query, args, err := sqliteChange(t, w, now)
	if err != nil {
		return err
	}
	if err := one(t.conn.Exec(ctx, query, args...)); err != nil {
		return err
	}
	t.keep(w.next, now)
	if w.receipt == nil {
		return nil
	}
	if args, err = receiptArgs(w.key, *w.receipt); err != nil {
		return err
	}
	rows, err := t.conn.Exec(ctx, sqliteInsertReceipt, args...)
	if e.Class(err) == sqldb.Constraint {
		return errors.Join(ErrChanged, err)
	}
	return one(rows, err)
}

// stillOpen notices that SQLite has rolled a caller's transaction back by itself, because a
// statement of the effect failed or was interrupted and the effect went on. Record
// and receipt would then be committed one by one, for an effect that is gone. Only a
// second BEGIN can tell: inside a transaction it fails and changes nothing.
func (e SQLite) stillOpen(ctx context.Context, c Conn) error {
	_, err := c.Exec(ctx, sqliteBegin)
	if err != nil && e.Class(err) == sqldb.Other {
		return nil
	}
	if err == nil {
		_, err = c.Exec(ctx, "ROLLBACK")
		return errors.Join(ErrElsewhere, err)
	}
	return err
}

// sqliteChange is the statement that makes old into next.
func sqliteChange(t *Tx, w change, now []any) (query string, args []any, err error) {
	where := []any{w.key.Domain, string(w.key.Resource)}
	if !w.old.Exists {
		return sqliteInsert, slices.Concat(where, now), nil
	}
	before, err := t.columnsOf(w.old)
	if err != nil {
		return "", nil, err
	}
	if onlyNumber(w.old, w.next) {
		number := []any{int64(w.next.LastSeq), w.next.LastOperation, w.next.LastPayload.String(), int64(w.next.Heard.Epoch), int64(w.next.Heard.Revision)}
		return sqliteUpdateNumber, slices.Concat(number, where, before), nil
	}
	return sqliteUpdate, slices.Concat(where, now, before), nil
}

// onlyNumber reports whether nothing changes but what every write of a tenure changes.
func onlyNumber(old, next fence.Record) bool {
	old.LastSeq, old.LastOperation, old.LastPayload, old.Heard = next.LastSeq, next.LastOperation, next.LastPayload, next.Heard
	return old == next
}

// pass is nobody's business here: the adapter keeps passes, since a pass of SQLite has
// to be closed before COMMIT.
func (SQLite) pass(context.Context, *Tx, fence.Key) error { return nil }

func (SQLite) forget(context.Context, *Tx, string) error { return nil }

func (SQLite) wayOut() string { return "; begin it with BEGIN IMMEDIATE (_txlock=immediate)" }

func (SQLite) hint(c sqldb.Class) hint {
	switch c {
	case sqldb.Busy:
		return hint{"the database is busy", "try again"}
	case sqldb.Full:
		return hint{"there is no room left in the database", "free space, or raise max_page_count, and try again"}
	case sqldb.ReadOnly:
		return hint{"the database cannot be written to", "give this process write access to the file and to its directory, and open it without mode=ro"}
	case sqldb.CannotOpen:
		return hint{"the database cannot be opened", "check the path and the rights on the file and on its directory"}
	case sqldb.NotADatabase:
		return hint{"the file is no SQLite database, or is damaged", "name another file, or restore it from a backup"}
	case sqldb.IO:
		return hint{"the disk failed", "look at the disk before anything else"}
	}
	return hint{}
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
				" in journal mode DELETE: a power failure could undo a write that was acknowledged", hint+", or synchronous = EXTRA; lastword fence init sets the journal mode of a file")
		}
	default:
		return unfit("the connection has PRAGMA journal_mode = "+journal+": a crash would leave half a transaction", hint)
	}
	return nil
}
