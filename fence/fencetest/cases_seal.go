package fencetest

import (
	"context"
	"errors"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
)

func sealCases() []testCase {
	return []testCase{
		{name: "R12: a status proof is enough in proof mode, and nowhere else", run: proofs},
		{name: caseMark, run: markStored},
		{name: "T24: without an answer nothing fails open", run: failsClosed},
		{name: caseStep, run: stepStored},
		{name: "T20: a burnt fence is outranked by a new epoch", run: burntFence},
		{name: caseImported, run: importedStored},
	}
}

const (
	caseMark     = "T14: a record refuses a proof older than what it has heard"
	caseStep     = "R14a: a record's step can only become smaller"
	caseImported = "R14b: a record carries grants or imported tokens"
)

// wallClock is what the kit's gates show people, and compare proofs with.
var wallClock = time.Unix(1_800_000_123, 456_789_000)

// prove is a status proof of a tenure as it was at this revision.
func (w *world) prove(t *tenure, revision uint64, change func(*grant.StatusClaims)) string {
	w.Helper()
	at := wallClock.Truncate(time.Second).UTC()
	c := grant.StatusClaims{
		Domain: domain, Resource: t.claims.Resource, LeaseID: t.claims.LeaseID, Fence: t.claims.Fence, GrantDigest: t.digest,
		State: lastword.StateHeld, Epoch: t.claims.Fence.Epoch(), Revision: revision, IssuedAt: at, Expires: at.Add(20 * time.Second),
	}
	if change != nil {
		change(&c)
	}
	proof, err := w.authority.signer.SignStatus(c)
	w.must(err)
	return proof
}

// proving is a gate that wants proofs and has nobody to ask.
func (w *world) proving() *fence.Gate {
	w.Helper()
	return w.newGate(func(c *fence.Config) { c.Mode, c.Status = fence.Proof, nil })
}

func carrying(t *tenure, proof string, seq uint64, operation, value string) fence.Call {
	c := call(t, seq, operation, value)
	c.Mutation.StatusProof = proof
	return c
}

// because checks the reason of a refusal that R12 names.
func (w *world) because(err error, reason grant.Reason) {
	w.Helper()
	if got := grant.ReasonOf(err); got != reason {
		w.Fatalf("got %v (reason %q), want the reason %s", err, got, reason)
	}
}

func proofs(w *world) {
	const doc, asked = "doc/a", "doc/asked"
	g := w.proving()
	a := w.tenure(doc)
	write := func(proof string, seq uint64, o string) (lastword.Receipt, error) {
		return w.submit(w.subject, g, carrying(a, proof, seq, o, o), Write{Resource: doc, Value: o})
	}
	good := w.prove(a, 5, nil)
	w.applied(write(good, 1, "op-1"))(1)
	if got := w.record(doc).Status; got != fence.Proof {
		w.Fatalf("the record has the mode %q, want %q", got, fence.Proof)
	}
	b := w.tenure("doc/other")
	for what, c := range map[string]struct {
		proof  string
		reason grant.Reason
	}{
		"an expired proof": {w.prove(a, 6, func(c *grant.StatusClaims) {
			c.IssuedAt, c.Expires = c.IssuedAt.Add(-30*time.Second), c.Expires.Add(-30*time.Second)
		}), grant.ReasonProofExpired},
		"a proof within the skew of its end": {w.prove(a, 6, func(c *grant.StatusClaims) {
			c.IssuedAt, c.Expires = c.IssuedAt.Add(-18*time.Second), c.Expires.Add(-18*time.Second)
		}), grant.ReasonProofExpired},
		"a proof of tomorrow": {w.prove(a, 6, func(c *grant.StatusClaims) {
			c.IssuedAt, c.Expires = c.IssuedAt.Add(time.Hour), c.Expires.Add(time.Hour)
		}), grant.ReasonProofAhead},
		"a proof of a pending tenure": {w.prove(a, 6, func(c *grant.StatusClaims) { c.State = lastword.StatePending }), grant.ReasonProofPending},
		"a proof of another grant":    {w.prove(a, 6, func(c *grant.StatusClaims) { c.LeaseID = "lease-x" }), grant.ReasonProofGrant},
		"a proof of another resource": {w.prove(b, 6, nil), grant.ReasonResource},
		"a grant as a proof":          {a.grant, grant.ReasonType},
	} {
		w.untouched(what, func() {
			r, err := write(c.proof, 2, "op-2")
			w.refused(r, err)(lastword.Unverified, 0)
			w.because(err, c.reason)
		})
	}
	w.untouched("a proof as a grant", func() {
		bad := call(a, 2, "op-2", "2")
		bad.Mutation.Grant = good
		r, err := w.submit(w.subject, g, bad, Write{Resource: doc, Value: "2"})
		w.refused(r, err)(lastword.Unverified, 0)
		w.because(err, grant.ReasonType)
	})
	w.untouched("no proof, and nobody to ask", func() { w.refused(write("", 2, "op-2"))(lastword.StatusUnavailable, 0) })
	w.applied(write(good, 2, "op-2"))(2)

	c := w.tenure(asked)
	w.applied(w.apply(c, 1, "op-1", "1"))(1) // in query mode
	w.untouched("a proof where the record wants a question", func() {
		r, err := w.submit(w.subject, g, carrying(c, w.prove(c, 9, nil), 2, "op-2", "2"), Write{Resource: asked, Value: "2"})
		w.refused(r, err)(lastword.StatusUnavailable, 0)
	})
}

func markStored(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	write := func(revision, seq uint64, o string) (lastword.Receipt, error) {
		// Each time another gate, and another handle: only the record remembers.
		return w.submit(w.second, w.proving(), carrying(a, w.prove(a, revision, nil), seq, o, o), Write{Resource: doc, Value: o})
	}
	first := w.applied(write(7, 1, "op-1"))(1)
	w.applied(write(7, 2, "op-2"))(2)
	w.applied(write(9, 3, "op-3"))(3)
	if got, want := w.record(doc).Heard, (fence.Mark{Epoch: a.claims.Fence.Epoch(), Revision: 9}); got != want {
		w.Fatalf("the record has heard %+v, want %+v", got, want)
	}
	w.unchanged("a proof older than what was heard", func() {
		r, err := write(8, 4, "op-4")
		w.refused(r, err)(lastword.Unverified, a.claims.Fence)
		w.because(err, grant.ReasonProofOld)
		w.replayed(write(8, 1, "op-1"))(first)
	})
	w.applied(write(10, 4, "op-4"))(4)
}

func failsClosed(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	looser := w.newGate(func(c *fence.Config) { c.Mode, c.Status = fence.Proof, nil })
	loosest := w.newGate(fenceOnly)
	w.authority.setDown(true)
	for what, g := range map[string]*fence.Gate{"the gate itself": w.gate, "a gate in proof mode": looser, "a gate in fence-only mode": loosest} {
		w.untouched(what, func() {
			r, err := w.submit(w.subject, g, carrying(a, w.prove(a, 5, nil), 2, "op-2", "2"), Write{Resource: doc, Value: "2"})
			w.refused(r, err)(lastword.StatusUnavailable, 0)
		})
	}
}

func stepStored(w *world) {
	const doc = "doc/a"
	small := w.newGate(func(c *fence.Config) { fenceOnly(c); c.Step = 8 })
	large := w.newGate(func(c *fence.Config) { fenceOnly(c); c.Step = 1 << 30 })
	submit := func(g *fence.Gate, t *tenure, o string) (lastword.Receipt, error) {
		return w.submit(w.subject, g, call(t, 1, o, o), Write{Resource: doc, Value: o})
	}
	a := w.tenure(doc)
	w.applied(submit(small, a, "op-1"))(1)
	w.authority.setCounter(doc, 9)
	far := w.tenure(doc) // 10: nine further
	w.unchanged("a jump further than the record's step", func() {
		w.refused(submit(large, far, "op-2"))(lastword.FenceJump, a.claims.Fence)
		w.refused(submit(w.newGate(fenceOnly), far, "op-2"))(lastword.FenceJump, a.claims.Fence)
	})
	asking := w.newGate(func(c *fence.Config) { c.Mode = fence.FenceOnly })
	w.applied(submit(asking, far, "op-2"))(1)
	if got := w.record(doc).Step; got != 8 {
		w.Fatalf("the record has the step %d, want 8", got)
	}
}

// burntFence: a leaked key has used the largest number of the epoch (T19, T20).
func burntFence(w *world) {
	const doc = "doc/a"
	a := w.tenure(doc)
	w.applied(w.apply(a, 1, "op-1", "1"))(1)
	top, err := lastword.MakeToken(0, lastword.MaxCounter)
	w.must(err)
	forged, err := w.authority.issue(doc, "thief", top, nil)
	w.must(err)
	silent := w.newGate(func(c *fence.Config) { fenceOnly(c) })
	asking := w.newGate(func(c *fence.Config) { c.Mode = fence.FenceOnly })
	b := w.tenure(doc)
	w.applied(w.submit(w.subject, w.gate, call(b, 1, "op-2", "2"), Write{Resource: doc, Value: "2"}))(1)
	w.unchanged("a jump that the authority does not confirm", func() {
		for _, g := range []*fence.Gate{silent, asking, w.gate} {
			if _, err := w.submit(w.subject, g, call(forged, 1, "op-3", "3"), Write{Resource: doc, Value: "3"}); err == nil {
				w.Fatalf("a forged jump to the end of the epoch was admitted")
			}
		}
	})
	w.newEpoch()
	c := w.tenure(doc)
	w.applied(w.apply(c, 1, "op-4", "4"))(1)
}

func importedStored(w *world) {
	const doc, ours = "doc/a", "doc/ours"
	g := w.newGate(func(c *fence.Config) { fenceOnly(c); c.Verifier, c.Imported = nil, true })
	write := func(s Subject, r lastword.Resource, token lastword.Token, seq uint64, o string) (lastword.Receipt, error) {
		return w.submit(s, g, fence.Call{
			Resource: r, Content: []byte(o), Imported: &fence.Imported{Token: token, Tenure: "etcd-" + token.String(), Owner: "worker"},
			Mutation: lastword.Mutation{Operation: o, Seq: seq},
		}, Write{Resource: r, Value: o})
	}
	const high = lastword.Token(900_000_000_000) // far above every step
	first := w.applied(write(w.subject, doc, high, 1, "op-1"))(1)
	w.applied(write(w.second, doc, high+40_000_000, 1, "op-2"))(1)
	w.unchanged("an older imported token", func() {
		w.refused(write(w.second, doc, high, 2, "op-3"))(lastword.StaleOwner, high+40_000_000)
		w.replayed(write(w.second, doc, high, 1, "op-1"))(first)
	})
	below, err := w.authority.issue(doc, "worker", high+50_000_000, nil)
	w.must(err)
	silent := w.newGate(fenceOnly)
	w.must(w.authority.publish(func(i *grant.BundleInfo) { i.CurrentEpoch = high.Epoch() + 1 }))
	w.unchanged("a grant that is no epoch above the imported tokens", func() {
		w.refused(w.submit(w.subject, silent, call(below, 1, "op-4", "4"), Write{Resource: doc, Value: "4"}))(lastword.Unverified, high+40_000_000)
	})
	above := w.tenure(doc)
	w.applied(w.submit(w.subject, silent, call(above, 1, "op-5", "5"), Write{Resource: doc, Value: "5"}))(1)
	w.unchanged("an imported token where grants count", func() {
		w.refused(write(w.subject, doc, above.claims.Fence+5, 1, "op-6"))(lastword.Unverified, above.claims.Fence)
	})
	t := w.tenure(ours)
	w.applied(w.submit(w.subject, silent, call(t, 1, "op-1", "1"), Write{Resource: ours, Value: "1"}))(1)
	w.unchanged("an imported token at a record that began with grants", func() {
		w.refused(write(w.subject, ours, t.claims.Fence+1, 1, "op-2"))(lastword.Unverified, t.claims.Fence)
	})
	w.untouched("calls that bring the wrong thing", func() {
		for what, c := range map[string]fence.Call{
			"a grant":               call(above, 1, "op-7", "7"),
			"fence 0":               {Resource: doc, Content: []byte("7"), Imported: &fence.Imported{Tenure: "t", Owner: "o"}, Mutation: lastword.Mutation{Operation: "op-7"}},
			"fence 2^53":            {Resource: doc, Content: []byte("7"), Imported: &fence.Imported{Token: lastword.MaxToken + 1, Tenure: "t", Owner: "o"}, Mutation: lastword.Mutation{Operation: "op-7"}},
			"no name of the tenure": {Resource: doc, Content: []byte("7"), Imported: &fence.Imported{Token: high * 2, Owner: "o"}, Mutation: lastword.Mutation{Operation: "op-7"}},
			"no token":              {Resource: doc, Content: []byte("7"), Mutation: lastword.Mutation{Operation: "op-7"}},
		} {
			if _, err := w.submit(w.subject, g, c, Write{Resource: doc, Value: "7"}); err == nil || errors.Is(err, lastword.ErrUnknownOutcome) {
				w.Fatalf("%s: %v", what, err)
			}
		}
	})
	w.unchecked = true // op-5 has a lower counter in a later epoch, and payloads of two kinds of callers
}

// act is what an operator of the kit signs with.
func act(reason string) fence.Act {
	return fence.Act{Operator: "kit", Reason: reason, At: wallClock.UTC().Truncate(time.Microsecond)}
}

// nextOf asks the kit's authority.
func (w *world) nextOf(ctx context.Context, r lastword.Resource) (lastword.Token, error) {
	st, err := w.authority.Status(ctx, lastword.StatusQuery{Resource: r})
	return st.NextFence, err
}
