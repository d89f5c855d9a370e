package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Print shows the run to people: what it was, the gates, and the faults.
func (r *Run) Print(w io.Writer) error {
	var b bytes.Buffer // written at once: whole or not
	fmt.Fprintf(&b, "%s rounds: %d, seed %d, in %v\n", r.Kind, r.Rounds, r.Seed, r.took())
	fmt.Fprintf(&b, "build %s\n", plain(r.Build))
	for _, o := range r.Options {
		if o.Name != "seed" && o.Name != "rounds" && o.Name != "build" {
			fmt.Fprintf(&b, "  %s: %s\n", plain(o.Name), plain(o.Value))
		}
	}
	b.WriteByte('\n')
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, g := range r.Gates {
		fmt.Fprintf(table, "%s\t%s\t%s\twant %s\n", mark(g.Holds), plain(g.Name), plain(g.Got), plain(g.Want))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	b.WriteString("\nfaults: fired, of which had an effect\n")
	table = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, f := range r.Faults {
		never := ""
		if f.Fired == 0 || f.Effect == 0 {
			never = "NEVER"
		}
		fmt.Fprintf(table, "  %s\t%s\t%d\t%d\t%s\n", plain(strings.Join(f.Cases, ", ")), plain(f.Name), f.Fired, f.Effect, never)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s\n", plain(n))
	}
	if r.TraceHash != "" {
		fmt.Fprintf(&b, "trace %s\n", plain(r.TraceHash))
	}
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "\n%s: %s\n", plain(f.Kind), plain(f.Detail))
		for _, e := range f.Events {
			fmt.Fprintf(&b, "    %s\n", plain(e))
		}
		if f.Repeat != "" {
			fmt.Fprintf(&b, "this one again: %s\n", plain(f.Repeat))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.Verdict())
	if r.Command != "" {
		fmt.Fprintf(&b, "again: %s\n", plain(r.Command))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Verdict is the run in one sentence.
func (r *Run) Verdict() string {
	failed := 0
	for _, g := range r.Gates {
		if !g.Holds {
			failed++
		}
	}
	if gates, found := r.Found(); r.Variant != "" && found {
		return fmt.Sprintf("The defect %s was found: %s.", r.Variant, strings.Join(gates, ", "))
	}
	switch {
	case r.Variant != "":
		return fmt.Sprintf("The defect %s was not found.", r.Variant)
	case r.Interrupted:
		return fmt.Sprintf("Interrupted after %d rounds: %d of %d gates do not hold.", r.Rounds, failed, len(r.Gates))
	case r.OK():
		return fmt.Sprintf("All %d gates hold.", len(r.Gates))
	case failed == 0:
		return "The run failed."
	}
	return fmt.Sprintf("%d of %d gates do not hold.", failed, len(r.Gates))
}

func (r *Run) took() time.Duration {
	return time.Duration(r.TookMS * float64(time.Millisecond)).Round(10 * time.Millisecond)
}

func mark(holds bool) string {
	if holds {
		return "ok"
	}
	return "FAILED"
}

// plain keeps what a run quotes in its line.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
}
