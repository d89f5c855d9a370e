package rpc

import "sync"

// crew runs calls of sessions in goroutines that are used again: what a call costs
// most, beside its signature, is the growing of a new stack.
type crew struct {
	mu     sync.Mutex
	idle   []chan func() // the one that was used last comes last
	closed bool
}

// maxIdleCrew bounds the goroutines that are kept.
const maxIdleCrew = 2 * sessionShare

// run calls f in a goroutine of its own.
func (c *crew) run(f func()) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		next := c.idle[n-1]
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		next <- f
		return
	}
	c.mu.Unlock()
	go c.work(f)
}

func (c *crew) work(f func()) {
	jobs := make(chan func(), 1)
	for f != nil {
		f()
		if !c.keep(jobs) {
			return
		}
		f = <-jobs
	}
}

func (c *crew) keep(jobs chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdleCrew {
		return false
	}
	c.idle = append(c.idle, jobs)
	return true
}

// close lets go of those that are idle, and of the others when they are.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, jobs := range c.idle {
		jobs <- nil
	}
	c.idle = nil
}
