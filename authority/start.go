package authority

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
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
func start(ctx context.Context, s store.Store, cfg Config, e evidence) (run, error) {
	for range startAttempts {
		r, done, err := tryStart(ctx, s, cfg, e)
		if err != nil || done {
			return r, err
		}
	}
	return run{}, &lastword.Error{
		Code: lastword.CodeUnavailable, Message: "other processes kept starting on the same store", Hint: "start them one after the other",
	}
}

// evidence is what a start knows beside store and witness.
type evidence struct {
	signer *grant.Signer
	// above are epochs that a person has found elsewhere.
	above []uint32
	// longest TTL that was ever granted, as a person knows where the witness does not; 0
	// is not known.
	longest core.Span
	// restored: a person says that the store was put back, whatever it looks like.
	restored bool
}

// epochs are those that others than store and witness know. They are read before both:
// a start tells its epoch to the witness before anybody else.
func (e evidence) epochs() ([]uint32, error) {
	if e.signer == nil || e.signer.Ring() == nil {
		return e.above, nil
	}
	ring := e.signer.Ring()
	if err := ring.Reload(); err != nil {
		return nil, err
	}
	if b, err := ring.Bundle(); err == nil {
		return append(slices.Clone(e.above), b.CurrentEpoch()), nil
	}
	return e.above, nil // no authority has used it yet
}

// plan is what a start found, and what it has to do.
type plan struct {
	core.Start
	read core.Header // what the store has
	next core.Header // what it will have
	mark *Mark       // what the witness has
	// regression says why the store is not where it was seen last; "" if it is.
	regression string
}

func tryStart(ctx context.Context, s store.Store, cfg Config, e evidence) (run, bool, error) {
	p, stable, err := planStart(ctx, s, cfg, e)
	if err != nil || !stable {
		return run{}, false, err
	}
	if err := p.err(); err != nil {
		return run{}, false, err
	}
	return announce(ctx, s, cfg, p)
}

// planStart looks and decides, and writes nothing.
func planStart(ctx context.Context, s store.Store, cfg Config, e evidence) (p plan, stable bool, err error) {
	known, err := e.epochs()
	if err != nil {
		return p, false, err
	}
	h, mark, stable, err := observe(ctx, s, cfg.Witness)
	if err != nil || !stable {
		return p, false, err
	}
	p.read, p.mark = h, mark
	if !h.Exists {
		h.Identity, h.Domain, h.TickSpan = strings.ToLower(rand.Text()), cfg.Domain, core.Span(cfg.Tick)
	}
	if h.Domain != cfg.Domain {
		e := invalid("the store issues the fences of domain %q, not of %q", h.Domain, cfg.Domain)
		e.Hint = "use that domain, or another store"
		return p, false, e
	}
	p.Start = core.PlanStart(h, mark).Against(known...)
	if p.Code == "" && e.restored {
		p.Start = core.Start{Code: lastword.CodeFenceRegression, Why: "the operator says that the store was put back"}
	}
	if p.Code == lastword.CodeFenceRegression {
		p.regression = p.Why
	}
	p.next = h
	p.next.Exists, p.next.Epoch, p.next.Identity = true, p.Epoch, p.Witness.Store
	switch {
	case p.regression != "" && cfg.OnRegression == Advance:
		p.Start, p.next, err = advance(ctx, s, cfg, h, mark, known, e.longest)
	case p.Adopted:
		p.Start, err = adopt(ctx, s, p.Start)
	}
	p.next.Witnessed = p.next.Witnessed || cfg.Witnessed
	return p, true, err
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
func advance(ctx context.Context, s store.Store, cfg Config, h core.Header, mark *Mark, found []uint32, told core.Span) (core.Start, core.Header, error) {
	epoch, longest, err := survey(ctx, s)
	if err != nil {
		return core.Start{}, h, err
	}
	outdated := false // the witness went back, too: the longest TTL that it knows is none
	for _, other := range found {
		epoch = max(epoch, other)
		outdated = outdated || mark != nil && other > max(mark.Current, mark.Pending)
	}
	h.Identity, _ = h.Original()
	known := Mark{}
	if mark != nil {
		known = *mark
	}
	known.Longest = max(known.Longest, longest)
	if mark == nil || outdated || h.Exists && mark.Store != h.Identity || known.Longest == 0 {
		// It cannot tell what was granted here: as long as a person says, or as this
		// configuration allows.
		if told == 0 {
			told = core.Span(cfg.MaxTTL)
		}
		known.Longest = max(known.Longest, told)
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
func announce(ctx context.Context, s store.Store, cfg Config, p plan) (r run, done bool, err error) {
	if p.regression != "" {
		cfg.Logger.Warn("advancing over a regression", slog.String("found", p.regression))
		ended, err := begin(ctx, cfg.Audit, Action{
			Name: ActionAdvance, Operator: byItself, Reason: p.regression, Details: map[string]string{"epoch": fmt.Sprint(p.Epoch)},
		})
		if err != nil {
			return run{}, false, err
		}
		defer func() { err = ended(outcomeOf(done, err), err) }()
	}
	if p.Adopted {
		cfg.Logger.Warn("the witness was missing and is made anew", slog.Uint64("epoch", uint64(p.Epoch)))
	}
	if p.mark == nil || *p.mark != p.Witness {
		ok, err := cfg.Witness.Swap(ctx, p.mark, p.Witness)
		if err != nil {
			return run{}, false, notDone(err, "the witness did not answer")
		}
		if !ok {
			return run{}, false, nil
		}
	}
	if p.read != p.next {
		applied, err := s.Commit(ctx, store.Step{
			Create: !p.read.Exists, Epoch: p.read.Epoch, OnTick: true, Tick: p.read.Tick, Header: &p.next,
		})
		if err != nil || !applied[0] {
			return run{}, false, err
		}
	}
	if _, err := cfg.Witness.Swap(ctx, &p.Witness, p.Witness.Settled()); err != nil {
		return run{}, false, notDone(err, "the witness did not answer")
	}
	now, err := cfg.Witness.Load(ctx)
	if err != nil {
		return run{}, false, notDone(err, "the witness did not answer")
	}
	if now == nil || now.Store != p.next.Identity || now.Current < p.next.Epoch {
		return run{}, false, nil
	}
	return run{header: p.next, witness: now}, true, nil
}

// byItself is the operator of an advance that the configuration confirms.
const byItself = "--on-regression=advance"

func outcomeOf(done bool, err error) string {
	if err == nil && !done {
		return "another process was faster"
	}
	return outcome(err)
}

// err is why nothing can be started, nil if something can.
func (p plan) err() error {
	switch {
	case p.Code == lastword.CodeFenceRegression && p.mark == nil && p.read.Witnessed:
		e := regressed(p.Why)
		if _, copied := p.read.Original(); !copied {
			e.Hint = "name the witness of this store with --witness; if it is lost, confirm with 'lastword epoch advance'"
		}
		return e
	case p.Code == lastword.CodeFenceRegression:
		return regressed(p.Why)
	case p.Code == lastword.CodeExhausted:
		return &lastword.Error{Code: lastword.CodeExhausted, Message: p.Why, Hint: "a new domain is the way out"}
	}
	return nil
}

func regressed(why string) *lastword.Error {
	return &lastword.Error{
		Code: lastword.CodeFenceRegression, Message: why,
		Hint: "the store was restored, cloned or exchanged; make sure that it is the right one, then confirm with 'lastword epoch advance', or start with --on-regression=advance",
	}
}
