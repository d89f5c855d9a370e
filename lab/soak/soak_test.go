package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/report"
	"github.com/lastword/lastword/lab/soak"
)

// TestRealRounds is the soak's share of CI: with every fault of the matrix that a worker,
// a proxy or an operator can bring about on SQLite (R34, R35).
func TestRealRounds(t *testing.T) {
	o := options()
	o.Rounds, o.Seed, o.Dir = 500, uint64(time.Now().UnixNano())%1_000_000, t.TempDir()
	if testing.Short() {
		o.Rounds, o.Cells, o.Handovers = 12, 4, 4
	}
	o.Command = fmt.Sprintf("lastword lab soak --real --rounds %d --seed %d", o.Rounds, o.Seed)
	r := play(t, o)
	busy := time.Duration(r.More["machine_lag_p99_us"])*time.Microsecond > 5*time.Millisecond
	for _, g := range r.Gates {
		switch {
		case g.Holds:
		case busy && (g.Name == "handover_p99_ms" || g.Name == "handover_crash_p99_ms"):
			t.Logf("%s: %s, want %s: not held against a machine that is itself %d µs late", g.Name, g.Got, g.Want, r.More["machine_lag_p99_us"])
		case testing.Short() && slices.Contains([]string{"handover_p99_ms", "handover_crash_p99_ms", "fault_coverage"}, g.Name):
			t.Logf("%s: %s, want %s: the race detector is in the way", g.Name, g.Got, g.Want)
		default:
			t.Errorf("%s: got %s, want %s", g.Name, g.Got, g.Want)
		}
	}
	if testing.Short() {
		return
	}
	had := map[string]int{}
	for _, f := range r.Faults {
		for _, c := range f.Cases {
			had[c] += f.Effect
		}
	}
	for _, c := range []string{"X1", "X2", "X3", "X4", "X6", "X7", "X8", "X9", "X10", "X11", "X12", "X13", "X35", "X36"} {
		t.Run(c, func(t *testing.T) {
			if had[c] == 0 {
				t.Error("no fault of this case had an effect")
			}
		})
	}
	for _, counted := range []string{"writes_APPLIED", "writes_STALE_OWNER", "writes_REPLAYED", "writes_OUT_OF_ORDER", "writes_MUTATION_UNKNOWN", "writes_STATUS_UNAVAILABLE"} {
		if r.More[counted] == 0 {
			t.Errorf("no %s: the run proves less than it says", counted)
		}
	}
	if len(r.Timelines) < 4 {
		t.Errorf("%d time lines", len(r.Timelines))
	}
	t.Logf("restart of the authority at most %d ms (X3)", r.More["authority_restart_ms"])
}

func play(t *testing.T, o soak.Options) *report.Run {
	t.Helper()
	r, err := soak.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return r
}

// TestDefectsAreFound: the harness finds what it is there for, by the gate that is there
// for it.
func TestDefectsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("four runs with real processes")
	}
	gates := map[string]string{
		"no-fence": "stale_accepted", "check-then-write": "stale_accepted", "effect-beside-transaction": "checked_mutations", "split-authority": "history_wrong",
	}
	for _, v := range soak.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			o := options()
			o.Rounds, o.Seed, o.Variant, o.Dir = 70, 7, v.Name, t.TempDir()
			r := play(t, o)
			found, ok := r.Found()
			if !ok || !r.OK() || !slices.Contains(found, gates[v.Name]) {
				t.Errorf("found by %v, want %s among them", found, gates[v.Name])
			}
		})
	}
}

func TestAnInterruptedRunSaysSoAndLeavesNothing(t *testing.T) {
	o := options()
	o.Rounds, o.Seed, o.Cells, o.Dir = 1000, 3, 2, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(int, int) { cancel() }
	r, err := soak.Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || r.OK() || r.Rounds == 0 || r.Rounds >= o.Rounds {
		t.Errorf("interrupted %t, ok %t, %d rounds", r.Interrupted, r.OK(), r.Rounds)
	}
	if r.StaleAccepted+r.ForgedAccepted > 0 || !strings.HasPrefix(r.Verdict(), "Interrupted after ") {
		t.Errorf("it says %q", r.Verdict())
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if kids := children(t, os.Getpid()); len(kids) > 0 {
		t.Errorf("processes are left: %v", kids)
	}
}

// TestARunThatIsKilledTakesItsProcessesAlong: nobody is there to end them.
func TestARunThatIsKilledTakesItsProcessesAlong(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], asRun, t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // a round is over
		t.Fatal(err)
	}
	kids := children(t, cmd.Process.Pid)
	if len(kids) < 5 {
		t.Errorf("it has %d processes, want an authority and four workers", len(kids))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		kids = slices.DeleteFunc(kids, func(pid int) bool { return gone(pid) })
		if len(kids) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still there: %v", kids)
		}
	}
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) (kids []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(b)) {
			kid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			kids = append(kids, kid)
		}
	}
	return kids
}

// gone reports whether a process has ended; one that nobody has waited for has.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(state, "Z")
}

func TestOptionsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*soak.Options){
		"rounds":    func(o *soak.Options) { o.Rounds = -1 },
		"cells":     func(o *soak.Options) { o.Cells = 65 },
		"a variant": func(o *soak.Options) { o.Variant = "nothing" },
		"no worker": func(o *soak.Options) { o.Hand = nil },
	} {
		o := options()
		change(&o)
		if _, err := soak.Run(t.Context(), o); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
