package soak

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/lab/report"
)

// titles are the rounds that are worth a picture, in the order in which they are shown:
// of each the first one that shows what it is for.
var titles = []struct {
	key, title string
	fits       func(p *play) bool
}{
	{"long sleep", "The owner sleeps twelve TTLs before it writes, and finds a successor", func(p *play) bool {
		return p.Main.Kind == freezing && p.Main.Pause > 2 && !p.Main.Point.locks() && p.bHas != nil
	}},
	{"sleep in transaction", "The owner sleeps inside its transaction: the successor's write waits for the lock", func(p *play) bool {
		return p.Main.Kind == freezing && p.Main.Pause > 1 && p.Main.Point.locks()
	}},
	{"killed after commit", "The owner is killed after its commit, before anybody heard of it", func(p *play) bool {
		return p.Main.Kind == killing && p.Main.Point == afterCommit && p.a.gone
	}},
	{"killed before commit", "The owner is killed before its commit", func(p *play) bool {
		return p.Main.Kind == killing && p.Main.Point == beforeCommit && p.a.gone
	}},
	{"apart", "The owner is cut off from the authority", func(p *play) bool { return p.Main.Kind == partition }},
	{"late write", "A write is late at the resource: the successor was there first", func(p *play) bool { return p.Main.Kind == lateWrite }},
	{"lost answer", "Nobody hears what became of a COMMIT: the same operation settles it", func(p *play) bool { return p.Main.Kind == lostCommit }},
	{"revoked", "An operator revokes the lease", func(p *play) bool { return p.Main.Kind == revocation }},
}

// keepTimeline keeps a round to be shown, if there is none of its kind yet.
func (r *run) keepTimeline(p *play) {
	if len(p.Weather) > 0 || !p.struck || !r.quiet(p.began) {
		return
	}
	for _, t := range titles {
		r.mu.Lock()
		shown := r.shown[t.key] || r.calm
		r.mu.Unlock()
		if shown || !t.fits(p) {
			continue
		}
		line := p.timeline(t.title)
		r.mu.Lock()
		if !r.shown[t.key] {
			r.shown[t.key] = true
			r.timelines = append(r.timelines, line)
			slices.SortStableFunc(r.timelines, func(a, b report.Timeline) int { return titleAt(a.Title) - titleAt(b.Title) })
		}
		r.mu.Unlock()
		return
	}
}

func titleAt(title string) int {
	for i, t := range titles {
		if t.title == title {
			return i
		}
	}
	return len(titles)
}

// timeline draws a round from what was written down while it was played.
func (p *play) timeline(title string) report.Timeline {
	now := history.Clock()
	line := report.Timeline{Title: title, Resource: string(p.resource), Round: p.Number, Faults: p.Main.names(), EndMS: report.Round(ms(now - p.began))}
	p.mu.Lock()
	calls := slices.Clone(p.calls)
	events := slices.Clone(p.events)
	p.mu.Unlock()
	calls = slices.DeleteFunc(calls, func(c Call) bool {
		return c.Resource != p.resource || !c.Open && c.Heard < p.began || c.Sent > now || c.Open && c.Sent < p.began
	})
	events = slices.DeleteFunc(events, func(l lived) bool { return l.at < p.began })
	at := func(d time.Duration) float64 { return report.Round(ms(max(0, d-p.began))) }
	for i, s := range []*side{p.a, p.b} {
		name := "first owner " + s.owner
		if i == 1 {
			name = "second owner " + s.owner
		}
		lane := report.Lane{Name: name}
		lane.Spans = append(tenureSpans(s.owner, calls, events, now, at), hurtSpans(s.owner, events, now, at)...)
		lane.Marks = holderMarks(s.owner, calls, events, at)
		line.Lanes = append(line.Lanes, lane)
	}
	line.Lanes = append(line.Lanes, p.resourceLane(calls, at), authorityLane(calls, at))
	return line
}

// tenureSpans are the tenures as their holder saw them: from the answer to whatever it
// took for their end.
func tenureSpans(owner string, calls []Call, events []lived, now time.Duration, at func(time.Duration) float64) (spans []report.Span) {
	for _, c := range calls {
		if c.Op != "acquire" || c.Who != owner || !c.Accepted() || c.Open || c.Repeated {
			continue
		}
		end, how := now, ""
		for _, e := range events {
			if e.who == owner && e.at >= c.Heard && e.at < end && (e.Event == "change" && e.Fence == uint64(c.Fence) && final(e.To) || e.done == "died") {
				end, how = e.at, e.To+map[bool]string{true: "killed"}[e.done == "died"]
			}
		}
		spans = append(spans, report.Span{FromMS: at(c.Heard), ToMS: at(end), Kind: report.Held, Label: "holds fence " + short(c.Fence), End: how})
	}
	return spans
}

// short is a fence as people compare it: epoch and counter.
func short(t lastword.Token) string {
	if t == 0 {
		return "none"
	}
	return fmt.Sprintf("%d.%d", t.Epoch(), t.Counter())
}

func final(state string) bool {
	return state == string(lastword.HolderExpired) || state == string(lastword.HolderReleased)
}

// hurtSpans are the times in which something was wrong with a worker.
func hurtSpans(owner string, events []lived, now time.Duration, at func(time.Duration) float64) (spans []report.Span) {
	ends := map[string]string{"asleep": "continued", "cut off": "reachable"}
	for i, e := range events {
		label := e.done
		if e.who == owner && e.Event == "at" && e.Point != "" && slices.ContainsFunc(events[i:], func(l lived) bool { return l.who == owner && l.done == "continued" }) {
			label = "asleep"
		}
		closing, known := ends[label]
		if e.who != owner || !known {
			continue
		}
		end := now
		for _, l := range events[i:] {
			if l.who == owner && l.done == closing {
				end = l.at
				break
			}
		}
		if label == "asleep" {
			label = fmt.Sprintf("asleep, %s", e.Point)
		}
		spans = append(spans, report.Span{FromMS: at(e.at), ToMS: at(end), Kind: report.Hurt, Label: label})
	}
	return spans
}

func holderMarks(owner string, calls []Call, events []lived, at func(time.Duration) float64) (marks []report.Mark) {
	for _, e := range events {
		switch {
		case e.who != owner:
		case e.done == "died":
			marks = append(marks, report.Mark{AtMS: at(e.at), Kind: report.Note, Label: "killed"})
		case e.Event == "change" && e.To == string(lastword.HolderUnknown):
			marks = append(marks, report.Mark{AtMS: at(e.at), Kind: report.Note, Label: "ownership unknown", Why: "fence " + short(lastword.Token(e.Fence))})
		case e.Event == "change" && final(e.To):
			marks = append(marks, report.Mark{AtMS: at(e.at), Kind: report.Note, Label: e.To, Why: "fence " + short(lastword.Token(e.Fence))})
		}
	}
	for _, c := range calls {
		if c.Who == owner && c.Op == "acquire" && !c.Open && !c.Accepted() {
			kind := report.Refused
			if unheard(c) {
				kind = report.Unknown
			}
			marks = append(marks, report.Mark{AtMS: at(c.Heard), Kind: kind, Label: "acquire", Why: string(c.Code)})
		}
	}
	sortMarks(marks)
	return marks
}

// resourceLane is what the resource said to each write.
func (p *play) resourceLane(calls []Call, at func(time.Duration) float64) report.Lane {
	lane := report.Lane{Name: "the resource"}
	for _, c := range calls {
		if c.Op != opWrite {
			continue
		}
		m := report.Mark{AtMS: at(c.Heard), Label: fmt.Sprintf("%s writes with fence %s", c.Owner, short(c.Fence)), Why: c.Verdict}
		switch {
		case c.Open:
			m.AtMS, m.Kind, m.Why = at(c.Sent), report.Unknown, "it did not live to hear the verdict; "+p.receiptOf(c)
		case c.Verdict == string(lastword.Applied) || c.Verdict == string(lastword.Replayed):
			m.Kind = report.Accepted
		case c.Verdict == string(lastword.MutationUnknown):
			m.Kind, m.Why = report.Unknown, m.Why+"; "+p.receiptOf(c)
		case c.Verdict == string(lastword.StaleOwner):
			m.Kind, m.Why = report.Refused, m.Why+", the record has fence "+short(c.Told)
		default:
			m.Kind = report.Refused
		}
		lane.Marks = append(lane.Marks, m)
	}
	sortMarks(lane.Marks)
	return lane
}

// receiptOf says what the receipts tell of a write that nobody heard the end of.
func (p *play) receiptOf(c Call) string {
	_, found, err := p.forger.gate.Lookup(context.Background(), c.Resource, c.Operation)
	switch {
	case err != nil:
		return "its receipt could not be looked up"
	case found:
		return "there is a receipt: it happened"
	}
	return "there is no receipt, and a newer fence: it did not happen"
}

// authorityLane is what the authority granted and ended.
func authorityLane(calls []Call, at func(time.Duration) float64) report.Lane {
	lane := report.Lane{Name: "the authority"}
	for _, c := range calls {
		m := report.Mark{AtMS: at(c.Heard), Kind: report.Note}
		switch {
		case c.Open:
			continue
		case c.Op == "acquire" && c.Accepted() && !c.Repeated:
			m.Label, m.Why = "grants fence "+short(c.Fence), "to "+c.Owner
		case c.Op == "release" && c.Accepted():
			m.Label, m.Why = "release", "of "+c.Owner
		case c.Op == opRevoke && c.Accepted():
			m.Label, m.Why = "revokes", fmt.Sprintf("fence %s of %s", short(c.Fence), c.Owner)
		default:
			continue
		}
		lane.Marks = append(lane.Marks, m)
	}
	sortMarks(lane.Marks)
	return lane
}

func sortMarks(m []report.Mark) {
	slices.SortStableFunc(m, func(a, b report.Mark) int {
		switch {
		case a.AtMS < b.AtMS:
			return -1
		case a.AtMS > b.AtMS:
			return 1
		}
		return 0
	})
}
