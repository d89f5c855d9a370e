package core_test

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// naiveAuthority is the authority of protocol §2 told a second time, without a thought
// of speed: it remembers everything that ever happened and looks through all of it.
type naiveAuthority struct {
	now       core.Tick
	epoch     uint32
	floor     uint32
	hold      core.Tick
	resources map[lastword.Resource]*naiveResource
}

type naiveResource struct {
	issued  uint64 // counter before the first tenure, of epoch 0
	tenures []*naiveTenure
	cancels []naiveCancel
}

type naiveCancel struct{ owner, request string }

type naiveTenure struct {
	owner, request, lease string
	fence                 lastword.Token
	params                string
	ttl                   core.Span
	ticks, deadline       core.Tick
	end                   lastword.State // "" while nobody ended it
	endTick               core.Tick
	completed             bool
	result                []byte
}

type naiveAnswer struct {
	code              lastword.Code
	fence             lastword.Token // of the lease that is told
	deadline          core.Tick
	repeated, blocked bool
	previous, ended   lastword.Ending
	tellsLease        bool
}

func (n *naiveAuthority) of(r lastword.Resource) *naiveResource {
	if n.resources[r] == nil {
		n.resources[r] = &naiveResource{}
	}
	return n.resources[r]
}

func (n *naiveAuthority) valid(t *naiveTenure, watched core.Span) bool {
	return t != nil && t.end == "" && n.now < t.deadline && watched < t.ttl && t.fence.Epoch() >= n.floor
}

func (r *naiveResource) last() *naiveTenure {
	if len(r.tenures) == 0 {
		return nil
	}
	return r.tenures[len(r.tenures)-1]
}

// before is the tenure before t.
func (r *naiveResource) before(t *naiveTenure) *naiveTenure {
	if i := slices.Index(r.tenures, t); i > 0 {
		return r.tenures[i-1]
	}
	return nil
}

func (t *naiveTenure) ending() lastword.Ending {
	if t == nil {
		return lastword.Ending{}
	}
	end := t.end
	if end == "" {
		end = lastword.StateExpired
	}
	return lastword.Ending{State: end, Fence: t.fence, LeaseID: t.lease, Owner: t.owner, Completed: t.completed, Result: t.result}
}

func (n *naiveAuthority) finish(t *naiveTenure, how lastword.State) {
	t.end, t.endTick = how, n.now
	if how == lastword.StateExpired {
		t.endTick = min(n.now, t.deadline)
	}
}

func (n *naiveAuthority) acquire(name lastword.Resource, in core.AcquireInput, watched core.Span) naiveAnswer {
	r := n.of(name)
	for _, c := range r.cancels {
		if c.owner == in.Owner && c.request == in.RequestID {
			return naiveAnswer{code: lastword.CodeCanceled}
		}
	}
	for i, t := range r.tenures {
		if t.owner != in.Owner || t.request != in.RequestID {
			continue
		}
		if t.params != naiveParams(in) {
			return naiveAnswer{code: lastword.CodeRequestConflict}
		}
		if i == len(r.tenures)-1 && n.valid(t, watched) {
			return naiveAnswer{fence: t.fence, deadline: t.deadline, repeated: true, previous: r.before(t).ending(), tellsLease: true}
		}
		return naiveAnswer{code: lastword.CodeTenureEnded, ended: t.ending()}
	}
	last := r.last()
	if n.valid(last, watched) {
		return naiveAnswer{code: lastword.CodeHeld, fence: last.fence, deadline: last.deadline, tellsLease: true}
	}
	counter := uint64(0)
	if n.epoch == 0 {
		counter = r.issued
	}
	for _, t := range r.tenures {
		if t.fence.Epoch() == n.epoch {
			counter = max(counter, t.fence.Counter())
		}
	}
	if counter == lastword.MaxCounter {
		return naiveAnswer{code: lastword.CodeExhausted}
	}
	if n.now < n.hold || n.mustWait(last, in, watched) {
		return naiveAnswer{code: lastword.CodeHeld, blocked: true}
	}
	if last != nil && last.end == "" {
		n.finish(last, lastword.StateExpired)
	}
	t := &naiveTenure{
		owner: in.Owner, request: in.RequestID, lease: in.LeaseID,
		fence:  lastword.Token(uint64(n.epoch)*(lastword.MaxCounter+1) + counter + 1),
		params: naiveParams(in), ttl: in.TTL, ticks: in.Ticks, deadline: n.now + in.Ticks,
	}
	r.tenures = append(r.tenures, t)
	return naiveAnswer{fence: t.fence, deadline: t.deadline, previous: last.ending(), tellsLease: true}
}

func naiveParams(in core.AcquireInput) string { return fmt.Sprint(in.TTL, in.Root, in.Class) }

// mustWait is the lock-delay of R3: between an expiry and the next grant, in ticks of
// the counter or as long as this process has watched.
func (n *naiveAuthority) mustWait(last *naiveTenure, in core.AcquireInput, watched core.Span) bool {
	if last == nil || in.LockDelay == 0 || last.end != "" && last.end != lastword.StateExpired {
		return false
	}
	ended := last.endTick
	if last.end == "" {
		ended = min(n.now, last.deadline)
		watched -= last.ttl
	}
	return n.now < ended+in.LockDelayTicks && watched < in.LockDelay
}

// named is the tenure that a reference names, however long ago it was.
func (r *naiveResource) named(ref lastword.TenureRef) *naiveTenure {
	for _, t := range r.tenures {
		if t.lease == ref.LeaseID && t.owner == ref.Owner && t.fence == ref.Fence {
			return t
		}
	}
	return nil
}

func (n *naiveAuthority) holds(r *naiveResource, t *naiveTenure, watched core.Span) bool {
	return t != nil && t == r.last() && n.valid(t, watched)
}

func (n *naiveAuthority) renew(name lastword.Resource, ref lastword.TenureRef, watched core.Span) naiveAnswer {
	r := n.of(name)
	t := r.named(ref)
	if !n.holds(r, t, watched) {
		return naiveAnswer{code: lastword.CodeNotHolder}
	}
	t.deadline = n.now + t.ticks
	return naiveAnswer{fence: t.fence, deadline: t.deadline, previous: r.before(t).ending(), tellsLease: true}
}

func (n *naiveAuthority) release(name lastword.Resource, ref lastword.TenureRef, watched core.Span) naiveAnswer {
	r := n.of(name)
	t := r.named(ref)
	if n.holds(r, t, watched) {
		n.finish(t, lastword.StateReleased)
		return naiveAnswer{}
	}
	if t != nil && t.end == lastword.StateReleased {
		return naiveAnswer{repeated: true}
	}
	return naiveAnswer{code: lastword.CodeNotHolder}
}

func (n *naiveAuthority) complete(name lastword.Resource, ref lastword.TenureRef, result []byte, watched core.Span) naiveAnswer {
	r := n.of(name)
	t := r.named(ref)
	if t != nil && t.completed {
		if slices.Equal(t.result, result) {
			return naiveAnswer{repeated: true}
		}
		return naiveAnswer{code: lastword.CodeRequestConflict}
	}
	if !n.holds(r, t, watched) {
		return naiveAnswer{code: lastword.CodeNotHolder}
	}
	t.completed, t.result = true, slices.Clone(result)
	return naiveAnswer{}
}

func (n *naiveAuthority) cancel(name lastword.Resource, owner, request string, watched core.Span) naiveAnswer {
	r := n.of(name)
	if slices.Contains(r.cancels, naiveCancel{owner, request}) {
		return naiveAnswer{repeated: true}
	}
	for _, t := range r.tenures {
		if t.owner == owner && t.request == request {
			if n.holds(r, t, watched) {
				n.finish(t, lastword.StateCanceled)
				return naiveAnswer{}
			}
			return naiveAnswer{repeated: true}
		}
	}
	r.cancels = append(r.cancels, naiveCancel{owner, request})
	return naiveAnswer{}
}

func (n *naiveAuthority) revoke(name lastword.Resource, fence lastword.Token, watched core.Span) naiveAnswer {
	r := n.of(name)
	if t := r.last(); t != nil && t.fence == fence && n.valid(t, watched) {
		n.finish(t, lastword.StateRevoked)
		return naiveAnswer{}
	}
	return naiveAnswer{code: lastword.CodeNotHolder}
}

// same compares an answer of the rules with the naive one, in what a caller sees.
func (a naiveAnswer) same(b core.Answer) error {
	if a.code != b.Code || a.repeated != b.Repeated || a.blocked != b.Blocked {
		return fmt.Errorf("got %q repeated %v blocked %v, want %q %v %v", b.Code, b.Repeated, b.Blocked, a.code, a.repeated, a.blocked)
	}
	if a.tellsLease && (a.fence != b.Lease.Fence || a.deadline != b.Lease.Deadline) {
		return fmt.Errorf("got fence %d until %d, want %d until %d", b.Lease.Fence, b.Lease.Deadline, a.fence, a.deadline)
	}
	if a.tellsLease && a.code == "" && a.previous.LeaseID != b.Previous.LeaseID {
		return fmt.Errorf("got previous %+v, want %+v", b.Previous, a.previous)
	}
	if a.code == "" && a.previous.LeaseID != "" && !reflect.DeepEqual(a.previous, b.Previous) {
		return fmt.Errorf("got previous %+v, want %+v", b.Previous, a.previous)
	}
	if !reflect.DeepEqual(a.ended, b.Ended) {
		return fmt.Errorf("got ended %+v, want %+v", b.Ended, a.ended)
	}
	return nil
}
