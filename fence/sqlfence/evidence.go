package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/sqldb"
)

// Note counts a refusal, keeps the refused operation and freezes the record, as the
// evidence asks, in a transaction of its own (R16b).
func (p *Place) Note(ctx context.Context, key fence.Key, e fence.Evidence) error {
	return p.Transact(ctx, key, func(ctx context.Context, tx *Tx) error {
		err := tx.countRefusal(ctx, key, e)
		if err == nil && e.Quarantine != nil {
			err = tx.quarantine(ctx, key, e)
		}
		if err == nil && e.Freeze {
			err = tx.freeze(ctx, key, e.Fence)
		}
		return tx.fail("note", key, err)
	})
}

func (t *Tx) countRefusal(ctx context.Context, key fence.Key, e fence.Evidence) error {
	_, err := t.sql.ExecContext(ctx, sqlCountRefusal, key.Domain, string(key.Resource), string(e.Verdict),
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
	if err := t.sql.QueryRowContext(ctx, sqlQuarantineFirst, args...).Scan(&times); err != nil || times == 1 {
		return err
	}
	_, err := t.sql.ExecContext(ctx, sqlQuarantineLast, args...)
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

// Inspect reads the record and what was noted beside it, all of one moment. It takes
// no write lock.
func (p *Place) Inspect(ctx context.Context, key fence.Key) (fence.Inspection, error) {
	var found fence.Inspection
	err := sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) (err error) {
		found, err = p.inspect(ctx, key)
		return err
	})
	return found, p.fail("status", key, err)
}

func (p *Place) inspect(ctx context.Context, key fence.Key) (found fence.Inspection, err error) {
	tx, err := p.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return found, err
	}
	defer func() { _ = tx.Rollback() }() // it only read
	if found.Record, _, _, err = load(ctx, tx.StmtContext(ctx, p.stmts.load), key, ""); err != nil {
		return found, err
	}
	if found.Refusals, err = refusals(ctx, tx, key); err != nil {
		return found, err
	}
	if found.Quarantine, err = quarantined(ctx, tx, key); err != nil {
		return found, err
	}
	found.Acts, err = acts(ctx, tx, key)
	return found, err
}

func refusals(ctx context.Context, tx *sql.Tx, key fence.Key) (counts map[lastword.Verdict]uint64, err error) {
	rows, err := tx.QueryContext(ctx, sqlRefusals, key.Domain, string(key.Resource))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	counts = map[lastword.Verdict]uint64{}
	for rows.Next() {
		var verdict lastword.Verdict
		var times int64
		if err := rows.Scan(&verdict, &times); err != nil {
			return nil, err
		}
		counts[verdict] = uint64(times)
	}
	return counts, rows.Err()
}

func quarantined(ctx context.Context, tx *sql.Tx, key fence.Key) (all []fence.Evidence, err error) {
	rows, err := tx.QueryContext(ctx, sqlQuarantine, key.Domain, string(key.Resource))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		e, err := scanQuarantined(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, rows.Err()
}

func scanQuarantined(rows *sql.Rows) (fence.Evidence, error) {
	var e fence.Evidence
	var q fence.Quarantined
	var token, seq int64
	var payload, at string
	err := rows.Scan(&e.Claimant, &e.Verdict, &e.Why, &token, &e.LeaseID, &q.Operation, &seq, &payload, &q.Content, &at)
	if err != nil {
		return e, err
	}
	if e.At, err = time.Parse(timeLayout, at); err != nil {
		return e, &lastword.Error{Code: lastword.CodeInternal, Message: "a time in the tables of the fence is damaged", Err: err}
	}
	e.Fence, q.Seq, e.Quarantine = lastword.Token(token), uint64(seq), &q
	return e, parseDigest(&q.Payload, payload)
}
