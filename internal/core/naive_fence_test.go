package core_test

import (
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// naivePlace is the guarded place of protocol §4 told a second time: a list of all
// that was ever accepted there, and every question answered by looking through it.
type naivePlace struct {
	events []naiveEvent
	pruned map[string]bool
}

// naiveEvent is a write, a registration ("advance"), a "close" or a "freeze".
type naiveEvent struct {
	kind      string
	fence     lastword.Token
	a         core.Attempt
	seq       uint64
	operation string
}

func (n *naivePlace) exists() bool { return len(n.events) > 0 }

func (n *naivePlace) highest() lastword.Token {
	var highest lastword.Token
	for _, e := range n.events {
		highest = max(highest, e.fence)
	}
	return highest
}

// tenure is the attempt that brought the highest fence; ok is false if it was closed.
func (n *naivePlace) tenure() (core.Attempt, bool) {
	var first *core.Attempt
	for _, e := range n.events {
		switch {
		case e.kind == "close":
			first = nil
		case (e.kind == "write" || e.kind == "advance") && (first == nil || e.fence > first.Fence):
			first = &e.a
		}
	}
	if first == nil {
		return core.Attempt{}, false
	}
	return *first, true
}

// writes of the present tenure, in order.
func (n *naivePlace) writes() []naiveEvent {
	var list []naiveEvent
	for _, e := range n.events {
		switch {
		case e.kind == "close":
			list = nil
		case e.kind == "write" && e.fence == n.highest():
			list = append(list, e)
		}
	}
	return list
}

func (n *naivePlace) frozen() bool {
	frozen := false
	for i, e := range n.events {
		switch e.kind {
		case "freeze":
			frozen = true
		case "close":
			frozen = false
		default:
			before := naivePlace{events: n.events[:i]}
			frozen = frozen && e.fence <= before.highest()
		}
	}
	return frozen
}

func (n *naivePlace) policy(a core.Attempt) core.Policy {
	policy := core.Ordered
	var highest lastword.Token
	for i, e := range append(append([]naiveEvent{}, n.events...), naiveEvent{kind: "write", fence: a.Fence, a: a}) {
		if (e.kind == "write" || e.kind == "advance") && (i == 0 || e.fence > highest) && e.a.Policy != "" {
			policy = e.a.Policy
		}
		highest = max(highest, e.fence)
	}
	return policy
}

func (n *naivePlace) operation(id string) (naiveEvent, bool) {
	for _, e := range n.events {
		if e.kind == "write" && e.operation == id && !n.pruned[id] {
			return e, true
		}
	}
	return naiveEvent{}, false
}

// strictness is 0 to 2; the strictest mode that any accepted attempt asked for, query
// if the first one asked for none.
func (n *naivePlace) strictness(a core.Attempt) int {
	strictest := -1
	for _, e := range n.events {
		if e.kind == "write" || e.kind == "advance" && (e.seq == 1) { // an equal registration stores nothing
			strictest = max(strictest, level(e.a.Status))
			if strictest < 0 {
				strictest = 2
			}
		}
	}
	strictest = max(strictest, level(a.Status))
	if strictest < 0 {
		strictest = 2
	}
	return strictest
}

func level(m core.StatusMode) int {
	return slices.Index([]core.StatusMode{core.FenceOnly, core.Proof, core.Query}, m)
}

// seen is the newest bundle, minimum epoch and minimum generation of all that stored.
func (n *naivePlace) seen() (bundle uint64, epoch uint32, generation uint64) {
	for _, e := range n.events {
		if e.kind == "write" || e.kind == "advance" && e.seq == 1 {
			bundle, epoch = max(bundle, e.a.BundleSequence), max(epoch, e.a.MinEpoch)
			generation = max(generation, e.a.MinPolicyGeneration)
		}
	}
	return bundle, epoch, generation
}

// decide is the verdict, or "ask" or "verify". A write that is APPLIED has a number.
func (n *naivePlace) decide(a core.Attempt, write bool) (outcome string, seq uint64) {
	if a.Fence < 1 || a.Fence > lastword.MaxToken || a.LeaseID == "" {
		return "UNVERIFIED", 0
	}
	bundle, epoch, generation := n.seen()
	if a.BundleSequence < bundle || a.Fence.Epoch() < epoch || a.PolicyGeneration < generation {
		return "verify", 0
	}
	if level(a.Heard.Mode) < n.strictness(a) {
		return "ask", 0
	}
	if write {
		if first, ok := n.operation(a.Operation); ok && first.a.Payload == a.Payload {
			return "REPLAYED", 0
		} else if ok {
			return "CONFLICT", 0
		}
	}
	tenure, open := n.tenure()
	equal := n.exists() && a.Fence == n.highest()
	held := a.Heard.Mode == core.FenceOnly || a.Heard.State == lastword.StateHeld || a.Heard.State == lastword.StatePending && !write
	switch {
	case n.exists() && a.Fence < n.highest(), equal && !open:
		return "STALE_OWNER", 0
	case !held:
		return "UNVERIFIED", 0
	case write && n.pruned[a.Operation]:
		return "RECEIPT_EXPIRED", 0
	case n.frozen() && a.Fence.Epoch() <= n.highest().Epoch():
		return "FENCE_REGRESSION", 0
	case equal && a.LeaseID != tenure.LeaseID:
		return "FENCE_REGRESSION", 0
	case equal && a.Root != tenure.Root:
		return "ROOT_MISMATCH", 0
	case !n.exists() && n.strictness(a) == 2 && !a.Heard.AfterLook:
		return "ask", 0
	case n.far(a.Fence) && a.Heard.NextFence <= a.Fence:
		return "FENCE_JUMP", 0
	case !write:
		return "APPLIED", 0
	}
	return n.order(a, equal)
}

// far: more than the step from the highest fence of this epoch, or from its beginning.
func (n *naivePlace) far(fence lastword.Token) bool {
	from := uint64(0)
	if n.exists() && n.highest().Epoch() == fence.Epoch() {
		from = n.highest().Counter()
	}
	return fence.Counter() > from+core.DefaultStep
}

func (n *naivePlace) order(a core.Attempt, equal bool) (string, uint64) {
	writes := n.writes()
	if !equal {
		writes = nil
	}
	last := uint64(0)
	for _, e := range writes {
		last = max(last, e.seq)
	}
	seq := a.Seq
	if seq == 0 {
		seq = last + 1
	}
	switch n.policy(a) {
	case core.Once:
		if len(writes) == 0 {
			return "APPLIED", seq
		}
		if writes[0].a.Payload == a.Payload {
			return "REPLAYED", 0
		}
		return "CONFLICT", 0
	case core.Latest:
		if len(writes) == 0 || seq > last {
			return "APPLIED", seq
		}
		if seq == last {
			return "CONFLICT", 0
		}
		return "OUT_OF_ORDER", 0
	case core.Ordered:
		for _, e := range writes {
			if e.seq == seq {
				return "CONFLICT", 0
			}
		}
		if seq == last+1 {
			return "APPLIED", seq
		}
	}
	return "OUT_OF_ORDER", 0
}
