package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// endless is several times as many states as the largest world of the scope has.
const endless = 3_000_000

// TestUnderOneMutant is what the test of all mutants runs, once for each: it says on
// stdout what is noticed.
func TestUnderOneMutant(t *testing.T) {
	if os.Getenv("LASTWORD_MUTANT") == "" {
		t.Skip("not under a mutant")
	}
	_, _, cast, err := build(Options{Scope: "quick"})
	if err != nil {
		t.Fatal(err)
	}
	file := os.Getenv("LASTWORD_MUTANT_FILE")
	cast = slices.DeleteFunc(cast, func(w world) bool { return file != "" && !concerned(file, w) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := time.Now()
	r := &run{cast: cast, results: make([]*explored, len(cast)), o: Options{
		First: true, Elapsed: func() time.Duration { return time.Since(begin) },
		Progress: func(p Progress) {
			if p.States > endless {
				cancel()
			}
		},
	}}
	err = r.all(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Println("noticed: a world that does not end")
		return
	case err != nil:
		fmt.Println("noticed: an explorer that gives up")
		return
	}
	switch report := r.report(None, "quick", 0); {
	case len(report.Violations) > 0:
		fmt.Println("noticed: " + report.Violations[0].Kind)
	case !report.OK():
		fmt.Println("noticed: something that is not reached")
	}
}

// concerned reports whether a world can tell something about the rules of a file.
func concerned(file string, w world) bool {
	switch file {
	case "holder.go", "question.go":
		return w.keeper || w.script || w.name == "tenures-short"
	case "fence.go", "sequence.go":
		return w.writes > 0 && !w.keeper
	case "epoch.go":
		return w.steps || w.crashes > 0 || w.backups > 0 || w.strikes > 0
	}
	return !w.keeper || strings.HasSuffix(w.name, "-succeeded")
}
