package soak

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/lab/history"
)

// Call is one call at the authority, at the resource or of the run itself, as its caller
// saw it.
type Call struct {
	history.Fact
	Who     string `json:"who"`
	Process int    `json:"process"`
	Serial  int    `json:"serial"` // of the process
	// Open says that it was begun; the same serial without it, that it was answered.
	Open bool `json:"open,omitempty"`
	// Of a write.
	Operation string `json:"operation,omitempty"`
	Value     string `json:"value,omitempty"`
	Verdict   string `json:"verdict,omitempty"`
	Seq       uint64 `json:"seq,omitempty"`
	Raw       bool   `json:"raw,omitempty"`
	// Told is the fence that a refusal named: of the holder, or the one stored.
	Told lastword.Token `json:"told,omitempty"`
	// Why is the verifier's reason, where it was the grant that was not believed.
	Why string `json:"why,omitempty"`
	// Said is the error's text, for people.
	Said string `json:"said,omitempty"`
}

// What a Call's Op can be beside those of a history.Fact.
const (
	opWrite   = "write"
	opRead    = "read"
	opRevoke  = "revoke"
	opAdvance = "advance"
)

// diary writes down the calls of one process, twice each: a call without the second
// entry is one whose caller did not live to hear its answer.
type diary struct {
	who  string
	note func(Call)

	mu     sync.Mutex
	serial int
}

func (d *diary) begin(c Call) Call {
	d.mu.Lock()
	d.serial++
	c.Serial = d.serial
	d.mu.Unlock()
	c.Who, c.Process, c.Open, c.Sent = d.who, os.Getpid(), true, history.Clock()
	d.note(c)
	return c
}

func (d *diary) end(c Call, err error) {
	c.Open, c.Heard, c.Code = false, history.Clock(), history.CodeOf(err)
	c.Why = string(grant.ReasonOf(err))
	if err != nil {
		c.Said = err.Error()
	}
	var e *lastword.Error
	if errors.As(err, &e) {
		c.Told = e.Fence
		if e.Ended.Fence != 0 {
			c.Told = e.Ended.Fence
		}
	}
	d.note(c)
}

func refCall(op string, r lastword.TenureRef) Call {
	return Call{Fact: history.Fact{Op: op, Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID, LeaseID: r.LeaseID, Fence: r.Fence}}
}

func (c *Call) learn(t lastword.Tenure) {
	if t.Fence == 0 {
		return
	}
	c.LeaseID, c.Fence, c.TTL, c.Remaining, c.Repeated = t.LeaseID, t.Fence, t.TTL, t.Remaining, t.Repeated
}

// witnessed is an authority whose calls go into a diary.
type witnessed struct {
	client.Authority
	diary *diary
}

func (w witnessed) Acquire(ctx context.Context, q lastword.AcquireRequest) (lastword.Tenure, error) {
	c := w.diary.begin(Call{Fact: history.Fact{Op: "acquire", Resource: q.Resource, Owner: q.Owner, RequestID: q.RequestID, TTL: q.TTL}})
	t, err := w.Authority.Acquire(ctx, q)
	c.learn(t)
	w.diary.end(c, err)
	return t, err
}

func (w witnessed) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	c := w.diary.begin(refCall("renew", ref))
	t, err := w.Authority.Renew(ctx, ref)
	if err == nil {
		c.TTL, c.Remaining = t.TTL, t.Remaining
	}
	w.diary.end(c, err)
	return t, err
}

func (w witnessed) Release(ctx context.Context, ref lastword.TenureRef) error {
	c := w.diary.begin(refCall("release", ref))
	err := w.Authority.Release(ctx, ref)
	w.diary.end(c, err)
	return err
}

func (w witnessed) Complete(ctx context.Context, ref lastword.TenureRef, result []byte) error {
	c := refCall("complete", ref)
	c.Result = result
	c = w.diary.begin(c)
	err := w.Authority.Complete(ctx, ref, result)
	w.diary.end(c, err)
	return err
}

func (w witnessed) Cancel(ctx context.Context, resource lastword.Resource, owner, id string) error {
	c := w.diary.begin(refCall("cancel", lastword.TenureRef{Resource: resource, Owner: owner, RequestID: id}))
	err := w.Authority.Cancel(ctx, resource, owner, id)
	w.diary.end(c, err)
	return err
}

// ms is a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
