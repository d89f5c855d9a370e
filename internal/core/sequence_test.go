package core_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// holder numbers the writes of one tenure at one place, over a network that loses
// replies and delivers attempts late.
type numbering struct {
	t       *rapid.T
	place   *place
	seq     lastword.Sequence
	lease   string
	fence   lastword.Token
	flying  []core.Attempt          // sent, no reply yet; may still arrive
	unknown map[uint64]string       // number -> the operation whose outcome is open
	applied map[uint64]string       // number -> operation, at the place
	numbers map[string]uint64       // operation -> number of its receipt
	tenures map[string]core.Attempt // operation -> the attempt that was applied
}

func (n *numbering) deliver(a core.Attempt) core.Decision {
	d := n.place.write(a)
	if d.Verdict == lastword.Applied {
		if a.Fence == n.fence {
			if other, ok := n.applied[d.Seq]; ok {
				n.t.Fatalf("number %d was used for %s and %s", d.Seq, other, a.Operation)
			}
			n.applied[d.Seq] = a.Operation
			n.numbers[a.Operation] = d.Seq
		}
		n.tenures[a.Operation] = a
	}
	return d
}

// own is the number in the operation's receipt, if it is of this tenure.
func (n *numbering) own(operation string) uint64 {
	if n.tenures[operation].LeaseID != n.lease {
		return 0
	}
	return n.numbers[operation]
}

// send is one try of an operation; lost says that the reply, early that the attempt
// itself does not arrive for now.
func (n *numbering) send(operation string, payload byte, lost, late bool) {
	before := n.seq
	next, seq, ok := core.TakeNumber(n.seq, operation)
	if !ok {
		if n.seq.Open == "" || n.seq.Open == operation {
			n.t.Fatalf("%s gets no number from %+v", operation, n.seq)
		}
		return
	}
	if other, open := n.unknown[seq]; open && other != operation {
		n.t.Fatalf("number %d of %s, whose outcome is unknown, is given to %s", seq, other, operation)
	}
	a := core.Attempt{
		Fence: n.fence, LeaseID: n.lease, Operation: operation, Payload: lastword.DigestOf([]byte{payload}), Seq: seq,
		Policy: core.Ordered, Status: core.FenceOnly, Heard: core.Heard{Mode: core.FenceOnly},
	}
	n.seq = next
	if late {
		n.flying = append(n.flying, a)
		n.unknown[seq] = operation
		return
	}
	d := n.deliver(a)
	if lost {
		n.unknown[seq] = operation
		return
	}
	after := core.SettleNumber(n.seq, seq, n.own(operation), d.Verdict)
	if after.Last < before.Last {
		n.t.Fatalf("%+v after %+v", after, before)
	}
	n.seq = after
	if after.Open == "" {
		delete(n.unknown, seq)
	}
}

// P4, protocol §1 (seq): no number for two applied operations, no number with an open
// outcome for another operation, and no dead end.
func TestNumbersAreNeverSharedWhateverGetsLost(t *testing.T) {
	applied, stuck := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n := &numbering{
			t: t, place: newPlace(), lease: "A", fence: 41, unknown: map[uint64]string{}, applied: map[uint64]string{},
			numbers: map[string]uint64{}, tenures: map[string]core.Attempt{},
		}
		// Something that an earlier tenure had done already.
		n.deliver(core.Attempt{Fence: 40, LeaseID: "O", Operation: "op0", Payload: lastword.DigestOf([]byte{0}), Policy: core.Ordered, Status: core.FenceOnly, Heard: core.Heard{Mode: core.FenceOnly}})
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0: // an attempt that was late arrives after all
				if len(n.flying) > 0 {
					i := rapid.IntRange(0, len(n.flying)-1).Draw(t, "flying")
					a := n.flying[i]
					n.flying = append(n.flying[:i], n.flying[i+1:]...)
					n.deliver(a)
				}
			case 1: // certainly not sent
				before := n.seq
				if _, _, ok := core.TakeNumber(n.seq, "op1"); ok {
					n.seq = core.DropNumber(before)
				}
			default:
				op := fmt.Sprintf("op%d", rapid.IntRange(0, 6).Draw(t, "op"))
				payload := byte(0)
				if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
					payload = 1
				}
				n.send(op, payload, rapid.IntRange(0, 3).Draw(t, "lost") == 0, rapid.IntRange(0, 4).Draw(t, "late") == 0)
			}
		}
		// The way out is always the operation that is open; then anything goes on.
		if n.seq.Open != "" {
			n.send(n.seq.Open, 0, false, false)
			stuck++
		}
		if n.seq.Open != "" {
			t.Fatalf("asking again settles nothing: %+v, record %+v", n.seq, n.place.rec)
		}
		n.send("fresh", 0, false, false)
		if n.numbers["fresh"] != n.seq.Last || n.seq.Last == 0 {
			t.Fatalf("a dead end: %+v, record %+v", n.seq, n.place.rec)
		}
		applied += len(n.applied)
	})
	if applied == 0 || stuck == 0 {
		t.Fatalf("%d applied, %d settled at the end", applied, stuck)
	}
}

// The rows of SettleNumber, one by one.
func TestWhatAVerdictDoesToANumber(t *testing.T) {
	open := lastword.Sequence{Last: 2, Open: "a"}
	for _, c := range []struct {
		verdict lastword.Verdict
		own     uint64
		want    lastword.Sequence
	}{
		{lastword.Applied, 0, lastword.Sequence{Last: 3}},
		{lastword.Replayed, 0, lastword.Sequence{Last: 2}},
		{lastword.Replayed, 3, lastword.Sequence{Last: 3}},
		{lastword.Replayed, 1, lastword.Sequence{Last: 2}},
		{lastword.Conflict, 0, lastword.Sequence{Last: 2}},
		{lastword.Conflict, 3, lastword.Sequence{Last: 3}}, // its first payload was applied
		{lastword.StaleOwner, 0, lastword.Sequence{Last: 2}},
		{lastword.RootMismatch, 0, lastword.Sequence{Last: 2}},
		{lastword.ReceiptExpired, 0, lastword.Sequence{Last: 2}},
		{lastword.OutOfOrder, 0, open},
		{lastword.FenceRegression, 0, open},
		{lastword.FenceJump, 0, open},
		{lastword.Unverified, 0, open},
		{lastword.StatusUnavailable, 0, open},
		{lastword.FenceRequired, 0, open},
		{lastword.MutationUnknown, 0, open},
		{"", 0, open},
	} {
		if got := core.SettleNumber(open, 3, c.own, c.verdict); got != c.want {
			t.Errorf("%s, own %d: %+v, want %+v", c.verdict, c.own, got, c.want)
		}
	}
}

func TestTheLastNumberIsNotFollowedByZero(t *testing.T) {
	if _, seq, ok := core.TakeNumber(lastword.Sequence{Last: math.MaxUint64}, "a"); ok {
		t.Fatalf("number %d", seq)
	}
	if _, seq, ok := core.TakeNumber(lastword.Sequence{Last: math.MaxUint64 - 1}, "a"); !ok || seq != math.MaxUint64 {
		t.Fatalf("number %d, %v", seq, ok)
	}
}
