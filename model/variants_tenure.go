package model

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

func tenureVariants() []Variant {
	return []Variant{
		{
			Name: "row-count-ignored", World: "processes", Property: twoTenuresHeld,
			Breaks: "a step of the authority is not conditional on the revision that it read",
			change: func(w *Wiring) {
				w.Holds = func(h core.Header, _ uint64, c Conditions) bool {
					return h.Epoch == c.Epoch && (!c.OnTick || h.Tick == c.Tick)
				}
			},
		},
		{
			Name: "answer-before-durable", World: "processes", Property: holderPastTrust,
			Breaks: "the reply leaves before the step is committed",
			change: func(w *Wiring) { w.Early = true },
		},
		{
			Name: "reentrant-by-owner-name", World: "requests", Property: twoTenuresHeld,
			Breaks: "an owner that holds is granted again because it has the same name",
			change: func(w *Wiring) {
				w.Acquire = func(rec core.Record, req *core.Request, h core.Header, c core.Clock, in core.AcquireInput) (core.Change, core.Answer) {
					if req == nil && rec.Lease.Owner == in.Owner {
						rec.Lease.State = lastword.StateReleased
					}
					return core.Acquire(rec, req, h, c, in)
				}
			},
		},
		{
			Name: "owner-name-instead-of-tenure", World: "requests", Property: foreignTenureChanged,
			Breaks: "a release matches by owner name",
			change: func(w *Wiring) {
				w.Release = func(rec core.Record, req *core.Request, h core.Header, c core.Clock, ref lastword.TenureRef) (core.Change, core.Answer) {
					return core.Release(rec, req, h, c, sameOwner(rec, ref))
				}
			},
		},
		{
			Name: "renewal-of-whatever-is-there", World: "renewals", Property: foreignTenureChanged,
			Breaks: "a renewal names the resource and not its tenure",
			change: func(w *Wiring) {
				w.Renew = func(rec core.Record, h core.Header, c core.Clock, _ lastword.TenureRef) (core.Change, core.Answer) {
					return core.Renew(rec, h, c, current(rec))
				}
			},
		},
		{
			Name: "revoke-by-resource", World: "operators", Property: foreignTenureChanged,
			Breaks: "an operator's revocation hits whatever tenure it finds",
			change: func(w *Wiring) {
				w.Revoke = func(rec core.Record, h core.Header, c core.Clock, _ lastword.Token) (core.Change, core.Answer) {
					return core.Revoke(rec, h, c, rec.Lease.Fence)
				}
			},
		},
		{
			Name: "renewal-by-upsert", World: "tenures", Property: twoTenuresHeld,
			Breaks: "a renewal writes the holder's lease whether or not it is still the current one",
			change: func(w *Wiring) { w.Renew = upsert },
		},
		{
			Name: "complete-unconditionally", World: "results", Property: lateCompletion,
			Breaks: "a result is stored although the tenure is over",
			change: func(w *Wiring) {
				w.Complete = func(rec core.Record, req *core.Request, h core.Header, c core.Clock, ref lastword.TenureRef, result []byte) (core.Change, core.Answer) {
					change, answer := core.Complete(rec, req, h, c, ref, result)
					if answer.Code == lastword.CodeNotHolder {
						rec.Revision++
						rec.Lease.Completed, rec.Lease.Result = true, result
						return core.Change{Write: true, Record: rec}, core.Answer{}
					}
					return change, answer
				}
			},
		},
		{
			Name: "request-id-forgotten", World: "requests", Property: requestGrantedTwice,
			Breaks: "request records go with the tenure, and a late copy is a new request",
			change: func(w *Wiring) {
				w.Known = func(r *core.Request) *core.Request {
					if r != nil && r.LeaseID != "" && r.State != lastword.StateHeld {
						return nil
					}
					return r
				}
			},
		},
		{
			Name: "cancel-leaves-nothing", World: "requests", Property: grantedAfterCancel,
			Breaks: "the cancellation of a request that has not come yet is not kept",
			change: func(w *Wiring) {
				w.Cancel = func(rec core.Record, req *core.Request, h core.Header, c core.Clock, owner, id string) (core.Change, core.Answer) {
					change, answer := core.Cancel(rec, req, h, c, owner, id)
					if req == nil {
						change.Requests = nil
					}
					return change, answer
				}
			},
		},
	}
}

func current(rec core.Record) lastword.TenureRef {
	l := rec.Lease
	return lastword.TenureRef{Resource: rec.Resource, Owner: l.Owner, RequestID: l.RequestID, LeaseID: l.ID, Fence: l.Fence}
}

func sameOwner(rec core.Record, ref lastword.TenureRef) lastword.TenureRef {
	if rec.Lease.Owner == ref.Owner {
		return current(rec)
	}
	return ref
}

// upsert is a renewal that needs nothing to be there.
func upsert(rec core.Record, h core.Header, c core.Clock, ref lastword.TenureRef) (core.Change, core.Answer) {
	change, answer := core.Renew(rec, h, c, ref)
	if answer.Code == "" {
		return change, answer
	}
	rec.Revision++
	rec.Lease = core.Lease{
		ID: ref.LeaseID, Owner: ref.Owner, RequestID: ref.RequestID, Fence: ref.Fence, Root: root, Class: class,
		PolicyGeneration: 1, TTL: ttl, Ticks: core.Ticks(ttl, tick), Deadline: c.Tick + core.Ticks(ttl, tick),
		GrantedRevision: rec.Revision, KeyID: "key", State: lastword.StateHeld,
	}
	mine := core.Request{Owner: ref.Owner, ID: ref.RequestID, LeaseID: ref.LeaseID, Fence: ref.Fence, State: lastword.StateHeld, Params: core.Params(ttl, root, class)}
	return core.Change{Write: true, Record: rec, Requests: []core.Request{mine}}, core.Answer{Lease: rec.Lease}
}
