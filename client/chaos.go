package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lastword/lastword"
)

// ChaosConfig says how badly a [Chaos] treats messages. The zero value harms none.
// Every share is a probability, 0 to 1; they are drawn independently of each other.
type ChaosConfig struct {
	// Seed decides everything together with the calls; see [Chaos].
	Seed uint64
	// LoseRequest is the share of messages that never arrive, LoseReply the share of
	// those that arrive and are processed, and whose answers are lost. Half of the
	// losses are told at once, as a broken connection is; of the others the caller
	// hears nothing until its context ends. Either way the error is
	// [lastword.ErrUnknownOutcome].
	LoseRequest, LoseReply float64
	// DelayRequest and DelayReply are the shares that are late. Whoever gives up
	// meanwhile has sent the message all the same: it arrives later.
	DelayRequest, DelayReply float64
	// Duplicate is the share of messages of which a second copy arrives later. Its
	// answer is lost.
	Duplicate float64
	// MaxDelay is the longest of the delays, each of which is drawn between 0 and
	// it. 0 to 1 h; 0 is 1 s.
	MaxDelay time.Duration
	// Ops names the operations that suffer: "acquire", "renew", "release",
	// "complete", "cancel", "status". None means all.
	Ops []string
}

func (cfg ChaosConfig) withDefaults() (ChaosConfig, error) {
	if cfg.MaxDelay == 0 {
		cfg.MaxDelay = time.Second
	}
	if cfg.MaxDelay < 0 || cfg.MaxDelay > time.Hour {
		return cfg, invalid("configure chaos", "", "longest delay %s: want 0 to 1h", cfg.MaxDelay)
	}
	for name, p := range map[string]float64{
		"lose request": cfg.LoseRequest, "lose reply": cfg.LoseReply, "delay request": cfg.DelayRequest,
		"delay reply": cfg.DelayReply, "duplicate": cfg.Duplicate,
	} {
		if !(p >= 0 && p <= 1) { // NaN is neither
			return cfg, invalid("configure chaos", "", "%s %v: want 0 to 1", name, p)
		}
	}
	for _, op := range cfg.Ops {
		switch op {
		case "acquire", "renew", "release", "complete", "cancel", "status":
		default:
			return cfg, invalid("configure chaos", "", "no operation %q", op)
		}
	}
	return cfg, nil
}

// Chaos is an [Authority] that loses, delays and duplicates the messages to another
// one, for tests of programs that hold leases: put it between their [Client] and the
// authority.
//
// What happens to a message depends on the seed, the operation, the resource and on
// the how-manieth call of that operation on that resource it is, and on nothing else:
// not on what other resources do, nor on goroutines. So a run is repeated by its
// seed as far as the program makes the same calls again. Give each client a Chaos of
// its own. In a bubble of testing/synctest delays cost no time.
//
// It is safe for concurrent use. Messages that are late go on after their caller has
// given up: Close throws away those that have not arrived, and waits.
type Chaos struct {
	authority Authority
	cfg       ChaosConfig
	suffers   map[string]bool

	mu     sync.Mutex
	nth    map[chaosCall]uint64
	counts ChaosCounts
	closed bool

	over     context.Context //nolint:containedctx // ends what is on its way
	setOver  context.CancelFunc
	underWay sync.WaitGroup
}

// ChaosCounts is how often what happened.
type ChaosCounts struct {
	Calls                                 int // all, with those that came to no harm
	LostRequests, LostReplies             int
	DelayedRequests, DelayedReplies, Dups int
}

type chaosCall struct {
	op       string
	resource lastword.Resource
}

// NewChaos returns a Chaos in front of a. It fails with [lastword.ErrInvalid] if cfg
// is out of bounds.
func NewChaos(a Authority, cfg ChaosConfig) (*Chaos, error) {
	if a == nil {
		return nil, invalid("configure chaos", "", "no authority")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Chaos{authority: a, cfg: cfg, nth: make(map[chaosCall]uint64), suffers: make(map[string]bool)}
	for _, op := range cfg.Ops {
		c.suffers[op] = true
	}
	c.over, c.setOver = context.WithCancel(context.Background())
	return c, nil
}

// Close throws away the messages that are on their way and waits for the calls of
// those that have arrived. Later calls are [lastword.ErrUnavailable].
func (c *Chaos) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.setOver()
	c.underWay.Wait()
	return nil
}

// Counts is what has happened so far: a test that nothing happened to proves nothing.
func (c *Chaos) Counts() ChaosCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Acquire implements [Authority].
func (c *Chaos) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	return through(ctx, c, "acquire", r.Resource, func(ctx context.Context) (lastword.Tenure, error) { return c.authority.Acquire(ctx, r) })
}

// Renew implements [Authority].
func (c *Chaos) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	return through(ctx, c, "renew", ref.Resource, func(ctx context.Context) (lastword.Tenure, error) { return c.authority.Renew(ctx, ref) })
}

// Release implements [Authority].
func (c *Chaos) Release(ctx context.Context, ref lastword.TenureRef) error {
	return c.tell(ctx, "release", ref.Resource, func(ctx context.Context) error { return c.authority.Release(ctx, ref) })
}

// Complete implements [Authority].
func (c *Chaos) Complete(ctx context.Context, ref lastword.TenureRef, result []byte) error {
	result = append([]byte(nil), result...) // a copy may arrive after the caller has gone on
	return c.tell(ctx, "complete", ref.Resource, func(ctx context.Context) error { return c.authority.Complete(ctx, ref, result) })
}

// Cancel implements [Authority].
func (c *Chaos) Cancel(ctx context.Context, resource lastword.Resource, owner, requestID string) error {
	return c.tell(ctx, "cancel", resource, func(ctx context.Context) error { return c.authority.Cancel(ctx, resource, owner, requestID) })
}

// Status implements [Authority].
func (c *Chaos) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	return through(ctx, c, "status", q.Resource, func(ctx context.Context) (lastword.Status, error) { return c.authority.Status(ctx, q) })
}

func (c *Chaos) tell(ctx context.Context, op string, r lastword.Resource, call func(context.Context) error) error {
	_, err := through(ctx, c, op, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// fate is what happens to one message.
type fate struct {
	loseRequest, loseReply   bool
	told                     bool // a loss is told at once
	delayRequest, delayReply time.Duration
	duplicate                time.Duration // after the first copy; 0 is no second one
}

// draw decides about the next call of op on r, and counts.
func (c *Chaos) draw(op string, r lastword.Resource) (fate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fate{}, &lastword.Error{Code: lastword.CodeUnavailable, Op: op, Resource: r, Message: "the chaos is closed"}
	}
	c.underWay.Add(1)
	c.counts.Calls++
	if len(c.suffers) > 0 && !c.suffers[op] {
		return fate{}, nil
	}
	call := chaosCall{op, r}
	c.nth[call]++
	f := c.cfg.fate(call, c.nth[call])
	for _, x := range []struct {
		count *int
		it    bool
	}{
		{&c.counts.LostRequests, f.loseRequest},
		{&c.counts.LostReplies, f.loseReply},
		{&c.counts.DelayedRequests, f.delayRequest > 0},
		{&c.counts.DelayedReplies, f.delayReply > 0},
		{&c.counts.Dups, f.duplicate > 0},
	} {
		if x.it {
			*x.count++
		}
	}
	return f, nil
}

// fate is a function of its arguments alone. Each draw takes its own number, so that
// one share does not change what the others come to.
func (cfg ChaosConfig) fate(call chaosCall, nth uint64) fate {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", call.op, call.resource)
	_ = binary.Write(h, binary.BigEndian, nth)
	r := rand.New(rand.NewPCG(cfg.Seed, h.Sum64()))
	late := func(share float64) time.Duration {
		hit, part := r.Float64() < share, r.Float64()
		if !hit {
			return 0
		}
		return 1 + time.Duration(part*float64(cfg.MaxDelay))
	}
	f := fate{
		loseRequest: r.Float64() < cfg.LoseRequest, loseReply: r.Float64() < cfg.LoseReply, told: r.Float64() < 0.5,
		delayRequest: late(cfg.DelayRequest), delayReply: late(cfg.DelayReply), duplicate: late(cfg.Duplicate),
	}
	if f.loseRequest {
		return fate{loseRequest: true, told: f.told}
	}
	return f
}

// through takes a message there and its answer back.
func through[T any](ctx context.Context, c *Chaos, op string, r lastword.Resource, call func(context.Context) (T, error)) (T, error) {
	var none T
	unknown := func(why error) error {
		return &lastword.Error{Code: lastword.CodeUnknown, Op: op, Resource: r, Message: "lost on purpose", Err: why}
	}
	f, err := c.draw(op, r)
	if err != nil {
		return none, err
	}
	defer c.underWay.Done()
	if f == (fate{}) {
		return call(ctx)
	}
	if f.loseRequest {
		return none, unknown(c.loss(ctx, f))
	}
	type answered struct {
		answer T
		err    error
	}
	reply := make(chan answered, 1)
	send := func(delay time.Duration) (a answered, ok bool) {
		if !sleep(c.over, delay) {
			return a, false
		}
		ctx, cancel := c.arrival(ctx)
		defer cancel()
		a.answer, a.err = call(ctx)
		return a, true
	}
	if f.duplicate > 0 {
		c.underWay.Go(func() { send(f.delayRequest + f.duplicate) })
	}
	c.underWay.Go(func() {
		a, ok := send(f.delayRequest)
		switch {
		case !ok || f.loseReply && !f.told:
		case f.loseReply:
			reply <- answered{err: unknown(nil)}
		case sleep(c.over, f.delayReply):
			reply <- a
		}
	})
	select {
	case a := <-reply:
		return a.answer, a.err
	case <-ctx.Done():
		return none, unknown(ctx.Err())
	case <-c.over.Done():
		return none, unknown(nil)
	}
}

// lateCall bounds a call that arrives when its caller has given up.
const lateCall = 10 * time.Second

// arrival is the context of a message that arrives now. What was sent is not called
// back by a caller who has given up on it.
func (c *Chaos) arrival(caller context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(caller)
	if caller.Err() != nil {
		cancel()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(caller), lateCall)
	}
	unhook := context.AfterFunc(c.over, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}

// loss waits for as long as the caller hears nothing of it.
func (c *Chaos) loss(ctx context.Context, f fate) error {
	if f.told {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-c.over.Done():
	}
	return ctx.Err()
}
