package fence

import (
	"context"

	"github.com/lastword/lastword"
)

// Lookup is the receipt of an operation at a record, with Verdict REPLAYED. It
// moves no fence and needs no grant (R21).
//
// Not found is no proof that the operation had no effect: its transaction may still
// commit, or its receipt may have been pruned. The same tenure settles by applying
// the same call again; a newer one registers its fence first ([Advance]) and then
// looks (R22).
func Lookup[T Tx](ctx context.Context, g *Gate, p Place[T], resource lastword.Resource, operation string) (r lastword.Receipt, found bool, err error) {
	seen := g.begin(OpLookup, p)
	defer seen.end(ctx, &r.Verdict, &err)
	seen.answer.Resource, seen.answer.Operation = resource, operation
	key, err := g.key("lookup", resource)
	if err != nil {
		return lastword.Receipt{}, false, err
	}
	if err := lastword.CheckID("operation", operation); err != nil {
		return lastword.Receipt{}, false, &lastword.Error{Code: lastword.CodeInvalid, Op: "lookup", Resource: resource, Message: err.Error()}
	}
	r, found, err = p.Find(ctx, key, operation)
	if err != nil || !found {
		return lastword.Receipt{}, false, err
	}
	r.Verdict = lastword.Replayed
	return r, true, nil
}

// Inspect is the record of a resource and what was noted beside it: refusals that
// were counted, payloads in quarantine. It changes nothing. A record that does not
// exist yet has Exists false and is no error.
func Inspect[T Tx](ctx context.Context, g *Gate, p Place[T], resource lastword.Resource) (Inspection, error) {
	key, err := g.key("inspect", resource)
	if err != nil {
		return Inspection{}, err
	}
	return p.Inspect(ctx, key)
}
