package lab

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print shows the result to people: what happened, then both tables side by side.
func (r Result) Print(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s", r.title())
	p.line("")
	p.events(r.Events, "takeover")
	p.line("")
	p.tables(r)
	p.line("")
	p.line("%s", r.verdict())
	p.more(r)
	return p.err
}

func (r Result) title() string {
	if r.Fence == "on" {
		return "WITH THE FENCE: the resource checks every write in its own transaction"
	}
	return "WITHOUT THE FENCE: the lease alone, nothing checks the write"
}

func (r Result) verdict() string {
	if r.Business.Value == r.Schedule.Result {
		return fmt.Sprintf("Both tables say %q. %s's late write was refused: %s.", r.Schedule.Result, r.LateWrite.Owner, r.LateWrite.Verdict)
	}
	return fmt.Sprintf("The task table says %q and the business table says %q: %s overwrote its successor, and no table of tasks shows it.",
		r.Schedule.Result, r.Business.Value, r.LateWrite.Owner)
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) events(events []Event, part string) {
	if p.err != nil {
		return
	}
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, e := range events {
		if e.Part != part {
			continue
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", e.Process, e.Did, e.Heard)
	}
	p.err = tw.Flush()
}

// tables draws the two tables side by side.
func (p *printer) tables(r Result) {
	stored := r.Business.Fence
	if stored == "" {
		stored = "(nobody keeps it)"
	}
	left := box("TASK TABLE (authority)", [][2]string{
		{"resource", r.Schedule.Resource}, {"done by", r.Schedule.Owner + ", fence " + r.Schedule.Fence}, {"result", r.Schedule.Result},
	})
	right := box("BUSINESS TABLE (document)", [][2]string{
		{"resource", r.Business.Resource}, {"fence", stored}, {"value", r.Business.Value},
	})
	for i := range left {
		p.line("  %s   %s", left[i], right[i])
	}
}

func box(title string, rows [][2]string) []string {
	const width = 32
	lines := []string{"+" + strings.Repeat("-", width) + "+", fmt.Sprintf("| %-*s |", width-2, title), "+" + strings.Repeat("-", width) + "+"}
	for _, row := range rows {
		lines = append(lines, fmt.Sprintf("| %-10s%-*s |", row[0], width-12, row[1]))
	}
	return append(lines, lines[0])
}

// more shows the parts that only a run with the fence has.
func (p *printer) more(r Result) {
	if len(r.Gap) > 0 {
		p.line("")
		p.line("What the fence does NOT promise: B has acquired and not yet written. A, asleep ...")
	}
	for _, g := range r.Gap {
		p.line("  ... %s (status mode %s): A's write %s, then B's %s, then A's %s; the table says %q.",
			g.Stopped, g.Mode, g.Early, g.Newer, g.Late, g.Value)
	}
	if c := r.Crash; c != nil {
		p.line("")
		p.line("A process killed after fence and value were written, before its commit:")
		p.line("  fence %s -> %s, value %q -> %q, the same operation in the next tenure %s.",
			c.FenceBefore, c.FenceAfter, c.ValueBefore, c.ValueAfter, c.Retried)
	}
	if len(r.Boundary) > 0 {
		p.line("")
		p.line("A lease of 10 ticks, valid while now < deadline:")
	}
	for _, b := range r.Boundary {
		p.line("  tick %2d: renew %-10s  acquire by another %s", b.Tick, b.Renew, b.Acquire)
	}
}

// Print shows the script to people.
func (o Operations) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "tenure\tfence\tseq\toperation\tcontent\tverdict\toutcome\n")
	for _, s := range o.Steps {
		fmt.Fprintf(tw, "%d\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Tenure, s.Fence, s.Seq, s.Operation, s.Content, s.Verdict, s.Outcome)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d effects in the business table\n", o.Effects)
	return err
}
