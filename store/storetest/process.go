package storetest

import (
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// process is an authority reduced to the least: read, run a rule of core, commit
// what it changes under the conditions of what was read, and again if that was not
// applied. It knows no time but the store's counter.
type process struct {
	w     *world
	store store.Store
	epoch uint32
}

// operation is one request to an authority.
type operation struct {
	query store.Query
	// decide is the rule.
	decide func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer)
	// timed: if it is accepted, a deadline was computed.
	timed bool
}

// decision is what a process means to do on what it read.
type decision struct {
	view   store.View
	answer core.Answer
	step   store.Step // if write
	write  bool
}

func (w *world) process(epoch uint32) *process {
	w.Helper()
	return &process{w: w, store: w.another(), epoch: epoch}
}

// decide is the first half of a call. ok is false if the process is not of the
// store's epoch and must not decide anything.
func (p *process) decide(op operation) (d decision, ok bool) {
	p.w.Helper()
	d.view = read(p.w, p.w.Context(), p.store, op.query)
	if d.view.Header.Epoch != p.epoch {
		return d, false
	}
	entry := d.view.Entries[0]
	var change core.Change
	change, d.answer = op.decide(entry.Record, entry.Request, d.view.Header, core.Clock{Tick: d.view.Header.Tick})
	d.write = change.Write
	d.step = store.Step{Epoch: p.epoch, Record: &change.Record, Requests: change.Requests}
	d.step.OnTick, d.step.Tick = op.timed && d.answer.Code == "", d.view.Header.Tick
	return d, true
}

// commit is the second half; false means that the process must decide anew.
func (p *process) commit(d decision) bool {
	p.w.Helper()
	if !d.write {
		return true
	}
	applied, err := p.store.Commit(p.w.Context(), d.step)
	if err != nil {
		p.w.Fatalf("commit: %v", err)
	}
	return applied[0]
}

// do is a whole call.
func (p *process) do(op operation) core.Answer {
	p.w.Helper()
	for range 100 {
		d, ok := p.decide(op)
		if !ok {
			p.w.Fatalf("the store's epoch is %d, the process's %d", d.view.Header.Epoch, p.epoch)
		}
		if p.commit(d) {
			return d.answer
		}
	}
	p.w.Fatalf("a step was refused 100 times with nobody else there")
	return core.Answer{}
}

// tick moves the counter as a process does: one conditional write for each tick.
func (p *process) tick(n int) {
	p.w.Helper()
	for range n {
		h := read(p.w, p.w.Context(), p.store).Header
		next := h
		next.Tick++
		applied, err := p.store.Commit(p.w.Context(), store.Step{Epoch: p.epoch, OnTick: true, Tick: h.Tick, Header: &next})
		if err != nil || !applied[0] {
			p.w.Fatalf("tick %d: %v, %v", next.Tick, applied, err)
		}
	}
}

// start takes a new epoch as R10 says, the witness's part left out.
func (p *process) start() {
	p.w.Helper()
	h := read(p.w, p.w.Context(), p.store).Header
	plan := core.PlanStart(h, &core.Witness{Current: h.Epoch, Store: h.Identity})
	if plan.Code != "" {
		p.w.Fatalf("start: %s: %s", plan.Code, plan.Why)
	}
	next := h
	next.Epoch = plan.Epoch
	applied, err := p.store.Commit(p.w.Context(), store.Step{Epoch: h.Epoch, Header: &next})
	if err != nil || !applied[0] {
		p.w.Fatalf("start: %v, %v", applied, err)
	}
	p.epoch = plan.Epoch
}

const ttlTicks = 5

func (w *world) input(owner, id string) core.AcquireInput {
	w.leases++
	return core.AcquireInput{
		Owner: owner, RequestID: id, TTL: ttlTicks * tickSpan, Ticks: ttlTicks, Class: lastword.ClassWrite,
		LeaseID: fmt.Sprintf("lease-%d", w.leases), KeyID: "kit", IssuedAt: 1,
	}
}

func (w *world) acquire(resource lastword.Resource, owner, id string) operation {
	return acquireAs(resource, w.input(owner, id))
}

func acquireAs(resource lastword.Resource, in core.AcquireInput) operation {
	return operation{query: store.Query{Resource: resource, Owner: in.Owner, RequestID: in.RequestID}, timed: true,
		decide: func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
			return core.Acquire(rec, req, h, c, in)
		}}
}

func byRef(ref lastword.TenureRef) store.Query {
	return store.Query{Resource: ref.Resource, Owner: ref.Owner, RequestID: ref.RequestID}
}

func renew(ref lastword.TenureRef) operation {
	return operation{query: byRef(ref), timed: true,
		decide: func(rec core.Record, _ *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
			return core.Renew(rec, h, c, ref)
		}}
}

func release(ref lastword.TenureRef) operation {
	return operation{query: byRef(ref),
		decide: func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
			return core.Release(rec, req, h, c, ref)
		}}
}

func complete(ref lastword.TenureRef, result string) operation {
	return operation{query: byRef(ref),
		decide: func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
			return core.Complete(rec, req, h, c, ref, []byte(result))
		}}
}

func cancel(resource lastword.Resource, owner, id string) operation {
	return operation{query: store.Query{Resource: resource, Owner: owner, RequestID: id},
		decide: func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
			return core.Cancel(rec, req, h, c, owner, id)
		}}
}

func revoke(resource lastword.Resource, fence lastword.Token) operation {
	return operation{query: store.Query{Resource: resource},
		decide: func(rec core.Record, _ *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
			return core.Revoke(rec, h, c, fence)
		}}
}

func look(resource lastword.Resource) operation {
	return operation{query: store.Query{Resource: resource},
		decide: func(rec core.Record, _ *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
			return core.Look(rec, h, c)
		}}
}

func refOf(resource lastword.Resource, l core.Lease) lastword.TenureRef {
	return lastword.TenureRef{Resource: resource, Owner: l.Owner, RequestID: l.RequestID, LeaseID: l.ID, Fence: l.Fence}
}
