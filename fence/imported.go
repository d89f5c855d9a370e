package fence

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// enterImported checks the shape of a call that brings an imported token (R14b).
func (w *passage) enterImported() error {
	c := &w.call
	switch {
	case !w.g.cfg.Imported:
		return w.invalid("this gate takes grants, and no imported tokens", "an imported token has a gate of its own")
	case c.Holder != nil || c.Mutation.Grant != "" || c.Mutation.StatusProof != "":
		return w.invalid("this gate takes imported tokens, and no grants", "grants have a gate of their own")
	case c.Imported == nil:
		return w.refusal(lastword.FenceRequired, "IMPORTED", 0, nil)
	}
	key, err := w.g.key(w.op, c.Resource)
	w.key = key
	return err
}

// verifyImported is all that can be checked of an imported token: its form. Who brings
// it is believed.
func (w *passage) verifyImported() error {
	t := w.call.Imported
	if !t.Token.Valid() {
		return w.refusal(lastword.Unverified, "", 0, &grant.Refusal{Reason: grant.ReasonFenceRange})
	}
	if lastword.CheckID("tenure", t.Tenure) != nil || lastword.CheckID("owner", t.Owner) != nil {
		return w.refusal(lastword.Unverified, "", 0, &grant.Refusal{Reason: grant.ReasonValue})
	}
	if caller := w.g.cfg.Caller; caller != "" && caller != t.Owner {
		return w.refusal(lastword.Unverified, "", 0, &grant.Refusal{Reason: grant.ReasonOwner})
	}
	w.claims = grant.Claims{
		Domain: w.key.Domain, Resource: w.key.Resource, Owner: t.Owner, LeaseID: t.Tenure, Fence: t.Token, Root: t.Root,
	}
	a := &w.attempt
	a.Fence, a.LeaseID, a.Root, a.Imported = t.Token, t.Tenure, t.Root, true
	w.configure()
	return nil
}
