package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// Keep stores what an operator did, in this transaction. Triggers keep it from being
// changed or deleted afterwards.
func (t *Tx) Keep(ctx context.Context, key fence.Key, act fence.Act) error {
	if err := fits(act.Mark); err != nil {
		return t.fail("keep", key, err)
	}
	_, err := t.sql.ExecContext(brief(ctx), sqlAct, key.Domain, string(key.Resource), string(act.Kind), act.Operator, act.Reason,
		int64(act.Before), int64(act.After), int64(act.Mark), timeText(act.At))
	return t.fail("keep", key, err)
}

// MarkRestored sets the mark of the window after a restore of the whole domain (R20).
func (t *Tx) MarkRestored(ctx context.Context, domain string, mark uint64) error {
	key := fence.Key{Domain: domain}
	if err := fits(mark); err != nil {
		return t.fail("restored", key, err)
	}
	_, err := t.sql.ExecContext(brief(ctx), sqlMarkRestored, domain, int64(mark))
	if err == nil && mark > 0 {
		err = protect.EnforceAll(ctx, engine, t.sql, domain, t.place.now())
	}
	return t.fail("restored", key, err)
}

// Restored is that mark, 0 if there is none.
func (t *Tx) Restored(ctx context.Context, domain string) (uint64, error) {
	var mark int64
	err := t.sql.QueryRowContext(brief(ctx), sqlRestored, domain).Scan(&mark)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return uint64(mark), t.fail("restored", fence.Key{Domain: domain}, err)
}

// Records are the resources of domain that have a record, in byte order.
func (p *Place) Records(ctx context.Context, domain string, after lastword.Resource, limit int) (found []lastword.Resource, err error) {
	err = sqldb.Backoff{}.Retry(ctx, dialect, func(ctx context.Context) (err error) {
		found, err = p.records(ctx, domain, after, limit)
		return err
	})
	return found, p.fail("records", fence.Key{Domain: domain}, err)
}

func (p *Place) records(ctx context.Context, domain string, after lastword.Resource, limit int) (found []lastword.Resource, err error) {
	rows, err := p.db.QueryContext(ctx, sqlRecords, domain, string(after), limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r string
		if err := rows.Scan(&r); err != nil {
			return nil, err
		}
		found = append(found, lastword.Resource(r))
	}
	return found, rows.Err()
}

func acts(ctx context.Context, tx *sql.Tx, key fence.Key) (all []fence.Act, err error) {
	rows, err := tx.QueryContext(ctx, sqlActs, key.Domain, string(key.Resource), fence.MaxActs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var a fence.Act
		var before, after, mark int64
		var at string
		if err := rows.Scan(&a.Kind, &a.Operator, &a.Reason, &before, &after, &mark, &at); err != nil {
			return nil, err
		}
		if a.At, err = time.Parse(timeLayout, at); err != nil {
			return nil, &lastword.Error{Code: lastword.CodeInternal, Message: "a time in the tables of the fence is damaged", Err: err}
		}
		a.Before, a.After, a.Mark = lastword.Token(before), lastword.Token(after), uint64(mark)
		all = append(all, a)
	}
	return all, rows.Err()
}
