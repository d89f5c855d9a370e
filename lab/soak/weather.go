package soak

import (
	"context"
	"sync"
	"time"

	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/proxy"
)

// weather begins what befalls a round beside its fault, and returns what ends it.
func (p *play) weather(ctx context.Context) (end func()) {
	var ends []func()
	for _, k := range p.Weather {
		if k == duplicates {
			ends = append(ends, p.repeatRenewals(ctx))
			continue
		}
		ends = append(ends, p.disturb(ctx, k))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// repeatRenewals sends the first worker's renewals again and again beside its own.
func (p *play) repeatRenewals(ctx context.Context) (end func()) {
	if p.Main.Kind == freezing || p.Main.Kind == killing {
		return func() {} // it would not answer
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	p.run.tally.fired(string(duplicates))
	accepted := 0
	running.Go(func() {
		for ctx.Err() == nil {
			if a, err := p.a.hand.ask(ctx, order{Do: "renew"}); err == nil && a.Code == "OK" {
				accepted++
			}
			pause(ctx, p.TTL/8)
		}
	})
	return func() {
		cancel()
		running.Wait()
		p.run.tally.effect(accepted > 1, string(duplicates))
	}
}

// disturb makes messages late (X12) or clogs the four links one by one and opens them in
// another order (X13). What it begins ends with the returned function.
func (p *play) disturb(ctx context.Context, k kind) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	from := history.Clock()
	p.run.tally.fired(string(k))
	links := []*proxy.Proxy{p.a.hold, p.a.ask, p.b.hold, p.b.ask}
	var running sync.WaitGroup
	if k == slow {
		for i, l := range links[:2] {
			l.Slow(lateness(p.Seed+uint64(i), p.TTL))
		}
	} else {
		order, back := p.random.Perm(len(links)), p.random.Perm(len(links))
		waits := make([]time.Duration, len(links)*2)
		for i := range waits {
			waits[i] = time.Duration(p.random.Int64N(int64(p.TTL / 2)))
		}
		running.Go(func() {
			blocks := map[int]*proxy.Block{}
			for i, n := range order {
				blocks[n] = links[n].Block(proxy.Both)
				pause(ctx, waits[i])
			}
			for i, n := range back {
				blocks[n].Heal()
				pause(ctx, waits[len(order)+i])
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
		if k == slow {
			links[0].Slow(nil)
			links[1].Slow(nil)
		}
		late := p.run.longest(p.cell, from) > p.TTL/6
		p.run.tally.effect(late || p.troubled(p.a.owner, from)+p.troubled(p.b.owner, from) > 0, string(k))
	}
}
