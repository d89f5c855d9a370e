package model

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/lastword/lastword"
)

// Report is what a run found.
type Report struct {
	Variant string `json:"variant"`
	Scope   string `json:"scope"`
	// States is the number of distinct states of all worlds.
	States uint64 `json:"states,string"`
	// Transitions is the number of steps between them.
	Transitions uint64 `json:"transitions,string"`
	// Interleavings is the number of distinct complete orders of events: the ways
	// through the explored graph from the first state to one without a further step.
	// Counting stops at 2^53 − 1. Where a run ended at a violation, the states that
	// it had not expanded count as last ones.
	Interleavings uint64 `json:"interleavings,string"`
	// InterleavingsAtLeast says that counting stopped: there are as many or more.
	InterleavingsAtLeast bool `json:"interleavings_at_least"`
	// Violations has one of each kind, the shortest that there is; that of the
	// variant's property first.
	Violations []Violation `json:"violations"`

	Worlds []WorldReport `json:"worlds"`
	// Steps counts, by what happened, the steps that changed something.
	Steps Counts `json:"steps"`
	// Elapsed is the time of the run, StatesPerSecond what one core made of it.
	Elapsed         time.Duration `json:"elapsed_ns,string"`
	StatesPerSecond uint64        `json:"states_per_second,string"`
}

// WorldReport is the part of one world.
type WorldReport struct {
	Name                 string        `json:"name"`
	States               uint64        `json:"states,string"`
	Transitions          uint64        `json:"transitions,string"`
	Interleavings        uint64        `json:"interleavings,string"`
	InterleavingsAtLeast bool          `json:"interleavings_at_least"`
	Elapsed              time.Duration `json:"elapsed_ns,string"`
	// Missing are the outcomes that the world must be able to reach and that no
	// order of its events came to. A run of the right system in which one is missing
	// proves nothing and is not OK. For a variant it is empty: its run ends early.
	Missing []string `json:"missing"`
}

// Counts are numbers by name. In JSON they are strings, as all 64-bit numbers are.
type Counts map[string]uint64

// MarshalJSON implements json.Marshaler.
func (c Counts) MarshalJSON() ([]byte, error) {
	texts := make(map[string]string, len(c))
	for name, n := range c {
		texts[name] = strconv.FormatUint(n, 10)
	}
	return json.Marshal(texts)
}

// Violation is a counter-example: the shortest order of events that violates a
// property, and the resource's value after each of them.
type Violation struct {
	Kind   string   `json:"kind"`
	World  string   `json:"world"`
	Events []Event  `json:"events"`
	Values []string `json:"values"`
}

// Missing are the outcomes that a world should have come to and did not, as
// "world: outcome".
func (r Report) Missing() (missing []string) {
	for _, w := range r.Worlds {
		for _, m := range w.Missing {
			missing = append(missing, w.Name+": "+m)
		}
	}
	return missing
}

// OK reports whether the report is as it should be: no violation in the right
// system, and every outcome reached that its worlds are there for; in a variant, its
// own property violated.
func (r Report) OK() bool {
	v, ok := variant(r.Variant)
	if !ok {
		return len(r.Violations) == 0 && len(r.Missing()) == 0
	}
	return len(r.Violations) > 0 && r.Violations[0].Kind == v.Property
}

// mostOrders is where counting stops: the largest number that JSON readers keep.
const mostOrders = uint64(lastword.MaxToken)

func (r *run) report(variant, scope string, elapsed time.Duration) Report {
	out := Report{
		Variant: variant, Scope: scope, Violations: []Violation{}, Steps: Counts{}, Elapsed: elapsed,
	}
	var busy time.Duration
	shortest := map[kind]Violation{}
	for _, x := range r.results {
		if x == nil { // not begun: one before it had a violation, and one was enough
			continue
		}
		out.Worlds = append(out.Worlds, x.report)
		out.States += x.report.States
		out.Transitions += x.report.Transitions
		out.Interleavings = min(out.Interleavings+x.report.Interleavings, mostOrders)
		out.InterleavingsAtLeast = out.Interleavings == mostOrders
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
