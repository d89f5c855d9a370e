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
const startAttempts = 64

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
	h, mark, stable, err := observe(ctx, s, cfg.Witness)
	if err != nil || !stable {
		return run{}, false, err
	}
	read := h
	if !h.Exists {
		h.Identity, h.Domain, h.TickSpan = strings.ToLower(rand.Text()), cfg.Domain, core.Span(cfg.Tick)
	}
	if h.Domain != cfg.Domain {
		e := invalid("the store issues the fences of domain %q, not of %q", h.Domain, cfg.Domain)
		e.Hint = "use that domain, or another store"
		return run{}, false, e
	}
	plan := core.PlanStart(h, mark)
	next := h
	next.Exists, next.Epoch, next.Identity = true, plan.Epoch, plan.Witness.Store
	switch {
	case plan.Code == lastword.CodeFenceRegression && cfg.OnRegression == Advance:
		cfg.Logger.Warn("advancing over a regression", slog.String("found", plan.Why))
		plan, next, err = advance(ctx, s, cfg, h, mark)
	case plan.Adopted:
		cfg.Logger.Warn("the witness was missing and is made anew", slog.Uint64("epoch", uint64(plan.Epoch)))
		plan, err = adopt(ctx, s, plan)
	}
	if err != nil {
		return run{}, false, err
	}
	next.Witnessed = next.Witnessed || cfg.Witnessed
	if err := startError(plan); err != nil {
		return run{}, false, err
	}
	return announce(ctx, s, cfg, read, next, mark, plan)
}

// observe reads store and witness. They belong together (stable) if the witness
// stood still while the store was read: another process's start changes both.
func observe(ctx context.Context, s store.Store, w Witness) (h core.Header, mark *Mark, stable bool, err error) {
	before, err := w.Load(ctx)
	if err != nil {
		return h, nil, false, notDone(err, "the witness did not answer")
	}
	view, err := s.Read(ctx)
	if err != nil {
		return h, nil, false, err
	}
	mark, err = w.Load(ctx)
	if err != nil {
		return h, nil, false, notDone(err, "the witness did not answer")
	}
	return view.Header, mark, same(before, mark), nil
}

// advance plans the way out of a regression: an epoch above every one that witness,
// store and records know, and a wait for the longest TTL that may have been granted.
func advance(ctx context.Context, s store.Store, cfg Config, h core.Header, mark *Mark) (core.Start, core.Header, error) {
	epoch, longest, err := survey(ctx, s)
	if err != nil {
		return core.Start{}, h, err
	}
	h.Identity, _ = h.Original()
	known := Mark{}
	if mark != nil {
		known = *mark
	}
	known.Longest = max(known.Longest, longest)
	if mark == nil || mark.Store != h.Identity || known.Longest == 0 {
		// It cannot tell what was granted here: as long as this configuration allows.
		known.Longest = max(known.Longest, core.Span(cfg.MaxTTL))
	}
	if h.Exists && h.Epoch >= max(known.Current, known.Pending, epoch) {
		// The witness must not know the store's epoch while this is under way: a
		// start after an interruption would take it for a start like any other.
		epoch = h.Epoch + 1
	}
	plan, next := core.PlanAdvance(h, &known, epoch)
	return plan, next, nil
}

// adopt makes a witness anew beside a store that had none: it knows the longest TTL
// of the tenures that may be alive.
func adopt(ctx context.Context, s store.Store, plan core.Start) (core.Start, error) {
	_, longest, err := survey(ctx, s)
	plan.Witness.Longest = longest
	return plan, err
}

// survey is the largest epoch and the longest TTL of all records.
func survey(ctx context.Context, s store.Store) (epoch uint32, longest core.Span, err error) {
	const page = 512
	var after lastword.Resource
	for {
		records, err := s.List(ctx, "", after, page)
		if err != nil {
			return 0, 0, err
		}
		for i := range records {
			epoch, longest = max(epoch, records[i].Epoch), max(longest, records[i].Lease.TTL)
			after = records[i].Resource
		}
		if len(records) < page {
			return epoch, longest, nil
		}
	}
}

// announce runs the three steps. done is false if another process was faster.
func announce(ctx context.Context, s store.Store, cfg Config, read, next core.Header, mark *Mark, plan core.Start) (run, bool, error) {
	if mark == nil || *mark != plan.Witness {
		ok, err := cfg.Witness.Swap(ctx, mark, plan.Witness)
		if err != nil {
			return run{}, false, notDone(err, "the witness did not answer")
		}
		if !ok {
			return run{}, false, nil
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
	if _, err := cfg.Witness.Swap(ctx, &plan.Witness, plan.Witness.Settled()); err != nil {
		return run{}, false, notDone(err, "the witness did not answer")
	}
	now, err := cfg.Witness.Load(ctx)
	if err != nil {
		return run{}, false, notDone(err, "the witness did not answer")
	}
	if now == nil || now.Store != next.Identity || now.Current < next.Epoch {
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
