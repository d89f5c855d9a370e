package fence

import (
	"context"
	"errors"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

// ask puts the status question (R12) and fills the attempt with the answer. Unless
// fresh, a HELD answer may be one that was asked for a short while ago. No answer
// is STATUS_UNAVAILABLE.
func (w *passage) ask(ctx context.Context, fresh bool) error {
	st, err := w.status(ctx, fresh)
	if err != nil {
		return err
	}
	w.attempt.Heard = core.Heard{Mode: Query, State: w.stateIn(st), NextFence: st.NextFence, Mark: w.markOf(st)}
	return nil
}

// prove reads the status proof that the call carries (R12, T14).
func (w *passage) prove(ctx context.Context) error {
	cfg := &w.g.cfg
	seen := w.g.answers.mark(w.key.Resource)
	v, err := cfg.Verifier.OpenStatus(ctx, w.proof, grant.StatusWant{
		Grant: w.opened, Pending: w.op == opAdvance, Now: cfg.Now(), Skew: cfg.ProofSkew,
		Seen: grant.StatusMark{Epoch: seen.Epoch, Revision: seen.Revision}, Bundle: w.want.Bundle,
	})
	if err != nil {
		return w.unverified(err)
	}
	if !v.Valid() { // R14
		return w.refusal(lastword.Unverified, "NOT_VERIFIED", 0, nil)
	}
	c := v.Claims()
	// Only a write that is admitted makes others of the proof's mark: a forged one must
	// not make the true ones look old.
	w.attempt.Heard = core.Heard{Mode: Proof, State: c.State, Mark: Mark{Epoch: c.Epoch, Revision: c.Revision}}
	return nil
}

// markOf is how far the authority was when it gave an answer; the next fence shows the
// issuer epoch. An answer about an imported token is not ours to order.
func (w *passage) markOf(st lastword.Status) Mark {
	if w.call.Imported != nil {
		return Mark{}
	}
	return markOf(st)
}

func markOf(st lastword.Status) Mark {
	if !st.NextFence.Valid() || st.Revision == 0 {
		return Mark{}
	}
	return Mark{Epoch: st.NextFence.Epoch(), Revision: st.Revision}
}

func (w *passage) status(ctx context.Context, fresh bool) (lastword.Status, error) {
	g := w.g
	if g.cfg.Status == nil {
		return lastword.Status{}, w.refusal(lastword.StatusUnavailable, "NO_SOURCE", 0, nil)
	}
	digest := w.attempt.GrantDigest
	if !fresh {
		if st, ok := g.answers.get(w.key.Resource, digest, g.cfg.Elapsed(), g.cfg.StatusReuse); ok {
			return st, nil
		}
	}
	sent := g.cfg.Elapsed()
	asking, cancel := context.WithTimeout(ctx, g.cfg.AskTimeout)
	defer cancel()
	st, err := g.cfg.Status.Status(asking, lastword.StatusQuery{Resource: w.key.Resource, LeaseID: w.attempt.LeaseID})
	if err == nil {
		err = asking.Err() // an answer that came too late is none (R9)
	}
	if err == nil && st.Resource != w.key.Resource {
		err = errors.New("the answer is about another resource")
	}
	if err != nil {
		return lastword.Status{}, w.refusal(lastword.StatusUnavailable, "", 0, definite(err))
	}
	mark := w.markOf(st)
	g.answers.saw(w.key.Resource, mark)
	// Without a digest there is nothing to tell two grants apart by.
	if w.stateIn(st) == lastword.StateHeld && g.cfg.StatusReuse > 0 && !digest.IsZero() {
		g.answers.put(w.key.Resource, answer{sent: sent, digest: digest, mark: mark, status: st}, g.cfg.StatusReuse)
	}
	return st, nil
}

// stateIn is what the answer says of this very grant: HELD and PENDING count only
// if the current tenure has its fence, lease and digest.
func (w *passage) stateIn(st lastword.Status) lastword.State {
	a := &w.attempt
	live := st.State == lastword.StateHeld || st.State == lastword.StatePending
	if live && st.Holder.Fence == a.Fence && st.Holder.LeaseID == a.LeaseID && st.Digest == a.GrantDigest {
		return st.State
	}
	switch st.Asked {
	case lastword.StateExpired, lastword.StateReleased, lastword.StateRevoked, lastword.StateCanceled:
		return st.Asked
	case lastword.StateFree, lastword.StatePending, lastword.StateHeld: // of another grant
	}
	return lastword.StateFree
}

// confirmsJump asks whether the authority's next number is above the fence (R14a),
// where the record wants to hear nothing else of it. false: it could not be asked.
func (w *passage) confirmsJump(ctx context.Context) bool {
	st, err := w.status(ctx, true)
	if err != nil {
		return false
	}
	w.attempt.Heard.NextFence = st.NextFence
	return true
}

// regressed asks, after the record was read, whether the authority went back below
// what the record has stored.
func (w *passage) regressed(ctx context.Context, rec Record) bool {
	if w.attempt.Heard.Mode != Query {
		return false
	}
	st, err := w.status(ctx, true)
	return err == nil && core.Behind(rec, st.NextFence)
}
