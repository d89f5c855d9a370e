package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// unsettled keeps the operations whose outcome is unknown, until something tells what
// became of them (R22, R24).
type unsettled struct {
	n atomic.Int64 // so that nobody locks while there are none

	mu      sync.Mutex
	records map[recordKey]map[string]*open // by operation; "" is a registration
}

type recordKey struct {
	place, domain string
	resource      lastword.Resource
}

// open is one unknown outcome.
type open struct {
	since  time.Time
	fence  lastword.Token
	passed bool // a newer fence is durable at the record: from now on absence is proof
}

// maxUnsettled bounds what is kept; with more of them the oldest are.
const maxUnsettled = 10_000

func newUnsettled() *unsettled { return &unsettled{records: map[recordKey]map[string]*open{}} }

func (u *unsettled) count() float64 { return float64(u.n.Load()) }

func (u *unsettled) oldest() float64 {
	if u.n.Load() == 0 {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	at := now()
	first := at
	for _, operations := range u.records {
		for _, o := range operations {
			if o.since.Before(first) {
				first = o.since
			}
		}
	}
	return at.Sub(first).Seconds()
}

// learn takes what an answer says of unknown outcomes at its record.
func (u *unsettled) learn(a fence.Answer) {
	if a.Verdict != lastword.MutationUnknown && u.n.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	key := recordKey{a.Place, a.Domain, a.Resource}
	if a.Verdict == lastword.MutationUnknown {
		u.add(key, a)
		return
	}
	operations := u.records[key]
	for operation, o := range operations {
		if settles(a, operation, o) {
			delete(operations, operation)
			u.n.Add(-1)
		}
	}
	if operations != nil && len(operations) == 0 {
		delete(u.records, key)
	}
}

func (u *unsettled) add(key recordKey, a fence.Answer) {
	operations := u.records[key]
	if o := operations[a.Operation]; o != nil {
		o.fence, o.passed = max(o.fence, a.Fence), false // one more attempt is under way
		return
	}
	if u.n.Load() >= maxUnsettled {
		return
	}
	if operations == nil {
		operations = map[string]*open{}
		u.records[key] = operations
	}
	operations[a.Operation] = &open{since: now(), fence: a.Fence}
	u.n.Add(1)
}

// settles reports whether a tells what became of o (R22). What Within admitted is the
// caller's to commit and tells nothing yet.
func settles(a fence.Answer, operation string, o *open) bool {
	durable := a.Verdict == lastword.Applied && a.Op != fence.OpWithin
	if durable && a.Fence > o.fence {
		o.passed = true
	}
	if operation == "" {
		// A registration: one at or above it is durable, or it was itself refused.
		return durable && a.Fence >= o.fence || a.Op == fence.OpAdvance && a.Verdict.Final() && a.Fence == o.fence
	}
	if a.Operation != operation {
		return false
	}
	switch a.Verdict {
	case lastword.Applied:
		return durable
	case lastword.Replayed:
		return true
	case lastword.ReceiptExpired: // in front of a person now
		return true
	case lastword.Conflict, lastword.StaleOwner, lastword.RootMismatch:
		return a.Fence >= o.fence // an older tenure's refusal says nothing about a newer one's attempt
	case lastword.OutOfOrder, lastword.FenceRegression, lastword.FenceJump, lastword.Unverified,
		lastword.StatusUnavailable, lastword.FenceRequired, lastword.MutationUnknown:
		return false
	}
	return a.Op == fence.OpLookup && a.Code == "" && o.passed
}
