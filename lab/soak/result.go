package soak

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lastword/lastword/lab/report"
)

// never are the counts that have to be 0, in the order in which they are shown. The
// first ones are those of every soak.
var never = []string{
	"stale_accepted", "forged_accepted", "highwater_polluted", "segment_jumps_accepted",
	"not_linearizable", "checker_timeouts", "history_wrong", "store_wrong", "effect_twice", "receipt_without_effect",
	"document_differs", "acknowledged_lost", "request_granted_twice", "accepted_unasked", "woke_holding", "policy_went_back", "not_live",
}

// The bounds of R34.
const (
	releaseBound = 25 * time.Millisecond
	crashBound   = 250 * time.Millisecond // beyond the TTL
)

func (r *run) report(f findings, interrupted bool) *report.Run {
	out := &report.Run{
		Kind: "real", Build: r.opts.Build, Command: r.opts.Command, Seed: r.opts.Seed, Options: r.opts.expanded(r.plan),
		Faults: r.tally.all(), Failures: r.failures, Timelines: r.timelines, Interrupted: interrupted,
	}
	if r.opts.Variant != "none" {
		out.Variant = r.opts.Variant
	}
	h := r.handovers
	var best series // of those measured, the one in which the machine was least late
	if len(r.series) > 0 {
		best = slices.MinFunc(r.series, func(a, b series) int { return cmp.Compare(p99(a.lag), p99(b.lag)) })
	}
	out.Counters = report.Counters{
		Rounds: r.done, StaleAccepted: r.broken["stale_accepted"], ForgedAccepted: r.broken["forged_accepted"],
		HighwaterPolluted: r.broken["highwater_polluted"], SegmentJumpsAccepted: r.broken["segment_jumps_accepted"],
		ProtectedMutations: f.protected, CheckedMutations: f.checked, UnknownOpen: f.unknownOpen,
		HandoverP99MS: report.Round(ms(p99(best.released))), HandoverCrashP99MS: report.Round(ms(p99(best.crashed))),
		More: r.more(f, best),
	}
	out.Handover = buckets(append(slices.Clone(h.released), best.released...), append(slices.Clone(h.crashed), best.crashed...))
	out.Gates = r.gates(f, out, best)
	for i, m := range r.series {
		note := "hand-over in the calm last phase"
		if len(r.series) > 1 {
			note += fmt.Sprintf(", measurement %d", i+1)
		}
		out.Notes = append(out.Notes, fmt.Sprintf("%s: %s after a release; %s after a crash, beyond the TTL; meanwhile the machine itself was late, with a timer and one write to the disk: %s",
			note, spread(m.released), spread(m.crashed), spread(m.lag)))
	}
	out.Notes = append(out.Notes,
		fmt.Sprintf("hand-over between faults, with all cells at work: %s after a release; %s after a crash, beyond the TTL", spread(h.released), spread(h.crashed)),
		fmt.Sprintf("%d operations at %d resources were checked for linearizability in %v", f.operations, f.resources, f.linearizableIn.Round(time.Millisecond)))
	return out
}

func (r *run) more(f findings, best series) map[string]int {
	more := map[string]int{
		"calls": f.calls, "operations_checked": f.operations, "resources": f.resources, "unknown_met": f.unknownMet,
		"handovers_after_release": len(r.handovers.released) + len(best.released),
		"handovers_after_crash":   len(r.handovers.crashed) + len(best.crashed),
	}
	more["machine_lag_p99_us"] = int(p99(best.lag).Microseconds())
	for name, n := range r.counters {
		more[name] = n
	}
	for verdict, n := range f.byVerdict {
		if verdict != "" {
			more["writes_"+verdict] = n
		}
	}
	for _, name := range never {
		if _, shown := map[string]bool{"stale_accepted": true, "forged_accepted": true, "highwater_polluted": true, "segment_jumps_accepted": true}[name]; !shown {
			more[name] = r.broken[name]
		}
	}
	return more
}

func (r *run) gates(f findings, out *report.Run, best series) (gates []report.Gate) {
	for _, name := range never {
		n := r.broken[name]
		gates = append(gates, report.Gate{Name: name, Want: "0", Got: fmt.Sprint(n), Holds: n == 0})
	}
	gates = append(gates,
		report.Gate{
			Name: "checked_mutations", Want: fmt.Sprintf("all %d protected_mutations", f.protected), Got: fmt.Sprint(f.checked),
			Holds: f.protected > 0 && f.checked == f.protected,
		},
		report.Gate{Name: "unknown_open", Want: "0", Got: fmt.Sprint(f.unknownOpen), Holds: f.unknownOpen == 0},
		timeGate("handover_p99_ms", best.released, releaseBound),
		timeGate("handover_crash_p99_ms", best.crashed, crashBound),
		coverage(out.Faults),
		report.Gate{Name: "rounds", Want: fmt.Sprint(r.opts.Rounds), Got: fmt.Sprint(r.done), Holds: r.done == r.opts.Rounds},
	)
	return gates
}

func timeGate(name string, d []time.Duration, bound time.Duration) report.Gate {
	g := report.Gate{Name: name, Want: fmt.Sprintf("at most %g", ms(bound)), Got: "none measured"}
	if len(d) > 0 {
		g.Got, g.Holds = fmt.Sprint(report.Round(ms(p99(d)))), p99(d) <= bound
	}
	return g
}

// coverage: every planned fault came, and changed something.
func coverage(faults []report.Fault) report.Gate {
	without := 0
	for _, f := range faults {
		if f.Fired == 0 || f.Effect == 0 {
			without++
		}
	}
	g := report.Gate{Name: "fault_coverage", Want: fmt.Sprintf("all %d planned faults had an effect", len(faults)), Holds: without == 0}
	g.Got = fmt.Sprintf("%d had", len(faults)-without)
	return g
}

// p99 is the least duration that 99 % do not exceed.
func p99(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return max(0, sorted[int(math.Ceil(0.99*float64(len(sorted))))-1])
}

func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(d))
	return fmt.Sprintf("median %v, p99 %v of %d", sorted[len(sorted)/2].Round(10*time.Microsecond), p99(d).Round(10*time.Microsecond), len(d))
}

// bounds of the distribution of hand-overs, in milliseconds.
var bounds = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10000}

func buckets(released, crashed []time.Duration) (all []report.Bucket) {
	all = make([]report.Bucket, len(bounds))
	for i, b := range bounds {
		all[i].UpToMS = b
	}
	place := func(d time.Duration) int {
		i, _ := slices.BinarySearch(bounds, ms(d))
		return min(i, len(bounds)-1)
	}
	for _, d := range released {
		all[place(d)].Released++
	}
	for _, d := range crashed {
		all[place(d)].Crashed++
	}
	for len(all) > 0 && all[len(all)-1].Released+all[len(all)-1].Crashed == 0 {
		all = all[:len(all)-1]
	}
	return all
}
