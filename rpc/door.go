package rpc

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// The door turns requests into words and refuses what is no request. The client
// runs it too, before it sends, so that both sides refuse the same things.

// maxSeconds is the largest whole number of seconds in a time.Duration.
const maxSeconds = int64(math.MaxInt64 / time.Second)

func acquireRequest(m *wire.AcquireRequest) (r lastword.AcquireRequest, err error) {
	if err := checkKnown(m, m.GetTtl(), m.GetWait()); err != nil {
		return r, err
	}
	if r.Resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return r, err
	}
	if err := checkIDs(must("request_id", m.GetRequestId()), may("owner", m.GetOwner()), may("class", m.GetClass())); err != nil {
		return r, err
	}
	if r.TTL, err = duration("ttl", m.GetTtl()); err != nil {
		return r, err
	}
	if r.Wait, err = duration("wait", m.GetWait()); err != nil {
		return r, err
	}
	if r.Root, err = digest("root", m.GetRoot()); err != nil {
		return r, err
	}
	if r.ProofLife, err = proofLife(m.GetProofLife()); err != nil {
		return r, err
	}
	r.RequestID, r.Owner, r.Class = m.GetRequestId(), m.GetOwner(), lastword.Class(m.GetClass())
	return r, nil
}

// refMessage is a request that names a tenure.
type refMessage interface {
	proto.Message
	GetResource() string
	GetOwner() string
	GetRequestId() string
	GetLeaseId() string
	GetFence() uint64
}

func tenureRef(m refMessage) (lastword.TenureRef, error) {
	if err := checkKnown(m); err != nil {
		return lastword.TenureRef{}, err
	}
	return readRef(m)
}

func readRef(m refMessage) (ref lastword.TenureRef, err error) {
	return refOf(m, must)
}

// readHolder is a tenure as a status shows it: its ids may be missing.
func readHolder(m refMessage) (ref lastword.TenureRef, err error) {
	return refOf(m, may)
}

// refOf reads the ids as the caller wants them: they must be there, or may.
func refOf(m refMessage, want func(name, value string) field) (ref lastword.TenureRef, err error) {
	if ref.Resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return ref, err
	}
	if err := checkIDs(may("owner", m.GetOwner()), want("request_id", m.GetRequestId()), want("lease_id", m.GetLeaseId())); err != nil {
		return ref, err
	}
	ref.Fence = lastword.Token(m.GetFence())
	if !ref.Fence.Valid() {
		return ref, invalid("fence %d: want a number from 1 to %d", m.GetFence(), lastword.MaxToken)
	}
	ref.Owner, ref.RequestID, ref.LeaseID = m.GetOwner(), m.GetRequestId(), m.GetLeaseId()
	return ref, nil
}

func completion(m *wire.CompleteRequest) (ref lastword.TenureRef, err error) {
	if ref, err = tenureRef(m); err != nil {
		return ref, err
	}
	if n := len(m.GetResult()); n > lastword.MaxResultBytes {
		return ref, invalid("result: it has %d bytes, more than %d", n, lastword.MaxResultBytes)
	}
	return ref, nil
}

// attempt names one acquire attempt.
type attempt struct {
	resource         lastword.Resource
	owner, requestID string
}

func cancelRequest(m *wire.CancelRequest) (a attempt, err error) {
	if err := checkKnown(m); err != nil {
		return a, err
	}
	if a.resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return a, err
	}
	a.owner, a.requestID = m.GetOwner(), m.GetRequestId()
	return a, checkIDs(may("owner", a.owner), must("request_id", a.requestID))
}

func statusQuery(m *wire.StatusRequest) (q lastword.StatusQuery, err error) {
	if err := checkKnown(m); err != nil {
		return q, err
	}
	if q.Resource, err = lastword.ParseResource(m.GetResource()); err != nil {
		return q, err
	}
	q.LeaseID, q.Owner, q.RequestID = m.GetLeaseId(), m.GetOwner(), m.GetRequestId()
	if q.Owner != "" && q.RequestID == "" && q.LeaseID == "" {
		return q, invalid("owner: it names no tenure without request_id")
	}
	return q, checkIDs(may("lease_id", q.LeaseID), may("owner", q.Owner), may("request_id", q.RequestID))
}

type field struct {
	name, value string
	optional    bool
}

func must(name, value string) field { return field{name, value, false} }

// may is for what can be left out, an owner among it: whether that is enough is
// decided where it is known how callers are told apart.
func may(name, value string) field { return field{name, value, true} }

func checkIDs(fields ...field) error {
	for _, f := range fields {
		if f.optional && f.value == "" {
			continue
		}
		if err := lastword.CheckID(f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

// checkKnown refuses fields that this version does not know: a newer caller may
// have restricted its request by them.
func checkKnown(messages ...proto.Message) error {
	for _, m := range messages {
		if len(m.ProtoReflect().GetUnknown()) > 0 {
			err := invalid("%s: it has a field that this authority does not know", m.ProtoReflect().Descriptor().Name())
			err.Hint = "the caller is newer than the authority: leave out what is new, or upgrade the authority"
			return err
		}
	}
	return nil
}

// duration reads d exactly or refuses it: nothing is rounded into range, and no
// overflow becomes a short, negative or default duration.
func duration(name string, d *durationpb.Duration) (time.Duration, error) {
	s, n := d.GetSeconds(), d.GetNanos()
	switch {
	case s < 0 || n < 0:
		return 0, invalid("%s: it is negative", name)
	case n > 999_999_999:
		return 0, invalid("%s: its nanos are %d, more than 999999999", name, n)
	case s > maxSeconds || s == maxSeconds && int64(n) > math.MaxInt64-maxSeconds*int64(time.Second):
		return 0, invalid("%s: %d seconds are too many", name, s)
	}
	return time.Duration(s)*time.Second + time.Duration(n), nil
}

func digest(name, s string) (lastword.Digest, error) {
	if s == "" {
		return lastword.Digest{}, nil
	}
	d, err := lastword.ParseDigest(s)
	if err != nil {
		var e *lastword.Error
		if errors.As(err, &e) {
			return d, invalid("%s: %s", name, e.Message)
		}
		return d, err
	}
	if d.IsZero() {
		return d, invalid("%s: the digest of zeros is no digest; leave it empty for none", name)
	}
	return d, nil
}

func invalid(format string, args ...any) *lastword.Error {
	return &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}
