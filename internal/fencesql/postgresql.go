package fencesql

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// PostgreSQL is PostgreSQL 13 or later.
type PostgreSQL struct{ sqldb.PostgreSQL }

// leastVersion has xid8, which is never used twice.
const leastVersion = 130000

const (
	postgresLoadCall = `SELECT * FROM lastword.load($1, $2, $3, $4, $5)`

	// postgresStoreCall has a parameter for each argument of the function.
	postgresStoreCall = `SELECT lastword.store($1, $2, $3, $4,
	$5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
	$23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40,
	$41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54)`

	// postgresSame fails where the transaction is not the one that has stored the record
	// last: it divides by the number of rows. It also fails where a crash could undo its
	// COMMIT, because an effect has changed the settings: there is no root of -1; and where an
	// effect has changed what was stored: there is no logarithm of 0.
	postgresSame = `SELECT 1 / pg_catalog.count(*),
	pg_catalog.sqrt(CASE WHEN pg_catalog.current_setting('fsync') <> 'on' OR pg_catalog.current_setting('synchronous_commit') = 'off' THEN -1 ELSE 1 END),
	pg_catalog.ln(pg_catalog.count(*) FILTER (WHERE fence = $3 AND lease_id = $4 AND root = $5 AND last_seq = $6 AND last_operation = $7
		AND last_payload = $8 AND policy = $9 AND status_mode = $10 AND frozen = $11 AND restored = $12))
FROM lastword.fence WHERE domain = $1 AND resource = $2 AND passed = pg_catalog.pg_current_xact_id()`

	postgresPass = `INSERT INTO lastword.pass AS p (domain, resource, xact) VALUES ($1, $2, pg_catalog.pg_current_xact_id())
ON CONFLICT (domain, resource) DO UPDATE SET xact = excluded.xact`

	// postgresEstimated: some of what has bypassed the fence in a roll-out stand for others,
	// which begins behind that number.
	postgresEstimated    = `SELECT EXISTS (SELECT 1 FROM lastword.bypass WHERE domain = $1 AND number > 10000 AND weight > 1)`
	postgresForget       = `UPDATE lastword.fence SET passed = NULL WHERE domain = $1 AND passed IS NOT NULL`
	postgresForgetPasses = `DELETE FROM lastword.pass WHERE domain = $1`

	// postgresLook is one statement, so all of it is of one moment.
	postgresLook = `SELECT '', pg_catalog.current_setting('fsync'), pg_catalog.current_setting('synchronous_commit'), f.fence IS NOT NULL,
	coalesce(f.fence, 0), coalesce(f.lease_id, ''), coalesce(f.grant_digest, ''), coalesce(f.root, ''),
	coalesce(f.last_seq, 0), coalesce(f.last_operation, ''), coalesce(f.last_payload, ''),
	coalesce(f.policy, ''), coalesce(f.status_mode, ''), coalesce(f.frozen, FALSE), coalesce(f.step, 0),
	coalesce(f.bundle_sequence, 0), coalesce(f.min_epoch, 0), coalesce(f.min_policy_generation, 0),
	coalesce(f.imported, FALSE), coalesce(f.heard_epoch, 0), coalesce(f.heard_revision, 0), coalesce(f.restored, p.mark, 0),
	f.fence IS NOT NULL AND coalesce(p.mark, 0) > f.restored,
	f.fence IS NULL AND (
		EXISTS (SELECT 1 FROM lastword.receipt WHERE domain = $1 AND resource = $2)
		OR EXISTS (SELECT 1 FROM lastword.tombstone WHERE domain = $1 AND resource = $2)),
	r.operation IS NOT NULL, coalesce(r.payload, ''), t.pruned_at IS NOT NULL, coalesce(f.pruned, 0),
	lastword.shadows($1, $2)
FROM (SELECT 1) AS one
LEFT JOIN lastword.fence AS f ON f.domain = $1 AND f.resource = $2
LEFT JOIN lastword.restored AS p ON p.domain = $1
LEFT JOIN lastword.receipt AS r ON r.domain = $1 AND r.resource = $2 AND r.operation = $3
LEFT JOIN lastword.tombstone AS t ON t.domain = $1 AND t.resource = $2 AND t.operation_digest = $4`
)

// Schema is the tables.
func (PostgreSQL) Schema() sqldb.Schema { return postgresSchema }

// Closing closes its tables.
func (PostgreSQL) Closing() protect.Engine { return protect.PostgreSQL{} }

// Check refuses a server that is too old, or whose text is not UTF-8.
func (PostgreSQL) Check(ctx context.Context, c Conn) error {
	var number, encoding string
	err := c.Row(ctx, "SELECT current_setting('server_version_num'), current_setting('server_encoding')").Scan(&number, &encoding)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(number); err != nil || n < leastVersion {
		return &lastword.Error{Code: lastword.CodeInvalid, Message: "PostgreSQL " + number + " is too old", Hint: "use version 13 or later"}
	}
	if encoding != "UTF8" {
		return &lastword.Error{Code: lastword.CodeInvalid, Message: "the database has the encoding " + encoding, Hint: "use one with UTF8"}
	}
	return nil
}

// IsPostgreSQL reports whether version, the answer to SELECT version(), is
// PostgreSQL's own.
func IsPostgreSQL(version string) bool { return strings.HasPrefix(version, "PostgreSQL ") }

// Hot is nothing: a driver of PostgreSQL prepares what it likes, and a pooler that hands
// connections out by the transaction does not know what was prepared on them.
func (PostgreSQL) Hot() []string { return nil }

// Calm is ctx: a statement may wait for the network, and for the locks of others.
func (PostgreSQL) Calm(ctx context.Context) context.Context { return ctx }

func (PostgreSQL) text() *texts { return &postgresTexts }

func (PostgreSQL) lock(context.Context, Conn) error { return nil }

func (PostgreSQL) load(ctx context.Context, t *Tx, key fence.Key, operation string) (loaded, error) {
	query, args := LoadStatement(key, operation, !t.theirs)
	return scanLoad(t.conn.Row(ctx, query, args...), operation)
}

// LoadStatement locks a record on PostgreSQL and reads what is known beside it; open
// opens the resource to the transaction. [Loaded] reads its answer.
func LoadStatement(key fence.Key, operation string, open bool) (query string, args []any) {
	return postgresLoadCall, []any{key.Domain, string(key.Resource), operation, digestOf(operation), open}
}

// Loaded is [Tx.Load] of a statement that was sent already. The error is the engine's.
func Loaded(t *Tx, row Row, operation string) (fence.Record, fence.Known, error) {
	l, err := scanLoad(row, operation)
	return t.loaded(l, err)
}

func scanLoad(row Row, operation string) (loaded, error) {
	var l loaded
	var fsync, synchronous string
	err := l.scan(row, operation, &l.xact, &fsync, &synchronous)
	if err == nil {
		l.unsafe = postgresDurable(fsync, synchronous)
	}
	return l, err
}

func (PostgreSQL) look(ctx context.Context, c Conn, key fence.Key, operation string) (loaded, error) {
	return scanLoad(c.Row(ctx, postgresLook, key.Domain, string(key.Resource), operation, digestOf(operation)), operation)
}

// postgresDurable refuses a COMMIT that may be acknowledged before it is on disk.
func postgresDurable(fsync, synchronous string) error {
	if fsync != "on" {
		return unfit("the server has fsync = "+fsync+": a crash could undo a write that was acknowledged, and damage the database", "set fsync = on")
	}
	if synchronous == "off" {
		return unfit("the connection has synchronous_commit = off: a crash could undo a write that was acknowledged",
			"set synchronous_commit = on, or local, for the role or in the transaction")
	}
	return nil
}

func (PostgreSQL) store(ctx context.Context, t *Tx, w change) error {
	args, _, err := storeArgs(t.xact, 0, w, nil)
	if err != nil {
		return err
	}
	_, err = t.conn.Exec(ctx, postgresStoreCall, args...)
	return StoreError(err)
}

// storeArgs are the arguments of [postgresStoreCall]. xact is the transaction that has
// read the record, "" if none has; pruned is the watermark that was read then; was are the
// columns of the record that was read, if they are remembered. now are those of the next.
func storeArgs(xact string, pruned uint64, w change, was []any) (args, now []any, err error) {
	now, err1 := recordArgs(w.next)
	var err2 error
	if was == nil {
		was, err2 = recordArgs(w.old)
	}
	var r lastword.Receipt
	if w.receipt != nil {
		r = *w.receipt
	}
	kept, err3 := receiptArgs(w.key, r)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, err
	}
	args = make([]any, 0, 54)
	args = append(args, xact, w.key.Domain, string(w.key.Resource), w.old.Exists)
	args = append(append(args, now...), was...)
	args = append(append(args, w.receipt != nil), kept[2:]...)
	return append(args, digestOf(r.Operation), int64(pruned)), now, nil
}

// Step is one conditional write on PostgreSQL that is still to be sent; [StoreError]
// reads its error.
type Step struct {
	Query string
	Args  []any
	After *Seen // once it was committed; nil if it is no step of the record
}

// Seen is a record, and what stands beside it, as they were committed at some moment.
type Seen struct {
	Record  fence.Record
	pruned  uint64
	columns []any // as a statement takes them
}

// Known is what is remembered of an operation: that it has a receipt or a tombstone only
// the database can tell, and the write that is decided on this asks for it. What the
// watermark says goes with the record (R19).
func (s Seen) Known(operation string) fence.Known {
	return fence.Known{Tombstone: fence.Pruned(operation, s.pruned)}
}

// StepOf is [Tx.Store] as a statement to send.
func StepOf(t *Tx, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) (Step, error) {
	return stepOf(t.xact, t.pruned, change{key: key, old: old, next: next, receipt: receipt}, nil)
}

// StepFrom is a step from old, which was seen in whatever transaction: the write itself
// decides whether it is still so.
func StepFrom(from Seen, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) (Step, error) {
	var was []any
	if from.Record == old {
		was = from.columns
	}
	return stepOf("", from.pruned, change{key: key, old: old, next: next, receipt: receipt}, was)
}

func stepOf(xact string, pruned uint64, w change, was []any) (Step, error) {
	if err := forward(w.old, w.next); err != nil {
		return Step{}, err
	}
	args, now, err := storeArgs(xact, pruned, w, was)
	return Step{Query: postgresStoreCall, Args: args, After: &Seen{Record: w.next, pruned: pruned, columns: now}}, err
}

// SameStep fails where the transaction is not the one that has stored the record, because
// an effect has ended that: then COMMIT would commit something else. It fails, too, where an
// effect has made it a COMMIT that could be lost, or has changed the record. [SameError]
// reads its error.
func SameStep(key fence.Key, stored Seen) Step {
	rec := stored.Record
	return Step{Query: postgresSame, Args: []any{
		key.Domain, string(key.Resource), int64(rec.Fence), rec.LeaseID, rec.Root.String(), int64(rec.LastSeq), rec.LastOperation,
		rec.LastPayload.String(), string(rec.Policy), string(rec.Status), rec.Frozen, int64(rec.Restored),
	}}
}

// SameError says what the error of a [SameStep] means.
func SameError(err error) error {
	switch sqldb.SQLState(err) {
	case "22012": // division by zero
		return errors.Join(ErrElsewhere, err)
	case "2201E": // logarithm of zero
		return &lastword.Error{Code: lastword.CodeInternal, Op: "store", Err: err,
			Message: "the record is not what this transaction has stored", Hint: "an effect must not write to the tables of the fence"}
	case "2201F": // root of a negative number
		return lossy("the effect has switched synchronous_commit off", err)
	}
	return err
}

// lossy wraps what the server said: that it said so before COMMIT is what makes it certain.
func lossy(why string, err error) error {
	return errors.Join(unfit("a COMMIT of the connection could be lost: "+why, "set fsync = on and synchronous_commit = on, or local"), err)
}

// StoreResult puts what an effect has returned into a receipt of this transaction.
func StoreResult(ctx context.Context, t *Tx, key fence.Key, operation string, result []byte) error {
	err := one(t.conn.Exec(ctx, t.engine.text().Result, key.Domain, string(key.Resource), operation, result))
	return t.fail("store", key, t.inTheWay(err))
}

// LookAt is [Look] for a step from what it has seen.
func LookAt(ctx context.Context, c Conn, key fence.Key, operation string) (Seen, fence.Known, error) {
	l, err := PostgreSQL{}.look(ctx, c, key, operation)
	if err == nil {
		err = l.unsafe
	}
	return Seen{Record: l.record, pruned: l.pruned}, l.known, err
}

// Overtaken is an error by which a transaction that was decided on what was committed
// before it, and not on what it has locked, is decided again.
func Overtaken(err error) error { return overtaken{err} }

type overtaken struct{ err error }

func (o overtaken) Error() string  { return o.err.Error() }
func (o overtaken) Unwrap() error  { return o.err }
func (overtaken) SQLState() string { return "40001" }

// StoreError says what the write of a record means with its error.
func StoreError(err error) error {
	switch sqldb.SQLState(err) {
	case stateChanged, stateReceipt:
		return errors.Join(ErrChanged, err)
	case stateElsewhere:
		return errors.Join(ErrElsewhere, err)
	case stateUnsafe:
		return lossy(err.Error(), err)
	}
	return err
}

// pass opens a resource where neither Load nor Store does: it has no record yet, whose
// column would say so, or it is in shadow, where a caller's transaction stores nothing.
func (PostgreSQL) pass(ctx context.Context, t *Tx, key fence.Key) error {
	if t.exists && !t.theirs || t.theirs && !t.shadow {
		return nil
	}
	step := PassStep(key)
	_, err := t.conn.Exec(ctx, step.Query, step.Args...)
	return err
}

// PassStep opens a resource to its transaction without its record.
func PassStep(key fence.Key) Step {
	return Step{Query: postgresPass, Args: []any{key.Domain, string(key.Resource)}}
}

// forget removes the numbers of transactions: in a restored server they come again.
func (PostgreSQL) forget(ctx context.Context, t *Tx, domain string) error {
	_, err := t.conn.Exec(ctx, postgresForget, domain)
	if err == nil {
		_, err = t.conn.Exec(ctx, postgresForgetPasses, domain)
	}
	return err
}

func (PostgreSQL) wayOut() string { return "" }

func (PostgreSQL) hint(c sqldb.Class) hint {
	switch c {
	case sqldb.Busy:
		return hint{"another transaction is in the way", "try again"}
	case sqldb.Full:
		return hint{"the server has no room left", "free space on it, and try again"}
	case sqldb.ReadOnly:
		return hint{"the database cannot be written to", "connect to the primary, without default_transaction_read_only"}
	case sqldb.CannotOpen:
		return hint{"the server does not let this role do it", "grant what docs/postgresql.md lists"}
	case sqldb.IO:
		return hint{"the server failed", "look at its log and its disk before anything else"}
	case sqldb.Unreachable:
		return hint{"the server is not there, or takes no further connection", "try again"}
	case sqldb.Interrupted:
		return hint{"the statement was cancelled before anything was written", "look at statement_timeout, and try again"}
	}
	return hint{}
}
