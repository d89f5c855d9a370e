package memfence

import (
	"context"
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// Tx is one transaction, alone at its place until it ends. It is not safe for
// concurrent use.
type Tx struct {
	place *Place
	// committed is read without a lock: nobody changes it while tx has the turn.
	committed *state
	changes   *state
	done      bool
}

// Begin opens a transaction for a caller that commits by itself, as
// [fence.Within] wants. It waits for the one that is open, until ctx ends. The
// caller must call Commit or Rollback.
func (p *Place) Begin(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, ended("begin", err)
	}
	select {
	case p.turn <- struct{}{}:
		return &Tx{place: p, committed: p.committed, changes: newState()}, nil
	case <-ctx.Done():
		return nil, ended("begin", ctx.Err())
	}
}

// Commit makes all changes of tx appear at once, and ends it.
func (tx *Tx) Commit() error {
	if tx.done {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: "commit", Message: "the transaction has ended"}
	}
	tx.place.mu.Lock()
	tx.committed.add(tx.changes)
	tx.place.mu.Unlock()
	tx.end()
	return nil
}

// Rollback ends tx without a trace. After the end it does nothing.
func (tx *Tx) Rollback() {
	if !tx.done {
		tx.end()
	}
}

func (tx *Tx) end() {
	tx.done = true
	<-tx.place.turn
}

// Get is the business value of key as tx sees it.
func (tx *Tx) Get(key string) (value string, found bool) {
	return read(tx.changes.values, tx.committed.values, key)
}

// Set changes a business value, at the commit. It panics after the end of tx.
func (tx *Tx) Set(key, value string) {
	if tx.done {
		panic("memfence: Set after the end of the transaction")
	}
	tx.changes.values[key] = value
}

// Load implements [fence.Tx].
func (tx *Tx) Load(_ context.Context, key fence.Key, operation string) (fence.Record, fence.Known, error) {
	if tx.done {
		return fence.Record{}, fence.Known{}, broken("load", key, "the transaction has ended")
	}
	at := opKey{key, operation}
	r, found := read(tx.changes.receipts, tx.committed.receipts, at)
	return tx.record(key), fence.Known{
		Receipt: found, Payload: r.Payload, Tombstone: tx.committed.tombstones[at],
	}, nil
}

// record is the record of key, or what R19 wants to know of one that is not there.
func (tx *Tx) record(key fence.Key) fence.Record {
	rec, found := read(tx.changes.records, tx.committed.records, key)
	mark, _ := read(tx.changes.restored, tx.committed.restored, key.Domain)
	rec.Shadow = tx.shadow(key)
	if !found {
		_, rec.Lost = read(tx.changes.marked, tx.committed.marked, key)
		rec.Restored = mark
		return rec
	}
	rec.Unraised = mark > rec.Restored
	return rec
}

func (tx *Tx) shadow(key fence.Key) bool {
	on, _ := read(tx.changes.shadow, tx.committed.shadow, key)
	return on
}

// Pass implements [fence.Tx]. Nobody writes here without a transaction of this place.
func (tx *Tx) Pass(context.Context, fence.Key) error { return nil }

// Keep implements [fence.Tx].
func (tx *Tx) Keep(_ context.Context, key fence.Key, act fence.Act) error {
	if tx.done {
		return broken("keep", key, "the transaction has ended")
	}
	acts, _ := read(tx.changes.acts, tx.committed.acts, key)
	tx.changes.acts[key] = append(slices.Clone(acts), act)
	return nil
}

// MarkRestored implements [fence.Tx].
func (tx *Tx) MarkRestored(_ context.Context, domain string, mark uint64) error {
	if tx.done {
		return broken("restored", fence.Key{}, "the transaction has ended")
	}
	tx.changes.restored[domain] = mark
	for key := range tx.committed.shadow {
		if key.Domain == domain && mark > 0 {
			tx.changes.shadow[key] = false
		}
	}
	return nil
}

// Jumped implements [fence.Tx].
func (tx *Tx) Jumped(_ context.Context, key fence.Key) (lastword.Token, error) {
	return tx.committed.jumped[key], nil
}

// Unraised implements [fence.Tx].
func (tx *Tx) Unraised(_ context.Context, domain string, mark uint64) (first lastword.Resource, found bool, err error) {
	look := func(records map[fence.Key]fence.Record) {
		for key := range records {
			rec, _ := read(tx.changes.records, tx.committed.records, key)
			if key.Domain == domain && rec.Restored < mark && (!found || key.Resource < first) {
				first, found = key.Resource, true
			}
		}
	}
	look(tx.committed.records)
	look(tx.changes.records)
	return first, found, nil
}

// Restored implements [fence.Tx].
func (tx *Tx) Restored(_ context.Context, domain string) (uint64, error) {
	mark, _ := read(tx.changes.restored, tx.committed.restored, domain)
	return mark, nil
}

// Receipt implements [fence.Tx].
func (tx *Tx) Receipt(_ context.Context, key fence.Key, operation string) (lastword.Receipt, error) {
	r, found := read(tx.changes.receipts, tx.committed.receipts, opKey{key, operation})
	if !found {
		return lastword.Receipt{}, broken("read receipt", key, "no receipt of operation %q", operation)
	}
	return copyReceipt(r), nil
}

// Store implements [fence.Tx].
func (tx *Tx) Store(_ context.Context, key fence.Key, old, next fence.Record, receipt *lastword.Receipt) error {
	switch {
	case tx.done:
		return broken("store", key, "the transaction has ended")
	case tx.record(key) != old:
		return broken("store", key, "the record is not the one that was read")
	}
	if receipt != nil {
		at := opKey{key, receipt.Operation}
		if _, found := read(tx.changes.receipts, tx.committed.receipts, at); found {
			return broken("store", key, "operation %q has a receipt", receipt.Operation)
		}
		tx.changes.receipts[at] = copyReceipt(*receipt)
		tx.changes.marked[key] = true
	}
	next.Lost, next.Unraised, next.Shadow = false, false, false
	tx.changes.records[key] = next
	return nil
}
