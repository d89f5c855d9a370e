package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword/model"
)

const modelLong = `Explores every order of events that a scope allows, with the rules that production
runs. The right system has no violation; a variant, which has one thing broken, has
one, and its shortest counter-example is drawn as a time line.

Exit code 0: no violation in the right system, or the named defect was found. With
--variant all every variant is explored; -o json prints one object a line.

--replay FILE runs one schedule again, as --out FILE stored it.`

// modelFlags are what `lab model` takes.
type modelFlags struct{ variant, scope, out, replay string }

func (a *app) modelCommand() *cobra.Command {
	f := modelFlags{variant: model.None}
	cmd := &cobra.Command{
		Use: "model [--variant NAME|all]", Short: "every order of events, and what breaks when one line is left out",
		Long: modelLong + "\n\nVariants\n" + variantList() + "\nScopes\n" + scopeList(), Args: want(),
	}
	cmd.Flags().StringVar(&f.variant, "variant", f.variant, "`NAME` of what is broken, none, or all")
	cmd.Flags().StringVar(&f.scope, "scope", "", "`NAME` of what is explored (default: ci, and a variant's own world)")
	cmd.Flags().StringVar(&f.out, "out", "", "store the counter-example in `FILE`, to be replayed")
	cmd.Flags().StringVar(&f.replay, "replay", "", "run the schedule in `FILE` again")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.model(cmd, f) }
	return cmd
}

func (a *app) model(cmd *cobra.Command, f modelFlags) error {
	switch {
	case f.replay != "":
		return a.replay(f.replay)
	case f.variant != "all":
		return a.explore(cmd.Context(), f, f.variant)
	case f.out != "":
		return usage(cmd, "--out stores one counter-example: name one variant")
	}
	var failed error
	for _, v := range model.Variants() {
		if err := a.explore(cmd.Context(), f, v.Name); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// explore runs one system and shows what it came to.
func (a *app) explore(ctx context.Context, f modelFlags, variant string) error {
	o := model.Options{Variant: variant, Scope: f.scope}
	if terminal(a.stderr) {
		o.Progress = func(p model.Progress) {
			fmt.Fprintf(a.stderr, "\r\033[K%s %s: world %d of %d, %d states, %d to go", variant, p.World, p.Worlds+1, p.Of, p.States, p.Queued)
		}
	}
	r, err := model.Run(ctx, o)
	if o.Progress != nil {
		fmt.Fprint(a.stderr, "\r\033[K")
	}
	if err != nil {
		return named(err, "lab model", "")
	}
	if err := a.showReport(r); err != nil {
		return err
	}
	if f.out != "" && len(r.Violations) > 0 {
		if err := storeSchedule(r.Violations[0].Schedule(r.Variant), f.out); err != nil {
			return fmt.Errorf("lab model: %w", err)
		}
	}
	if !r.OK() {
		return quietly{exitFailed}
	}
	return nil
}

func (a *app) showReport(r model.Report) error {
	if a.json {
		return a.object(r)
	}
	fmt.Fprintf(a.stdout, "%s, scope %s: %d states, %d interleavings, %d states/s\n", r.Variant, r.Scope, r.States, r.Interleavings, r.StatesPerSecond)
	if len(r.Violations) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no violation")
		return err
	}
	for _, v := range r.Violations {
		fmt.Fprintf(a.stdout, "\n%s\n\n", v.Kind)
		if err := model.Draw(a.stdout, v, 0); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) replay(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("lab model: --replay: %w", err)
	}
	defer file.Close()
	s, err := model.ReadSchedule(file)
	if err != nil {
		return named(err, "lab model", "")
	}
	went, err := model.Replay(s)
	if err != nil {
		return named(err, "lab model", "")
	}
	if a.json {
		err = a.object(went)
	} else {
		v := model.Violation{Kind: went.Kind, World: went.World, Events: went.Events, Values: went.Values}
		fmt.Fprintf(a.stdout, "%s: %s\n\n", went.Variant, orNone(went.Kind))
		err = model.Draw(a.stdout, v, 0)
	}
	if err == nil && went.Kind != s.Kind {
		return fmt.Errorf("lab model: the schedule was to end in %s and ended in %s", orNone(s.Kind), orNone(went.Kind))
	}
	return err
}

func orNone(kind string) string {
	if kind == "" {
		return "no violation"
	}
	return kind
}

func storeSchedule(s model.Schedule, path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func variantList() string {
	var b strings.Builder
	for _, v := range model.Variants() {
		fmt.Fprintf(&b, "  %-28s %s\n", v.Name, v.Breaks)
	}
	return b.String()
}

func scopeList() string {
	var b strings.Builder
	for _, s := range model.Scopes() {
		fmt.Fprintf(&b, "  %-28s %s\n", s.Name, s.About)
	}
	return b.String()
}

// terminal reports whether a person looks at w.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
