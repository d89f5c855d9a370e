package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/grant"
)

func TestAGateIsValidatedOnce(t *testing.T) {
	w := newWorld(t)
	for what, change := range map[string]func(*fence.Config){
		"no domain":            func(c *fence.Config) { c.Domain = "" },
		"no verifier":          func(c *fence.Config) { c.Verifier = nil },
		"query with no source": func(c *fence.Config) { c.Mode = "" },
		"a negative skew":      func(c *fence.Config) { c.ProofSkew = -1 },
		"a step above 2^53":    func(c *fence.Config) { c.Step = 1 << 53 },
		"proofs of imported":   func(c *fence.Config) { c.Mode, c.Imported = fence.Proof, true },
		"an unknown mode":      func(c *fence.Config) { c.Mode = "maybe" },
		"an unknown policy":    func(c *fence.Config) { c.Policy = "first" },
		"a scope with a hole":  func(c *fence.Config) { c.Scope = "a//b/" },
		"a scope of slashes":   func(c *fence.Config) { c.Scope = "//" },
		"a caller with a NUL":  func(c *fence.Config) { c.Caller = "a\x00" },
		"a negative time-out":  func(c *fence.Config) { c.AskTimeout = -1 },
	} {
		cfg := w.config()
		change(&cfg)
		if g, err := fence.NewGate(cfg); !errors.Is(err, lastword.ErrInvalid) || g != nil {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// R26: no new effect starts unless the holder is HELD or RENEWING, and what it is
// told is never an unknown outcome.
func TestAHolderThatDoesNotHoldStartsNothing(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	w.mustApply(h, "op-1", 1)
	before := w.place.Snapshot()
	for state, want := range map[lastword.HolderState]lastword.Code{
		lastword.HolderRequested: lastword.CodeUnavailable,
		lastword.HolderUnknown:   lastword.CodeUnavailable,
		lastword.HolderExpired:   lastword.CodeNotHolder,
		lastword.HolderReleased:  lastword.CodeNotHolder,
	} {
		h.set(state)
		_, err := w.apply(h, "op-2")
		wantCode(t, err, want)
	}
	h.set(lastword.HolderRequested)
	if _, err := fence.Advance(t.Context(), w.gate, w.place, callOf(h, "")); err != nil {
		t.Errorf("a holder that is not held yet could not register: %v", err)
	}
	h.set(lastword.HolderExpired)
	_, err := fence.Advance(t.Context(), w.gate, w.place, callOf(h, ""))
	wantCode(t, err, lastword.CodeNotHolder)
	if w.place.Snapshot() != before || h.sequence(t) != (lastword.Sequence{Last: 1}) {
		t.Fatalf("something was started: %+v", h.sequence(t))
	}
	h.set(lastword.HolderRenewing)
	w.mustApply(h, "op-2", 2)
}

// R26: the tenure may end while the write waits for the record.
func TestATenureThatEndsWhileItWaitsRunsNoEffect(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	tx, err := w.place.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := fence.Apply(t.Context(), w.gate, endsBefore{w.place, h}, callOf(h, "op-1"), set("late"))
		done <- err
	}()
	tx.Rollback()
	wantCode(t, <-done, lastword.CodeNotHolder)
	if _, found := w.place.Get("doc"); found || w.record().Exists || h.sequence(t) != (lastword.Sequence{}) {
		t.Fatal("the effect ran")
	}
}

// R12: an answer that comes after its time is none, an error of the source is
// definite, and both leave the place alone.
func TestWithoutAnAnswerThereIsNoTransaction(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	before := w.place.Snapshot()
	for what, source := range map[string]statusFunc{
		"an answer after its time": func(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
			<-ctx.Done()
			return held(h, 2)(ctx, q)
		},
		"an open outcome": func(context.Context, lastword.StatusQuery) (lastword.Status, error) {
			return lastword.Status{}, &lastword.Error{Code: lastword.CodeUnknown, Op: "status", Message: "no answer"}
		},
		"another resource": func(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
			q.Resource += "x"
			return held(h, 2)(ctx, q)
		},
	} {
		g := w.newGate(func(c *fence.Config) {
			c.Mode, c.Status, c.AskTimeout = fence.Query, source, 5*time.Millisecond
		})
		_, err := fence.Apply(t.Context(), g, w.place, callOf(h, "op-1"), set(what))
		wantCode(t, err, lastword.CodeStatusUnavailable)
		if w.place.Snapshot() != before {
			t.Fatalf("%s: the place was touched", what)
		}
	}
	// The number is kept for the operation (protocol §1, seq).
	if got := h.sequence(t); got != (lastword.Sequence{Open: "op-1"}) {
		t.Fatalf("the numbering is %+v", got)
	}
	g := w.newGate(func(c *fence.Config) { c.Mode, c.Status = fence.Query, held(h, 2) })
	if r, err := fence.Apply(t.Context(), g, w.place, callOf(h, "op-1"), set("x")); err != nil || r.Seq != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
}

// R16b, FENCE_REGRESSION: after STALE_OWNER the authority is asked once more, after
// the record was read.
func TestRegressionIsAskedAfterTheLook(t *testing.T) {
	w := newWorld(t)
	a, b := w.acquire(), w.acquire()
	w.mustApply(b, "b-1", 1)
	asked := 0
	second := func(next lastword.Token, err error) *fence.Gate {
		asked = 0
		return w.newGate(func(c *fence.Config) {
			c.Mode, c.StatusReuse = fence.Query, -1
			c.Status = statusFunc(func(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
				if asked++; asked == 1 {
					return held(a, 2)(ctx, q) // before the look: proves nothing
				}
				st, _ := held(a, next)(ctx, q)
				return st, err
			})
		})
	}
	for _, c := range []struct {
		what   string
		next   lastword.Token
		err    error
		want   lastword.Code
		frozen bool
	}{
		{"no answer", 1, errors.New("down"), lastword.CodeStaleOwner, false},
		{"no next fence told", 0, nil, lastword.CodeStaleOwner, false},
		{"above", 3, nil, lastword.CodeStaleOwner, false},
		{"equal", 2, nil, lastword.CodeFenceRegression, true},
	} {
		_, err := fence.Apply(t.Context(), second(c.next, c.err), w.place, callOf(a, "a-1"), set("x"))
		if e := wantCode(t, err, c.want); e.Fence != 2 || e.Hint == "" {
			t.Errorf("%s: the refusal is %+v", c.what, e)
		}
		if asked != 2 || w.record().Frozen != c.frozen {
			t.Errorf("%s: asked %d times, frozen %v", c.what, asked, w.record().Frozen)
		}
	}
}

// AgainVerify: a gate whose bundle catches up is let in; one whose does not is not.
func TestARecordThatSawANewerBundleIsVerifiedAgain(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	old := w.bundle
	w.bundle = w.bundleAt(2)
	w.gate = w.newGate(nil)
	w.mustApply(h, "op-1", 1)

	source := &growing{bundles: []grant.Bundle{old, w.bundle}}
	v, err := grant.NewVerifier(domain, source, grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	g := w.newGate(func(c *fence.Config) { c.Verifier = v })
	if r, err := fence.Apply(t.Context(), g, w.place, callOf(h, "op-2"), set("2")); err != nil || r.Seq != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	v, err = grant.NewVerifier(domain, grant.StaticBundle(old), grant.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	g = w.newGate(func(c *fence.Config) { c.Verifier = v })
	before, rounds := w.place.Snapshot(), 0
	_, err = fence.Apply(t.Context(), g, counting{w.place, &rounds}, callOf(h, "op-3"), set("3"))
	wantCode(t, err, lastword.CodeUnverified)
	if grant.ReasonOf(err) != grant.ReasonBundleRollback {
		t.Fatalf("%v does not say that the bundle is older than the record's", err)
	}
	if w.place.Snapshot() != before {
		t.Fatal("a failed verification wrote something")
	}
	if rounds != 0 {
		t.Fatalf("%d transactions; the place has said that the bundle is old", rounds)
	}
}

// R12: the record's minimum counts at a gate that has none, and the reason says so.
func TestTheRecordsMinimumGenerationIsTheVerifiers(t *testing.T) {
	w := newWorld(t)
	w.next++
	a, b := w.acquire(), w.acquire()
	for h, generation := range map[*holder]uint64{a: 7, b: 6} {
		h.claims.PolicyGeneration = generation
		var err error
		if h.grant, h.digest, err = w.signer.Sign("", h.claims); err != nil {
			t.Fatal(err)
		}
	}
	strict := w.newGate(func(c *fence.Config) { c.MinPolicyGeneration = 7 })
	if _, err := fence.Apply(t.Context(), strict, w.place, callOf(a, "op-1"), set("1")); err != nil {
		t.Fatal(err)
	}
	_, err := w.apply(b, "op-2")
	if wantCode(t, err, lastword.CodeUnverified); grant.ReasonOf(err) != grant.ReasonPolicyRevoked {
		t.Fatalf("the reason is %q", grant.ReasonOf(err))
	}
}

// A record that outruns every round ends in a refusal, not in a loop.
func TestRoundsAreBounded(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	asked := 0
	g := w.newGate(func(c *fence.Config) {
		c.Mode, c.Status = fence.Query, statusFunc(func(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
			asked++
			return held(h, 2)(ctx, q)
		})
	})
	_, err := fence.Apply(t.Context(), g, unsatisfied{w.place}, callOf(h, "op-1"), set("1"))
	wantCode(t, err, lastword.CodeStatusUnavailable)
	if asked < 3 || asked > 6 {
		t.Fatalf("asked %d times", asked)
	}
}

func TestAResourceLeftOutIsTheGrants(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	for scope, want := range map[string]lastword.Code{
		"": "", "doc/": "", "doc/a": "", "doc/a/": lastword.CodeUnverified, "do": lastword.CodeUnverified, "doc/b": lastword.CodeUnverified,
	} {
		g := w.newGate(func(c *fence.Config) { c.Scope = scope })
		c := callOf(h, "op-1")
		_, err := fence.Apply(t.Context(), g, w.place, c, set("1"))
		if want == "" {
			if err != nil {
				t.Errorf("scope %q: %v", scope, err)
			}
			continue
		}
		wantCode(t, err, want)
		if grant.ReasonOf(err) != grant.ReasonResource {
			t.Errorf("scope %q: the reason is %q", scope, grant.ReasonOf(err))
		}
	}
	c := callOf(h, "op-1")
	c.Resource = "doc/b"
	_, err := fence.Apply(t.Context(), w.gate, w.place, c, set("1"))
	wantCode(t, err, lastword.CodeUnverified)
	g := w.newGate(func(c *fence.Config) { c.Scope = "doc/" })
	for _, r := range []lastword.Resource{"other", "", "doc//x"} {
		if _, _, err := fence.Lookup(t.Context(), g, w.place, r, "op-1"); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("lookup at %q: %v", r, err)
		}
		if _, err := fence.Inspect(t.Context(), g, w.place, r); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("inspect of %q: %v", r, err)
		}
	}
}

// T17: what an error says never holds the grant.
func TestErrorsDoNotShowTheGrant(t *testing.T) {
	w := newWorld(t)
	h := w.acquire()
	for _, c := range []fence.Call{callOf(h, ""), {Mutation: lastword.Mutation{Grant: h.grant + "x", Operation: "op"}, Content: []byte("x")}} {
		_, err := fence.Apply(t.Context(), w.gate, w.place, c, set("1"))
		if err == nil || strings.Contains(err.Error(), h.grant[10:40]) {
			t.Errorf("got %v", err)
		}
	}
}

// growing gives one bundle after the other.
type growing struct{ bundles []grant.Bundle }

func (g *growing) Bundle(context.Context, bool) (grant.Bundle, error) {
	b := g.bundles[0]
	if len(g.bundles) > 1 {
		g.bundles = g.bundles[1:]
	}
	return b, nil
}
