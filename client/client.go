package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lastword/lastword"
)

// Client holds leases on behalf of one owner. It is safe for concurrent use.
type Client struct {
	authority Authority
	cfg       Config

	// closing ends when Close is called; acquires under way then give up.
	closing context.Context
	close   context.CancelFunc

	agenda   agenda    // when something is to be done about which lease
	calls    calls     // those that keep leases up
	silent   bool      // neither log nor receiver wants to hear of events
	reporter *reporter // nil if nobody observes

	mu      sync.Mutex
	closed  bool
	leases  map[*Lease]struct{}
	claims  map[requestName]*Lease // nil while the acquire is under way
	running sync.WaitGroup         // acquires, and leases that are not over
	telling sync.WaitGroup         // those who call log and receiver of events
}

// New returns a client of a. It does no I/O. It fails with [lastword.ErrInvalid]
// if cfg is out of bounds.
func New(a Authority, cfg Config) (*Client, error) {
	if a == nil {
		return nil, invalid("configure client", "", "no authority")
	}
	silent := cfg.Logger == nil && cfg.OnEvent == nil
	if proven, ok := a.(interface{ Owner() string }); ok && cfg.Owner == "" {
		cfg.Owner = proven.Owner() // "" if owners are what callers say
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{authority: a, cfg: cfg, silent: silent, leases: make(map[*Lease]struct{}), claims: make(map[requestName]*Lease)}
	c.agenda.now = c.now
	c.calls.init(c.now)
	c.reporter = newReporter(c)
	c.closing, c.close = context.WithCancel(context.Background())
	return c, nil
}

// Owner is the name this client acquires under.
func (c *Client) Owner() string { return c.cfg.Owner }

// Close ends everything: acquires under way give up and cancel their attempts,
// leases are released, and Close returns when nothing is left. Where work under
// [Client.Run] is under way its context is cancelled and Close waits for it, no
// longer than [Config.DrainTimeout]; after that the lease is left to lapse. The
// releases and the last events each have [Config.CleanupTimeout] on top. The error
// joins those of the leases. A later acquire fails; a second Close returns nil once
// the first one is through. A receiver of events must not call it.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	open := make([]*Lease, 0, len(c.leases))
	for l := range c.leases {
		open = append(open, l)
	}
	c.mu.Unlock()
	c.close()

	errs := make([]error, len(open))
	var wg sync.WaitGroup
	for i, l := range open {
		wg.Go(func() { errs[i] = l.drainAndClose() })
	}
	wg.Wait()
	c.running.Wait()
	c.told()
	return errors.Join(errs...)
}

// told waits until what happened has been told, as long as the receivers return.
func (c *Client) told() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.telling.Wait()
	}()
	ctx, cancel := c.cleanup(context.Background())
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		c.cfg.Logger.Warn("a receiver of events does not return")
	}
	if c.reporter != nil && !c.reporter.outbox.Wait(ctx) {
		c.cfg.Logger.Warn("an observer does not return")
	}
}

// start counts something that Close waits for. It fails once Close was called.
func (c *Client) start(r lastword.Resource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: "acquire", Resource: r, Message: "the client is closed"}
	}
	c.running.Add(1)
	return nil
}

// enter takes a lease among those that Close releases. It fails once Close was
// called: nobody would release it then.
func (c *Client) enter(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.leases[l] = struct{}{}
	c.claims[l.request()] = l
	c.running.Add(1)
	return true
}

func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l)
	delete(c.claims, l.request())
}

// requestName is a request id of this client's owner.
type requestName struct {
	resource lastword.Resource
	id       string
}

// claim takes a request id for one acquire and the lease that may come of it. Two
// leases of one tenure would contradict each other: the end of one is not seen by the
// other.
func (c *Client) claim(name requestName) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, taken := c.claims[name]
	switch {
	case !taken:
		c.claims[name] = nil
		return nil
	case l == nil:
		return invalid("acquire", name.resource, "request id %s: an acquire with it is under way on this client", name.id)
	}
	e := &lastword.Error{
		Code: lastword.CodeInvalid, Op: "acquire", Resource: name.resource, Fence: l.tenure.Fence,
		Message: fmt.Sprintf("request id %s: this client has a lease of it, with fence %s", name.id, l.tenure.Fence.Text()),
		Hint:    "use that lease, or acquire with another request id",
	}
	return e
}

// unclaim gives a request id free that no lease has come of.
func (c *Client) unclaim(name requestName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims[name] == nil {
		delete(c.claims, name)
	}
}

func (c *Client) now() int64 { return int64(c.cfg.Elapsed()) }

// cleanup is a context for what has to be done although ctx may have ended.
func (c *Client) cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.cfg.CleanupTimeout)
}

// sleep waits for d, or until ctx or stop ends; it reports whether d passed.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retry calls until there is a clear answer, or ctx has ended; each call has its
// own time-out. "Not done" is the error only if no try before left it open.
func (c *Client) retry(ctx context.Context, op string, r lastword.Resource, ttl, timeout time.Duration, call func(context.Context) error) error {
	pauses, open := c.backoff(ttl), false
	for {
		err := bounded(ctx, timeout, call)
		if err == nil || answerOf(err) == refused {
			return err
		}
		open = open || answerOf(err) == unclear
		switch {
		case sleep(ctx, pauses()):
		case open && !errors.Is(err, lastword.ErrUnknownOutcome):
			return &lastword.Error{Code: lastword.CodeUnknown, Op: op, Resource: r, Message: fmt.Sprintf("no clear answer: %v", err)}
		default:
			return err
		}
	}
}

// backoff returns the pauses between tries about a tenure of this TTL: from 20 ms
// doubling up to a twelfth of the TTL or 2 s, each spread over its upper half.
func (c *Client) backoff(ttl time.Duration) func() time.Duration {
	limit := min(ttl/12, 2*time.Second)
	next := min(20*time.Millisecond, limit)
	return func() time.Duration {
		d := c.cfg.pause(next)
		next = min(2*next, limit)
		return d
	}
}

func bounded(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(ctx)
}
