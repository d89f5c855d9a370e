package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/model"
)

const modelOp = "lab model"

const modelLong = `Explores every order of events that a scope allows, with the rules that production
runs. The right system has no violation; a variant, which has one thing broken, has
one, and its shortest counter-example is drawn as a time line.

Exit code 0: no violation in the right system, and everything was reached that the
scope is there for; or the named defect was found. 1: not so. With --variant all every
variant is explored in its own world; -o json prints one object a line.

--replay FILE runs one schedule again, as --out FILE stored it. 0: it ended as the file
says; 1: it ended otherwise; 2: the file is no schedule, or an event in it is not
possible.`

// modelFlags are what `lab model` takes.
type modelFlags struct {
	variant, scope, replay string
	out                    outFlags
}

const everyVariant = "all"

func (a *app) modelCommand() *cobra.Command {
	f := modelFlags{variant: model.None}
	cmd := &cobra.Command{
		Use: "model [--variant NAME|all]", Short: "every order of events, and what breaks when one line is left out",
		Long: modelLong + "\n\nVariants\n" + variantList() + "\nScopes\n" + scopeList(), Args: want(),
	}
	cmd.Flags().StringVar(&f.variant, "variant", f.variant, "`NAME` of what is broken, none, or all")
	cmd.Flags().StringVar(&f.scope, "scope", "", "`NAME` of what is explored (default: ci, and a variant's own world)")
	f.out.add(cmd, "the variant's counter-example, to be replayed,")
	cmd.Flags().StringVar(&f.replay, "replay", "", "run the schedule in `FILE` again")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		return a.model(cmd, f)
	}
	return cmd
}

// check refuses what is no name, and flags that do not go together.
func (f modelFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("replay") {
		for _, other := range []string{"variant", "scope", "out"} {
			if given(other) {
				return usage(cmd, "--replay runs the variant and the world that its file names: leave --%s out", other)
			}
		}
		return nil
	}
	if !slices.Contains(variantNames(), f.variant) {
		return usage(cmd, "--variant: no %q: want none, all, or the name of a variant%s", clip(f.variant), near(f.variant, variantNames()))
	}
	if given("scope") && !slices.Contains(scopeNames(), f.scope) {
		return usage(cmd, "--scope: no %q: want one of %s", clip(f.scope), strings.Join(scopeNames(), ", "))
	}
	switch {
	case f.variant == everyVariant && given("scope"):
		return usage(cmd, "--variant all explores each variant in its own world: leave --scope out, or name one variant")
	case f.variant == everyVariant && given("out"):
		return usage(cmd, "--out stores one counter-example: name one variant with --variant")
	case f.variant == model.None && given("out"):
		return usage(cmd, "--out stores a counter-example, and the right system has none: name a variant with --variant")
	}
	return nil
}

// near suggests a name.
func near(wrong string, names []string) string {
	probe := &cobra.Command{Use: "probe"}
	for _, n := range names {
		probe.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	probe.SuggestionsMinimumDistance = 2
	if found := probe.SuggestionsFor(wrong); wrong != "" && len(found) > 0 {
		return "; did you mean " + strings.Join(found, " or ") + "?"
	}
	return ""
}

func (a *app) model(cmd *cobra.Command, f modelFlags) error {
	switch {
	case cmd.Flags().Changed("replay"):
		return a.replay(cmd, f.replay)
	case f.variant != everyVariant:
		return a.exploreOne(cmd, f)
	}
	var failed error
	for _, v := range model.Variants() {
		_, err := a.explore(cmd.Context(), model.Options{Variant: v.Name})
		if _, notFound := errors.AsType[quietly](err); err != nil && !notFound {
			return err // nobody listens any more, or there was no end
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// exploreOne explores one system and stores its counter-example, if asked to.
func (a *app) exploreOne(cmd *cobra.Command, f modelFlags) error {
	o := model.Options{Variant: f.variant, Scope: f.scope}
	file, err := f.out.reserve(cmd)
	if err != nil {
		return err
	}
	defer file.discard()
	r, err := a.explore(cmd.Context(), o)
	if file == nil {
		return err
	}
	if _, shown := errors.AsType[quietly](err); err != nil && !shown {
		return err
	}
	if len(r.Violations) == 0 {
		return fmt.Errorf("%s: --out: there is no counter-example, %s was not written (without --scope the variant's own world is explored, which has one)", modelOp, quoted(f.out.path))
	}
	if err := file.commit(func(w io.Writer) error { return storeSchedule(w, r.Violations[0].Schedule(r.Variant)) }); err != nil {
		return fmt.Errorf("%s: --out: %w", modelOp, err)
	}
	return err
}

// explore runs one system and shows what it came to.
func (a *app) explore(ctx context.Context, o model.Options) (model.Report, error) {
	if terminal(a.stderr) {
		o.Progress = func(p model.Progress) {
			fmt.Fprintf(a.stderr, "\r\033[K%s %s: world %d of %d, %d states, %d to go", o.Variant, p.World, p.Worlds+1, p.Of, p.States, p.Queued)
		}
	}
	r, err := model.Run(ctx, o)
	if o.Progress != nil {
		fmt.Fprint(a.stderr, "\r\033[K")
	}
	switch {
	case ctx.Err() != nil:
		return model.Report{}, &lastword.Error{
			Code: lastword.CodeCanceled, Op: modelOp, Message: "interrupted, and there is no result",
			Hint: "a smaller --scope ends sooner: " + strings.Join(scopeNames(), ", "),
		}
	case err != nil:
		return model.Report{}, named(err, modelOp, "")
	}
	if err := a.showReport(r); err != nil {
		return model.Report{}, fmt.Errorf("%s: %w", modelOp, err)
	}
	if !r.OK() {
		return r, quietly{exitFailed}
	}
	return r, nil
}

func (a *app) showReport(r model.Report) error {
	if a.json {
		return a.object(r)
	}
	var text bytes.Buffer // written at once: whole or not
	least := ""
	if r.InterleavingsAtLeast {
		least = "at least "
	}
	fmt.Fprintf(&text, "%s, scope %s: %d states, %s%d interleavings, %d states/s\n", r.Variant, r.Scope, r.States, least, r.Interleavings, r.StatesPerSecond)
	for _, missing := range r.Missing() {
		fmt.Fprintf(&text, "not reached: %s\n", missing)
	}
	switch {
	case len(r.Violations) > 0:
	case r.Variant == model.None:
		fmt.Fprintln(&text, "no violation")
	default:
		fmt.Fprintln(&text, "not found")
	}
	for _, v := range r.Violations {
		fmt.Fprintln(&text)
		if err := model.Draw(&text, v, 0); err != nil {
			return err
		}
	}
	_, err := a.stdout.Write(text.Bytes())
	return err
}

// maxSchedule is far above what a counter-example needs.
const maxSchedule = 1 << 20

func (a *app) replay(cmd *cobra.Command, path string) error {
	b, err := readSmall(path, maxSchedule)
	if err != nil {
		return usage(cmd, "--replay %s: %s", quoted(clip(path)), err)
	}
	s, err := model.ReadSchedule(bytes.NewReader(b))
	if err != nil {
		return usage(cmd, "--replay %s: %s", quoted(clip(path)), reason(err))
	}
	went, err := model.Replay(s)
	if err != nil {
		return usage(cmd, "--replay %s: %s", quoted(clip(path)), reason(err))
	}
	if err := a.showReplay(went); err != nil {
		return fmt.Errorf("%s: %w", modelOp, err)
	}
	if went.Kind != s.Kind {
		return fmt.Errorf("%s: the schedule was to end in %s and ended in %s", modelOp, orNone(s.Kind), orNone(went.Kind))
	}
	return nil
}

func (a *app) showReplay(went model.Schedule) error {
	if a.json {
		return a.object(went)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s: %s\n\n", went.Variant, orNone(went.Kind))
	v := model.Violation{Kind: orNone(went.Kind), World: went.World, Events: went.Events, Values: went.Values}
	if err := model.Draw(&text, v, 0); err != nil {
		return err
	}
	_, err := a.stdout.Write(text.Bytes())
	return err
}

func orNone(kind string) string {
	if kind == "" {
		return "no violation"
	}
	return kind
}

func storeSchedule(w io.Writer, s model.Schedule) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func variantNames() []string {
	names := []string{model.None, everyVariant}
	for _, v := range model.Variants() {
		names = append(names, v.Name)
	}
	return names
}

func scopeNames() (names []string) {
	for _, s := range model.Scopes() {
		names = append(names, s.Name)
	}
	return names
}

func variantList() string {
	var rows [][2]string
	for _, v := range model.Variants() {
		rows = append(rows, [2]string{v.Name, v.Breaks})
	}
	return columns(rows)
}

func scopeList() string {
	var rows [][2]string
	for _, s := range model.Scopes() {
		rows = append(rows, [2]string{s.Name, s.About})
	}
	return columns(rows)
}

// columns are rows whose second column begins in one place, however long a name is.
func columns(rows [][2]string) string {
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, r[0], r[1])
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
