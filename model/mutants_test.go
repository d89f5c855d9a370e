package model_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A model that does not notice a wrong rule proves nothing about the right one. Every
// condition of internal/core is made wrong here, one at a time, and those worlds of the
// scope "quick" that its file concerns have to notice: by a violation, or by something that it can not reach any more. What it
// does not notice stands in testdata/mutants.txt with the reason; a survivor that does
// not stand there fails, and so does a line there that is no survivor.
//
// All mutants are built at once, from an overlay; which one runs is a number in the
// environment. It takes eight minutes on two idle cores: `make mutants`.

const (
	mutantVariable = "LASTWORD_MUTANT" // number of the one that runs, of internal/core built with the overlay
	mutantsFile    = "testdata/mutants.txt"
	mutantPatience = 10 * time.Minute
)

func TestTheModelNoticesEveryWrongConditionOfTheRules(t *testing.T) {
	if os.Getenv("LASTWORD_MUTANTS") == "" {
		t.Skip("LASTWORD_MUTANTS is not set; make mutants does")
	}
	dir := t.TempDir()
	all := writeMutants(t, "../internal/core", dir)
	binary := buildMutants(t, dir)
	if got := runMutant(t.Context(), binary, mutant{}); got != "" {
		t.Fatalf("without a mutant: %s", got)
	}
	all = slices.DeleteFunc(all, func(m mutant) bool {
		return !strings.Contains(m.key, os.Getenv("LASTWORD_MUTANTS_ONLY"))
	})
	noticed := make([]string, len(all))
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.NumCPU() {
		wg.Go(func() {
			for i := range next {
				noticed[i] = runMutant(t.Context(), binary, all[i])
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	judgeMutants(t, all, noticed)
}

// judgeMutants compares the survivors with the list.
func judgeMutants(t *testing.T, all []mutant, noticed []string) {
	t.Helper()
	reasons := readReasons(t)
	ways, survivors := map[string]int{}, 0
	for i, m := range all {
		reason, listed := reasons[m.key]
		switch {
		case noticed[i] == "" && !listed:
			t.Errorf("not noticed and not in %s: %s", mutantsFile, m.key)
		case noticed[i] == "":
			survivors++
			t.Logf("not noticed: %s: %s", m.key, reason)
		case listed:
			t.Errorf("in %s, and noticed by %s: %s", mutantsFile, noticed[i], m.key)
		default:
			ways[noticed[i]]++
			if testing.Verbose() {
				t.Logf("%s: %s", noticed[i], m.key)
			}
		}
		delete(reasons, m.key)
	}
	if os.Getenv("LASTWORD_MUTANTS_ONLY") == "" {
		for key := range reasons {
			t.Errorf("in %s, and there is no such condition: %s", mutantsFile, key)
		}
	}
	t.Logf("%d mutants, %d survivors with a reason, noticed by: %v", len(all), survivors, ways)
}

// readReasons is the list: one mutant a line, a tab, the reason.
func readReasons(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(mutantsFile)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			t.Errorf("%s: no reason: %s", mutantsFile, line)
		}
		reasons[key] = reason
	}
	return reasons
}

func buildMutants(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "model.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// runMutant is what the model notices of one mutant, "" for nothing.
func runMutant(ctx context.Context, binary string, m mutant) string {
	ctx, cancel := context.WithTimeout(ctx, mutantPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^TestUnderOneMutant$", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), mutantVariable+"="+strconv.Itoa(m.number), mutantVariable+"_FILE="+m.file, "GOMAXPROCS=2")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		if found, ok := strings.CutPrefix(lines.Text(), "noticed: "); ok {
			return found
		}
		if strings.HasPrefix(lines.Text(), "panic:") || strings.HasPrefix(lines.Text(), "fatal error:") {
			return "a panic"
		}
	}
	switch {
	case ctx.Err() != nil:
		return "no end"
	case err != nil:
		return "a failure"
	}
	return ""
}

// overlay is what go build -overlay reads.
func writeOverlay(t *testing.T, dir string, replace map[string]string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}
