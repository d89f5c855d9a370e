package model

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
	// First ends the right system's run at its first violation, and begins no world
	// after one that fails. The other figures are of what was explored until then.
	First bool
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
		return v, "", nil, invalid(fmt.Sprintf("no variant %q", o.Variant), "want "+None+" or the name of a variant, such as "+Variants()[0].Name)
	}
	all := worlds()
	if ok && o.Scope == "" {
		return v, v.World, []world{v.tuned(all[v.World])}, nil
	}
	s, known := scope(cmp.Or(o.Scope, "ci"))
	if !known {
		return v, "", nil, invalid(fmt.Sprintf("no scope %q", o.Scope), "want one of "+strings.Join(scopeNames(), ", "))
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

// Wiring is the wiring with what v breaks.
func (v Variant) Wiring() *Wiring {
	w := Production()
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
		if r.o.First && r.failed() {
			break
		}
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
	e := newExplorer(newMachine(w, r.v.Wiring()))
	begin := r.o.Elapsed()
	e.first = r.o.First
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
	x.report.Missing = []string{}
	if r.v.Name == "" && len(e.found) == 0 {
		x.report.Missing = append(x.report.Missing, e.missing()...)
	}
	orders, cyclic := e.orders(mostOrders)
	if cyclic {
		return &lastword.Error{Code: lastword.CodeInternal, Op: "model", Message: "the world " + w.name + " runs in a circle", Hint: "one of its steps costs nothing"}
	}
	x.report.Interleavings, x.report.InterleavingsAtLeast = orders, orders == mostOrders
	r.mu.Lock()
	r.results[i] = x
	r.done++
	r.mu.Unlock()
	return nil
}

// failed reports whether a world has a violation, or did not reach what it must.
func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.results, func(x *explored) bool { return x != nil && len(x.violations)+len(x.report.Missing) > 0 })
}

func (r *run) progress(world string, states, queued uint64) {
	if r.o.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.Progress(Progress{World: world, States: states, Queued: queued, Worlds: r.done, Of: len(r.cast)})
}
