package lab

import (
	"context"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// crash ends a process after it has written the newer fence and the value, before
// the commit: neither may stay.
func (b *bench) crash(ctx context.Context, r *Result) error {
	b.part = "crash"
	old, young, err := b.pair()
	if err != nil {
		return err
	}
	if err := b.acquire(ctx, old, docCrash, takeoverTTL, 0); err != nil {
		return err
	}
	if _, err := b.write(ctx, old, docCrash, oldValue, checkedMode); err != nil {
		return err
	}
	c := &Crash{}
	if c.FenceBefore, c.ValueBefore, err = b.look(ctx, docCrash); err != nil {
		return err
	}
	if err := b.acquire(ctx, young, docCrash, takeoverTTL, takeoverWait); err != nil {
		return err
	}
	writing := b.writing(young, docCrash, newValue, checkedMode)
	writing.Die = true
	if err := young.tell(writing); err != nil {
		return err
	}
	said, err := young.hear(ctx)
	if err != nil {
		return err
	}
	if said.Event != "written" {
		return fmt.Errorf("%s did not get as far as its commit: %+v", young.name, said)
	}
	if err := young.died(); err != nil {
		return err
	}
	b.note(young.name, fmt.Sprintf("writes fence and %q, and dies before the commit (SIGKILL)", newValue), "gone")
	if c.FenceAfter, c.ValueAfter, err = b.look(ctx, docCrash); err != nil {
		return err
	}
	return b.retry(ctx, r, c, writing)
}

// retry: the next tenure does the same operation, once.
func (b *bench) retry(ctx context.Context, r *Result, c *Crash, writing order) error {
	next, err := b.start("C")
	if err != nil {
		return err
	}
	if err := b.acquire(ctx, next, docCrash, workTTL, takeoverWait); err != nil {
		return err
	}
	writing.Die = false
	a, err := next.call(ctx, writing)
	if err != nil {
		return err
	}
	b.note(next.name, fmt.Sprintf("does B's operation again: writes %q with fence %d", newValue, a.Fence), a.Verdict)
	c.Retried = a.Verdict
	r.Crash = c
	return nil
}

func (b *bench) look(ctx context.Context, doc string) (fence, value string, err error) {
	rec, err := b.business.record(ctx, doc)
	if err != nil {
		return "", "", err
	}
	value, err = b.business.value(ctx, doc)
	return rec.Fence.String(), value, err
}

// boundaries asks the rules that the authority runs for the ticks around the
// deadline of a lease of ten ticks that was granted at tick 0 (R4).
func boundaries() []Boundary {
	const ticks = 10
	h := core.Header{Exists: true, TickSpan: 1}
	in := core.AcquireInput{Owner: "A", RequestID: "1", LeaseID: "lease-a", TTL: ticks, Ticks: ticks, Class: lastword.ClassWrite}
	granted, _ := core.Acquire(core.Record{Resource: docTakeover}, nil, h, core.Clock{}, in)
	l := granted.Record.Lease
	ref := lastword.TenureRef{Resource: docTakeover, Owner: l.Owner, RequestID: l.RequestID, LeaseID: l.ID, Fence: l.Fence}
	var found []Boundary
	for _, tick := range []int{9, 10, 11} {
		c := core.Clock{Tick: core.Tick(tick)}
		_, renewed := core.Renew(granted.Record, h, c, ref)
		other := in
		other.Owner, other.LeaseID = "B", "lease-b"
		_, taken := core.Acquire(granted.Record, nil, h, c, other)
		found = append(found, Boundary{Tick: tick, Renew: said(renewed), Acquire: said(taken)})
	}
	return found
}

func said(a core.Answer) string {
	if a.Code == "" {
		return "OK"
	}
	return string(a.Code)
}
