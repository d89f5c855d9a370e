package authority

import (
	"errors"
	"fmt"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

// named gives an error its operation and resource, in a copy.
func named(err error, op string, resource lastword.Resource) error {
	if err == nil {
		return nil
	}
	var known *lastword.Error
	if !errors.As(err, &known) {
		return &lastword.Error{Code: lastword.CodeInternal, Op: op, Resource: resource, Err: err}
	}
	e := *known
	e.Op, e.Resource = op, resource
	return &e
}

// refusal is the error of an answer that refuses, nil for one that accepts.
func (a *Authority) refusal(res result) error {
	lease := res.answer.Lease
	switch res.answer.Code {
	case "":
		return nil
	case lastword.CodeHeld:
		return a.held(res)
	case lastword.CodeNotHolder:
		return notHolder(lease)
	case lastword.CodeUnverified:
		return notAllowed()
	case lastword.CodeTenureEnded:
		return &lastword.Error{
			Code: lastword.CodeTenureEnded, Message: "this request was granted and its tenure has ended: " + string(res.answer.Ended.State),
			Ended: res.answer.Ended, Hint: "acquire again with a new request id",
		}
	case lastword.CodeCanceled:
		return &lastword.Error{Code: lastword.CodeCanceled, Message: "this request was cancelled", Hint: "acquire again with a new request id"}
	case lastword.CodeRequestConflict:
		return &lastword.Error{Code: lastword.CodeRequestConflict, Message: "this id is known with other content", Hint: "repeat it unchanged, or use a new request id"}
	case lastword.CodeExhausted:
		return exhausted(res.header)
	case lastword.CodeFenceRegression:
		return stopped(res)
	case lastword.CodeQuota:
		return &lastword.Error{Code: lastword.CodeQuota, Message: fmt.Sprintf("%d wait already", res.waiters), Hint: "try again later"}
	}
	return &lastword.Error{Code: lastword.CodeInternal, Message: "unexpected answer " + string(res.answer.Code)}
}

// holding is the refusal while a restored store waits for what may be lost (R10).
func holding(h core.Header) *lastword.Error {
	e := &lastword.Error{Code: lastword.CodeHeld, Hint: "wait for it, or try again later"}
	e.Remaining = time.Duration(h.HoldUntil-h.Tick) * time.Duration(h.TickSpan)
	e.Message = "the authority was restored or exchanged: nothing is granted until every tenure that may be lost is over" +
		", for another " + e.Remaining.Round(time.Second).String() + " of running time at most"
	return e
}

func (a *Authority) held(res result) error {
	lease := res.answer.Lease
	e := &lastword.Error{Code: lastword.CodeHeld, Waiters: res.waiters, Hint: "wait for it, or try again later"}
	if res.answer.Blocked {
		e.Message = "free, but the lock-delay after its last tenure is still running"
		if h := res.header; h.Tick < h.HoldUntil {
			return holding(h)
		}
		return e
	}
	e.Holder, e.Fence = lease.Owner, lease.Fence
	e.Remaining = a.remaining(res, lease)
	e.Message = "held by " + lease.Owner + " with fence " + lease.Fence.Text()
	if rest := e.Remaining.Round(time.Millisecond); rest > 0 {
		e.Message += " for another " + rest.String()
	}
	return e
}

func notHolder(current core.Lease) error {
	e := &lastword.Error{Code: lastword.CodeNotHolder, Message: "it is not the current tenure, or it is over", Hint: "acquire again; a new tenure has a larger fence"}
	if current.State == lastword.StateHeld || current.State == lastword.StatePending {
		e.Holder, e.Fence = current.Owner, current.Fence
		e.Message = "the current tenure is that of " + current.Owner + " with fence " + current.Fence.Text()
	}
	return e
}

// claims are the content of a lease's grant. They depend on the stored lease
// alone, so that a repetition signs the same bytes (R2).
func (a *Authority) claims(resource lastword.Resource, l core.Lease) grant.Claims {
	return grant.Claims{
		Domain: a.cfg.Domain, Resource: resource, Owner: l.Owner, RequestID: l.RequestID,
		LeaseID: l.ID, Fence: l.Fence, Revision: l.GrantedRevision, PolicyGeneration: l.PolicyGeneration,
		Root: l.Root, Class: l.Class, TTL: time.Duration(l.TTL), IssuedAt: time.Unix(l.IssuedAt, 0).UTC(),
	}
}

// tenure is the answer to a grant or a renewal, whose grant seal signs.
func (a *Authority) tenure(res result, seal seal) (lastword.Tenure, error) {
	l := res.answer.Lease
	if !a.signer.Has(l.KeyID) {
		return lastword.Tenure{}, keyGone(l)
	}
	signed, digest, err := seal(l.KeyID, a.claims(res.record.Resource, l))
	if err != nil {
		return lastword.Tenure{}, &lastword.Error{
			Code: lastword.CodeInternal, Message: "the grant cannot be signed", Err: err,
			Hint: "is the key that signed it first still configured?",
		}
	}
	return lastword.Tenure{
		TenureRef:   ref(res.record.Resource, l),
		State:       l.State,
		Grant:       signed,
		GrantDigest: digest,
		Revision:    res.record.Revision, PolicyGeneration: l.PolicyGeneration,
		Root: l.Root, Class: l.Class, TTL: time.Duration(l.TTL),
		Remaining: a.remaining(res, l), Waited: res.waited, Repeated: res.answer.Repeated,
		Previous: res.answer.Previous,
	}, nil
}

func ref(resource lastword.Resource, l core.Lease) lastword.TenureRef {
	return lastword.TenureRef{Resource: resource, Owner: l.Owner, RequestID: l.RequestID, LeaseID: l.ID, Fence: l.Fence}
}

// remaining is what a holder may trust (R25): the whole TTL of what this step
// wrote; else the TTL less the longest time that can have gone by since it was
// granted or renewed; nothing if this process does not know that, since another one
// may have watched it for longer.
func (a *Authority) remaining(res result, l core.Lease) time.Duration {
	ttl := time.Duration(l.TTL)
	switch {
	case res.extended:
		return ttl
	case res.known:
		return max(0, min(ttl, ttl-res.age))
	}
	return 0
}

func (a *Authority) status(res result, q lastword.StatusQuery) (lastword.Status, error) {
	rec, l := res.record, res.record.Lease
	st := lastword.Status{
		Resource: rec.Resource, State: lastword.StateFree, Revision: rec.Revision,
		NextFence: rec.NextFence(res.header), Waiters: res.waiters, Last: rec.Previous, Reported: rec.Reported,
	}
	if l.ID != "" {
		st.State = l.State
	}
	if st.State == lastword.StateCanceled {
		st.State = lastword.StateReleased
	}
	if st.State == lastword.StateHeld || st.State == lastword.StatePending {
		var digest lastword.Digest // none, if its key was revoked
		var err error
		if a.signer.Has(l.KeyID) {
			digest, err = a.signer.Digest(l.KeyID, a.claims(rec.Resource, l))
		}
		if err != nil {
			return st, &lastword.Error{Code: lastword.CodeInternal, Message: "the grant's digest cannot be made", Err: err}
		}
		st.Holder, st.Digest, st.TTL = shown(ref(rec.Resource, l), q), digest, time.Duration(l.TTL)
		st.Remaining = a.remaining(res, l)
	} else {
		_, st.Last = core.Asked(rec, nil, l.ID)
	}
	if q.LeaseID != "" || q.RequestID != "" {
		var ending lastword.Ending
		st.Asked, ending = core.Asked(rec, res.request, q.LeaseID)
		st.AskedCompleted, st.AskedResult = ending.Completed, ending.Result
	}
	return st, nil
}

// shown leaves out of a holder's names those that let others act in its place, unless
// the asker has named one of them already: renew and release need the grant, not
// what a status shows (KF-29).
func shown(holder lastword.TenureRef, q lastword.StatusQuery) lastword.TenureRef {
	if q.LeaseID == holder.LeaseID || q.Owner == holder.Owner && q.RequestID == holder.RequestID {
		return holder
	}
	holder.LeaseID, holder.RequestID = "", ""
	return holder
}

// told adds to NOT_HOLDER how the named tenure ended, as long as that is known.
func told(err error, res result, ref lastword.TenureRef) error {
	var e *lastword.Error
	if errors.As(err, &e) && e.Code == lastword.CodeNotHolder {
		_, e.Ended = core.Asked(res.record, res.request, ref.LeaseID)
	}
	return err
}
