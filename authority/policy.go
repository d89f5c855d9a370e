package authority

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Policy says which owner may hold what (R12, T25). It is asked where steps are
// decided, by the goroutine that decides: it returns at once, from memory, and is safe
// for concurrent use. It need not answer the same twice.
type Policy interface {
	// Admit reports whether owner may have a tenure of this class, and under which
	// generation of the policy that is so. The generation enters the grant.
	Admit(owner string, resource lastword.Resource, class lastword.Class) (generation uint64, ok bool)
}

// admitting asks the policy when the acquire is decided, and not only when it came:
// who waited through a change of the policy gets nothing that the new one refuses, and
// the grant has the generation under which it was allowed. A repetition is asked about
// too, and gets the grant of then.
func (a *Authority) admitting(r lastword.AcquireRequest, decide func(generation uint64) decision) decision {
	p := a.cfg.Policy
	if p == nil {
		return decide(0)
	}
	return func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
		generation, ok := p.Admit(r.Owner, r.Resource, r.Class)
		if !ok {
			return core.Change{}, core.Answer{Code: lastword.CodeUnverified}
		}
		return decide(generation)(rec, req, h, c)
	}
}

// stillAdmitting refuses the renewal of a tenure that the policy does not allow any
// more: it then lapses.
func (a *Authority) stillAdmitting(ref lastword.TenureRef, decide decision) decision {
	p := a.cfg.Policy
	if p == nil {
		return decide
	}
	return func(rec core.Record, req *core.Request, h core.Header, c core.Clock) (core.Change, core.Answer) {
		change, answer := decide(rec, req, h, c)
		if answer.Code == "" {
			if _, ok := p.Admit(ref.Owner, ref.Resource, answer.Lease.Class); !ok {
				return core.Change{}, core.Answer{Code: lastword.CodeUnverified}
			}
		}
		return change, answer
	}
}

// notAllowed is the same, whatever there is and whatever was asked (T18).
func notAllowed() error {
	return &lastword.Error{
		Code: lastword.CodeUnverified, Message: "the policy does not allow this to this caller",
		Hint: "ask whoever keeps the authority's policy",
	}
}
