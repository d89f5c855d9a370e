package client

import (
	"context"
	"sync"

	"github.com/lastword/lastword"
)

// record is the numbering of the tenure's writes at one record.
type record struct {
	turn chan struct{} // holds one token while the numbering is lent
	seq  lastword.Sequence
}

// Sequence lends the numbering of this tenure's writes at one record; see
// [lastword.Holder]. The caller must call release once, and not touch seq
// afterwards. It waits while another write of the tenure is under way at that
// record, no longer than ctx, and no longer than the lease lasts.
//
// It fails with [lastword.ErrNotHolder] once the lease has ended, and with
// [ErrOwnershipUnknown] while that is not known (R26); both mean that nothing was
// sent and no number was used.
func (l *Lease) Sequence(ctx context.Context, name string) (seq *lastword.Sequence, release func(), err error) {
	if err := l.refusal("sequence"); err != nil {
		return nil, nil, err
	}
	r := l.record(name)
	if r == nil {
		return nil, nil, l.refusal("sequence")
	}
	select {
	case r.turn <- struct{}{}:
	case <-l.whenOver():
		return nil, nil, l.refusal("sequence")
	case <-ctx.Done():
		return nil, nil, &lastword.Error{
			Code: lastword.CodeUnavailable, Op: "sequence", Resource: l.tenure.Resource, Err: ctx.Err(),
			Message: "another write of this tenure is under way at the record",
		}
	}
	free := sync.OnceFunc(func() { <-r.turn })
	// The wait may have taken long.
	if err := l.refusal("sequence"); err != nil {
		free()
		return nil, nil, err
	}
	return &r.seq, free, nil
}

// record returns the entry of name, nil if the lease has ended.
func (l *Lease) record(name string) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trust.Final() {
		return nil
	}
	if l.records == nil {
		l.records = make(map[string]*record)
	}
	r := l.records[name]
	if r == nil {
		r = &record{turn: make(chan struct{}, 1)}
		l.records[name] = r
	}
	return r
}
