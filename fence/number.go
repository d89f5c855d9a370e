package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// number is the write's number, lent from its holder (protocol §1, seq). Its
// methods do nothing on nil: a call without a holder brings its own.
type number struct {
	w       *passage
	seq     *lastword.Sequence
	release func()
	record  string

	before, taken lastword.Sequence
	// late says that the number is decided at the record, since what was written
	// before in a caller's own transaction may have been committed or not.
	late bool
	// base is the state from before the first write whose commit was the caller's.
	base lastword.Sequence
	// keep is set while the commit is under way: a number is not dropped then.
	keep    bool
	settled bool
}

// borrow takes the next number of the holder's tenure at the record.
func (w *passage) borrow(ctx context.Context, place string) error {
	if w.call.Holder == nil {
		return nil
	}
	record := place + " " + w.key.Domain + "/" + string(w.key.Resource)
	seq, release, err := w.call.Holder.Sequence(ctx, record)
	if err != nil {
		return &lastword.Error{
			Code: lastword.CodeUnavailable, Op: w.op, Resource: w.key.Resource,
			Message: "no number for the write; nothing was started", Err: definite(err),
		}
	}
	n := &number{w: w, seq: seq, release: release, record: record, before: *seq}
	n.base, n.late = w.g.provisional.get(n.id())
	if !n.late {
		if err := n.take(); err != nil {
			release()
			return err
		}
		*seq = n.taken
	}
	w.number = n
	return nil
}

func (n *number) id() provisionalID {
	return provisionalID{record: n.record, grant: n.w.grant}
}

// take is the number for the operation from the state before.
func (n *number) take() error {
	operation := n.w.attempt.Operation
	taken, seq, ok := core.TakeNumber(n.before, operation)
	if !ok {
		return &lastword.Error{
			Code: lastword.CodeOutOfOrder, Op: n.w.op, Resource: n.w.key.Resource,
			Message: fmt.Sprintf("number %d is kept for operation %q; nothing was started", n.before.Last+1, n.before.Open),
			Hint:    "settle that operation first: submit it again unchanged",
		}
	}
	n.taken, n.w.attempt.Seq = taken, seq
	return nil
}

// look decides a late number under the record's lock: whoever wrote before has
// ended, so the record says what of it was committed.
func (n *number) look(rec Record) error {
	if n == nil || !n.late {
		return nil
	}
	n.before = n.base
	if rec.LeaseID == n.w.attempt.LeaseID && rec.LastSeq > n.base.Last {
		n.before = lastword.Sequence{Last: rec.LastSeq}
	}
	return n.take()
}

// settle ends the number with a verdict. own is the number in the operation's
// receipt if that is of this tenure.
func (n *number) settle(seq, own uint64, v lastword.Verdict) {
	switch {
	case n == nil:
	case n.late && (n.w.op == opWithin || n.taken == (lastword.Sequence{})):
		// The record was not read, or the caller's transaction may have read what it
		// stored itself and may still roll that back.
		n.settled = true
	default:
		n.end(core.SettleNumber(n.taken, seq, own, v))
	}
}

// unknown keeps the number open for its operation.
func (n *number) unknown() {
	if n != nil {
		n.end(n.taken)
	}
}

func (n *number) end(s lastword.Sequence) {
	n.settled = true
	*n.seq = s
	n.w.g.provisional.drop(n.id())
}

// await keeps the number for a write whose commit is the caller's.
func (n *number) await() {
	if n == nil {
		return
	}
	base := n.base
	if !n.late {
		base = n.before
	}
	n.settled = true
	*n.seq = n.taken
	n.w.g.provisional.put(n.id(), base)
}

// giveBack ends the loan. What no verdict settled certainly never reached its
// commit, unless the commit was under way.
func (n *number) giveBack() {
	if n == nil {
		return
	}
	if !n.settled && !n.late && !n.keep {
		*n.seq = core.DropNumber(n.before)
	}
	n.release()
}

// maxProvisional bounds how many open numbers of callers' own transactions are
// remembered. One that is forgotten stays open until its operation is submitted
// again.
const maxProvisional = 4096

type provisionalID struct{ record, grant string }

// provisionals remembers, per record and tenure, the numbering from before the
// first write whose commit was the caller's.
type provisionals struct {
	mu   sync.Mutex
	base map[provisionalID]lastword.Sequence
}

func newProvisionals() *provisionals {
	return &provisionals{base: make(map[provisionalID]lastword.Sequence)}
}

func (p *provisionals) get(id provisionalID) (lastword.Sequence, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.base[id]
	return s, ok
}

func (p *provisionals) put(id provisionalID, base lastword.Sequence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.base[id]; !ok && len(p.base) >= maxProvisional {
		for other := range p.base {
			delete(p.base, other)
			break
		}
	}
	p.base[id] = base
}

func (p *provisionals) drop(id provisionalID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.base, id)
}
