package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/lastword/lastword/fence"
)

// sqliteSame is the load of a record that is remembered: it finds a row if every column is
// what it was when it was stored last, and nothing beside it has anything to say. To
// compare a record costs less than to take it out of the database.
const sqliteSame = `SELECT s.synchronous, j.journal_mode
FROM main.lastword_fence AS f CROSS JOIN pragma_synchronous AS s CROSS JOIN pragma_journal_mode AS j
WHERE f.domain = ? AND f.resource = ? AND f.fence = ? AND f.lease_id = ? AND f.grant_digest = ? AND f.root = ? AND f.last_seq = ? AND
	f.last_operation = ? AND f.last_payload = ? AND f.policy = ? AND f.status_mode = ? AND
	f.frozen = ? AND f.step = ? AND f.bundle_sequence = ? AND f.min_epoch = ? AND
	f.min_policy_generation = ? AND f.imported = ? AND f.heard_epoch = ? AND f.heard_revision = ? AND
	f.restored = ? AND f.pruned = ? AND
	NOT EXISTS (SELECT 1 FROM main.lastword_receipt AS r WHERE r.domain = f.domain AND r.resource = f.resource AND r.operation = ?) AND
	NOT EXISTS (SELECT 1 FROM main.lastword_tombstone AS t WHERE t.domain = f.domain AND t.resource = f.resource AND t.operation_digest = ?) AND
	NOT EXISTS (SELECT 1 FROM main.lastword_restored AS p WHERE p.domain = f.domain AND p.mark > f.restored) AND
	NOT EXISTS (SELECT 1 FROM main.lastword_rollout AS o WHERE o.domain = f.domain AND o.shadow = 1)`

// Remember gives a transaction what its place knows to have been committed. Its lock makes
// sure that what is still so stays so.
func Remember(t *Tx, m *Memory) { t.remembers = m }

// Stored is what the transaction has stored last; nil if nothing.
func Stored(t *Tx) *Seen { return t.stored }

// recall is a load of what is remembered; not found, the whole has to be read.
func (SQLite) recall(ctx context.Context, t *Tx, key fence.Key, operation string) (l loaded, found bool, err error) {
	if t.remembers == nil {
		return loaded{}, false, nil
	}
	seen, ok := t.remembers.Get(key)
	if !ok {
		return loaded{}, false, nil
	}
	var synchronous int
	var journal string
	args := slices.Concat([]any{key.Domain, string(key.Resource)}, seen.columns, []any{int64(seen.pruned), operation, digestOf(operation)})
	err = t.conn.Row(ctx, sqliteSame, args...).Scan(&synchronous, &journal)
	if errors.Is(err, sql.ErrNoRows) {
		t.remembers.Drop(key)
		return loaded{}, false, nil
	}
	t.recalled = &seen
	return loaded{record: seen.Record, known: seen.Known(operation), pruned: seen.pruned, unsafe: checkDurable(synchronous, journal)}, err == nil, err
}

// keep remembers a step for when it is committed.
func (t *Tx) keep(next fence.Record, columns []any) {
	next.Exists, next.Lost, next.Shadow, next.Unraised = true, false, false, false
	t.stored = &Seen{Record: next, pruned: t.pruned, columns: columns}
}

// columnsOf are the columns of a record, as they are remembered or made of it.
func (t *Tx) columnsOf(rec fence.Record) ([]any, error) {
	if t.recalled != nil && t.recalled.Record == rec {
		return t.recalled.columns, nil
	}
	return recordArgs(rec)
}
