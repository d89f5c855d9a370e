package memfence

import (
	"context"

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
	if !found {
		_, rec.Lost = read(tx.changes.marked, tx.committed.marked, key)
	}
	return rec
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
	tx.changes.records[key] = next
	return nil
}
