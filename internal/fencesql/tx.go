package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// Tx is what one transaction does with the tables. It implements fence.Tx, and is for
// one goroutine at a time.
type Tx struct {
	engine Engine
	conn   Conn
	// theirs says that the caller began the transaction, and so has to repeat it. A
	// protected table is opened by Store then, and by Load otherwise.
	theirs bool
	// memory says that the database is as durable as the process.
	memory bool

	locked bool
	exists bool   // the record that was read
	shadow bool   // it is being rolled out
	xact   string // the transaction that has read the record, on PostgreSQL
	pruned uint64 // the record's watermark then

	remembers *Memory // on SQLite; nil: nothing
	recalled  *Seen   // what was remembered, and is still so
	stored    *Seen   // what was stored last
}

// NewTx is the tables in a transaction that was begun on conn: by the adapter, or, if
// theirs, by its caller. A database in memory is as durable as the process.
func NewTx(e Engine, conn Conn, theirs, memory bool) *Tx {
	return &Tx{engine: e, conn: conn, theirs: theirs, memory: memory}
}

var _ fence.Tx = (*Tx)(nil)

// Lock takes what the engine locks before anything is read.
func Lock(ctx context.Context, t *Tx) error { return t.lock(ctx) }

func (t *Tx) lock(ctx context.Context) error {
	if t.locked {
		return nil
	}
	if err := t.engine.lock(ctx, t.conn); err != nil {
		return t.inTheWay(err)
	}
	t.locked = true
	return nil
}

// inTheWay is err, of which a caller of Within has to know what to do.
func (t *Tx) inTheWay(err error) error {
	if t.theirs && t.engine.Class(err) == sqldb.Busy {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: "within", Err: errors.Join(ErrRetryTransaction, err),
			Message: "another transaction was in the way of this one",
			Hint:    "roll it back and run it again as a whole" + t.engine.wayOut()}
	}
	return err
}

// Load reads the record and what is known of operation, and refuses a connection
// that could lose the commit.
func (t *Tx) Load(ctx context.Context, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	if err := t.lock(ctx); err != nil {
		return fence.Record{}, fence.Known{}, t.fail("load", key, err)
	}
	rec, known, err := t.loaded(t.engine.load(t.engine.Calm(ctx), t, key, operation))
	return rec, known, t.fail("load", key, err)
}

func (t *Tx) loaded(l loaded, err error) (fence.Record, fence.Known, error) {
	if err == nil && !t.memory {
		err = l.unsafe
	}
	if err != nil {
		return fence.Record{}, fence.Known{}, t.inTheWay(err)
	}
	t.xact, t.pruned, t.exists, t.shadow = l.xact, l.pruned, l.record.Exists, l.record.Shadow
	return l.record, l.known, nil
}

// digestOf is what is kept of the id of an operation whose receipt was pruned (R19).
func digestOf(operation string) string { return lastword.DigestOf([]byte(operation)).String() }

// Receipt reads the receipt of an operation.
func (t *Tx) Receipt(ctx context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	row := t.conn.Row(t.engine.Calm(ctx), t.engine.text().Receipt, key.Domain, string(key.Resource), operation)
	receipt, err := scanReceipt(row, key, operation)
	if errors.Is(err, sql.ErrNoRows) {
		err = &lastword.Error{Code: lastword.CodeInternal, Message: fmt.Sprintf("the receipt of operation %q is missing", operation)}
	}
	return receipt, t.fail("receipt", key, err)
}

// Store writes the record, if it is still old, and the receipt, if there is none of
// its operation.
func (t *Tx) Store(ctx context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
	if err := forward(old, next); err != nil {
		return t.fail("store", key, err)
	}
	err := t.engine.store(t.engine.Calm(ctx), t, change{key: key, old: old, next: next, receipt: receipt})
	return t.fail("store", key, t.inTheWay(err))
}

// forward refuses a step that no rule makes.
func forward(old, next fence.Record) error {
	if !next.Exists || old.Exists && next.Fence < old.Fence {
		return &lastword.Error{Code: lastword.CodeInternal, Fence: old.Fence,
			Message: fmt.Sprintf("a record with fence %s was to be replaced by one with %s", old.Fence, next.Fence)}
	}
	return nil
}

// one: the row count decides (R15).
func one(rows int64, err error) error {
	if err != nil {
		return err
	}
	if rows != 1 {
		return ErrChanged
	}
	return nil
}

// Pass opens protected tables to business statements on what belongs to key, until the
// transaction ends (R16c). What Load or Store has opened already stays so.
func (t *Tx) Pass(ctx context.Context, key fence.Key) error {
	return t.fail("pass", key, t.inTheWay(t.engine.pass(ctx, t, key)))
}

// Note counts a refusal, keeps the refused operation and freezes the record, as the
// evidence asks (R16b).
func Note(ctx context.Context, t *Tx, key fence.Key, e fence.Evidence) error {
	err := t.countRefusal(ctx, key, e)
	if err == nil && e.Quarantine != nil {
		err = t.quarantine(ctx, key, e)
	}
	if err == nil && e.Freeze {
		err = t.freeze(ctx, key, e.Fence)
	}
	return t.fail("note", key, err)
}

func (t *Tx) countRefusal(ctx context.Context, key fence.Key, e fence.Evidence) error {
	_, err := t.conn.Exec(ctx, t.engine.text().CountRefusal, key.Domain, string(key.Resource), string(e.Verdict),
		e.Why, int64(e.Fence), e.LeaseID, e.Claimant, timeText(e.At))
	return err
}

// quarantine keeps a claimant's first operation and its last, and counts the rest,
// so that a claimant who repeats himself fills nothing.
func (t *Tx) quarantine(ctx context.Context, key fence.Key, e fence.Evidence) error {
	q := e.Quarantine
	if err := fits(q.Seq); err != nil {
		return err
	}
	content := q.Content[:min(len(q.Content), fence.MaxQuarantineBytes)]
	args := []any{key.Domain, string(key.Resource), e.Claimant, string(e.Verdict), e.Why, int64(e.Fence), e.LeaseID,
		q.Operation, int64(q.Seq), q.Payload.String(), blob(content), timeText(e.At)}
	var times int64
	if err := t.conn.Row(ctx, t.engine.text().QuarantineFirst, args...).Scan(&times); err != nil || times == 1 {
		return err
	}
	_, err := t.conn.Exec(ctx, t.engine.text().QuarantineLast, args...)
	return err
}

// freeze stops the record if it still carries token; what has moved on is left alone.
func (t *Tx) freeze(ctx context.Context, key fence.Key, token lastword.Token) error {
	rec, _, err := t.Load(ctx, key, "")
	if err != nil || !rec.Exists || rec.Fence != token || rec.Frozen {
		return err
	}
	return t.Store(ctx, key, rec, fence.Frozen(rec), nil)
}

// Keep stores what an operator did, in this transaction. Triggers keep it from being
// changed or deleted afterwards.
func (t *Tx) Keep(ctx context.Context, key fence.Key, act fence.Act) error {
	if err := fits(act.Mark); err != nil {
		return t.fail("keep", key, err)
	}
	_, err := t.conn.Exec(t.engine.Calm(ctx), t.engine.text().Act, key.Domain, string(key.Resource), string(act.Kind), act.Operator, act.Reason,
		int64(act.Before), int64(act.After), int64(act.Mark), timeText(act.At))
	return t.fail("keep", key, err)
}

// MarkRestored sets the mark of the window after a restore of the whole domain (R20).
func (t *Tx) MarkRestored(ctx context.Context, domain string, mark uint64) error {
	key := fence.Key{Domain: domain}
	if err := fits(mark); err != nil {
		return t.fail("restored", key, err)
	}
	ctx = t.engine.Calm(ctx)
	_, err := t.conn.Exec(ctx, t.engine.text().MarkRestored, domain, int64(mark))
	if err == nil && mark > 0 {
		if _, err = t.conn.Exec(ctx, t.engine.text().EndRollouts, domain); err == nil {
			err = t.engine.forget(ctx, t, domain)
		}
	}
	return t.fail("restored", key, err)
}

// Jumped is the fence that was refused with FENCE_JUMP last (R14a).
func (t *Tx) Jumped(ctx context.Context, key fence.Key) (lastword.Token, error) {
	var last int64
	err := t.conn.Row(t.engine.Calm(ctx), t.engine.text().Jumped, key.Domain, string(key.Resource)).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return lastword.Token(last), t.fail("release", key, err)
}

// Unraised is the first record of the domain that the mark has not reached (R20).
func (t *Tx) Unraised(ctx context.Context, domain string, mark uint64) (lastword.Resource, bool, error) {
	key := fence.Key{Domain: domain}
	if err := fits(mark); err != nil {
		return "", false, t.fail("restored", key, err)
	}
	var first string
	err := t.conn.Row(t.engine.Calm(ctx), t.engine.text().Unraised, domain, int64(mark)).Scan(&first)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return lastword.Resource(first), err == nil, t.fail("restored", key, err)
}

// Restored is that mark, 0 if there is none.
func (t *Tx) Restored(ctx context.Context, domain string) (uint64, error) {
	var mark int64
	err := t.conn.Row(t.engine.Calm(ctx), t.engine.text().Restored, domain).Scan(&mark)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return uint64(mark), t.fail("restored", fence.Key{Domain: domain}, err)
}

func (t *Tx) fail(op string, key fence.Key, err error) error { return Fail(t.engine, op, key, err) }
