package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lastword/lastword/lab/history"
)

// calmRounds is how many rounds each cell plays in the last phase: hand-overs after a
// release, and one after a crash.
func (o Options) calmRounds() int { return (o.Handovers+o.Cells-1)/o.Cells + 1 }

// calmPhase is the end of a run: nothing is wrong, so everything has to work, soon. A
// hand-over is measured again, at most four times, if it was too slow and the machine itself
// was late meanwhile: what else it does is not what is measured.
func (r *run) calmPhase(ctx context.Context) error {
	r.mu.Lock()
	r.calm = true
	r.mu.Unlock()
	for try := range calmTries {
		lag := watchLag(r.dir)
		err := r.calmSeries(ctx, try)
		late := lag()
		if err != nil {
			return err
		}
		r.mu.Lock()
		s := series{r.handovers.calmReleased, r.handovers.calmCrashed, late}
		r.series = append(r.series, s)
		r.handovers.calmReleased, r.handovers.calmCrashed = nil, nil
		r.mu.Unlock()
		if p99(s.released) <= releaseBound && p99(s.crashed) <= crashBound || p99(late) <= releaseBound/5 {
			break
		}
	}
	var settling sync.WaitGroup
	errs := make([]error, len(r.cells))
	for n, c := range r.cells {
		settling.Go(func() { errs[n] = c.settle(ctx) })
	}
	settling.Wait()
	return errors.Join(errs...)
}

const calmTries = 5

// calmSeries plays one cell after the other: what is measured is the hand-over, not the
// machine.
func (r *run) calmSeries(ctx context.Context, try int) error {
	each := r.opts.calmRounds()
	for n, c := range r.cells {
		for i := range each {
			if err := r.calmRound(ctx, c, (try*len(r.cells)+n)*each+i, i == each-1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) calmRound(ctx context.Context, c *cell, n int, crash bool) error {
	round := round{Number: len(r.plan.Rounds)*(tries+1) + n, TTL: ttls[0], Main: fault{Kind: calm}, Calm: true, Swap: n%2 == 1, Seed: uint64(n)}
	if crash {
		round.Main = fault{Kind: crashing, Point: beforeSend}
		r.tally.planned(cases[crashing], round.Main.names()...)
	}
	before := history.Clock()
	if err := c.playRound(ctx, round); err != nil {
		return err
	}
	r.count("calm_rounds", 1)
	if took := since(before); took > calmLimit {
		r.broke("not_live", fmt.Sprintf("%s: a round in which nothing was wrong took %v", c.resource, took))
	}
	return nil
}

// calmLimit is far above what a round without a fault takes.
const calmLimit = 10 * time.Second
