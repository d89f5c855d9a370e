package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/simulate"
	"github.com/lastword/lastword/model"
)

// size is how much of a test is run: all of it, or a part in short runs and under the
// race detector.
func size(all, part int) int {
	if testing.Short() || underRace {
		return part
	}
	return all
}

func run(t *testing.T, o simulate.Options) *simulate.Report {
	t.Helper()
	r, err := simulate.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// explain says what is wrong with a run.
func explain(t *testing.T, r *simulate.Report) {
	t.Helper()
	for _, g := range r.Gates {
		if !g.Holds {
			t.Errorf("gate %s: want %s, got %s: %v", g.Name, g.Want, g.Got, r.Options)
		}
	}
	if f := r.Failure; f != nil {
		t.Errorf("%s: %s\n%s\n%s\n%s", f.Kind, f.Detail, strings.Join(f.Plan, "\n"), drawn(f.Events), f.Command)
	}
}

func drawn(events []simulate.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%12v %-20s %s\n", e.At, e.Actor, e.Text)
	}
	return b.String()
}

// right is one run of the right system that several tests look at.
var right = sync.OnceValues(func() (*simulate.Report, error) {
	return simulate.Run(context.Background(), simulate.Options{Rounds: size(30_000, 6000), Seed: 7, Unsigned: true, KeepGoing: true})
})

// R34: all gates hold, and every planned fault fired and had an effect.
func TestTheRightSystemPassesEveryGate(t *testing.T) {
	r, err := right()
	if err != nil {
		t.Fatal(err)
	}
	explain(t, r)
	c := r.Counters
	if c.Rounds == 0 || c.Grants < uint64(c.Rounds)/2 || c.Takeovers == 0 || c.Renewals == 0 || c.Refused == 0 || c.Replayed == 0 || c.UnknownSettled == 0 {
		t.Errorf("a run in which little happened: %+v", c)
	}
	if c.ProtectedMutations == 0 || c.CheckedMutations != c.ProtectedMutations {
		t.Errorf("%d of %d mutations were checked", c.CheckedMutations, c.ProtectedMutations)
	}
	if forged := float64(c.ForgedSent) / float64(c.Writes+c.ForgedSent); forged < 0.04 || forged > 0.08 {
		t.Errorf("%.1f %% of the traffic is forged", 100*forged)
	}
}

// R34 with signatures: real grants, the real gate over memfence.
func TestTheRealGatePassesEveryGate(t *testing.T) {
	r := run(t, simulate.Options{Rounds: size(2400, 480), Seed: 11, Timelines: -1})
	explain(t, r)
	if r.Counters.ForgedSent == 0 || r.Counters.ProtectedMutations == 0 {
		t.Errorf("nothing came to the gate: %+v", r.Counters)
	}
}

// The cases of the fault matrix that can be shown here: in a run in which all gates hold,
// each fault of the case fired and had an effect.
func TestCasesOfTheFaultMatrix(t *testing.T) {
	r, err := right()
	if err != nil {
		t.Fatal(err)
	}
	explain(t, r)
	for _, x := range []string{"X1", "X2", "X3", "X4", "X6", "X7", "X8", "X9", "X10", "X11", "X12", "X13", "X15", "X16", "X18", "X20", "X21", "X22", "X35", "X36", "X37"} {
		t.Run(x, func(t *testing.T) {
			faults := 0
			for _, f := range r.Faults {
				if !slices.Contains(f.Cases, x) {
					continue
				}
				faults++
				if f.Fired == 0 || f.Effect == 0 {
					t.Errorf("%s: fired %d times, had an effect %d times", f.Name, f.Fired, f.Effect)
				}
				t.Logf("%s: fired %d times, had an effect %d times", f.Name, f.Fired, f.Effect)
			}
			if faults == 0 {
				t.Error("no fault is of this case")
			}
		})
	}
}

// X35: each class of forgery, with real grants at the real gate.
func TestX35EveryClassOfForgeryIsRefused(t *testing.T) {
	r := run(t, simulate.Options{Rounds: size(2400, 960), Seed: 3, Timelines: -1})
	explain(t, r)
	classes := 0
	for _, f := range r.Faults {
		if !strings.HasPrefix(f.Name, "forged: ") {
			continue
		}
		classes++
		if f.Fired == 0 || f.Effect == 0 {
			t.Errorf("%s: fired %d times, had an effect %d times", f.Name, f.Fired, f.Effect)
		}
	}
	if classes < 24 {
		t.Errorf("%d classes, want 24", classes)
	}
}

// R34 over several seeds; make soak takes ten of 100,000 rounds each.
func TestOtherSeeds(t *testing.T) {
	seeds, rounds := uint64(2), size(6000, 1000)
	if os.Getenv("LASTWORD_SOAK") != "" {
		seeds, rounds = 10, 100_000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			explain(t, run(t, simulate.Options{Rounds: rounds, Seed: 100 + seed, Unsigned: true, Timelines: -1}))
		})
	}
}

// One seed is one trace, whatever GOMAXPROCS.
func TestASeedIsATrace(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	hashes := map[string]uint64{}
	for seed := range uint64(size(100, 10)) {
		var first string
		for k, procs := range []int{1, 2, 1, 2} {
			runtime.GOMAXPROCS(procs)
			o := simulate.Options{Rounds: 96, Seed: seed, Unsigned: seed%10 != 0, Timelines: -1}
			r := run(t, o)
			if r.Failure != nil {
				explain(t, r)
			}
			if k == 0 {
				first = r.TraceHash
			}
			if r.TraceHash != first {
				t.Fatalf("seed %d, GOMAXPROCS %d: %s, and before that %s", seed, procs, r.TraceHash, first)
			}
		}
		if other, ok := hashes[first]; ok {
			t.Errorf("seeds %d and %d are one trace", seed, other)
		}
		hashes[first] = seed
	}
}

// slowToFind are variants that take a few seconds; short runs leave them out.
var slowToFind = []string{
	"deadline-from-a-stale-tick", "watching-from-before-the-commit", "longest-hold-forgotten", "number-as-float", "rollback-issuer",
	"status-answer-counted-from-its-arrival", "renewal-answer-counted-from-its-arrival", "fence-re-read", "restored-and-left-open",
	"deadline-inclusive", "lapsed-lease-revived-by-a-write", "status-from-memory", "trust-counted-from-the-reply", "late-answer-revives",
	"lookup-without-registering", "epoch-compared-with-itself", "revoke-by-resource", "nobody-moves-the-counter",
}

// underRaceToo are variants that are looked for under the race detector as well.
var underRaceToo = []string{"split-authority", "reentrant-by-owner-name", "request-id-forgotten", "effect-before-the-record", "released-under-the-work"}

// The proof of the harness: every broken system is found, as what it breaks, in less
// than a minute, and what is shown of it is at most twenty events that fail again.
func TestEveryVariantIsFound(t *testing.T) {
	t.Parallel()
	for _, v := range model.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			slow := slices.Contains(slowToFind, v.Name)
			if underRace && !slices.Contains(underRaceToo, v.Name) {
				t.Skip("one thread, and ten times slower under the race detector")
			}
			if slow && os.Getenv("LASTWORD_SOAK") == "" {
				t.Skip("one of the slow ones: LASTWORD_SOAK=1 runs it, as make soak does")
			}
			o := simulate.Options{Rounds: 100_000, Seed: 1, Unsigned: true, Variant: v.Name, Timelines: -1}
			r := run(t, o)
			f := r.Failure
			if f == nil {
				t.Fatalf("not found in %d rounds: %s", r.Counters.Rounds, v.Breaks)
			}
			if f.Kind != simulate.ShowsAs(v) {
				t.Errorf("found as %s, want %s", f.Kind, simulate.ShowsAs(v))
			}
			if len(f.Events) == 0 || len(f.Events) > 20 {
				t.Errorf("%d events", len(f.Events))
			}
			if r.Took > time.Minute && !underRace {
				t.Errorf("it took %v", r.Took)
			}
			if r.OK() || r.Counters.Violations[f.Kind] == 0 {
				t.Error("a run that found something is called good")
			}
			again := run(t, simulate.Options{Seed: 1, Unsigned: true, Variant: v.Name, Replay: f.Replay})
			if again.Failure == nil || again.Failure.Kind != f.Kind || drawn(again.Failure.Events) != drawn(f.Events) {
				t.Errorf("%q does not show it again", f.Command)
			}
			t.Logf("%s after %d rounds, %v: %s\n%s\n%s", f.Kind, r.Counters.Rounds, r.Took.Round(time.Millisecond), v.Breaks, strings.Join(f.Plan, "\n"), drawn(f.Events))
		})
	}
}

// Variants that break nothing of the seal are found with signatures, too.
func TestAVariantIsFoundWithSignatures(t *testing.T) {
	if underRace {
		t.Skip("one thread, and ten times slower under the race detector")
	}
	for _, name := range []string{"equality-instead-of-order", "reentrant-by-owner-name"} {
		r := run(t, simulate.Options{Rounds: 20_000, Seed: 1, Variant: name, Timelines: -1})
		if r.Failure == nil {
			t.Errorf("%s is not found", name)
		}
	}
}

func TestOptionsThatNameNothing(t *testing.T) {
	for _, o := range []simulate.Options{{Variant: "none-such"}, {Replay: "x"}, {Replay: "1:a"}, {Replay: "-1:"}, {Replay: "1:2:3:4"}, {Replay: "1:99999"}, {Replay: "1:1:99"}} {
		if _, err := simulate.Run(t.Context(), o); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := simulate.Run(ctx, simulate.Options{Rounds: 100, Unsigned: true}); !errors.Is(err, context.Canceled) || r == nil || r.Counters.Rounds != 0 {
		t.Errorf("after the end of the context: %v, %v", r, err)
	}
}

// Calls that wait at the gate when a run ends are not left behind.
func TestNothingIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for seed := range uint64(3) {
		run(t, simulate.Options{Rounds: 48, Seed: seed})
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

func TestARunSaysHowFarItIs(t *testing.T) {
	var steps []int
	r := run(t, simulate.Options{Rounds: 2000, Unsigned: true, Progress: func(done, total int) {
		if total != 2000 {
			t.Errorf("total %d", total)
		}
		steps = append(steps, done)
	}})
	if r.Counters.Rounds != 2000 || len(steps) < 2 || !slices.IsSorted(steps) || steps[len(steps)-1] != 2000 {
		t.Errorf("%d rounds, steps %v", r.Counters.Rounds, steps)
	}
	if len(r.Timelines) == 0 {
		t.Fatal("no round is shown")
	}
	for _, l := range r.Timelines {
		if len(l.Tenures) == 0 || len(l.Events) == 0 || len(l.Faults) == 0 {
			t.Errorf("an empty time line: %+v", l)
		}
	}
	if e := r.Options; e.Rounds != 2000 || e.Worlds*e.RoundsPerWorld < 2000 || len(e.Weights) == 0 || e.Build == "" {
		t.Errorf("options are not expanded: %+v", e)
	}
}

func ExampleRun() {
	r, err := simulate.Run(context.Background(), simulate.Options{Rounds: 2000, Seed: 1, Variant: "no-fence", Unsigned: true, Timelines: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.OK(), r.Failure.Kind)
	r, err = simulate.Run(context.Background(), simulate.Options{Rounds: 500, Seed: 1, Unsigned: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.OK(), r.Counters.StaleAccepted)
	// Output:
	// false revoked_generation_overwrite
	// true 0
}
