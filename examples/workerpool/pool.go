package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

const (
	agents = 4
	ttl    = 2 * time.Second
)

// work lets all agents work until every task has its result.
func work(ctx context.Context, remote client.Authority, r *results) error {
	var all sync.WaitGroup
	errs := make([]error, agents)
	for i := range agents {
		a := &agent{name: fmt.Sprintf("agent-%d", i+1), results: r}
		authority := remote
		if i == 0 {
			a.hang = &hang{Authority: remote}
			authority = a.hang
		}
		all.Go(func() { errs[i] = a.run(ctx, authority) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// agent claims tasks one after the other.
type agent struct {
	name    string
	results *results
	hang    *hang // of the one that hangs, until it has
}

func (a *agent) run(ctx context.Context, authority client.Authority) error {
	c, err := client.New(authority, client.Config{Owner: a.name})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // what it still holds lapses by itself
	for {
		open, err := a.round(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if open == 0 {
			return nil
		}
		select { // what is open is in the hands of others
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// round tries every task once and tells how many have no result yet.
func (a *agent) round(ctx context.Context, c *client.Client) (open int, err error) {
	for task := range tasks {
		done, err := a.results.done(ctx, task)
		if err != nil {
			return 0, err
		}
		if done {
			continue
		}
		open++
		lease, err := c.Acquire(ctx, resource(task), client.AcquireOptions{TTL: ttl})
		switch {
		case errors.Is(err, lastword.ErrHeld):
			continue // somebody else is at it
		case err != nil:
			return 0, err
		}
		if err := a.settle(ctx, lease, task); err != nil {
			return 0, err
		}
	}
	return open, nil
}

// settle does one task under its lease and gives the lease up.
func (a *agent) settle(ctx context.Context, lease *client.Lease, task int) error {
	defer func() { _ = lease.Close() }()
	if a.hang != nil {
		h := a.hang
		a.hang = nil
		if err := a.hangOn(ctx, h, lease, task); err != nil {
			return err
		}
	}
	answer := a.think(task)
	// The context ends with the lease: work that looks at it stops in time.
	receipt, err := a.results.fence.Apply(lease.Context(), lease, operation(task), []byte(answer), func(ctx context.Context, tx *sql.Tx) error {
		return insert(ctx, tx, task, answer, a.name)
	})
	switch {
	case errors.Is(err, lastword.ErrNotHolder):
		fmt.Printf("%s wakes up: its lease says NOT_HOLDER, nothing was sent\n", a.name)
		return a.tooLate(ctx, lease, task, answer)
	case errors.Is(err, lastword.ErrStale):
		return nil // a newer holder has the task
	case errors.Is(err, lastword.ErrUnknownOutcome):
		return nil // the next round asks for the receipt
	case err != nil:
		return err
	}
	fmt.Printf("%s %s task %d with fence %s\n", a.name, receipt.Verdict, task, receipt.Fence)
	// The authority keeps the result beside the tenure, for whoever asks there.
	if err := lease.Complete(ctx, []byte(answer)); err != nil && !errors.Is(err, lastword.ErrNotHolder) && !errors.Is(err, lastword.ErrUnknownOutcome) {
		return err
	}
	return nil
}

// think stands for the agent's work.
func (a *agent) think(task int) string { return strconv.Itoa(task * task) }

// hangOn lets the agent hang until another one has done its task.
func (a *agent) hangOn(ctx context.Context, h *hang, lease *client.Lease, task int) error {
	fmt.Printf("%s hangs, with the lease of task %d and fence %s\n", a.name, task, lease.Fence())
	h.begin()
	defer h.end()
	for {
		done, err := a.results.done(ctx, task)
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tooLate sends the write that the lease has refused all the same, as a process does
// that was stopped between its check and its write: only the database can refuse it.
func (a *agent) tooLate(ctx context.Context, lease *client.Lease, task int, answer string) error {
	_, err := a.results.fence.ApplyMutation(ctx, lease.Resource(),
		lastword.Mutation{Grant: lease.Grant(), Operation: operation(task) + "-late", Payload: lastword.DigestOf([]byte(answer))},
		func(ctx context.Context, tx *sql.Tx) error { return insert(ctx, tx, task, answer, a.name) })
	switch {
	case err == nil:
		return errors.New("the write that comes too late was accepted")
	case !errors.Is(err, lastword.ErrStale):
		return fmt.Errorf("the write that comes too late was not refused as stale: %w", err)
	}
	fmt.Printf("%s sends its write of task %d all the same: the database says STALE_OWNER\n", a.name, task)
	return nil
}

// hang is an authority to which a holder finds no way to keep its lease while it hangs,
// as for a process that is stopped.
type hang struct {
	client.Authority
	mu      sync.Mutex
	hanging bool
}

func (h *hang) begin() { h.set(true) }
func (h *hang) end()   { h.set(false) }

func (h *hang) set(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hanging = on
}

// Renew implements [client.Authority].
func (h *hang) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	if err := h.wait(ctx); err != nil {
		return lastword.Tenure{}, err
	}
	return h.Authority.Renew(ctx, ref)
}

// Status implements [client.Authority].
func (h *hang) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	if err := h.wait(ctx); err != nil {
		return lastword.Status{}, err
	}
	return h.Authority.Status(ctx, q)
}

// wait fails at the end of ctx while it hangs.
func (h *hang) wait(ctx context.Context) error {
	h.mu.Lock()
	hanging := h.hanging
	h.mu.Unlock()
	if hanging {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
