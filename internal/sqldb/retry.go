package sqldb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff says how [Backoff.Retry] waits. Its zero value works.
type Backoff struct {
	// First and Longest bound the waits: the n-th is a random part of
	// First × 2^n, at most Longest. 0 means 1 ms and 100 ms.
	First, Longest time.Duration
	// Random returns a number in [0, 1); nil means math/rand/v2.
	Random func() float64
	// Wait waits for d or until ctx ends; nil means a timer.
	Wait func(ctx context.Context, d time.Duration) error
}

// Retry calls fn, a whole transaction, again and again while its error is of class
// [Busy], until ctx ends. It then returns an error that wraps both the end of ctx
// and what fn said last. fn is called at least once unless ctx has already ended.
func (b Backoff) Retry(ctx context.Context, d Dialect, fn func(context.Context) error) error {
	b = b.withDefaults()
	if err := ctx.Err(); err != nil {
		return err
	}
	for most := b.First; ; most = min(2*most, b.Longest) {
		err := fn(ctx)
		if err == nil || d.Class(err) != Busy {
			return err
		}
		wait := time.Duration(b.Random() * float64(most))
		if ended := b.Wait(ctx, wait); ended != nil {
			return fmt.Errorf("%w while %w", ended, err)
		}
	}
}

func (b Backoff) withDefaults() Backoff {
	if b.First <= 0 {
		b.First = time.Millisecond
	}
	if b.Longest <= 0 {
		b.Longest = 100 * time.Millisecond
	}
	if b.Random == nil {
		b.Random = rand.Float64
	}
	if b.Wait == nil {
		b.Wait = wait
	}
	return b
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d) //nolint:forbidigo // the default of Backoff.Wait, the only one
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}
