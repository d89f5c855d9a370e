package model

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lastword/lastword"
)

// Options say what is explored. The zero value explores the right system in the
// scope "ci".
type Options struct {
	// Variant is the name of a [Variant], or "" or [None] for the right system.
	Variant string
	// Scope is the name of a [Scope]; "" is "ci" for the right system and the
	// variant's own world for a variant.
	Scope string
	// Workers is how many worlds are explored at once; 0 is 1. Each takes one core
	// and memory of its own.
	Workers int
	// Progress, if not nil, is called now and then, by one goroutine at a time.
	Progress func(Progress)
	// Elapsed is monotonic time, for the figures of a report alone; nil takes the
	// process's.
	Elapsed func() time.Duration
}

// Progress is how far a run has come.
type Progress struct {
	World  string
	States uint64 // of this world, expanded so far
	Queued uint64 // of this world, seen and not expanded yet
	Worlds int    // that are done
	Of     int    // worlds in all
}

// Report is what a run found.
type Report struct {
	Variant string `json:"variant"`
	Scope   string `json:"scope"`
	// States is the number of distinct states of all worlds.
	States uint64 `json:"states"`
	// Transitions is the number of steps between them.
	Transitions uint64 `json:"transitions"`
	// Interleavings is the number of distinct complete orders of events: the ways
	// through the explored graph from the first state to one without a further step.
	// It is exact below 2^53 − 1, at which it stops. Where a run ended at a
	// violation, the states that it had not expanded count as last ones.
	Interleavings uint64 `json:"interleavings"`
	// Violations has one of each kind, the shortest that there is; that of the
	// variant's property first.
	Violations []Violation `json:"violations"`

	Worlds []WorldReport `json:"worlds"`
	// Steps counts, by what happened, the steps that changed something.
	Steps map[string]uint64 `json:"steps"`
	// Elapsed is the time of the run, StatesPerSecond what one core made of it.
	Elapsed         time.Duration `json:"elapsed_ns"`
	StatesPerSecond uint64        `json:"states_per_second"`
}

// WorldReport is the part of one world.
type WorldReport struct {
	Name          string        `json:"name"`
	States        uint64        `json:"states"`
	Transitions   uint64        `json:"transitions"`
	Interleavings uint64        `json:"interleavings"`
	Elapsed       time.Duration `json:"elapsed_ns"`
}

// Violation is a counter-example: the shortest order of events that violates a
// property, and the resource's value after each of them.
type Violation struct {
	Kind   string   `json:"kind"`
	World  string   `json:"world"`
	Events []Event  `json:"events"`
	Values []string `json:"values"`
}

// OK reports whether the report is as it should be: no violation in the right
// system, the variant's own property violated in a variant.
func (r Report) OK() bool {
	v, ok := variant(r.Variant)
	if !ok {
		return len(r.Violations) == 0
	}
	return len(r.Violations) > 0 && r.Violations[0].Kind == v.Property
}

// variant is the variant of a name; false for the right system.
func variant(name string) (Variant, bool) {
	for _, v := range Variants() {
		if v.Name == name {
			return v, true
		}
	}
	return Variant{}, false
}

// build is the wiring and the worlds that options name.
func build(o Options) (v Variant, name string, cast []world, err error) {
	v, ok := variant(o.Variant)
	if !ok && o.Variant != "" && o.Variant != None {
		return v, "", nil, invalid(fmt.Sprintf("no variant %q", o.Variant), "Variants lists them")
	}
	all := worlds()
	if ok && o.Scope == "" {
		return v, v.World, []world{v.tuned(all[v.World])}, nil
	}
	s, known := scope(cmp.Or(o.Scope, "ci"))
	if !known {
		return v, "", nil, invalid(fmt.Sprintf("no scope %q", o.Scope), "Scopes lists them")
	}
	for _, n := range s.Worlds {
		cast = append(cast, v.tuned(all[n]))
	}
	return v, s.Name, cast, nil
}

func invalid(message, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: "model", Message: message, Hint: hint}
}

func (v Variant) tuned(w world) world {
	if v.tune != nil && w.name == v.World {
		v.tune(&w)
	}
	return w
}

func (v Variant) wiring() *wiring {
	w := production()
	if v.change != nil {
		v.change(w)
	}
	return w
}

// Run explores a scope. A variant's run ends in each world at the first violation of
// its property; the right system's goes on to the end. The error is INVALID for a
// name that does not exist, INTERNAL for a world that is too large for the explorer,
// or ctx's. A violation is no error.
func Run(ctx context.Context, o Options) (Report, error) {
	v, name, cast, err := build(o)
	if err != nil {
		return Report{}, err
	}
	if o.Elapsed == nil {
		start := time.Now()                                           //nolint:forbidigo // figures for people; nothing is decided by them
		o.Elapsed = func() time.Duration { return time.Since(start) } //nolint:forbidigo // as above
	}
	r := &run{o: o, v: v, cast: cast, results: make([]*explored, len(cast))}
	begin := o.Elapsed()
	if err := r.all(ctx); err != nil {
		return Report{}, err
	}
	return r.report(cmp.Or(v.Name, None), name, o.Elapsed()-begin), nil
}

type run struct {
	o       Options
	v       Variant
	cast    []world
	results []*explored

	mu   sync.Mutex
	done int
}

// explored is what remains of one world's exploration.
type explored struct {
	report     WorldReport
	violations []Violation
	fired      [events]uint64
}

// all explores the worlds, some at a time.
func (r *run) all(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(1, r.o.Workers) {
		wg.Go(func() {
			for i := range next {
				if err := r.world(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range r.cast {
		next <- i
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

func (r *run) world(ctx context.Context, i int) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // why is known already
	}
	w := r.cast[i]
	e := newExplorer(newMachine(w, r.v.wiring()))
	begin := r.o.Elapsed()
	err := e.run(ctx, r.v.Property, func(states, queued uint64) { r.progress(w.name, states, queued) })
	if err != nil {
		return err
	}
	x := &explored{fired: e.fired}
	x.report = WorldReport{Name: w.name, States: uint64(e.n), Transitions: e.transitions, Elapsed: r.o.Elapsed() - begin}
	for _, f := range e.found {
		all, values := e.trace(f)
		x.violations = append(x.violations, Violation{Kind: f.kind, World: w.name, Events: all, Values: values})
	}
	orders, cyclic := e.orders(mostOrders)
	if cyclic {
		return &lastword.Error{Code: lastword.CodeInternal, Op: "model", Message: "the world " + w.name + " runs in a circle", Hint: "one of its steps costs nothing"}
	}
	x.report.Interleavings = orders
	r.mu.Lock()
	r.results[i] = x
	r.done++
	r.mu.Unlock()
	return nil
}

// mostOrders is where counting stops: the largest number that JSON readers keep.
const mostOrders = uint64(lastword.MaxToken)

func (r *run) progress(world string, states, queued uint64) {
	if r.o.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.Progress(Progress{World: world, States: states, Queued: queued, Worlds: r.done, Of: len(r.cast)})
}

func (r *run) report(variant, scope string, elapsed time.Duration) Report {
	out := Report{
		Variant: variant, Scope: scope, Violations: []Violation{}, Steps: map[string]uint64{}, Elapsed: elapsed,
	}
	var busy time.Duration
	shortest := map[kind]Violation{}
	for _, x := range r.results {
		out.Worlds = append(out.Worlds, x.report)
		out.States += x.report.States
		out.Transitions += x.report.Transitions
		out.Interleavings = min(out.Interleavings+x.report.Interleavings, mostOrders)
		busy += x.report.Elapsed
		for k, n := range x.fired {
			if n > 0 {
				out.Steps[eventNames[k]] += n
			}
		}
		for _, v := range x.violations {
			if s, ok := shortest[v.Kind]; !ok || len(v.Events) < len(s.Events) {
				shortest[v.Kind] = v
			}
		}
	}
	for _, v := range shortest {
		out.Violations = append(out.Violations, v)
	}
	slices.SortFunc(out.Violations, func(a, b Violation) int {
		first := func(v Violation) int { return int(flag(v.Kind != r.v.Property)) }
		return cmp.Or(first(a)-first(b), len(a.Events)-len(b.Events), cmp.Compare(a.Kind, b.Kind))
	})
	if busy > 0 {
		out.StatesPerSecond = uint64(float64(out.States) / busy.Seconds())
	}
	return out
}
