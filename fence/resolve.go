package fence

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

// Resolve settles an operation whose outcome another tenure, or this one, has left open
// (R22). It first registers the call's fence as [Advance] does, so that an attempt which
// is still under way can only end as STALE_OWNER, and then looks in another transaction,
// under the record's lock.
//
// Found is the first receipt, with Verdict REPLAYED. Not found and no error is proof: the
// operation had no effect and never will have, and may be done again under the new fence,
// with the same id. RECEIPT_EXPIRED says that its receipt may have been pruned or lost
// with a restore, and an error that matches [lastword.ErrUnknownOutcome] that the record
// is in shadow, where an effect can have no receipt: then a person decides. Every other
// error is one of Advance, or of a database that could not be asked, and leaves open what
// was open.
func Resolve[T Tx](ctx context.Context, g *Gate, p Place[T], c Call, operation string) (r lastword.Receipt, found bool, err error) {
	const op = "resolve"
	if err := lastword.CheckID("operation", operation); err != nil {
		return r, false, &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: c.Resource, Message: err.Error()}
	}
	resource, err := c.about()
	if err != nil {
		return r, false, err
	}
	registered, err := Advance(ctx, g, p, c)
	if err != nil {
		return r, false, err
	}
	key, err := g.key(op, resource)
	if err != nil {
		return r, false, err
	}
	var verdict lastword.Verdict
	err = p.Transact(ctx, key, func(ctx context.Context, tx T) error {
		rec, known, err := tx.Load(ctx, key, operation)
		if err != nil {
			return err
		}
		if rec.Fence != registered.Fence || rec.LeaseID != registered.LeaseID {
			verdict = lastword.StaleOwner
			return errLeave
		}
		if verdict = core.Settle(rec, known, operation); verdict == lastword.Replayed {
			if r, err = tx.Receipt(ctx, key, operation); err != nil {
				return err
			}
		}
		return errLeave
	})
	if err != nil && !errors.Is(err, errLeave) {
		return lastword.Receipt{}, false, err
	}
	return settledBy(verdict, op, key, registered.Fence, registered.Restored > 0, r)
}

func settledBy(v lastword.Verdict, op string, key Key, stored lastword.Token, restored bool, r lastword.Receipt) (lastword.Receipt, bool, error) {
	if v == "" {
		return lastword.Receipt{}, false, nil
	}
	if v == lastword.Replayed {
		r.Verdict = lastword.Replayed
		return r, true, nil
	}
	t := tellings[string(v)]
	if v == lastword.ReceiptExpired && restored {
		t = tellings["RECEIPT_EXPIRED/RESTORED"]
	}
	if v == lastword.MutationUnknown {
		t = told{"the record is in shadow: an effect can have no receipt there", "reconcile with the business data"}
	}
	return lastword.Receipt{}, false, &lastword.Error{Code: v.Code(), Op: op, Resource: key.Resource, Fence: stored, Message: t.message, Hint: t.hint}
}

// about is the resource of a call; where it names none, the grant's word for it, which
// is compared with what was signed when the call is verified.
func (c Call) about() (lastword.Resource, error) {
	signed := c.Mutation.Grant
	if c.Holder != nil && !missing(c.Holder) {
		signed = c.Holder.Grant()
	}
	if c.Resource != "" || signed == "" {
		return c.Resource, nil
	}
	seen, err := grant.Inspect(signed)
	return seen.Claims.Resource, err
}
