package fencesql

import (
	"context"

	"github.com/lastword/lastword/fence"
)

// pruneBatch is how many receipts one transaction prunes: the record is locked for it.
const pruneBatch = 500

// Prune prunes at most one batch of receipts after after, in the order of their
// operation ids, under the record's lock. next is where to go on; "" is the end.
func Prune(ctx context.Context, t *Tx, key fence.Key, r fence.Retention, after string) (pruned int, next string, err error) {
	if _, _, err := t.Load(ctx, key, ""); err != nil {
		return 0, "", err
	}
	var operations []string
	err = each(ctx, t.conn, func(rows Rows) error {
		var operation, at string
		err := rows.Scan(&operation, &at)
		operations = append(operations, operation)
		return err
	}, t.engine.text().Oldest, key.Domain, string(key.Resource), timeText(r.Before), after, int64(pruneBatch))
	for _, operation := range operations {
		if err == nil {
			err = t.prune(ctx, key, operation, r)
		}
	}
	if err != nil {
		return 0, "", t.fail("prune", key, err)
	}
	if len(operations) == pruneBatch {
		next = operations[len(operations)-1]
	}
	return len(operations), next, nil
}

// prune leaves a tombstone, or raises the watermark, before it removes the receipt.
func (t *Tx) prune(ctx context.Context, key fence.Key, operation string, r fence.Retention) error {
	issued, bound := fence.IssueTime(operation)
	var err error
	if r.TimeBound && bound && issued > 0 {
		if err = fits(issued); err == nil {
			_, err = t.conn.Exec(ctx, t.engine.text().Watermark, key.Domain, string(key.Resource), int64(issued))
		}
	} else {
		_, err = t.conn.Exec(ctx, t.engine.text().Tombstone, key.Domain, string(key.Resource), digestOf(operation), timeText(r.At))
	}
	if err != nil {
		return err
	}
	return one(t.conn.Exec(ctx, t.engine.text().DeleteReceipt, key.Domain, string(key.Resource), operation))
}

// Dismiss removes what is in quarantine of one claimant, or of all ("").
func Dismiss(ctx context.Context, t *Tx, key fence.Key, claimant string) (dismissed int64, err error) {
	if claimant == "" {
		dismissed, err = t.conn.Exec(ctx, t.engine.text().Dismiss, key.Domain, string(key.Resource))
	} else {
		dismissed, err = t.conn.Exec(ctx, t.engine.text().DismissOne, key.Domain, string(key.Resource), claimant)
	}
	return dismissed, t.fail("dismiss", key, err)
}
