package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/report"
	"github.com/lastword/lastword/lab/simulate"
	"github.com/lastword/lastword/model"
)

// simulated is a simulated run as the report shows every run.
func (f *soakFlags) simulated(r *simulate.Report, interrupted bool) *report.Run {
	run := &report.Run{
		Kind: "simulated", Build: buildVersion(), Command: f.again(), Seed: r.Options.Seed,
		TraceHash: r.TraceHash, TookMS: millis(r.Took), Interrupted: interrupted,
	}
	if r.Options.Variant != model.None {
		run.Variant = r.Options.Variant
	}
	run.Options = optionsOf(r.Options)
	c := r.Counters
	run.Counters = report.Counters{
		Rounds: c.Rounds, StaleAccepted: int(c.StaleAccepted), ForgedAccepted: int(c.ForgedAccepted),
		HighwaterPolluted: int(c.HighwaterPolluted), SegmentJumpsAccepted: int(c.SegmentJumpsAccepted),
		ProtectedMutations: int(c.ProtectedMutations), CheckedMutations: int(c.CheckedMutations), UnknownOpen: int(c.UnknownOpen),
		HandoverP99MS: report.Round(c.HandoverP99Millis), HandoverCrashP99MS: report.Round(c.CrashHandoverMillis),
		More: map[string]int{
			"grants": int(c.Grants), "renewals": int(c.Renewals), "takeovers": int(c.Takeovers), "writes": int(c.Writes), "refused": int(c.Refused),
			"replayed": int(c.Replayed), "forged_sent": int(c.ForgedSent), "unknown_settled": int(c.UnknownSettled), "events": int(c.Events),
		},
	}
	for name, n := range c.Violations {
		run.More[name] = int(n)
	}
	for _, g := range r.Gates {
		run.Gates = append(run.Gates, report.Gate(g))
	}
	for _, x := range r.Faults {
		run.Faults = append(run.Faults, report.Fault{Name: x.Name, Cases: x.Cases, Fired: int(x.Fired), Effect: int(x.Effect)})
	}
	for _, b := range r.Handover {
		run.Handover = append(run.Handover, report.Bucket{UpToMS: b.UpToMillis, Released: int(b.Released), Crashed: int(b.Crashed)})
	}
	for _, t := range r.Timelines {
		run.Timelines = append(run.Timelines, timelineOf(t))
	}
	if x := r.Failure; x != nil {
		failed := report.Failure{Kind: x.Kind, Detail: x.Detail, Repeat: x.Command}
		for _, e := range x.Events {
			failed.Events = append(failed.Events, fmt.Sprintf("%-10v %-12s %s", e.At, e.Actor, eventText(e)))
		}
		run.Failures = append(run.Failures, failed)
	}
	return run
}

func millis(d time.Duration) float64 { return report.Round(float64(d) / float64(time.Millisecond)) }

// optionsOf are the expanded options in the order of their fields.
func optionsOf(e simulate.Expanded) (o report.Options) {
	b, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		return report.Options{{Name: "options", Value: e.String()}}
	}
	for i := range o {
		o[i].Value = flat(o[i].Value)
	}
	return o
}

// flat is an option that is a list in one line: of objects, their values.
func flat(value string) string {
	var list []any
	if json.Unmarshal([]byte(value), &list) != nil {
		return value
	}
	var parts []string
	for _, e := range list {
		object, ok := e.(map[string]any)
		if !ok {
			parts = append(parts, fmt.Sprint(e))
			continue
		}
		var values []string
		for _, name := range slices.Sorted(maps.Keys(object)) {
			values = append(values, fmt.Sprint(object[name]))
		}
		parts = append(parts, strings.Join(values, " × "))
	}
	return strings.Join(parts, ", ")
}

func eventText(e simulate.Event) string {
	text := e.Text
	if e.Fence != 0 && !strings.Contains(text, "fence ") {
		text += ", fence " + shortFence(e.Fence)
	}
	if e.Verdict != "" {
		text += ": " + e.Verdict
	}
	return text
}

// timelineOf is a simulated round with a lane for each actor.
func timelineOf(t simulate.Timeline) report.Timeline {
	line := report.Timeline{
		Title: fmt.Sprintf("Round %d of world %d", t.Round, t.World), Resource: t.Resource, Round: t.Round, Faults: t.Faults,
	}
	var first, last time.Duration = -1, 0
	see := func(at time.Duration) {
		if first < 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	for _, x := range t.Tenures {
		see(x.From)
		see(x.To)
	}
	t.Events = slices.DeleteFunc(slices.Clone(t.Events), func(e simulate.Event) bool { return !worthShowing(e) })
	for _, e := range t.Events {
		see(e.At)
	}
	at := func(d time.Duration) float64 { return millis(d - first) }
	line.EndMS = at(last)
	lanes := map[string]*report.Lane{}
	var order []string
	lane := func(name string) *report.Lane {
		if lanes[name] == nil {
			lanes[name] = &report.Lane{Name: name}
			order = append(order, name)
		}
		return lanes[name]
	}
	for _, x := range t.Tenures {
		l := lane(x.Owner)
		l.Spans = append(l.Spans, report.Span{
			FromMS: at(x.From), ToMS: at(x.To), Kind: report.Held, Label: "holds fence " + shortFence(x.Fence), End: x.End,
		})
	}
	for _, e := range t.Events {
		l := lane(e.Actor)
		l.Marks = append(l.Marks, report.Mark{AtMS: at(e.At), Kind: kindOf(e.Verdict), Label: e.Text, Why: e.Verdict})
	}
	for _, name := range order {
		slices.SortStableFunc(lanes[name].Marks, func(a, b report.Mark) int {
			switch {
			case a.AtMS < b.AtMS:
				return -1
			case a.AtMS > b.AtMS:
				return 1
			}
			return 0
		})
		line.Lanes = append(line.Lanes, *lanes[name])
	}
	return line
}

func kindOf(verdict string) report.MarkKind {
	switch verdict {
	case "":
		return report.Note
	case "APPLIED", "REPLAYED":
		return report.Accepted
	case "MUTATION_UNKNOWN", "UNKNOWN":
		return report.Unknown
	}
	return report.Refused
}

// worthShowing reports whether an event belongs into a picture: what was decided, and
// what befell somebody. What was only asked or heard would bury it.
func worthShowing(e simulate.Event) bool {
	if e.Verdict != "" {
		return e.Actor == "resource"
	}
	switch e.Actor {
	case "fault", "operator", "observer":
		return true
	}
	for _, begins := range []string{"grants ", "ends ", "stops", "goes on", "is killed", "starts"} {
		if strings.HasPrefix(e.Text, begins) {
			return true
		}
	}
	return false
}

// shortFence is a fence as people compare it: epoch and counter.
func shortFence(n uint64) string {
	t := lastword.Token(n)
	if t.Epoch() == 0 {
		return t.String()
	}
	return fmt.Sprintf("%d.%d", t.Epoch(), t.Counter())
}
