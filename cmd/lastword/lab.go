package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab"
	"github.com/lastword/lastword/lab/soak"
)

func (a *app) labCommand() *cobra.Command {
	agent := &cobra.Command{
		Use: "agent", Short: "the inside of an experiment's processes", Args: want(), Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return lab.Agent(cmd.Context(), a.stdin, a.stdout) },
	}
	hand := &cobra.Command{
		Use: "hand", Short: "the inside of a worker of the soak", Args: want(), Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return soak.Hand(cmd.Context(), a.stdin, a.stdout) },
	}
	return group("lab", "experiments: rules, real processes, faults",
		a.takeoverCommand(), a.modelCommand(), a.operationsCommand(), a.soakCommand(), a.reportCommand(), agent, hand)
}

const takeoverLong = `A acquires a lease and is stopped (SIGSTOP). B takes over at the deadline, writes and
reports the work done. A is continued, writes and tries to report, too. Each of them,
and the authority, is a process of its own; the order comes from what they say, not
from time. Shows the task table and the business table side by side.

  --fence=off   nothing checks the write: A overwrites B, and the task table shows nothing
  --fence=on    the resource checks in its own transaction; also shows what the fence does
                not promise, a process killed before its commit, and the ticks around a
                deadline

With --check FILE the result is compared with one that was stored by --out FILE; a
difference is exit code 1, with the lines that differ, ten at most. A file that is no
such result is exit code 2, before anything runs.`

func (a *app) takeoverCommand() *cobra.Command {
	fence, check, out := "on", "", outFlags{}
	cmd := &cobra.Command{
		Use: "takeover [--fence=on|off]", Short: "a paused worker overwrites its successor, or not", Long: takeoverLong, Args: want(),
	}
	f := cmd.Flags()
	f.Var(&choiceFlag{&fence, []string{"on", "off"}}, "fence", "does the resource check: on or off")
	out.add(cmd, "the result, as JSON,")
	f.StringVar(&check, "check", "", "compare the result with the one stored in `FILE`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var stored *lab.Result
		if cmd.Flags().Changed("check") { // a file that is none is found before anything runs
			want, err := lab.ReadResult(check)
			if err != nil {
				return usage(cmd, "--check: %s", err)
			}
			stored = &want
		}
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("lab takeover: %w", err)
		}
		file, err := out.reserve(cmd)
		if err != nil {
			return err
		}
		defer file.discard()
		o := lab.Options{Agent: []string{program, "lab", "agent"}, Fence: fence == "on"}
		r, err := lab.Takeover(cmd.Context(), o)
		if err != nil {
			return stopped(cmd.Context(), "lab takeover", err)
		}
		if err := a.experiment(r, file); err != nil {
			return fmt.Errorf("lab takeover: %w", err)
		}
		if stored == nil {
			return nil
		}
		return a.compare(r, *stored, check)
	}
	return cmd
}

// stopped is the error of an experiment that did not come to its end.
func stopped(ctx context.Context, op string, err error) error {
	if ctx.Err() == nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return &lastword.Error{Code: lastword.CodeCanceled, Op: op, Message: "interrupted; its processes and files are gone, and there is no result"}
}

// experiment shows a result and stores it, as asked.
func (a *app) experiment(r lab.Result, out *outFile) error {
	var err error
	if a.json {
		err = a.object(r)
	} else {
		err = r.Print(a.stdout)
	}
	if err == nil {
		err = out.commit(r.Write)
	}
	return err
}

// compare says in which lines a result differs from the stored one: for people each
// line by itself.
func (a *app) compare(r, stored lab.Result, path string) error {
	lines, err := r.Difference(stored)
	if err != nil {
		return fmt.Errorf("lab takeover: %w", err)
	}
	if len(lines) == 0 {
		if !a.json {
			_, err = fmt.Fprintf(a.stdout, "\nThe same as in %s.\n", path)
		}
		return err
	}
	const shown = 10
	count := fmt.Sprintf("%d lines", len(lines))
	if len(lines) == 1 {
		count = "1 line"
	}
	if more := len(lines) - shown; more > 0 {
		lines = append(lines[:shown:shown], fmt.Sprintf("and %d more", more))
	}
	differs := fmt.Sprintf("lab takeover: this run differs from %s in %s", path, count)
	if a.json {
		return fmt.Errorf("%s: %s", differs, strings.Join(lines, "; "))
	}
	if _, err := fmt.Fprintf(a.stdout, "\n%s\n", strings.Join(lines, "\n")); err != nil {
		return err
	}
	return errors.New(differs)
}

func (a *app) operationsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "operations", Short: "one intent, one effect: five writes of two tenures", Args: want(),
		Long: `Five writes under policy latest: two numbers of one tenure, the same operation in the
next tenure, the same operation with other content, and a new operation with an old
number. Shows what each was answered and counts the effects in the business table.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := lab.RunOperations(cmd.Context())
			if err != nil {
				return stopped(cmd.Context(), "lab operations", err)
			}
			if a.json {
				return a.object(o)
			}
			return o.Print(a.stdout)
		},
	}
}
