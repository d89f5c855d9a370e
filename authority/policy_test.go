package authority_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
)

// allowing is a policy that a test changes.
type allowing struct {
	generation atomic.Uint64
	refuses    atomic.Pointer[string] // this owner
}

func (p *allowing) Admit(owner string, _ lastword.Resource, class lastword.Class) (uint64, bool) {
	who := p.refuses.Load()
	return p.generation.Load(), class == lastword.ClassWrite && (who == nil || *who != owner)
}

func (p *allowing) change(refuse string) {
	p.refuses.Store(&refuse)
	p.generation.Add(1)
}

// T25: who may not is refused when the step is decided, and T26: the grant has the
// generation under which it was allowed.
func TestTheGenerationOfThePolicyEntersTheGrant(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		p := &allowing{}
		p.generation.Store(7)
		a := w.open(authority.Config{Policy: p})
		first := mustAcquire(t, a, request("a", "1", time.Minute))
		seen, err := grant.Inspect(first.Grant)
		if err != nil || seen.Claims.PolicyGeneration != 7 || first.PolicyGeneration != 7 {
			t.Fatalf("the grant has generation %d, the tenure %d, %v; want 7", seen.Claims.PolicyGeneration, first.PolicyGeneration, err)
		}
		r := request("a", "prune", time.Minute)
		r.Class = "prune"
		_, err = a.Acquire(t.Context(), r)
		wantCode(t, err, lastword.ErrUnverified)

		// A repetition gets the bytes of then (R2).
		p.change("nobody")
		again := mustAcquire(t, a, request("a", "1", time.Minute))
		if again.Grant != first.Grant {
			t.Error("a repetition got another grant")
		}
		p.change("a")
		_, err = a.Acquire(t.Context(), request("a", "1", time.Minute))
		wantCode(t, err, lastword.ErrUnverified)
		_, err = a.Renew(t.Context(), first.TenureRef)
		wantCode(t, err, lastword.ErrUnverified)
		if err := a.Release(t.Context(), first.TenureRef); err != nil {
			t.Errorf("release: %v", err)
		}
		if next := mustAcquire(t, a, request("b", "1", time.Minute)); next.PolicyGeneration != 9 || next.Fence.Counter() != 2 {
			t.Errorf("generation %d and fence %s, want 9 and the second: no refusal took a number", next.PolicyGeneration, next.Fence.Text())
		}
	})
}

// T25: who waited through the change gets nothing, and does not hold up those behind.
func TestWhoWaitsThroughAChangeOfThePolicyIsAskedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		p := &allowing{}
		p.generation.Store(1)
		a := w.open(authority.Config{Policy: p})
		held := mustAcquire(t, a, request("a", "1", time.Hour))
		out := background(t.Context(), a, waiting("b", "1", time.Minute))
		time.Sleep(time.Second)
		behind := background(t.Context(), a, waiting("c", "1", time.Minute))
		time.Sleep(time.Second)
		p.change("b")
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		refused, granted := <-out, <-behind
		wantCode(t, refused.err, lastword.ErrUnverified)
		if granted.err != nil || granted.tenure.PolicyGeneration != 2 {
			t.Errorf("who waited behind: %v, generation %d; want a grant of 2", granted.err, granted.tenure.PolicyGeneration)
		}
	})
}
