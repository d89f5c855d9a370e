package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/model"
)

// run is one run.
type run struct {
	o        Options
	lenient  bool
	only     string
	w        *world
	p        plan
	room     []fault
	hand     handovers
	report   *Report
	trace    uint64
	worlds   int
	examples []example

	// For what is run again beside it.
	second *world
	p2     *plan
	room2  []fault
}

// example is a round that is worth being shown.
type example struct{ world, round int }

// Run runs the rounds. A violation is no error: it is in the report. The error is
// INVALID for options that name nothing, or ctx's; with ctx's there is a report of the
// worlds that came to their end.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Elapsed == nil {
		start := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(start) }
	}
	begin := o.Elapsed()
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	if o.Replay != "" {
		if err := r.replay(); err != nil {
			return nil, err
		}
	} else {
		err = r.all(ctx)
	}
	r.finish()
	r.report.Took = o.Elapsed() - begin
	return r.report, err
}

func invalid(message, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: "simulate", Message: message, Hint: hint}
}

func newRun(o Options) (*run, error) {
	r := &run{o: o, report: &Report{Options: o.Expanded()}}
	wiring := model.Production()
	if o.Variant != "" && o.Variant != model.None {
		i := slices.IndexFunc(model.Variants(), func(v model.Variant) bool { return v.Name == o.Variant })
		if i < 0 {
			return nil, invalid(fmt.Sprintf("no variant %q", o.Variant), "want "+model.None+" or the name of a variant of lab model")
		}
		v := model.Variants()[i]
		wiring, r.lenient, r.only = v.Wiring(), v.Property != wrongStart, ShowsAs(v)
	}
	r.w = &world{wiring: wiring, hand: &r.hand, lenient: r.lenient, only: r.only}
	r.report.Counters.Violations = map[string]uint64{}
	if !o.Unsigned {
		s, err := newSeal()
		if err != nil {
			return nil, err
		}
		r.w.seal = s
		if o.Variant == "" || o.Variant == model.None {
			r.w.gate = newGateway(r.w)
		}
	}
	return r, nil
}

// worldsOf is how many worlds so many rounds are.
func worldsOf(rounds int) int { return (rounds + planned - 1) / planned }

func (r *run) all(ctx context.Context) error {
	total := r.o.rounds()
	for n := range worldsOf(total) {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.p.make(r.o.Seed, n, &r.room)
		rounds := min(planned, total-n*planned)
		for i := rounds; i < planned; i++ {
			r.p.without[i] = true
		}
		r.world(n, rounds)
		if r.w.stopped {
			v := r.w.violation
			r.report.Counters.Violations[v.kind]++
			r.gateOf(v.kind)
			if r.report.Failure == nil {
				r.report.Failure = r.shrink(n)
			}
			if !r.o.KeepGoing {
				return nil
			}
		}
		if r.o.Progress != nil && n%16 == 0 {
			r.o.Progress(r.report.Counters.Rounds, total)
		}
	}
	if r.o.Progress != nil {
		r.o.Progress(r.report.Counters.Rounds, total)
	}
	return nil
}

// world runs the world of the plan, number n.
func (r *run) world(n, rounds int) {
	w := r.w
	w.reset(&r.p, w.wiring)
	w.run()
	r.worlds++
	r.report.Counters.Rounds += rounds
	r.trace = mix(r.trace ^ w.trace)
	r.choose(n)
}

// choose keeps rounds to be shown: the first one in which each kind of fault had an
// effect.
func (r *run) choose(n int) {
	most := r.o.Timelines
	if most == 0 {
		most = 6
	}
	if len(r.examples) >= most || r.w.stopped {
		return
	}
	for _, k := range worthShowing {
		if len(r.examples) >= most {
			return
		}
		if f := r.w.active[k]; f != nil && f.effect && r.w.shownKind&(1<<k) == 0 {
			r.w.shownKind |= 1 << k
			r.examples = append(r.examples, example{n, int(f.round)})
		}
	}
}

var worthShowing = []faultKind{stopOwner, crashOwner, loseAnswer, restoreAuthority, cutAuthority, stopMachine, crashAfter, restoreResource, twiceMessage, revokeTenure, lateMessage}

// gateOf counts a violation where a gate counts it.
func (r *run) gateOf(kind string) {
	c := &r.report.Counters
	switch kind {
	case revokedGenerationOverwrite:
		c.StaleAccepted++
	case unauthorizedAccept:
		c.ForgedAccepted++
	case highwaterPolluted:
		c.HighwaterPolluted++
	case segmentJump:
		c.SegmentJumpsAccepted++
	case unknownLeftOpen:
		c.UnknownOpen = max(c.UnknownOpen, 1)
	}
}

// finish makes the report.
func (r *run) finish() {
	c, w := &r.report.Counters, r.w
	rounds, violations := c.Rounds, c.Violations
	stale, forged, polluted, jumps := c.StaleAccepted, c.ForgedAccepted, c.HighwaterPolluted, c.SegmentJumpsAccepted
	unknown := c.UnknownOpen
	*c = w.count
	c.Rounds, c.Violations, c.StaleAccepted, c.ForgedAccepted, c.HighwaterPolluted, c.SegmentJumpsAccepted = rounds, violations, stale, forged, polluted, jumps
	c.UnknownOpen = max(unknown, c.UnknownOpen)
	c.HandoverP99Millis = p99(&r.hand.released)
	c.CrashHandoverMillis = p99(&r.hand.crashed)
	for k, info := range catalogue {
		r.report.Faults = append(r.report.Faults, FaultCount{
			Name: info.name, Cases: info.cases, Fired: w.tally.fired[k], Effect: w.tally.effect[k],
		})
	}
	for i, f := range forgeries {
		r.report.Faults = append(r.report.Faults, FaultCount{
			Name: "forged: " + f.name, Cases: []string{"X35"}, Fired: w.forgedBy[i].fired, Effect: w.forgedBy[i].effect,
		})
	}
	r.report.Handover = r.hand.bars()
	r.report.TraceHash = fmt.Sprintf("%016x", r.trace)
	r.report.Gates = r.gates()
	if r.o.Replay == "" {
		for _, e := range r.examples {
			r.report.Timelines = append(r.report.Timelines, r.timeline(e))
		}
	}
	for _, w := range []*world{r.w, r.second} { // calls that are under way end here
		if w != nil && w.gate != nil {
			w.gate.crash(w)
		}
	}
}

func (r *run) gates() (gates []Gate) {
	c := &r.report.Counters
	zero := func(name string, n uint64) {
		gates = append(gates, Gate{name, "0", fmt.Sprint(n), n == 0})
	}
	zero("stale_accepted", c.StaleAccepted)
	zero("forged_accepted", c.ForgedAccepted)
	zero("highwater_polluted", c.HighwaterPolluted)
	zero("segment_jumps_accepted", c.SegmentJumpsAccepted)
	zero("unknown_open", c.UnknownOpen)
	var others uint64
	for _, n := range c.Violations {
		others += n
	}
	zero("violations", others)
	gates = append(gates,
		Gate{"checked_mutations", fmt.Sprintf("all %d protected ones", c.ProtectedMutations), fmt.Sprint(c.CheckedMutations), c.CheckedMutations == c.ProtectedMutations},
		handoverGate("handover_p99_ms", c.HandoverP99Millis, &r.hand.released, 25),
		handoverGate("handover_crash_p99_ms", c.CrashHandoverMillis, &r.hand.crashed, 250),
	)
	if r.o.Replay != "" || r.report.Failure != nil {
		return gates
	}
	var idle []string
	const enough = 24
	for k := range catalogue {
		if n := r.w.tally.planned[k]; n >= enough && (r.w.tally.fired[k] == 0 || r.w.tally.effect[k] == 0) {
			idle = append(idle, catalogue[k].name)
		}
	}
	for i := range forgeries {
		if t := r.w.forgedBy[i]; t.fired >= enough && t.effect == 0 {
			idle = append(idle, "forged: "+forgeries[i].name)
		}
	}
	got := "every one"
	if len(idle) > 0 {
		got = fmt.Sprintf("not %q", idle)
	}
	return append(gates, Gate{"faults_with_effect", "every planned one", got, len(idle) == 0})
}

// handoverGate: at most one of a hundred took longer. Of fewer than that, one may.
func handoverGate(name string, p99 float64, counts *[len(buckets) + 1]uint64, limit float64) Gate {
	over, all := above(counts, limit)
	return Gate{
		Name: name, Want: fmt.Sprintf("at most %g", limit), Got: fmt.Sprintf("%g, %d of %d are above", p99, over, all),
		Holds: over*100 <= max(all, 100),
	}
}
