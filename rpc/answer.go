package rpc

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// Answers, from words to messages and back. Reading checks what an answer must
// be in any version: an answer that is broken was not understood, and acting on
// a part of it would be a guess.

func tenureMessage(t lastword.Tenure) *wire.Tenure {
	return &wire.Tenure{
		Resource: string(t.Resource), Owner: t.Owner, RequestId: t.RequestID,
		LeaseId: t.LeaseID, Fence: uint64(t.Fence),
		State: string(t.State), Grant: t.Grant, GrantDigest: t.GrantDigest.String(),
		Revision: t.Revision, PolicyGeneration: t.PolicyGeneration,
		Root: t.Root.String(), Class: string(t.Class),
		Ttl: durationpb.New(t.TTL), Remaining: durationpb.New(t.Remaining),
		Waited: t.Waited, Repeated: t.Repeated, Previous: endingMessage(t.Previous), StatusProof: t.StatusProof,
	}
}

func readTenure(m *wire.Tenure) (t lastword.Tenure, err error) {
	if t.TenureRef, err = readRef(m); err != nil {
		return t, err
	}
	t.State = lastword.StateHeld // a constant, which takes no memory
	if m.GetState() != string(t.State) {
		t.State = lastword.StatePending
	}
	if m.GetState() != string(t.State) {
		return t, invalid("state %q: want HELD or PENDING", m.GetState())
	}
	if t.TTL, t.Remaining, err = spans(m.GetTtl(), m.GetRemaining()); err != nil {
		return t, err
	}
	if t.GrantDigest, err = digest("grant_digest", m.GetGrantDigest()); err != nil {
		return t, err
	}
	if t.Root, err = digest("root", m.GetRoot()); err != nil {
		return t, err
	}
	if t.Previous, err = readEnding("previous", m.GetPrevious()); err != nil {
		return t, err
	}
	t.Grant, t.Class = m.GetGrant(), lastword.Class(m.GetClass())
	if t.Class == lastword.ClassWrite {
		t.Class = lastword.ClassWrite
	}
	t.Revision, t.PolicyGeneration = m.GetRevision(), m.GetPolicyGeneration()
	t.Waited, t.Repeated, t.StatusProof = m.GetWaited(), m.GetRepeated(), m.GetStatusProof()
	return t, readProof(t.StatusProof)
}

func statusMessage(s lastword.Status) *wire.Status {
	m := &wire.Status{
		Resource: string(s.Resource), State: string(s.State), GrantDigest: s.Digest.String(),
		Remaining: durationpb.New(s.Remaining), Ttl: durationpb.New(s.TTL),
		NextFence: uint64(s.NextFence), Waiters: count(s.Waiters), Revision: s.Revision,
		Last:  endingMessage(s.Last),
		Asked: string(s.Asked), AskedCompleted: s.AskedCompleted, AskedResult: s.AskedResult,
		Reported: uint64(s.Reported),
	}
	if s.Holder != (lastword.TenureRef{}) {
		m.Holder = &wire.TenureRef{
			Resource: string(s.Holder.Resource), Owner: s.Holder.Owner, RequestId: s.Holder.RequestID,
			LeaseId: s.Holder.LeaseID, Fence: uint64(s.Holder.Fence),
		}
	}
	return m
}

func readStatus(m *wire.Status) (s lastword.Status, err error) {
	if s.Resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return s, err
	}
	s.State, s.Asked = lastword.State(m.GetState()), lastword.State(m.GetAsked())
	if !knownState(s.State) || s.State == lastword.StateCanceled {
		return s, invalid("state %q: it is no state of a resource", m.GetState())
	}
	if s.Asked != "" && !knownState(s.Asked) {
		return s, invalid("asked %q: it is no state of a tenure", m.GetAsked())
	}
	if m.GetHolder() != nil {
		if s.Holder, err = readHolder(m.GetHolder()); err != nil {
			return s, err
		}
	}
	if s.TTL, s.Remaining, err = spans(m.GetTtl(), m.GetRemaining()); err != nil {
		return s, err
	}
	if s.Digest, err = digest("grant_digest", m.GetGrantDigest()); err != nil {
		return s, err
	}
	if s.Last, err = readEnding("last", m.GetLast()); err != nil {
		return s, err
	}
	if m.GetNextFence() > uint64(lastword.MaxToken) {
		return s, invalid("next_fence %d: it is no fence", m.GetNextFence())
	}
	s.NextFence, s.Revision, s.Waiters = lastword.Token(m.GetNextFence()), m.GetRevision(), int(m.GetWaiters())
	if m.GetReported() > uint64(lastword.MaxToken) {
		return s, invalid("reported %d: it is no fence", m.GetReported())
	}
	s.Reported = lastword.Token(m.GetReported())
	s.AskedCompleted, s.AskedResult = m.GetAskedCompleted(), m.GetAskedResult()
	return s, nil
}

func knownState(s lastword.State) bool {
	switch s {
	case lastword.StateFree, lastword.StatePending, lastword.StateHeld, lastword.StateExpired,
		lastword.StateReleased, lastword.StateRevoked, lastword.StateCanceled:
		return true
	}
	return false
}

func endingMessage(e lastword.Ending) *wire.Ending {
	if e.State == "" {
		return nil
	}
	return &wire.Ending{
		State: string(e.State), Fence: uint64(e.Fence), LeaseId: e.LeaseID, Owner: e.Owner,
		Completed: e.Completed, Result: e.Result,
	}
}

// endings are how a tenure can end.
var endings = []lastword.State{lastword.StateReleased, lastword.StateExpired, lastword.StateRevoked, lastword.StateCanceled}

func readEnding(name string, m *wire.Ending) (lastword.Ending, error) {
	if m == nil {
		return lastword.Ending{}, nil
	}
	e := lastword.Ending{
		State: lastword.State(m.GetState()), Fence: lastword.Token(m.GetFence()),
		LeaseID: m.GetLeaseId(), Owner: m.GetOwner(), Completed: m.GetCompleted(), Result: m.GetResult(),
	}
	if !slices.Contains(endings, e.State) {
		return lastword.Ending{}, invalid("%s: state %q: want RELEASED, EXPIRED, REVOKED or CANCELED", name, m.GetState())
	}
	if !e.Fence.Valid() {
		return lastword.Ending{}, invalid("%s: fence %d: it is no fence", name, m.GetFence())
	}
	return e, nil
}

// spans reads a TTL and what is left of it: from 0 to the TTL, never more (KF-20).
func spans(ttl, remaining *durationpb.Duration) (t, r time.Duration, err error) {
	if t, err = duration("ttl", ttl); err != nil {
		return 0, 0, err
	}
	if r, err = duration("remaining", remaining); err != nil {
		return 0, 0, err
	}
	if r > t {
		return 0, 0, invalid("remaining %s: it is more than the ttl %s", r, t)
	}
	return t, r, nil
}

// count is n within what the wire can say.
func count(n int) uint32 {
	return uint32(min(max(int64(n), 0), math.MaxUint32))
}
