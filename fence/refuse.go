package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

// told is what people read beside a verdict.
type told struct{ message, hint string }

// tellings has one entry for every verdict that refuses, and one for each case of a
// verdict that needs another way out ("VERDICT/WHY").
var tellings = map[string]told{
	"CONFLICT/OTHER_PAYLOAD":       {"this operation is known with another payload; nothing ran", "use a new operation id for new content"},
	"CONFLICT/SEQ_TAKEN":           {"this number was accepted for another operation; nothing ran", "one numbering per tenure and record: let a holder number the writes"},
	"CONFLICT/ONE_VALUE":           {"this tenure has written its one value already; nothing ran", "another value needs another tenure"},
	"STALE_OWNER":                  {"a newer owner has written or registered here", "stop; acquire again and look at what was done since"},
	"RECEIPT_EXPIRED":              {"this operation may have had its effect, but its receipt was pruned", "reconcile with the business data; do not repeat it blindly"},
	"RECEIPT_EXPIRED/RESTORED":     {"the place was restored: this operation may have had its effect, and its receipt may have been lost with the restore", "reconcile with the business data, then end the window: fence restored --close"},
	"OUT_OF_ORDER":                 {"the order rule of the record does not admit this number", "submit the missing operations first; a new fence starts at 1"},
	"OUT_OF_ORDER/UNKNOWN_POLICY":  {"the record has a policy that this version does not know", "update this program"},
	"ROOT_MISMATCH":                {"the stored tenure belongs to another operation root", "acquire with the root of this work"},
	"FENCE_REGRESSION/FROZEN":      {"the record is frozen", "find out which authority issued a fence twice; a grant of a new issuer epoch, which every start of the authority begins, opens the record, and so does fence release"},
	"FENCE_REGRESSION/OTHER_LEASE": {"two verified grants carry one fence; the record was frozen", "find out which authority issued the fence twice; a grant of a new issuer epoch, which every start of the authority begins, opens the record"},
	"FENCE_REGRESSION/NEXT_FENCE":  {"the authority is behind the fence that is stored here; the record was frozen", "the authority was restored or replaced: move it to a new issuer epoch"},
	"FENCE_REGRESSION/RECORD_LOST": {"the record is gone, and receipts of its resource are there", "the place was restored or tampered with: have somebody look before anything is written"},
	"FENCE_REGRESSION/RESTORED":    {"the place was restored, and this record has not been raised to what the authority has granted since", "run fence restored to its end"},
	"FENCE_JUMP":                   {"the fence is further ahead than the record's step, and the authority did not confirm it", "let the gate ask the authority, or, after a look at who signed this, fence release with --jump"},
	"UNVERIFIED":                   {"the grant is not believed", ""},
	"UNVERIFIED/NOT_HELD":          {"the authority says that this grant is not held", "acquire again"},
	"UNVERIFIED/SCOPE":             {"the grant's resource is outside the scope of this gate", ""},
	"UNVERIFIED/PROOF_OLD":         {"the status proof is older than what is known of this resource here", "ask the authority for a new one"},
	"UNVERIFIED/IMPORTED":          {"the record carries an imported token, and this grant is not of an issuer epoch above it", "let the authority begin a new issuer epoch: that is the way over, and there is none back"},
	"UNVERIFIED/NOT_IMPORTED":      {"the record carries grants: an imported token is not a number of the same counter", "use grants; there is no way back"},
	"UNVERIFIED/OUTDATED":          {"the record has seen a newer trust bundle, or higher minimums, than this grant was verified with", "bring the trust bundle up to date, or acquire again"},
	"STATUS_UNAVAILABLE":           {"the record wants the authority's answer and none came; nothing was started", "try again when the authority answers"},
	"STATUS_UNAVAILABLE/NO_SOURCE": {"the record wants the authority's answer and this gate has nobody to ask; nothing was started", "give the gate a status source; a record's mode is never loosened"},
	"STATUS_UNAVAILABLE/NO_PROOF":  {"the record wants a status proof, none came with the write, and this gate has nobody to ask; nothing was started", "carry a status proof beside the grant"},
	"STATUS_UNAVAILABLE/OUTRUN":    {"the record changed what it wants to hear faster than it could be asked", "try again"},
	"FENCE_REQUIRED/IMPORTED":      {"a mutation of a protected resource without a token", "bring the imported token of the lock that is held"},
	"FENCE_REQUIRED":               {"a mutation of a protected resource without a grant", "acquire a lease and pass it, or its grant"},
}

// refusal is the error of a verdict. stored is the highest fence at the record.
func (w *passage) refusal(v lastword.Verdict, why string, stored lastword.Token, cause error) *lastword.Error {
	t, ok := tellings[string(v)+"/"+why]
	if !ok {
		t = tellings[string(v)]
	}
	return &lastword.Error{
		Code: v.Code(), Op: w.op, Resource: w.key.Resource, Fence: stored,
		Message: t.message, Hint: t.hint, Err: cause,
	}
}

func (w *passage) invalid(message, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: w.op, Resource: w.call.Resource, Message: message, Hint: hint}
}

// unverified is a failed proof. The grant's own words say why, the gate adds where.
func (w *passage) unverified(err error) error {
	var e *lastword.Error
	if !errors.As(err, &e) || e.Code != lastword.CodeUnverified {
		return w.refusal(lastword.Unverified, "", 0, definite(err))
	}
	out := *e
	out.Op, out.Resource, out.Err = w.op, w.key.Resource, definite(e.Err)
	w.g.cfg.Logger.Debug("grant not believed", "resource", w.key.Resource, "reason", grant.ReasonOf(err))
	return &out
}

// unknown is the error of a commit whose fate is open. A place that knows a nearer way
// out has said it.
func (w *passage) unknown(cause error) error {
	e := &lastword.Error{
		Code: lastword.CodeMutationUnknown, Op: w.op, Resource: w.key.Resource,
		Message: "it could not be learnt whether the commit happened",
		Hint:    "submit the same operation again, unchanged, to settle it", Err: cause,
	}
	if said, ok := cause.(*lastword.Error); ok && said.Hint != "" { //nolint:errorlint // a wrapped one is somebody else's line
		plain := *said
		e.Hint, plain.Hint = said.Hint, ""
		e.Err = &plain
	}
	return e
}

// saidUnknown reports whether a place has said that the outcome is open, and not an effect
// of something else.
func saidUnknown(err error) bool {
	said, ok := err.(*lastword.Error) //nolint:errorlint // as above
	return ok && said.Code == lastword.CodeMutationUnknown
}

// failed is the error of a transaction that certainly left nothing.
func (w *passage) failed(err error) error {
	var e *lastword.Error
	if errors.As(err, &e) && !errors.Is(err, lastword.ErrUnknownOutcome) {
		return err
	}
	return &lastword.Error{
		Code: lastword.CodeUnavailable, Op: w.op, Resource: w.key.Resource,
		Message: "the place could not do it; nothing was changed", Err: definite(err),
	}
}

// refuse turns a refusing decision into its error, after the roll-back. What must
// not go with the roll-back is noted at once, or kept if note is nil (R16b).
func (w *passage) refuse(ctx context.Context, out outcome, note func(context.Context, Evidence) error) error {
	d := w.final(ctx, out)
	why := d.Why
	if d.Verdict == lastword.ReceiptExpired && out.record.Restored > 0 {
		why = "RESTORED" // there may be a tombstone as well; the window is what a person ends
	}
	refusal := w.refusal(d.Verdict, why, out.record.Fence, causeOf(d))
	if err := w.note(ctx, d, out.record, w.evidence(d, out.record), note); err != nil {
		return errors.Join(refusal, fmt.Errorf("the evidence of it was not written: %w", definite(err)))
	}
	return refusal
}

// final is the decision, or what a question to the authority makes of it.
func (w *passage) final(ctx context.Context, out outcome) core.Decision {
	d := out.decision
	if d.Verdict == lastword.StaleOwner && w.regressed(ctx, out.record) {
		return core.Decision{Verdict: lastword.FenceRegression, Why: "NEXT_FENCE", Freeze: true, Shadow: d.Shadow}
	}
	return d
}

// note writes evidence, or keeps it, and reports a freeze.
func (w *passage) note(ctx context.Context, d core.Decision, rec Record, e Evidence, write func(context.Context, Evidence) error) error {
	if d.Freeze {
		w.g.cfg.Logger.Error("record frozen", "domain", w.key.Domain, "resource", w.key.Resource,
			"why", d.Why, "stored", rec.Fence, "fence", w.attempt.Fence, "lease", w.attempt.LeaseID)
		defer w.report(ctx, d.Why, rec)
	}
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.g.noteTime(ctx))
	defer cancel()
	err := write(noting, e)
	if err != nil {
		w.g.cfg.Logger.Warn("evidence of a refusal was not written", "resource", w.key.Resource, "verdict", d.Verdict, "error", err)
	}
	return err
}

// causeOf is the reason of a refusal at the record that R12 names.
func causeOf(d core.Decision) error {
	if d.Verdict == lastword.Unverified && d.Why == "PROOF_OLD" {
		return &grant.Refusal{Reason: grant.ReasonProofOld}
	}
	return nil
}

func (w *passage) evidence(d core.Decision, rec Record) Evidence {
	e := Evidence{
		Verdict: d.Verdict, Why: d.Why, Fence: w.attempt.Fence, LeaseID: w.attempt.LeaseID,
		Claimant: w.claims.Owner, Freeze: d.Freeze, At: w.g.stamp(),
	}
	if d.Freeze {
		e.Fence = rec.Fence
	}
	if d.Quarantine {
		content := w.call.Content
		e.Quarantine = &Quarantined{
			Operation: w.attempt.Operation, Seq: w.attempt.Seq, Payload: w.attempt.Payload,
			Content: append([]byte(nil), content[:min(len(content), MaxQuarantineBytes)]...),
		}
	}
	return e
}

// settled is a cause whose own open outcome is not the outcome of the call: it
// never matches [lastword.ErrUnknownOutcome].
type settled struct{ err error }

// definite hides from errors.Is that something beside the write (an answer, a
// note) has an open outcome. The write's own outcome is certain.
func definite(err error) error {
	if err == nil || !errors.Is(err, lastword.ErrUnknownOutcome) {
		return err
	}
	return settled{err}
}

func (s settled) Error() string { return s.err.Error() }

func (s settled) Is(target error) bool {
	return target != lastword.ErrUnknownOutcome && errors.Is(s.err, target)
}
