package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/rpc"
)

// workerConfig of a process that works with leases until it is told to finish, and
// writes down every answer.
type workerConfig struct {
	Addr  string
	Name  string
	Seed  uint64
	Hands int // goroutines, each an owner of its own
}

// sharedResources are what the hands of all workers want.
var sharedResources = []string{"shared/a", "shared/b", "shared/c", "shared/d", "shared/e"}

// steadyTTL outlives many restarts.
const steadyTTL = 3 * time.Second

// lines writes one line at a time for many goroutines.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) say(kind string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := fmt.Fprintf(l.out, "%s %s\n", kind, b); err != nil {
		panic(err) // the parent has gone
	}
}

func workerChild(c workerConfig) error {
	conn, err := rpc.Dial(c.Addr, rpc.ClientConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	out := &lines{out: os.Stdout}
	finish := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // "finish", or the parent has gone
		close(finish)
	}()
	var hands sync.WaitGroup
	var failed atomic.Bool
	for i := range c.Hands {
		h := &hand{
			lines: out, name: fmt.Sprintf("%s-%d", c.Name, i), finish: finish,
			random: rand.New(rand.NewPCG(c.Seed, uint64(i))),
		}
		h.authority = history.Recorder{Authority: conn, Note: func(f history.Fact) { out.say("fact", f) }}
		if h.client, err = client.New(h.authority, client.Config{Owner: h.name, CleanupTimeout: time.Second}); err != nil {
			return err
		}
		work := h.work
		if i == 0 {
			work = h.steady
		}
		hands.Go(func() {
			work()
			if err := errors.Join(h.last(), h.client.Close()); err != nil {
				failed.Store(true)
				out.say("violation", h.name+" did not recover: "+err.Error())
			}
		})
	}
	hands.Wait()
	out.say("done", !failed.Load())
	return nil
}

type hand struct {
	*lines
	name      string
	authority client.Authority
	client    *client.Client
	random    *rand.Rand
	finish    chan struct{}
	rounds    int
}

func (h *hand) finished() bool {
	select {
	case <-h.finish:
		return true
	default:
		return false
	}
}

func (h *hand) upTo(d time.Duration) time.Duration { return time.Duration(h.random.Int64N(int64(d))) }

// pause waits, but not beyond the end.
func (h *hand) pause(d time.Duration, or <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-or:
	case <-h.finish:
	}
}

func (h *hand) work() {
	for !h.finished() {
		h.rounds++
		resource := lastword.Resource(sharedResources[h.random.IntN(len(sharedResources))])
		o := client.AcquireOptions{
			TTL: 300*time.Millisecond + h.upTo(900*time.Millisecond), RequestID: fmt.Sprint("r", h.rounds),
		}
		if h.random.IntN(2) == 0 {
			o.Wait = h.upTo(400*time.Millisecond) + 1
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if h.random.IntN(6) == 0 {
			h.abandon(ctx, resource, o)
		} else {
			h.round(ctx, resource, o)
		}
		cancel()
		h.pause(h.upTo(10*time.Millisecond), nil)
	}
}

// abandon takes a tenure and forgets it.
func (h *hand) abandon(ctx context.Context, resource lastword.Resource, o client.AcquireOptions) {
	q := h.request(resource, o)
	for range 2 {
		if _, err := h.authority.Acquire(ctx, q); err == nil {
			return
		}
	}
}

func (h *hand) request(resource lastword.Resource, o client.AcquireOptions) lastword.AcquireRequest {
	return lastword.AcquireRequest{
		Resource: resource, RequestID: o.RequestID, Owner: h.name, TTL: o.TTL, Class: lastword.ClassWrite,
	}
}

func (h *hand) round(ctx context.Context, resource lastword.Resource, o client.AcquireOptions) {
	l, err := h.client.Acquire(ctx, resource, o)
	if err != nil {
		return
	}
	held := 20 * time.Millisecond
	if h.random.IntN(3) == 0 {
		held = 2 * o.TTL // so that it is renewed
	}
	h.pause(h.upTo(held), l.Context().Done())
	h.repeat(ctx, l, h.request(resource, o))
	if h.random.IntN(2) == 0 {
		_ = l.Complete(ctx, []byte(h.name+o.RequestID)) // the record says what came of it
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Release(ctx)
	if h.random.IntN(4) == 0 {
		h.repeat(ctx, l, h.request(resource, o))
	}
}

// repeat asks again with the request id of a grant: it gives that grant, or says how
// it ended, and never another one (R2).
func (h *hand) repeat(ctx context.Context, l *client.Lease, q lastword.AcquireRequest) {
	t, err := h.authority.Acquire(ctx, q)
	var e *lastword.Error
	switch {
	case err == nil && (t.Fence != l.Fence() || t.LeaseID != l.Ref().LeaseID || t.Grant != l.Grant()):
		h.say("violation", fmt.Sprintf("request %s/%s gave fence %d, then %d", h.name, q.RequestID, l.Fence(), t.Fence))
	case errors.As(err, &e) && e.Code == lastword.CodeTenureEnded && e.Ended.Fence != l.Fence():
		h.say("violation", fmt.Sprintf("request %s/%s gave fence %d, then ended with %d", h.name, q.RequestID, l.Fence(), e.Ended.Fence))
	case errors.As(err, &e):
		switch e.Code {
		case lastword.CodeTenureEnded, lastword.CodeUnavailable, lastword.CodeUnknown, lastword.CodeCanceled:
		default:
			h.say("violation", fmt.Sprintf("request %s/%s was granted fence %d, then refused: %v", h.name, q.RequestID, l.Fence(), err))
		}
	}
}

// steady holds one lease through all restarts, and takes another one when it is lost.
func (h *hand) steady() {
	for !h.finished() {
		h.rounds++
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		l, err := h.client.Acquire(ctx, lastword.Resource("steady/"+h.name), client.AcquireOptions{
			TTL: steadyTTL, Wait: steadyTTL, RequestID: fmt.Sprint("s", h.rounds),
		})
		cancel()
		if err != nil {
			h.pause(10*time.Millisecond, nil)
			continue
		}
		select {
		case <-l.Context().Done():
			h.say("lost", l.Fence())
		case <-h.finish:
			if err := h.settles(l); err != nil {
				h.say("violation", h.name+": "+err.Error())
			}
			_ = l.Close()
		}
	}
}

// settles waits until a lease is HELD, and for a renewal after that.
func (h *hand) settles(l *client.Lease) error {
	end := time.Now().Add(l.TTL())
	for time.Now().Before(end) || l.State() != lastword.HolderHeld {
		select {
		case <-l.Context().Done():
			return fmt.Errorf("the lease ended although the authority is up: %w", context.Cause(l.Context()))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// last shows that this hand works by itself again.
func (h *hand) last() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := h.client.Acquire(ctx, lastword.Resource("last/"+h.name), client.AcquireOptions{TTL: 900 * time.Millisecond, Wait: 10 * time.Second})
	if err != nil {
		return err
	}
	return errors.Join(h.settles(l), l.Release(ctx))
}
