package soak

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/report"
)

// Options say what is run. Hand and Authority are required.
type Options struct {
	// Rounds is how many rounds are played; 0 is 500.
	Rounds int
	// Seed decides the plan: which fault befalls which round, and where.
	Seed uint64
	// Variant is a defect that the workers have, one of [Variants]; "" or "none" for the
	// right system. Such a run is there to be found out.
	Variant string
	// Cells is how many pairs of workers play at a time; 0 is 24, 1 to 64.
	Cells int
	// Handovers is how many hand-overs after a release the last phase measures at least; 0
	// is 96, of which one may be slow.
	Handovers int
	// Dir is where the run's own directory is made; "" is the one for temporary files.
	Dir string
	// Hand is the command that runs [Hand], Authority the one that serves an authority,
	// as `lastword serve` does: its flags are appended.
	Hand, Authority []string
	// Command and Build name the run and the program in the report.
	Command, Build string
	// Progress, if not nil, is called when a round is over.
	Progress func(done, total int)
}

// Variant is a system with a defect.
type Variant struct{ Name, Breaks string }

// Variants are the defects that a run with real processes can have. The names are those
// of package model where it has the same defect.
func Variants() []Variant {
	return []Variant{
		{noFence, "the resource does not check: the lease alone is asked"},
		{checkThenWrite, "status and fence are checked, and then the write is a transaction of its own"},
		{effectBeside, "the business rows are written beside the transaction that checks"},
		{splitAuthority, "two authorities grant the same resources, each from a store of its own"},
	}
}

const (
	defaultRounds = 500
	defaultCells  = 24
	maxCells      = 64
	// MaxRounds bounds a run.
	MaxRounds = 10_000_000
)

// checked is o with its defaults.
func (o Options) checked() (Options, error) {
	if o.Rounds == 0 {
		o.Rounds = defaultRounds
	}
	if o.Cells == 0 {
		o.Cells = min(defaultCells, max(1, o.Rounds/2))
	}
	if o.Handovers == 0 {
		o.Handovers = 96
	}
	if o.Variant == "" {
		o.Variant = "none"
	}
	if o.Build == "" {
		o.Build = build()
	}
	known := o.Variant == "none" || slices.ContainsFunc(Variants(), func(v Variant) bool { return v.Name == o.Variant })
	wrong := ""
	switch {
	case o.Rounds < 0 || o.Rounds > MaxRounds:
		wrong = fmt.Sprintf("%d rounds: want 1 to %d", o.Rounds, MaxRounds)
	case o.Cells < 0 || o.Cells > maxCells:
		wrong = fmt.Sprintf("%d cells: want 1 to %d", o.Cells, maxCells)
	case o.Handovers < 0:
		wrong = fmt.Sprintf("%d hand-overs: want 1 or more", o.Handovers)
	case len(o.Hand) == 0 || len(o.Authority) == 0:
		wrong = "no command for a worker or for an authority"
	case !known:
		wrong = fmt.Sprintf("no variant %q with real processes", o.Variant)
	case !supported:
		return o, &lastword.Error{Code: lastword.CodeInvalid, Op: "soak", Message: "real rounds need Linux", Hint: "without --real the rounds are simulated, everywhere"}
	}
	if wrong != "" {
		return o, &lastword.Error{Code: lastword.CodeInvalid, Op: "soak", Message: wrong}
	}
	return o, nil
}

// expanded is what a run was, in full.
func (o Options) expanded(p plan) report.Options {
	faults := map[kind]int{}
	two, three, forged := 0, 0, 0
	for _, r := range p.Rounds {
		faults[r.Main.Kind]++
		forged += len(r.Forged)
		switch len(r.Weather) {
		case 1:
			two++
		case 2:
			three++
		}
	}
	var ttl []string
	for _, d := range ttls {
		ttl = append(ttl, d.String())
	}
	return report.Options{
		{Name: "seed", Value: fmt.Sprint(o.Seed)},
		{Name: "rounds", Value: fmt.Sprint(o.Rounds)},
		{Name: "variant", Value: o.Variant},
		{Name: "cells", Value: fmt.Sprintf("%d, of two worker processes and one database each", o.Cells)},
		{Name: "authority", Value: "one process on SQLite, tokens and a policy file"},
		{Name: "resource", Value: "SQLite, WAL, synchronous=FULL; status mode query, policy ordered"},
		{Name: "TTL", Value: strings.Join(ttl, ", ")},
		{Name: "frozen for", Value: fmt.Sprint(pauses) + " TTL at " + fmt.Sprint(len(points)) + " points"},
		{Name: "rounds per resource", Value: fmt.Sprint(roundsPerEra)},
		{Name: "faults in rounds", Value: fmt.Sprintf("%d of %d", o.Rounds-faults[calm], o.Rounds)},
		{Name: "a second fault", Value: fmt.Sprintf("%d rounds, a third %d", two+three, three)},
		{Name: "forged grants", Value: fmt.Sprint(forged)},
		{Name: "faults of the authority", Value: fmt.Sprint(len(p.Turns))},
		{Name: "calm rounds at the end", Value: fmt.Sprintf("%d a cell", o.calmRounds())},
	}
}

// build names the program: its version, or the commit it was built from.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += " " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += "+changes"
		}
	}
	return strings.TrimSpace(text)
}
