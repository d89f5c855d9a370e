package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// liveLeases takes leases and watches them being renewed.
func liveLeases(ctx context.Context, t Target, o Order, began func()) (f Figures, err error) {
	if o.Leases < 1 || o.TTL <= 0 {
		return Figures{}, fmt.Errorf("%d leases of %v: want 1 or more, of more than 0", o.Leases, o.TTL)
	}
	start := time.Now()
	taking, cancel := ctx, func() {}
	if o.Limit > 0 {
		taking, cancel = context.WithTimeout(ctx, o.Limit)
	}
	defer cancel()
	kept, err := t.Keep(taking, o.Leases, o.TTL)
	if err != nil {
		if taking.Err() != nil && ctx.Err() == nil {
			return Figures{GaveUp: true}, nil
		}
		return Figures{}, err
	}
	defer func() { err = errors.Join(err, kept.Done()) }()
	f.Took = time.Since(start)

	var cpu time.Duration
	var before int64
	err = window(ctx, o, func() {
		began()
		cpu, start = cpuTime(), time.Now()
		before, _ = kept.Count()
	})
	if err != nil {
		return Figures{}, err
	}
	f.CPU, f.Elapsed = cpuTime()-cpu, time.Since(start)
	renewed, lost := kept.Count()
	f.Count, f.Lost, f.Held = renewed-before, lost, int64(o.Leases)-lost
	return f, nil
}
