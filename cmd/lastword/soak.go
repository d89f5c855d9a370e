package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/report"
	"github.com/lastword/lastword/lab/simulate"
	"github.com/lastword/lastword/lab/soak"
	"github.com/lastword/lastword/model"
)

const soakOp = "lab soak"

const soakLong = `Plays rounds in which one owner is stopped, killed, cut off or made late, another one
takes over, and the first one comes back, with forged grants in between; then compares
receipts, business rows and everything that was answered. docs/soak.md says what each
gate is.

Without --real time, network and disks are simulated, around the rules and the gate that
production runs: one seed gives one run, again and again. With --real there are an
authority and workers in processes of their own, a guarded SQLite database for each pair
of workers, SIGSTOP and SIGKILL at exact points, and a proxy on each way; a seed gives the
plan, and the machine has its part in the rest.

Exit code 0: all gates hold; with --variant: the defect was found. 1: not so, or it was
interrupted, and then what was found until then is shown. The last line is the command
that repeats the run. With --variant all every variant is played by itself; -o json prints
one object a line.`

// soakFlags are what `lab soak` takes.
type soakFlags struct {
	rounds, cells         int
	seed                  uint64
	real, unsigned        bool
	variant, replay, page string
	out                   outFlags
}

func (a *app) soakCommand() *cobra.Command {
	var f soakFlags
	cmd := &cobra.Command{
		Use: "soak [--rounds N] [--seed S] [--real]", Short: "many rounds under faults, and every gate at zero",
		Long: soakLong + "\n\nVariants with --real\n" + realVariantList() + "\nVariants without it are those of 'lastword lab model'.", Args: want(),
		Example: "  lastword lab soak --rounds 100000 --seed 1\n  lastword lab soak --real --rounds 500 --report soak.html",
	}
	flags := cmd.Flags()
	flags.IntVar(&f.rounds, "rounds", 0, "how `many` (default 100000, with --real 500)")
	flags.Uint64Var(&f.seed, "seed", 0, "decides everything that is drawn (default: drawn, and printed)")
	flags.BoolVar(&f.real, "real", false, "with real processes on SQLite")
	flags.BoolVar(&f.unsigned, "unsigned", false, "leave the signatures out, for speed; not with --real")
	flags.StringVar(&f.variant, "variant", model.None, "`NAME` of a defect that is to be found, none, or all")
	flags.IntVar(&f.cells, "cells", 0, "pairs of workers at a `time`, 1 to 64, with --real (default 24)")
	flags.StringVar(&f.replay, "replay", "", "play the shrunk `PLAN` of a failure again; not with --real")
	flags.StringVar(&f.page, "report", "", "write the report as one HTML `FILE`, too")
	f.out.add(cmd, "the run, as JSON,")
	flags.Lookup("force").Usage = "overwrite the files of --out and --report"
	flags.Lookup("rounds").DefValue, flags.Lookup("seed").DefValue, flags.Lookup("cells").DefValue = "", "", ""
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		return a.soak(cmd, f)
	}
	return cmd
}

// check refuses what is out of bounds, what is no name, and flags that do not go
// together.
func (f *soakFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("rounds") && (f.rounds < 1 || f.rounds > soak.MaxRounds) {
		return usage(cmd, "--rounds: %d: want 1 to %d", f.rounds, soak.MaxRounds)
	}
	if given("cells") && (f.cells < 1 || f.cells > 64) {
		return usage(cmd, "--cells: %d: want 1 to 64", f.cells)
	}
	if f.real {
		for _, other := range []string{"unsigned", "replay"} {
			if given(other) {
				return usage(cmd, "--%s is for simulated rounds: leave it or --real out", other)
			}
		}
	} else if given("cells") {
		return usage(cmd, "--cells is for real processes: add --real")
	}
	if given("replay") && f.replay == "" {
		return usage(cmd, "--replay: it names no plan")
	}
	if given("out") && f.out.path == "" {
		return usage(cmd, "--out: it names no file")
	}
	if given("report") && f.page == "" {
		return usage(cmd, "--report: it names no file")
	}
	if names := f.variants(); !slices.Contains(names, f.variant) {
		return usage(cmd, "--variant: no %q here: want none, all, or the name of a variant%s", clip(f.variant), near(f.variant, names))
	}
	if f.variant == everyVariant {
		for _, other := range []string{"out", "report", "replay"} {
			if given(other) {
				return usage(cmd, "--%s is for one run: name one variant", other)
			}
		}
	}
	if !given("seed") {
		f.seed = rand.Uint64N(1 << 32) // short enough to be typed
	}
	if f.rounds == 0 {
		f.rounds = f.usual()
	}
	return nil
}

// usual is how many rounds are played if nobody says. A defect shows soon.
func (f *soakFlags) usual() int {
	switch {
	case f.real && f.variant != model.None:
		return 100
	case f.real:
		return 500
	}
	return 100_000
}

func (f *soakFlags) variants() []string {
	if !f.real {
		return variantNames()
	}
	names := []string{model.None, everyVariant}
	for _, v := range soak.Variants() {
		names = append(names, v.Name)
	}
	return names
}

// again is the command that repeats the run.
func (f *soakFlags) again() string {
	text := []string{"lastword lab soak"}
	if f.real {
		text = append(text, "--real")
	}
	text = append(text, fmt.Sprintf("--rounds %d --seed %d", f.rounds, f.seed))
	if f.unsigned {
		text = append(text, "--unsigned")
	}
	if f.variant != model.None {
		text = append(text, "--variant "+f.variant)
	}
	if f.cells != 0 {
		text = append(text, fmt.Sprintf("--cells %d", f.cells))
	}
	if f.replay != "" {
		text = append(text, "--replay "+quoted(f.replay))
	}
	return strings.Join(text, " ")
}

// everySoak plays every variant, and fails if one was not found.
func (a *app) everySoak(ctx context.Context, f soakFlags) error {
	missed := false
	for _, name := range f.variants() {
		if name == model.None || name == everyVariant {
			continue
		}
		f.variant = name
		run, err := a.soaked(ctx, f)
		if err == nil && a.json {
			err = a.object(run)
		} else if err == nil {
			_, err = fmt.Fprintf(a.stdout, "%s (%v)\n", run.Verdict(), time.Duration(run.TookMS*float64(time.Millisecond)).Round(time.Millisecond))
		}
		if err != nil {
			return err
		}
		missed = missed || !run.OK()
		if run.Interrupted {
			break
		}
	}
	if missed {
		return quietly{exitFailed}
	}
	return nil
}

func (a *app) soak(cmd *cobra.Command, f soakFlags) error {
	if f.variant == everyVariant {
		return a.everySoak(cmd.Context(), f)
	}
	var file, page *outFile
	var err error
	if f.page != "" {
		if page, err = reserveOut(f.page, f.out.force); err != nil {
			return usage(cmd, "--report: %s", err)
		}
		defer page.discard()
	}
	if page == nil || f.out.path != "" { // --force may be for the page alone
		if file, err = f.out.reserve(cmd); err != nil {
			return err
		}
		defer file.discard()
	}
	run, err := a.soaked(cmd.Context(), f)
	if err != nil {
		return err
	}
	if a.json {
		err = a.object(run)
	} else {
		err = run.Print(a.stdout)
	}
	if err := errors.Join(err, file.commit(run.Write), page.commit(run.HTML)); err != nil {
		return fmt.Errorf("%s: %w", soakOp, err)
	}
	if !run.OK() {
		return quietly{exitFailed}
	}
	return nil
}

// soaked is the run, of either kind.
func (a *app) soaked(ctx context.Context, f soakFlags) (*report.Run, error) {
	var progress func(done, total int)
	if terminal(a.stderr) {
		shown := time.Now()
		progress = func(done, total int) {
			if now := time.Now(); now.Sub(shown) >= 100*time.Millisecond || done == total {
				shown = now
				fmt.Fprintf(a.stderr, "\r\033[K%d of %d rounds", done, total)
			}
		}
		defer fmt.Fprint(a.stderr, "\r\033[K")
	}
	run, err := f.play(ctx, serialised(progress))
	switch {
	case run != nil && err == nil:
		return run, nil
	case ctx.Err() != nil:
		return nil, &lastword.Error{Code: lastword.CodeCanceled, Op: soakOp, Message: "interrupted before there was anything to show", Hint: "again: " + f.again()}
	}
	return nil, named(err, soakOp, "")
}

// serialised lets one caller at a time through.
func serialised(progress func(done, total int)) func(done, total int) {
	if progress == nil {
		return nil
	}
	turn := make(chan struct{}, 1)
	return func(done, total int) {
		turn <- struct{}{}
		defer func() { <-turn }()
		progress(done, total)
	}
}

func (f *soakFlags) play(ctx context.Context, progress func(done, total int)) (*report.Run, error) {
	if !f.real {
		r, err := simulate.Run(ctx, simulate.Options{
			Rounds: f.rounds, Seed: f.seed, Unsigned: f.unsigned, Variant: f.variant, Replay: f.replay, Progress: progress,
		})
		if r == nil {
			return nil, err
		}
		return f.simulated(r, ctx.Err() != nil), nil
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return soak.Run(ctx, soak.Options{
		Rounds: f.rounds, Seed: f.seed, Variant: f.variant, Cells: f.cells, Progress: progress, Command: f.again(), Build: buildVersion(),
		Hand: []string{program, "lab", "hand"}, Authority: []string{program, "serve"},
	})
}

func realVariantList() string {
	var rows [][2]string
	for _, v := range soak.Variants() {
		rows = append(rows, [2]string{v.Name, v.Breaks})
	}
	return columns(rows)
}

const reportLong = `Makes one HTML page of a run that 'lab soak --out' stored: gates, options, faults, time
lines of chosen rounds and the hand-overs. The page needs nothing beside itself, no
network and no script, and it prints.`

func (a *app) reportCommand() *cobra.Command {
	in, out := "", outFlags{}
	cmd := &cobra.Command{
		Use: "report --in RUN.json --out FILE.html", Short: "a stored soak as one page to read", Long: reportLong, Args: want(),
		Example: "  lastword lab soak --real --out run.json && lastword lab report --in run.json --out run.html",
	}
	cmd.Flags().StringVar(&in, "in", "", "the `RUN` that was stored (required)")
	out.add(cmd, "the page")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, need := range []string{"in", "out"} {
			if !cmd.Flags().Changed(need) {
				return usage(cmd, "no --%s FILE given", need)
			}
		}
		run, err := readRun(in)
		if err != nil {
			return usage(cmd, "--in %s: %s", quoted(clip(in)), reason(err))
		}
		file, err := out.reserve(cmd)
		if err != nil {
			return err
		}
		defer file.discard()
		if err := file.commit(run.HTML); err != nil {
			return fmt.Errorf("lab report: %w", err)
		}
		return a.answer(struct {
			Written string `json:"written"`
		}{out.path}, row{"written", out.path})
	}
	return cmd
}

// maxRun is far above what a run needs.
const maxRun = 64 << 20

func readRun(path string) (*report.Run, error) {
	b, err := readSmall(path, maxRun)
	if err != nil {
		return nil, err
	}
	return report.Read(strings.NewReader(string(b)))
}
