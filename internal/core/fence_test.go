package core_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// attemptOf is one random attempt at a place whose highest fence is highest: near it,
// mostly.
func attemptOf(c command, highest lastword.Token) core.Attempt {
	epoch := highest - lastword.Token(highest.Counter())
	fences := []lastword.Token{
		highest, highest, highest, highest, highest, highest, highest, highest + 1, highest + 1, highest + 1,
		highest - 1, highest + core.DefaultStep, highest + core.DefaultStep + 1, epoch + 1<<33 + 1,
		epoch + 1<<33 + core.DefaultStep, epoch + 1<<33 + core.DefaultStep + 1, 1, 0, lastword.MaxToken + 1,
	}
	policies := []core.Policy{core.Ordered, core.Ordered, core.Latest, core.Once, ""}
	modes := []core.StatusMode{core.FenceOnly, core.FenceOnly, core.FenceOnly, "", "", core.Proof, core.Query}
	states := []lastword.State{lastword.StateHeld, lastword.StateHeld, lastword.StateHeld, lastword.StatePending, lastword.StateExpired}
	heard := []core.StatusMode{core.Query, core.Query, core.Query, core.Query, core.Proof, core.FenceOnly, ""}
	a := core.Attempt{
		Fence:     fences[int(c.Who)%len(fences)],
		Seq:       uint64(c.Resource % 6),
		Operation: fmt.Sprintf("op%d", c.Request%24),
		Payload:   lastword.DigestOf([]byte{c.Request / 24 % 3}),
		Policy:    policies[int(c.Tenure)%len(policies)],
		Status:    modes[int(c.Tenure/8)%len(modes)],
		Heard: core.Heard{
			Mode: heard[int(c.Time)%len(heard)], State: states[int(c.Time/8)%len(states)], AfterLook: c.Time < 200,
		},
	}
	a.LeaseID, a.Root = fmt.Sprintf("L%d", a.Fence), lastword.DigestOf([]byte(a.Fence.String()))
	switch c.Watched / 4 {
	case 60:
		a.LeaseID = "other"
	case 61:
		a.Root = lastword.DigestOf([]byte("other"))
	case 62:
		a.LeaseID = ""
	}
	if c.Watched < 30 {
		a.Heard.NextFence = a.Fence + lastword.Token(c.Watched%3)
	}
	if c.Param >= 200 {
		a.BundleSequence, a.MinEpoch, a.PolicyGeneration, a.MinPolicyGeneration = uint64(c.Param%3), uint32(c.Param)/250, uint64(c.Param/6%3), uint64(c.Param/18%3)
	} else {
		a.BundleSequence, a.PolicyGeneration = 2, 2
	}
	a.GrantDigest = lastword.DigestOf([]byte(a.LeaseID))
	return a
}

// gate runs the rules and the naive place side by side.
type gate struct {
	t       failer
	place   *place
	naive   *naivePlace
	effects map[string]int
	seen    map[string]int
	trace   []string
}

func newGate(t failer) *gate {
	return &gate{t: t, place: newPlace(), naive: &naivePlace{pruned: map[string]bool{}}, effects: map[string]int{}, seen: map[string]int{}}
}

func (g *gate) fatalf(format string, args ...any) {
	g.t.Helper()
	text := fmt.Sprintf(format, args...)
	for _, line := range g.trace {
		text += "\n" + line
	}
	g.t.Fatalf("after %d steps: %s", len(g.trace), text)
}

func (g *gate) run(c command) {
	a := attemptOf(c, g.naive.highest())
	before := g.place.rec
	g.trace = append(g.trace, fmt.Sprintf("%d %s/%s seq %d %s policy %q mode %q bundle %d epoch %d gen %d min %d heard %+v", c.What%16, a.Fence.Text(), a.LeaseID,
		a.Seq, a.Operation, a.Policy, a.Status, a.BundleSequence, a.MinEpoch, a.PolicyGeneration, a.MinPolicyGeneration, a.Heard))
	switch c.What % 16 {
	case 13, 14:
		g.judge(a, core.Advance(before, a), false)
	case 15:
		g.evidence(c, before)
	default:
		g.judge(a, core.Admit(before, g.place.known(a.Operation), a), true)
	}
	after := g.place.rec
	if after.Fence < before.Fence { // P1
		g.fatalf("the fence went from %d to %d", before.Fence, after.Fence)
	}
	if after.BundleSequence < before.BundleSequence || after.MinEpoch < before.MinEpoch || after.MinPolicyGeneration < before.MinPolicyGeneration || before.Status.Stricter(after.Status) {
		g.fatalf("what only grows shrank: %+v, then %+v", before, after)
	}
	if g.naive.exists() && (after.Fence != g.naive.highest() || after.Frozen != g.naive.frozen()) {
		g.fatalf("the record is %+v, want fence %d, frozen %v", after, g.naive.highest(), g.naive.frozen())
	}
}

// evidence closes, freezes or prunes.
func (g *gate) evidence(c command, before core.FenceRecord) {
	switch c.Param % 4 {
	case 0:
		next := g.naive.highest() + lastword.Token(c.Request%8) - min(4, g.naive.highest())
		g.place.rec = core.Close(before, next)
		e := naiveEvent{kind: "close"}
		if next > 0 {
			e.fence = min(next-1, lastword.MaxToken)
		}
		g.naive.events = append(g.naive.events, e)
	case 1:
		if before.Exists {
			g.place.rec = core.Freeze(before)
			g.naive.events = append(g.naive.events, naiveEvent{kind: "freeze"})
		}
	default:
		for operation := range g.place.receipts {
			delete(g.place.receipts, operation)
			g.place.pruned[operation], g.naive.pruned[operation] = true, true
			break
		}
	}
}

func (g *gate) judge(a core.Attempt, d core.Decision, write bool) {
	want, seq := g.naive.decide(a, write)
	got := string(d.Verdict) + string(d.Again)
	g.seen[got]++
	if got != want {
		g.fatalf("%+v: got %q, want %q", a, got, want)
	}
	if d.Verdict != lastword.Applied {
		if d.Write || d.Seq != 0 {
			g.fatalf("%q writes: %+v", got, d)
		}
		if d.Quarantine != (d.Verdict == lastword.Conflict) {
			g.fatalf("%q: quarantine %v", got, d.Quarantine)
		}
		if d.ReplayOf != "" && g.place.known(d.ReplayOf) == (core.KnownOperation{}) {
			g.fatalf("replays %q, which was never applied", d.ReplayOf)
		}
		return
	}
	kind := "advance"
	if write {
		kind = "write"
		g.effects[a.Operation]++
		if g.effects[a.Operation] > 1 { // P4
			g.fatalf("a second effect of %s", a.Operation)
		}
		if !d.Write || d.Seq != seq || d.Record.LastSeq != seq {
			g.fatalf("number %d, want %d: %+v", d.Seq, seq, d)
		}
		g.place.receipts[a.Operation] = a.Payload
	}
	e := naiveEvent{kind: kind, fence: a.Fence, a: a, seq: seq, operation: a.Operation}
	if !write && d.Write {
		e.seq = 1
	}
	if !write && d.Write != (!g.naive.exists() || a.Fence > g.naive.highest()) {
		g.fatalf("a registration writes: %v", d.Write)
	}
	g.naive.events = append(g.naive.events, e)
	if d.Write {
		g.place.rec = d.Record
	}
	if r := g.place.rec; r.LeaseID != a.LeaseID || r.Root != a.Root || r.GrantDigest != a.GrantDigest || r.Policy != g.naive.policy(a) {
		g.fatalf("the record is %+v after %+v", r, a)
	}
}

// P1, P4, R16a, R20: the rules of the place and a second telling of them agree.
func TestThePlaceAgreesWithItsNaiveTelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGate(t)
		for _, c := range drawCommands(t) {
			g.run(c)
		}
	})
}

// The same in long runs, in which every outcome has to come up.
func TestThePlaceAgreesInLongRuns(t *testing.T) {
	seen := map[string]int{}
	randomCommands(t, 600, func(list []command) {
		g := newGate(t)
		for _, c := range list {
			g.run(c)
		}
		for k, n := range g.seen {
			seen[k] += n
		}
	})
	for _, want := range []string{
		"APPLIED", "REPLAYED", "CONFLICT", "STALE_OWNER", "RECEIPT_EXPIRED", "OUT_OF_ORDER", "ROOT_MISMATCH",
		"FENCE_REGRESSION", "FENCE_JUMP", "UNVERIFIED", "ask", "verify",
	} {
		if seen[want] < 50 {
			t.Errorf("only %d times %s: %v", seen[want], want, seen)
		}
	}
}

func FuzzAdmit(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 99, 0, 0, 1, 0, 1, 0, 0, 99, 0, 0, 0, 0, 2, 0, 0, 99, 0, 0, 1, 2, 3, 0, 0, 99, 0})
	f.Add([]byte{0, 4, 0, 0, 2, 0, 99, 0, 0, 4, 3, 1, 2, 0, 99, 0, 0, 4, 2, 2, 2, 0, 99, 0, 15, 0, 0, 7, 0, 0, 0, 0, 0, 5, 0, 3, 2, 0, 99, 0})
	f.Add([]byte{13, 0, 0, 0, 3, 0, 99, 0, 0, 0, 0, 0, 3, 0, 99, 0, 0, 0, 0, 1, 3, 0, 99, 0, 15, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 3, 2, 0, 99, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		g := newGate(t)
		for _, c := range commands(raw) {
			g.run(c)
		}
	})
}
