package history

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// CodeOf is the code of an error, "" for none.
func CodeOf(err error) lastword.Code {
	var e *lastword.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	}
	return lastword.Code("not an error of ours: " + err.Error())
}

// Clock is one clock for all processes of the machine, that never goes back. It is the
// only clock of a history.
func Clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// Recorder is an authority that writes down what a client asks and hears. Note is
// called by the goroutine of the call, with the finished fact.
type Recorder struct {
	client.Authority
	Note func(Fact)
}

// Acquire implements client.Authority.
func (r Recorder) Acquire(ctx context.Context, q lastword.AcquireRequest) (lastword.Tenure, error) {
	sent := Clock()
	t, err := r.Authority.Acquire(ctx, q)
	f := told("acquire", t, err, sent)
	f.Resource, f.Owner, f.RequestID, f.TTL = q.Resource, q.Owner, q.RequestID, q.TTL
	r.Note(f)
	return t, err
}

// Renew implements client.Authority.
func (r Recorder) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	sent := Clock()
	t, err := r.Authority.Renew(ctx, ref)
	t.TenureRef = ref
	r.Note(told("renew", t, err, sent))
	return t, err
}

// Release implements client.Authority.
func (r Recorder) Release(ctx context.Context, ref lastword.TenureRef) error {
	sent := Clock()
	err := r.Authority.Release(ctx, ref)
	r.Note(told("release", lastword.Tenure{TenureRef: ref}, err, sent))
	return err
}

// Complete implements client.Authority.
func (r Recorder) Complete(ctx context.Context, ref lastword.TenureRef, result []byte) error {
	sent := Clock()
	err := r.Authority.Complete(ctx, ref, result)
	f := told("complete", lastword.Tenure{TenureRef: ref}, err, sent)
	f.Result = result
	r.Note(f)
	return err
}

// Cancel implements client.Authority.
func (r Recorder) Cancel(ctx context.Context, resource lastword.Resource, owner, id string) error {
	sent := Clock()
	err := r.Authority.Cancel(ctx, resource, owner, id)
	r.Note(told("cancel", lastword.Tenure{TenureRef: lastword.TenureRef{Resource: resource, Owner: owner, RequestID: id}}, err, sent))
	return err
}

func told(op string, t lastword.Tenure, err error, sent time.Duration) Fact {
	return Fact{
		Op: op, Resource: t.Resource, Owner: t.Owner, RequestID: t.RequestID, LeaseID: t.LeaseID, Fence: t.Fence,
		TTL: t.TTL, Remaining: t.Remaining, Repeated: t.Repeated, Code: CodeOf(err), Sent: sent, Heard: Clock(),
	}
}
