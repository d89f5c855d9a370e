package authority

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
	"github.com/lastword/lastword/store"
)

// run is what a started process holds: its epoch, and what the witness said.
type run struct {
	header  core.Header
	witness *Mark
}

// startAttempts bounds how often a start that loses against another one is tried.
const startAttempts = 16

// start takes a new issuer epoch in three durable steps (R10): announce it in the
// witness, set it in the store on the condition of the epoch read there, make it
// the witness's current one.
func start(ctx context.Context, s store.Store, cfg Config) (run, error) {
	for range startAttempts {
		r, done, err := tryStart(ctx, s, cfg)
		if err != nil || done {
			return r, err
		}
	}
	return run{}, &lastword.Error{
		Code: lastword.CodeUnavailable, Message: "other processes kept starting on the same store", Hint: "start them one after the other",
	}
}

func tryStart(ctx context.Context, s store.Store, cfg Config) (run, bool, error) {
	view, err := s.Read(ctx)
	if err != nil {
		return run{}, false, err
	}
	mark, err := cfg.Witness.Load(ctx)
	if err != nil {
		return run{}, false, err
	}
	h := view.Header
	if !h.Exists {
		h.Identity, h.TickSpan = strings.ToLower(rand.Text()), core.Span(cfg.Tick)
	}
	plan := core.PlanStart(h, mark)
	next := h
	next.Exists, next.Epoch, next.Identity = true, plan.Epoch, plan.Witness.Store
	if plan.Code == lastword.CodeFenceRegression && cfg.OnRegression == Advance {
		cfg.Logger.Warn("advancing over a regression", slog.String("found", plan.Why))
		if mark != nil && mark.Longest == 0 || mark == nil {
			mark = withLongest(mark, cfg)
		}
		plan, next = core.PlanAdvance(h, mark)
		mark, err = cfg.Witness.Load(ctx)
		if err != nil {
			return run{}, false, err
		}
	}
	if err := startError(plan); err != nil {
		return run{}, false, err
	}
	if plan.Adopted {
		cfg.Logger.Warn("the witness was missing and is made anew", slog.Uint64("epoch", uint64(plan.Epoch)))
	}
	return announce(ctx, s, cfg, view.Header, next, mark, plan)
}

// withLongest: a witness that cannot tell the longest TTL counts as having seen
// the longest that this configuration grants.
func withLongest(m *Mark, cfg Config) *Mark {
	var guess Mark
	if m != nil {
		guess = *m
	}
	guess.Longest = core.Span(cfg.MaxTTL)
	return &guess
}

// announce runs the three steps. done is false if another process was faster.
func announce(ctx context.Context, s store.Store, cfg Config, read, next core.Header, mark *Mark, plan core.Start) (run, bool, error) {
	if mark == nil || *mark != plan.Witness {
		ok, err := cfg.Witness.Swap(ctx, mark, plan.Witness)
		if err != nil || !ok {
			return run{}, false, err
		}
	}
	if read != next {
		applied, err := s.Commit(ctx, store.Step{
			Create: !read.Exists, Epoch: read.Epoch, OnTick: true, Tick: read.Tick, Header: &next,
		})
		if err != nil || !applied[0] {
			return run{}, false, err
		}
	}
	settled := plan.Witness.Settled()
	if _, err := cfg.Witness.Swap(ctx, &plan.Witness, settled); err != nil {
		return run{}, false, err
	}
	now, err := cfg.Witness.Load(ctx)
	if err != nil {
		return run{}, false, err
	}
	if now == nil || now.Current < next.Epoch {
		return run{}, false, nil
	}
	return run{header: next, witness: now}, true, nil
}

func startError(plan core.Start) error {
	switch plan.Code {
	case lastword.CodeFenceRegression:
		return regressed(plan.Why)
	case lastword.CodeExhausted:
		return &lastword.Error{Code: lastword.CodeExhausted, Message: plan.Why, Hint: "a new domain is the way out"}
	}
	return nil
}

func regressed(why string) error {
	return &lastword.Error{
		Code: lastword.CodeFenceRegression, Message: why,
		Hint: "the store was restored, cloned or exchanged; make sure that it is the right one, then start with --on-regression=advance",
	}
}
