package fence

import (
	"context"
	"fmt"
	"reflect"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

const (
	opApply   = "apply"
	opWithin  = "within"
	opAdvance = "advance"
)

// passage is one call on its way through the gate.
type passage struct {
	g       *Gate
	op      string // opApply, …
	call    Call
	grant   string
	key     Key
	want    grant.Want
	claims  grant.Claims // of the verified grant, or what an imported token stands for
	opened  grant.Verified
	proof   string // status proof that the call carries, "" if none
	attempt core.Attempt
	number  *number // nil if the call brings no holder
}

// enter checks the shape of a call; nothing is believed yet. The passage is there also
// beside an error.
func (g *Gate) enter(op string, c Call) (*passage, error) {
	w := &passage{g: g, op: op, call: c, grant: c.Mutation.Grant, proof: c.Mutation.StatusProof}
	if missing(c.Holder) {
		w.call.Holder = nil
		return w, w.invalid("the holder is a nil "+fmt.Sprintf("%T", c.Holder), "take the lease only if Acquire has returned no error")
	}
	if g.cfg.Imported || c.Imported != nil {
		return w, w.enterImported()
	}
	switch {
	case c.Holder != nil && c.Mutation.Grant != "":
		return w, w.invalid("both a holder and a grant are given", "give one of them")
	case c.Holder != nil && c.Mutation.Seq != 0:
		return w, w.invalid("a holder numbers its writes itself", "leave Mutation.Seq out")
	case c.Holder != nil:
		w.grant = c.Holder.Grant()
		if p, ok := c.Holder.(Prover); ok && w.proof == "" {
			w.proof = p.StatusProof()
		}
	}
	if w.grant == "" {
		if _, err := lastword.ParseResource(string(c.Resource)); err == nil {
			w.key = Key{Domain: g.cfg.Domain, Resource: c.Resource}
		}
		return w, w.refusal(lastword.FenceRequired, "", 0, nil)
	}
	if c.Resource != "" {
		if _, err := lastword.ParseResource(string(c.Resource)); err != nil {
			return w, w.invalid(err.Error(), "")
		}
	}
	w.key = Key{Domain: g.cfg.Domain, Resource: c.Resource}
	if c.Resource == "" {
		named, err := g.named(w.grant)
		if err != nil {
			return w, w.unverified(err)
		}
		w.key.Resource = named // verify compares it with what was signed
	}
	w.want = grant.Want{
		Resource: w.key.Resource, Owner: g.cfg.Caller, Class: c.Mutation.Class,
		MinPolicyGeneration: g.cfg.MinPolicyGeneration,
	}
	return w, nil
}

// missing reports whether h is a pointer that points nowhere, as that of an Acquire that has
// failed. No holder at all is another thing: the call has a grant then, or is refused.
func missing(h lastword.Holder) bool {
	v := reflect.ValueOf(h)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// named is the resource that a grant names, believed or not.
func (g *Gate) named(text string) (lastword.Resource, error) {
	if g.cfg.Verifier != nil {
		if claims, ok := g.cfg.Verifier.Remembered(text); ok {
			return claims.Resource, nil
		}
	}
	seen, err := grant.Inspect(text)
	return seen.Claims.Resource, err
}

// writes checks what a mutation needs beyond a grant.
func (w *passage) writes() error {
	m := &w.call.Mutation
	if err := lastword.CheckID("operation", m.Operation); err != nil {
		return w.invalid(err.Error(), "")
	}
	if m.Class == lastword.ClassAdvance { // every grant admits that class
		return w.invalid("the class advance is no write's", "use Advance")
	}
	if m.Seq > uint64(lastword.MaxToken) {
		return w.invalid(fmt.Sprintf("seq %d is above %d", m.Seq, lastword.MaxToken), "")
	}
	if w.call.Content != nil {
		digest := lastword.DigestOf(w.call.Content)
		if !m.Payload.IsZero() && m.Payload != digest {
			return w.invalid("the payload digest is not the content's", "the digest is the SHA-256 of exactly the bytes that are executed")
		}
		m.Payload = digest
	}
	if m.Payload.IsZero() {
		return w.invalid("no payload digest", "give Content or Mutation.Payload")
	}
	w.attempt.Operation, w.attempt.Payload, w.attempt.Seq = m.Operation, m.Payload, m.Seq
	return nil
}

// verify opens the grant (R12 up to the status) and fills the attempt with it.
func (w *passage) verify(ctx context.Context) error {
	if w.call.Imported != nil {
		return w.verifyImported()
	}
	v, err := w.g.cfg.Verifier.Open(ctx, w.grant, w.want)
	if err != nil {
		return w.unverified(err)
	}
	c := v.Claims()
	switch {
	case !v.Valid(): // R14
		return w.refusal(lastword.Unverified, "NOT_VERIFIED", 0, nil)
	case c.Domain != w.key.Domain:
		return w.refusal(lastword.Unverified, "", 0, &grant.Refusal{Reason: grant.ReasonDomain})
	case !w.g.cfg.admits(c.Resource):
		return w.refusal(lastword.Unverified, "SCOPE", 0, &grant.Refusal{Reason: grant.ReasonResource})
	}
	w.claims, w.opened = c, v
	a := &w.attempt
	a.Fence, a.LeaseID, a.GrantDigest, a.Root = c.Fence, c.LeaseID, v.Digest(), c.Root
	a.BundleSequence, a.MinEpoch, a.PolicyGeneration = v.BundleSequence(), v.MinimumEpoch(), c.PolicyGeneration
	w.configure()
	return nil
}

// configure fills in what the gate wants of a record.
func (w *passage) configure() {
	a, cfg := &w.attempt, &w.g.cfg
	a.Policy, a.Status, a.Step, a.MinPolicyGeneration = cfg.Policy, cfg.Mode, cfg.Step, cfg.MinPolicyGeneration
}

// admitted says whether the holder lets a new effect start (R26).
func (w *passage) admitted() error {
	if w.call.Holder == nil {
		return nil
	}
	s := w.call.Holder.State()
	if s.Admits() {
		return nil
	}
	e := &lastword.Error{
		Code: lastword.CodeUnavailable, Op: w.op, Resource: w.key.Resource,
		Message: fmt.Sprintf("the holder is %s; nothing was started", s),
		Hint:    "wait until the lease is HELD again, or its context ends",
	}
	if s == lastword.HolderExpired || s == lastword.HolderReleased {
		e.Code, e.Hint = lastword.CodeNotHolder, "acquire again"
	}
	return e
}

// prepare is everything before the place is touched: proof, then status (R12).
func (w *passage) prepare(ctx context.Context) error {
	if err := w.verify(ctx); err != nil {
		return err
	}
	return w.hear(ctx, w.g.cfg.Mode, false)
}

// hear brings what a mode wants to hear of the authority. fresh asks anew.
func (w *passage) hear(ctx context.Context, mode StatusMode, fresh bool) error {
	switch {
	case mode == FenceOnly:
		w.attempt.Heard = core.Heard{Mode: FenceOnly}
		return nil
	case mode == Proof && w.proof != "":
		return w.prove(ctx)
	case mode == Proof && w.g.cfg.Status == nil:
		return w.refusal(lastword.StatusUnavailable, "NO_PROOF", 0, nil)
	}
	return w.ask(ctx, fresh)
}

// wanted is the mode that a record is judged by.
func (w *passage) wanted(rec Record) StatusMode {
	mode := w.g.cfg.Mode
	if rec.Exists && !mode.Stricter(rec.Status) {
		mode = rec.Status
	}
	if !rec.Exists && rec.Restored > 0 {
		mode = Query
	}
	return mode
}

// again does what the record wants done before it decides. last is the reason of
// the round before.
func (w *passage) again(ctx context.Context, d core.Decision, rec Record, last core.Again) error {
	switch d.Again {
	case core.AgainVerify:
		if last == core.AgainVerify {
			return w.outrun(d.Again)
		}
		w.want.MinPolicyGeneration = max(w.want.MinPolicyGeneration, rec.MinPolicyGeneration)
		w.want.Bundle = higher(w.want.Bundle, grant.BundleFloor{Sequence: rec.BundleSequence, MinimumEpoch: rec.MinEpoch})
		if err := w.verify(ctx); err != nil {
			return err
		}
		if w.attempt.Heard.Mode == Proof {
			return w.prove(ctx)
		}
	case core.AgainAsk:
		if err := w.hear(ctx, w.wanted(rec), true); err != nil {
			return err
		}
		w.attempt.Heard.AfterLook = !rec.Exists && w.attempt.Heard.Mode == Query
	}
	return nil
}

// outrun is the refusal of a call that could not catch up with its record.
func (w *passage) outrun(a core.Again) error {
	if a == core.AgainVerify {
		return w.refusal(lastword.Unverified, "OUTDATED", 0, nil)
	}
	return w.refusal(lastword.StatusUnavailable, "OUTRUN", 0, nil)
}
