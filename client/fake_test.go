package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// fault is what happens to one message.
type fault struct {
	loseRequest bool
	loseReply   bool
	delay       time.Duration // of the request
	delayReply  time.Duration
	duplicate   time.Duration // a second copy arrives this much later; 0 is none
	err         error         // answered instead of the authority
	deaf        bool          // the caller's context does not end the call
}

// fake is an authority that is meant to be read, not to be fast: everything under
// one lock, in memory, one deadline a resource. Each message may suffer a fault.
type fake struct {
	now    func() time.Duration
	faults func(op string) fault // nil is none
	ttl    time.Duration         // granted whatever is asked; 0 grants what is asked
	blind  bool                  // a status can not tell what remains

	mu       sync.Mutex
	changed  chan struct{}
	fences   map[lastword.Resource]lastword.Token
	leases   map[lastword.Resource]*fakeLease
	requests map[string]*fakeRequest
	calls    []string
	queued   int             // acquires with a wait
	onServer func(op string) // called after the authority has processed a message
	inFlight sync.WaitGroup  // messages and answers on their way
}

type fakeLease struct {
	tenure   lastword.Tenure
	deadline time.Duration
	last     lastword.Ending
	answerAs lastword.Token // the fence that renewals tell; 0 is the right one
}

type fakeRequest struct {
	lease     *fakeLease
	canceled  bool
	released  bool
	ended     bool
	completed *string
}

func newFake() *fake {
	start := time.Now()
	return &fake{
		now:      func() time.Duration { return time.Since(start) },
		changed:  make(chan struct{}),
		fences:   make(map[lastword.Resource]lastword.Token),
		leases:   make(map[lastword.Resource]*fakeLease),
		requests: make(map[string]*fakeRequest),
	}
}

// carry takes a message there and its answer back.
func carry[T any](ctx context.Context, f *fake, op string, process func() (T, error)) (T, error) {
	var none T
	f.mu.Lock()
	f.calls = append(f.calls, op)
	var x fault
	if f.faults != nil {
		x = f.faults(op)
	}
	f.mu.Unlock()
	if x.err != nil {
		return none, x.err
	}
	if x.duplicate > 0 {
		f.inFlight.Go(func() {
			time.Sleep(x.delay + x.duplicate)
			_, _ = process()
		})
	}
	type answered struct {
		answer T
		err    error
	}
	reply := make(chan answered, 1)
	f.inFlight.Go(func() {
		time.Sleep(x.delay)
		if x.loseRequest {
			return
		}
		t, err := process()
		if f.onServer != nil {
			f.onServer(op)
		}
		time.Sleep(x.delayReply)
		if !x.loseReply {
			reply <- answered{t, err}
		}
	})
	if x.deaf {
		a := <-reply
		return a.answer, a.err
	}
	select {
	case a := <-reply:
		return a.answer, a.err
	case <-ctx.Done():
		return none, &lastword.Error{Code: lastword.CodeUnknown, Op: op, Message: "no answer", Err: ctx.Err()}
	}
}

// tell carries a message whose answer is yes or no.
func (f *fake) tell(ctx context.Context, op string, process func() error) error {
	_, err := carry(ctx, f, op, func() (struct{}, error) { return struct{}{}, process() })
	return err
}

func (f *fake) request(r lastword.Resource, owner, id string) *fakeRequest {
	key := fmt.Sprintf("%q %q %q", r, owner, id)
	if f.requests[key] == nil {
		f.requests[key] = &fakeRequest{}
	}
	return f.requests[key]
}

// current is the valid lease: now < deadline.
func (f *fake) current(r lastword.Resource) *fakeLease {
	if l := f.leases[r]; l != nil && f.now() < l.deadline {
		return l
	}
	return nil
}

func (f *fake) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func refuse(code lastword.Code, op string, r lastword.Resource) *lastword.Error {
	return &lastword.Error{Code: code, Op: op, Resource: r, Message: "the fake says so"}
}

func (f *fake) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	f.mu.Lock()
	if r.Wait > 0 {
		f.queued++
	}
	f.mu.Unlock()
	return carry(ctx, f, "acquire", func() (lastword.Tenure, error) { return f.acquire(r) })
}

func (f *fake) acquire(r lastword.AcquireRequest) (lastword.Tenure, error) {
	until, waited := f.now()+r.Wait, false
	for {
		f.mu.Lock()
		t, err := f.tryAcquire(r)
		t.Waited = waited && !t.Repeated
		changed, left := f.changed, until-f.now()
		var expiry time.Duration
		if l := f.current(r.Resource); l != nil {
			expiry = l.deadline - f.now()
		}
		f.mu.Unlock()
		if !errors.Is(err, lastword.ErrHeld) || left <= 0 {
			return t, err
		}
		waited = true
		select {
		case <-changed:
		case <-time.After(min(left, expiry)):
		}
	}
}

func (f *fake) tryAcquire(r lastword.AcquireRequest) (lastword.Tenure, error) {
	req := f.request(r.Resource, r.Owner, r.RequestID)
	cur := f.current(r.Resource)
	switch {
	case req.canceled:
		return lastword.Tenure{}, refuse(lastword.CodeCanceled, "acquire", r.Resource)
	case req.lease != nil && req.lease == cur && !req.ended:
		t := cur.tenure
		t.Repeated, t.Remaining = true, cur.deadline-f.now()
		return t, nil
	case req.lease != nil:
		return lastword.Tenure{}, refuse(lastword.CodeTenureEnded, "acquire", r.Resource)
	case cur != nil:
		e := refuse(lastword.CodeHeld, "acquire", r.Resource)
		e.Holder, e.Fence, e.Remaining = cur.tenure.Owner, cur.tenure.Fence, cur.deadline-f.now()
		return lastword.Tenure{}, e
	}
	f.fences[r.Resource]++
	ttl := r.TTL
	if f.ttl != 0 {
		ttl = f.ttl
	}
	fence := f.fences[r.Resource]
	l := &fakeLease{deadline: f.now() + ttl, tenure: lastword.Tenure{
		TenureRef: lastword.TenureRef{
			Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID,
			LeaseID: fmt.Sprintf("lease-%d", fence), Fence: fence,
		},
		State: lastword.StateHeld, Grant: fmt.Sprintf("grant of %s %d", r.Resource, fence),
		GrantDigest: lastword.DigestOf(fmt.Appendf(nil, "%s %d", r.Resource, fence)),
		TTL:         ttl, Remaining: ttl, Class: r.Class, Root: r.Root,
	}}
	if old := f.leases[r.Resource]; old != nil {
		l.tenure.Previous = lastword.Ending{State: lastword.StateExpired, Fence: old.tenure.Fence}
		if old.last.State != "" {
			l.tenure.Previous = old.last
		}
	}
	f.leases[r.Resource] = l
	req.lease = l
	return l.tenure, nil
}

// match is the current lease if ref names it.
func (f *fake) match(op string, ref lastword.TenureRef) (*fakeLease, error) {
	if l := f.current(ref.Resource); l != nil && l.tenure.TenureRef == ref {
		return l, nil
	}
	return nil, refuse(lastword.CodeNotHolder, op, ref.Resource)
}

func (f *fake) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	return carry(ctx, f, "renew", func() (lastword.Tenure, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		l, err := f.match("renew", ref)
		if err != nil {
			return lastword.Tenure{}, err
		}
		l.deadline = f.now() + l.tenure.TTL
		t := l.tenure
		if l.answerAs != 0 {
			t.Fence = l.answerAs
		}
		return t, nil
	})
}

func (f *fake) end(r lastword.Resource, s lastword.State) {
	l := f.leases[r]
	l.deadline = 0
	l.last = lastword.Ending{State: s, Fence: l.tenure.Fence}
	f.signal()
}

func (f *fake) Release(ctx context.Context, ref lastword.TenureRef) error {
	return f.tell(ctx, "release", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		req := f.request(ref.Resource, ref.Owner, ref.RequestID)
		if req.released {
			return nil
		}
		if _, err := f.match("release", ref); err != nil {
			return err
		}
		req.released, req.ended = true, true
		f.end(ref.Resource, lastword.StateReleased)
		return nil
	})
}

func (f *fake) Complete(ctx context.Context, ref lastword.TenureRef, result []byte) error {
	return f.tell(ctx, "complete", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		req := f.request(ref.Resource, ref.Owner, ref.RequestID)
		if req.completed != nil {
			if *req.completed == string(result) {
				return nil
			}
			return refuse(lastword.CodeRequestConflict, "complete", ref.Resource)
		}
		if _, err := f.match("complete", ref); err != nil {
			return err
		}
		s := string(result)
		req.completed = &s
		return nil
	})
}

func (f *fake) Cancel(ctx context.Context, r lastword.Resource, owner, id string) error {
	return f.tell(ctx, "cancel", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		req := f.request(r, owner, id)
		req.canceled, req.ended = true, true
		if req.lease != nil && req.lease == f.current(r) {
			f.end(r, lastword.StateReleased)
		}
		f.signal()
		return nil
	})
}

func (f *fake) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	return carry(ctx, f, "status", func() (lastword.Status, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		st := lastword.Status{Resource: q.Resource, State: lastword.StateFree, NextFence: f.fences[q.Resource] + 1, Asked: lastword.StateFree}
		if l := f.current(q.Resource); l != nil {
			st.State, st.Holder, st.TTL, st.Remaining = lastword.StateHeld, l.tenure.TenureRef, l.tenure.TTL, l.deadline-f.now()
		}
		if f.blind {
			st.Remaining = 0
		}
		switch asked := f.request(q.Resource, q.Owner, q.RequestID).lease; {
		case asked == nil:
		case asked == f.current(q.Resource):
			st.Asked = lastword.StateHeld
		case asked.last.State != "":
			st.Asked = asked.last.State
		default:
			st.Asked = lastword.StateExpired
		}
		return st, nil
	})
}

// only2 lets the first n messages of each of two kinds suffer x.
func only2(a, b string, n int, x fault) func(string) fault {
	first, second := only(a, n, x), only(b, n, x)
	return func(op string) fault {
		if op == b {
			return second(op)
		}
		return first(op)
	}
}

// revoke ends the current tenure behind the holder's back.
func (f *fake) revoke(r lastword.Resource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(r, lastword.StateRevoked)
}

// drop ends the tenure of l in another way.
func (f *fake) drop(l *client.Lease, how lastword.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(l.Resource(), how)
}

// held is the fence of the valid lease, 0 if there is none.
func (f *fake) held(r lastword.Resource) lastword.Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.current(r); l != nil {
		return l.tenure.Fence
	}
	return 0
}

func (f *fake) count(op string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == op {
			n++
		}
	}
	return n
}

// suffer sets the faults of the messages to come.
func (f *fake) suffer(faults func(op string) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

// only lets the first n messages of op suffer x.
func only(op string, n int, x fault) func(string) fault {
	return func(o string) fault {
		if o != op || n == 0 {
			return fault{}
		}
		n--
		return x
	}
}

// outage loses everything.
func outage(string) fault { return fault{loseRequest: true} }
