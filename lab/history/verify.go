package history

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// Fact is one call at an authority, as its caller saw it. Sent and Heard are
// readings of one clock that never goes back and that all processes of the machine
// share: just before the call and just after it.
type Fact struct {
	Op        string            `json:"op"` // acquire, renew, release, complete, cancel, revoke
	Resource  lastword.Resource `json:"resource"`
	Owner     string            `json:"owner"`
	RequestID string            `json:"request_id"`
	LeaseID   string            `json:"lease_id,omitempty"`
	Fence     lastword.Token    `json:"fence,omitempty"`
	TTL       time.Duration     `json:"ttl,omitempty"`
	Remaining time.Duration     `json:"remaining,omitempty"`
	Repeated  bool              `json:"repeated,omitempty"`
	Result    []byte            `json:"result,omitempty"`
	Code      lastword.Code     `json:"code,omitempty"` // "": accepted
	Sent      time.Duration     `json:"sent"`
	Heard     time.Duration     `json:"heard"`
}

// Accepted reports whether the call did what it was to do.
func (f Fact) Accepted() bool { return f.Code == "" }

// Held reports whether f says that a tenure was valid between Sent and Heard.
func (f Fact) Held() bool { return f.Accepted() && (f.Op == "acquire" || f.Op == "renew") }

func (f Fact) String() string {
	return fmt.Sprintf("%s of %s by %s/%s: fence %d lease %s code %q, sent %v heard %v",
		f.Op, f.Resource, f.Owner, f.RequestID, f.Fence, f.LeaseID, f.Code, f.Sent, f.Heard)
}

// attempted names one acquire attempt.
type attempted struct {
	resource         lastword.Resource
	owner, requestID string
}

func (f Fact) attempt() attempted { return attempted{f.Resource, f.Owner, f.RequestID} }

// Verify looks for what must not be in a history, whoever wrote it down and whatever
// was killed meanwhile: a fence with two tenures (P2), a request id with two (R2), a
// fence that goes down in real time, and a tenure that begins inside another one's
// acknowledged time (R4, R8). It says nothing about calls that had no answer.
func Verify(history []Fact) (wrong []string) {
	byResource := map[lastword.Resource][]Fact{}
	for _, f := range history {
		byResource[f.Resource] = append(byResource[f.Resource], f)
	}
	for _, facts := range byResource {
		wrong = append(wrong, verifyNames(facts)...)
		wrong = append(wrong, verifyOrder(facts)...)
		wrong = append(wrong, verifyExclusion(facts)...)
	}
	slices.Sort(wrong)
	return wrong
}

func verifyNames(facts []Fact) (wrong []string) {
	fences := map[lastword.Token]Fact{}
	leases := map[string]Fact{}
	attempts := map[attempted]Fact{}
	for _, f := range facts {
		if !f.Held() {
			continue
		}
		for _, before := range []Fact{known(fences, f.Fence, f), known(leases, f.LeaseID, f), known(attempts, f.attempt(), f)} {
			if before.Fence != f.Fence || before.LeaseID != f.LeaseID || before.attempt() != f.attempt() {
				wrong = append(wrong, fmt.Sprintf("one name, two tenures: %v; and %v", before, f))
			}
		}
	}
	return wrong
}

// known is the first Fact that was kept under key, which is f if there was none.
func known[K comparable](first map[K]Fact, key K, f Fact) Fact {
	if before, ok := first[key]; ok {
		return before
	}
	first[key] = f
	return f
}

// verifyOrder: whoever was heard before another call was sent has no larger fence
// than what that call found valid.
func verifyOrder(facts []Fact) (wrong []string) {
	bySent := slices.DeleteFunc(slices.Clone(facts), func(f Fact) bool { return !f.Held() })
	byHeard := slices.Clone(bySent)
	slices.SortFunc(bySent, func(a, b Fact) int { return cmp.Compare(a.Sent, b.Sent) })
	slices.SortFunc(byHeard, func(a, b Fact) int { return cmp.Compare(a.Heard, b.Heard) })
	var highest Fact
	next := 0
	for _, f := range bySent {
		for ; next < len(byHeard) && byHeard[next].Heard < f.Sent; next++ {
			if byHeard[next].Fence > highest.Fence {
				highest = byHeard[next]
			}
		}
		if f.Fence < highest.Fence {
			wrong = append(wrong, fmt.Sprintf("a fence went down: %v; and then %v", highest, f))
		}
	}
	return wrong
}

// span is what the history says about one tenure.
type span struct {
	first, last Fact          // of the ones that say it was valid: heard first, lasting longest
	until       time.Duration // valid until then for certain, if nobody ended it
	ended       time.Duration // when somebody first tried to end it
}

// verifyExclusion: the authority had processed each acknowledged call not before it
// was sent, so the tenure lasts at least until then + what remained; and it had
// granted the next tenure not after that was heard.
func verifyExclusion(facts []Fact) (wrong []string) {
	spans := map[string]*span{}
	for _, f := range facts {
		if !f.Held() {
			continue
		}
		s := spans[f.LeaseID]
		if s == nil {
			s = &span{first: f, last: f, ended: math.MaxInt64}
			spans[f.LeaseID] = s
		}
		if f.Heard < s.first.Heard {
			s.first = f
		}
		if until := f.Sent + f.Remaining; until > s.until {
			s.until, s.last = until, f
		}
	}
	for _, f := range facts {
		if f.Op != "release" && f.Op != "cancel" && f.Op != "revoke" {
			continue
		}
		for _, s := range spans {
			if s.first.attempt() == f.attempt() {
				s.ended = min(s.ended, f.Sent)
			}
		}
	}
	ordered := make([]*span, 0, len(spans))
	for _, s := range spans {
		ordered = append(ordered, s)
	}
	slices.SortFunc(ordered, func(a, b *span) int { return cmp.Compare(b.first.Fence, a.first.Fence) })
	var next *span // of the larger fences, the one heard first
	for _, s := range ordered {
		if next != nil && next.first.Heard < min(s.until, s.ended) {
			wrong = append(wrong, fmt.Sprintf("granted inside another tenure's time: %v; and %v", s.last, next.first))
		}
		if next == nil || s.first.Heard < next.first.Heard {
			next = s
		}
	}
	return wrong
}

// VerifyStore looks for acknowledged answers that the store has lost, but for releases,
// and for two request records with one fence, the ones that nobody heard of among them.
func VerifyStore(ctx context.Context, history []Fact, s store.Store) (wrong []string, err error) {
	highest := map[lastword.Resource]lastword.Token{}
	for _, f := range history {
		if !f.Accepted() {
			continue
		}
		highest[f.Resource] = max(highest[f.Resource], f.Fence)
		v, err := s.Read(ctx, store.Query{Resource: f.Resource, Owner: f.Owner, RequestID: f.RequestID})
		if err != nil {
			return nil, err
		}
		if why := lost(f, v.Entries[0].Request); why != "" {
			wrong = append(wrong, why+": "+f.String())
		}
	}
	for r, fence := range highest {
		v, err := s.Read(ctx, store.Query{Resource: r})
		if err != nil {
			return nil, err
		}
		if next := v.Entries[0].Record.NextFence(v.Header); next <= fence {
			wrong = append(wrong, fmt.Sprintf("the next fence of %s would be %d after %d", r, next, fence))
		}
	}
	twice, err := storedTwice(ctx, s)
	return append(wrong, twice...), err
}

func lost(f Fact, r *store.Request) string {
	switch {
	case r == nil:
		return "the store does not know the request id"
	case f.Held() && (r.Fence != f.Fence || r.LeaseID != f.LeaseID):
		return fmt.Sprintf("the store has fence %d and lease %s", r.Fence, r.LeaseID)
	case f.Op == "complete" && (!r.Completed || !bytes.Equal(r.Result, f.Result)):
		return "the store has not its result"
	case f.Op == "release" && !maybeReleased(r.State):
		return "the store says " + string(r.State)
	case f.Op == "cancel" && (r.State == lastword.StateHeld || r.State == lastword.StatePending):
		return "the store says " + string(r.State)
	}
	return ""
}

// maybeReleased: a release may be answered ahead of the disk, and a crash then undoes it:
// the tenure goes on until it lapses, or until somebody else ends it (R6).
func maybeReleased(s lastword.State) bool {
	switch s {
	case lastword.StateReleased, lastword.StateHeld, lastword.StateExpired, lastword.StateRevoked, lastword.StateCanceled:
		return true
	case lastword.StateFree, lastword.StatePending:
	}
	return false
}

func storedTwice(ctx context.Context, s store.Store) (wrong []string, err error) {
	type key struct {
		resource lastword.Resource
		fence    lastword.Token
	}
	seen := map[key]string{}
	note := func(r lastword.Resource, fence lastword.Token, lease string) {
		if lease == "" {
			return // cancelled before it was granted
		}
		k := key{r, fence}
		if other, ok := seen[k]; ok && other != lease {
			wrong = append(wrong, fmt.Sprintf("the store has fence %d of %s twice: leases %s and %s", fence, r, other, lease))
		}
		seen[k] = lease
	}
	const all = 1 << 20
	ended, err := s.Ended(ctx, core.Tick(math.MaxInt64), all)
	if err != nil {
		return nil, err
	}
	records, err := s.List(ctx, "", "", all)
	if err != nil {
		return nil, err
	}
	if len(ended) == all || len(records) == all {
		return nil, errors.New("the store is too large to be looked through")
	}
	for _, e := range ended {
		note(e.Resource, e.Request.Fence, e.Request.LeaseID)
	}
	for _, r := range records {
		note(r.Resource, r.Lease.Fence, r.Lease.ID)
	}
	return wrong, nil
}
