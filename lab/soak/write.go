package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/lab/history"
)

// unchecked is the verdict of a write that nothing checked.
const unchecked = "UNCHECKED"

// The defects that a worker can have ([Options.Variant]).
const (
	noFence        = "no-fence"
	checkThenWrite = "check-then-write"
	effectBeside   = "effect-beside-transaction"
	splitAuthority = "split-authority"
)

// writeTimeout outlasts every pause of another worker that has the write lock.
const writeTimeout = 30 * time.Second

// write makes one write under a lease, and writes down what it was answered.
func (w *worker) write(ctx context.Context, l *client.Lease, o order) (verdict string, seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	c := refCall(opWrite, l.Ref())
	c.Operation, c.Value, c.Raw, c.Seq = o.Operation, o.Value, o.Raw, o.Seq
	c = w.diary.begin(c)
	once := &onlyOnce{do: func(p point) error { return w.at(o, p) }}
	if err := once.at(beforeSend); err != nil {
		return "", 0, err
	}
	receipt, err := w.apply(ctx, l, o, once)
	if late := once.at(beforeAnswer); late != nil {
		return "", 0, late
	}
	c.Verdict = string(receipt.Verdict)
	if err == nil {
		c.Seq = receipt.Seq
	} else {
		c.Verdict = string(history.CodeOf(err))
	}
	w.diary.end(c, err)
	return c.Verdict, c.Seq, err
}

// onlyOnce keeps a transaction that is repeated from meeting its fate twice.
type onlyOnce struct {
	mu   sync.Mutex
	done map[point]bool
	do   func(point) error
}

func (o *onlyOnce) at(p point) error {
	o.mu.Lock()
	before := o.done[p]
	if o.done == nil {
		o.done = map[point]bool{}
	}
	o.done[p] = true
	o.mu.Unlock()
	if before {
		return nil
	}
	return o.do(p)
}

func (w *worker) apply(ctx context.Context, l *client.Lease, o order, once *onlyOnce) (lastword.Receipt, error) {
	switch w.variant {
	case noFence:
		return w.withoutFence(ctx, l, o, once)
	case checkThenWrite:
		return w.checkedBefore(ctx, l, o, once)
	case effectBeside:
		if err := w.plainly(ctx, l, o, once); err != nil {
			return lastword.Receipt{}, err
		}
		return w.guarded(ctx, l, o, once, func(context.Context, *sql.Tx) error { return nil })
	}
	return w.guarded(ctx, l, o, once, func(ctx context.Context, tx *sql.Tx) error { return change(ctx, tx, l, o) })
}

// guarded is the right way: check, effect, record and receipt in one transaction.
func (w *worker) guarded(ctx context.Context, l *client.Lease, o order, once *onlyOnce, effect func(context.Context, *sql.Tx) error) (lastword.Receipt, error) {
	w.asked.set(once.at)
	defer w.asked.set(nil)
	if o.Act == hold {
		w.tap.atBegin(func() { _ = once.at(afterAsk) })
		defer w.tap.atBegin(nil)
	}
	inside := func(ctx context.Context, tx *sql.Tx) error {
		if err := once.at(beforeEffect); err != nil {
			return err
		}
		if err := effect(ctx, tx); err != nil {
			return err
		}
		w.tap.arm(once.at)
		return once.at(afterEffect)
	}
	payload := []byte(o.Value)
	if !o.Raw {
		return w.gate.Apply(ctx, l, o.Operation, payload, inside)
	}
	m := lastword.Mutation{Grant: l.Grant(), Seq: o.Seq, Operation: o.Operation, Payload: lastword.DigestOf(payload)}
	return w.gate.ApplyMutation(ctx, l.Ref().Resource, m, inside)
}

// change is the business effect: the document, and a row that says who did it.
func change(ctx context.Context, tx *sql.Tx, l *client.Lease, o order) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO effect (resource, operation, fence, owner, value) VALUES (?, ?, ?, ?, ?)`,
		o.Resource, o.Operation, int64(l.Fence()), l.Ref().Owner, o.Value)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE document SET value = ? WHERE id = ?`, o.Value, o.Resource)
	}
	return err
}

// plainly writes in a transaction of its own that nothing guards.
func (w *worker) plainly(ctx context.Context, l *client.Lease, o order, once *onlyOnce) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := change(ctx, tx, l, o); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	w.tap.arm(once.at)
	if err := tx.Commit(); err != nil {
		return &lastword.Error{Code: lastword.CodeMutationUnknown, Op: "commit", Message: "no answer", Err: err}
	}
	return nil
}

// withoutFence has the defect no-fence: the lease is asked, the resource is not.
func (w *worker) withoutFence(ctx context.Context, l *client.Lease, o order, once *onlyOnce) (lastword.Receipt, error) {
	if !o.Raw && !l.State().Admits() {
		return lastword.Receipt{}, &lastword.Error{Code: lastword.CodeNotHolder, Op: "write", Message: "the lease has ended"}
	}
	return unreceipted(l, o), w.throughPoints(ctx, l, o, once)
}

// throughPoints writes plainly, past all the points of a write.
func (w *worker) throughPoints(ctx context.Context, l *client.Lease, o order, once *onlyOnce) error {
	for _, p := range []point{beforeAsk, afterAsk, beforeEffect, afterEffect} {
		if err := once.at(p); err != nil {
			return err
		}
	}
	return w.plainly(ctx, l, o, once)
}

// checkedBefore has the defect check-then-write: everything is asked, and then the write
// is a transaction of its own.
func (w *worker) checkedBefore(ctx context.Context, l *client.Lease, o order, once *onlyOnce) (lastword.Receipt, error) {
	ref := l.Ref()
	if err := once.at(beforeAsk); err != nil {
		return lastword.Receipt{}, err
	}
	limit, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	st, err := w.askConn.Status(limit, lastword.StatusQuery{Resource: ref.Resource, LeaseID: ref.LeaseID, Owner: ref.Owner, RequestID: ref.RequestID})
	if err != nil {
		return lastword.Receipt{}, err
	}
	if st.State != lastword.StateHeld || st.Holder.Fence != ref.Fence {
		return lastword.Receipt{}, &lastword.Error{Code: lastword.CodeUnverified, Op: "write", Message: fmt.Sprintf("the authority says %s", st.State)}
	}
	i, err := w.gate.Inspect(ctx, ref.Resource)
	if err != nil {
		return lastword.Receipt{}, err
	}
	if i.Record.Fence > ref.Fence {
		return lastword.Receipt{}, &lastword.Error{Code: lastword.CodeStaleOwner, Op: "write", Message: "a newer fence is there", Fence: i.Record.Fence}
	}
	return unreceipted(l, o), w.throughPoints(ctx, l, o, once)
}

func unreceipted(l *client.Lease, o order) lastword.Receipt {
	return lastword.Receipt{Resource: l.Ref().Resource, Operation: o.Operation, Fence: l.Fence(), Verdict: unchecked}
}
