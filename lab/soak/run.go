package soak

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/report"
)

// run is one run.
type run struct {
	opts    Options
	plan    plan
	wait    time.Duration // of who wants a lease
	dir     string
	keepers []*keeper // one; two of the variant split-authority
	keeper  *keeper   // the first
	cells   []*cell
	side    *sql.DB // a guarded database beside, to ask gates
	tally   tally

	retiredKey, retiredGrant string

	mu        sync.Mutex
	done      int
	went      chan struct{} // closed and made anew when a round is over
	turned    []turnedTo
	probes    int
	lent      [8]lentGrant
	lends     int
	counters  map[string]int
	failures  []report.Failure
	broken    map[string]int
	handovers handovers
	calm      bool
	timelines []report.Timeline
	shown     map[string]bool
	probed    []Call
	series    []series // of the calm phase
}

// turnedTo is a fault of the authority as it was.
type turnedTo struct {
	kind         kind
	began, ended time.Duration
}

type lentGrant struct{ cell, grant string }

// series is one measurement of the calm phase, and how late the machine was meanwhile.
type series struct{ released, crashed, lag []time.Duration }

// handovers are how long resources were nobody's, by how the tenure before ended.
type handovers struct{ released, crashed, calmReleased, calmCrashed []time.Duration }

// Run plays the rounds, checks what was written down, and tells what it came to. What
// must not be is in the report; the error is INVALID for options that are none, or says
// what kept the run from being one. If ctx ends, the report is of the rounds that were
// played, and says that it was interrupted.
func Run(ctx context.Context, o Options) (_ *report.Run, err error) {
	if o, err = o.checked(); err != nil {
		return nil, err
	}
	began := history.Clock()
	r := &run{
		opts: o, plan: newPlan(o.Seed, o.Rounds), wait: patience / 2, went: make(chan struct{}), counters: map[string]int{}, broken: map[string]int{}, shown: map[string]bool{},
	}
	if o.Variant != "none" { // what is to be found is in the workers, which wait for each other
		r.plan.Turns, r.wait = nil, 4*time.Second
	}
	r.tallyPlan()
	if r.dir, err = os.MkdirTemp(o.Dir, "lastword-soak-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	played := r.play(ctx)
	interrupted := ctx.Err() != nil
	if played != nil && !interrupted {
		r.fail("round", played.Error())
	}
	// What was written down is complete when everybody has ended.
	if err := r.close(); err != nil && !interrupted {
		r.fail("end", err.Error())
	}
	found, err := r.check(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	out := r.report(found, interrupted)
	out.TookMS = ms(since(began))
	return out, nil
}

func (r *run) tallyPlan() {
	for _, round := range r.plan.Rounds {
		if round.Main.Kind != calm {
			r.tally.planned(cases[round.Main.Kind], round.Main.names()...)
		}
		for _, k := range round.Weather {
			r.tally.planned(cases[k], string(k))
		}
		for _, f := range round.Forged {
			r.tally.planned(cases[forgery], forgeryName(f))
		}
	}
	for _, t := range r.plan.Turns {
		r.tally.planned(cases[t.Kind], string(t.Kind))
	}
}

func (r *run) keeperOf(side int) *keeper { return r.keepers[side%len(r.keepers)] }

func (r *run) open(ctx context.Context) error {
	var names []string
	for n := range r.opts.Cells {
		names = append(names, sideOwner(n, 0), sideOwner(n, 1))
	}
	k, err := newKeeper(ctx, r.opts.Authority, filepath.Join(r.dir, "authority"), names, r.noteProbe)
	if err != nil {
		return err
	}
	r.keepers, r.keeper = []*keeper{k}, k
	if r.opts.Variant == splitAuthority {
		if err := r.split(ctx, names); err != nil {
			return err
		}
	}
	if r.side, err = openBusiness(filepath.Join(r.dir, "side.db")); err != nil {
		return err
	}
	if err := sqlfence.Init(ctx, r.side); err != nil {
		return err
	}
	r.cells = make([]*cell, r.opts.Cells)
	var opening sync.WaitGroup
	errs := make([]error, r.opts.Cells)
	for n := range r.cells {
		opening.Go(func() { r.cells[n], errs[n] = newCell(ctx, r, n) })
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// For who looks at a run while it goes on, or at what is left of one that was killed.
	text, err := json.MarshalIndent(r.plan, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "plan.json"), text, 0o600)
}

// split starts a second authority with the key of the first one.
func (r *run) split(ctx context.Context, names []string) error {
	dir := filepath.Join(r.dir, "second")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"authority.db.key"} {
		if err := copyFile(filepath.Join(r.keeper.dir, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	k, err := newKeeper(ctx, r.opts.Authority, dir, names, r.noteProbe)
	if err == nil {
		r.keepers = append(r.keepers, k)
	}
	return err
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// play lets all cells play, and then once more in calm.
func (r *run) play(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	var first error
	var once sync.Once
	failed := func(err error) {
		if err != nil {
			once.Do(func() { first = err; stop(err) })
		}
	}
	for n, c := range r.cells {
		running.Go(func() {
			for i := n; i < len(r.plan.Rounds) && ctx.Err() == nil; i += len(r.cells) {
				failed(c.playRound(ctx, r.plan.Rounds[i]))
				r.roundDone()
			}
		})
	}
	running.Go(func() { failed(r.govern(ctx)) })
	running.Wait()
	if ctx.Err() != nil || r.opts.Variant != "none" {
		return first
	}
	failed(r.makeUp(ctx))
	if ctx.Err() == nil {
		failed(r.calmPhase(ctx))
	}
	return first
}

func (r *run) roundDone() {
	r.mu.Lock()
	r.done++
	close(r.went)
	r.went = make(chan struct{})
	done := r.done
	r.mu.Unlock()
	if r.opts.Progress != nil {
		r.opts.Progress(done, r.opts.Rounds)
	}
}

// tries is how often a fault that had no effect in its rounds is played again.
const tries = 3

// makeUp plays the faults once more that something else stood in the way of.
func (r *run) makeUp(ctx context.Context) error {
	for try := range tries {
		missing := map[string]bool{}
		for _, f := range r.tally.all() {
			if f.Effect == 0 {
				missing[f.Name] = true
			}
		}
		var again []round
		for _, p := range r.plan.Rounds {
			if slices.ContainsFunc(p.Main.names(), func(n string) bool { return missing[n] }) {
				for _, n := range p.Main.names() {
					delete(missing, n)
				}
				p.Weather, p.Number = nil, len(r.plan.Rounds)*(try+1)+p.Number
				again = append(again, p)
			}
		}
		if len(again) == 0 {
			return nil
		}
		r.count("rounds_made_up", len(again))
		var playing sync.WaitGroup
		errs := make([]error, len(r.cells))
		for n, c := range r.cells {
			playing.Go(func() {
				for i := n; i < len(again) && errs[n] == nil; i += len(r.cells) {
					errs[n] = c.playRound(ctx, again[i])
				}
			})
		}
		playing.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// govern does what is planned for the authority, in its turn.
func (r *run) govern(ctx context.Context) error {
	for _, t := range r.plan.Turns {
		for {
			r.mu.Lock()
			done, went := r.done, r.went
			r.mu.Unlock()
			if done >= t.After {
				break
			}
			select {
			case <-went:
			case <-ctx.Done():
				return nil
			}
		}
		if err := r.turn(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) close() error {
	var errs []error
	var closing sync.WaitGroup
	var mu sync.Mutex
	for _, c := range r.cells {
		if c != nil {
			closing.Go(func() {
				err := c.close()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
	}
	closing.Wait()
	for _, k := range r.keepers {
		errs = append(errs, k.close())
	}
	if r.side != nil {
		errs = append(errs, r.side.Close())
	}
	return errors.Join(errs...)
}

func (r *run) noteProbe(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probed = append(r.probed, c)
}

func (r *run) nextProbe() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probes++
	return r.probes
}

// quiet reports whether nothing was done to the authority since a moment that makes
// calls wait.
func (r *run) quiet(from time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.turned {
		if t.ended >= from && t.kind != bumpPolicy && t.kind != rotateKey {
			return false
		}
	}
	return true
}

func (r *run) count(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counters[name] += n
}

func (r *run) most(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counters[name] = max(r.counters[name], n)
}

// maxFailures is how many are told in full.
const maxFailures = 20

func (r *run) fail(kind, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) < maxFailures {
		r.failures = append(r.failures, report.Failure{Kind: kind, Detail: detail, Repeat: r.opts.Command})
	}
}

// broke counts something that must not be.
func (r *run) broke(gate, detail string) {
	r.mu.Lock()
	r.broken[gate]++
	r.mu.Unlock()
	r.fail(gate, detail)
}

func (r *run) handover(d time.Duration, crashed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.handovers
	switch {
	case r.calm && crashed:
		h.calmCrashed = append(h.calmCrashed, d)
	case r.calm:
		h.calmReleased = append(h.calmReleased, d)
	case crashed:
		h.crashed = append(h.crashed, d)
	default:
		h.released = append(h.released, d)
	}
}

// lendGrant lets other cells' forgers have a good grant.
func (r *run) lendGrant(cell, g string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent[r.lends%len(r.lent)] = lentGrant{cell, g}
	r.lends++
}

func (r *run) otherGrant(cell string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lent {
		if l.grant != "" && l.cell != cell {
			return l.grant
		}
	}
	return ""
}

// longest is how long the slowest call at a cell took that was sent after from; an
// acquire may wait.
func (r *run) longest(c *cell, from time.Duration) (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if !call.Open && call.Sent >= from && call.Op != "acquire" {
			longest = max(longest, call.Heard-call.Sent)
		}
	}
	return longest
}
