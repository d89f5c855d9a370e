package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/model"
)

func run(t *testing.T, o model.Options) model.Report {
	t.Helper()
	r, err := model.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func draw(t *testing.T, v model.Violation) string {
	t.Helper()
	var b bytes.Buffer
	if err := model.Draw(&b, v, 0); err != nil { // the width that the tool draws with
		t.Fatal(err)
	}
	return b.String()
}

// The right system has no violation (P1 to P5, R31), and every kind of step has had
// an effect somewhere: a fault that never bites proves nothing.
func TestTheRightSystemHasNoViolation(t *testing.T) {
	scope := "ci"
	if testing.Short() {
		scope = "quick"
	}
	r := run(t, model.Options{Scope: scope, Workers: 2})
	for _, v := range r.Violations {
		t.Errorf("%s", draw(t, v))
	}
	t.Logf("%d states, %d transitions, %d states/s a core, %s", r.States, r.Transitions, r.StatesPerSecond, r.Elapsed.Round(time.Millisecond))
	for _, w := range r.Worlds {
		t.Logf("%-16s %9d states %s", w.Name, w.States, w.Elapsed.Round(time.Millisecond))
	}
	for _, missing := range r.Missing() {
		t.Errorf("not reached: %s", missing)
	}
	if scope != "ci" {
		return
	}
	for _, step := range model.Steps() {
		if onlyBroken(step) != (r.Steps[step] == 0) {
			t.Errorf("%s: %d times", step, r.Steps[step])
		}
	}
}

// The large scope takes minutes: LASTWORD_MODEL=large, or what `make model` does.
func TestTheScopeThatTheEnvironmentNames(t *testing.T) {
	scope := os.Getenv("LASTWORD_MODEL")
	if scope == "" {
		t.Skip("LASTWORD_MODEL names no scope")
	}
	r := run(t, model.Options{Scope: scope})
	for _, v := range r.Violations {
		t.Errorf("%s", draw(t, v))
	}
	for _, w := range r.Worlds {
		t.Logf("%-18s %9d states %10d transitions %s", w.Name, w.States, w.Transitions, w.Elapsed.Round(time.Millisecond))
	}
	t.Logf("%d states, %d transitions, %d states/s a core, %s", r.States, r.Transitions, r.StatesPerSecond, r.Elapsed.Round(time.Millisecond))
}

// onlyBroken are the steps that the right system does not have.
func onlyBroken(step string) bool {
	return step == "numbers drawn apart" || step == "second halves of a torn transaction"
}

// Every variant is found, with a counter-example that can be run again and that the
// right system does not allow to end so (R31).
func TestEveryVariantIsFound(t *testing.T) {
	caught, steps := map[string]bool{}, map[string]bool{}
	if n := len(model.Variants()); n < 30 {
		t.Errorf("%d variants, want 30 at least", n)
	}
	for i, v := range model.Variants() {
		if testing.Short() && i%8 != 0 { // the others tell the race detector nothing more
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			r := run(t, model.Options{Variant: v.Name})
			if !r.OK() {
				t.Fatalf("not found: want %s, got %+v", v.Property, r.Violations)
			}
			caught[v.Property] = true
			for step := range r.Steps {
				steps[step] = true
			}
			found := r.Violations[0]
			t.Logf("%-34s %-28s %2d events %8d states", v.Name, v.Property, len(found.Events), r.States)
			again, err := model.Replay(found.Schedule(v.Name))
			if err != nil {
				t.Fatal(err)
			}
			if again.Kind != v.Property || !slices.Equal(again.Values, found.Values) {
				t.Errorf("run again it ends in %q with %q, want %q with %q", again.Kind, again.Values, v.Property, found.Values)
			}
		})
	}
	if testing.Short() {
		return
	}
	for _, step := range model.Steps() {
		if onlyBroken(step) && !steps[step] {
			t.Errorf("no variant has %s", step)
		}
	}
	for _, p := range model.Properties() {
		if !caught[p] {
			t.Errorf("no variant violates %s: the check proves nothing", p)
		}
	}
}

// The three of R31, by what they must be called and what they must show.
func TestTheThreeOfR31(t *testing.T) {
	for _, c := range []struct{ variant, kind, last, before string }{
		{"no-fence", "revoked_generation_overwrite", "A@41", "B@42"},
		{"split-authority", "unauthorized_accept", "A@43", "-"},
		{"rollback-issuer", "revoked_generation_overwrite", "A@41", "B@41"},
	} {
		t.Run(c.variant, func(t *testing.T) {
			r := run(t, model.Options{Variant: c.variant, Scope: "r31"})
			v := r.Violations[0]
			n := len(v.Values)
			if v.Kind != c.kind || v.Values[n-1] != c.last || v.Values[n-2] != c.before {
				t.Errorf("got %s with values %q, want %s ending in %q, %q", v.Kind, v.Values, c.kind, c.before, c.last)
			}
		})
	}
}

// R31, the legal side: A may write before B has written; once B has, A is refused.
func TestAWritesBeforeBAndIsRefusedAfter(t *testing.T) {
	for _, c := range []struct {
		first, second string
		verdict       string
		value         string
	}{
		{"A", "B", "APPLIED", "B@42"},
		{"B", "A", "STALE_OWNER", "B@42"},
	} {
		prefix := r31Prefix()
		events := slices.Concat(prefix, []string{
			"A: is continued", "A: sends op-0 under 41", "B: checks that it holds", "B: sends op-1 under 42",
		})
		write := map[string]string{"A": "resource: A's op-0 under 41: ", "B": "resource: B's op-1 under 42: "}
		events = append(events, write[c.first]+"APPLIED", write[c.second]+c.verdict)
		s := model.Schedule{Variant: model.None, World: "r31", Events: parse(t, events)}
		got, err := model.Replay(s)
		if err != nil {
			t.Fatal(err)
		}
		if last := got.Values[len(got.Values)-1]; last != c.value || got.Kind != "" {
			t.Errorf("%s then %s: value %q and violation %q, want %q and none", c.first, c.second, last, got.Kind, c.value)
		}
	}
}

func r31Prefix() []string {
	return []string{
		"A: acquires with request A1", "authority 1: request A1 of time 0: granted 41",
		"A: hears of its grant 41, for request of time 0", "A: checks that it holds", "A: is stopped after its own check",
		"world: time 1", "authority 1: moves the counter to 1", "world: time 2", "authority 1: moves the counter to 2",
		"world: time 3", "authority 1: moves the counter to 3", "authority 1: crashes; the counter in the store is 41",
		"B: acquires with request B1", "authority 2: request B1 of time 3: granted 42",
		"B: hears of its grant 42, for request of time 3",
	}
}

func parse(t *testing.T, texts []string) (events []model.Event) {
	t.Helper()
	for _, text := range texts {
		var e model.Event
		if err := e.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func TestAnImpossibleScheduleSaysWhatWouldBePossible(t *testing.T) {
	_, err := model.Replay(model.Schedule{World: "r31", Events: parse(t, []string{"B: acquires with request B1"})})
	if !errors.Is(err, lastword.ErrInvalid) || !strings.Contains(err.Error(), "A: acquires with request A1") {
		t.Errorf("got %v", err)
	}
}

func TestAScheduleSurvivesItsFile(t *testing.T) {
	r := run(t, model.Options{Variant: "no-fence"})
	b, err := json.Marshal(r.Violations[0].Schedule("no-fence"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := model.ReadSchedule(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := model.Replay(s); err != nil || got.Kind != "revoked_generation_overwrite" {
		t.Errorf("got %q, %v", got.Kind, err)
	}
	whole := string(b)
	for _, bad := range []string{
		``, `{}`, `{"events":["A: x"],"values":[]}`, `{"events":["x"],"values":["-"]}`, `{"other":1}`,
		whole + "{}", whole + " x", strings.Replace(whole, `"B@42"`, `""`, 1), strings.Replace(whole, "revoked_generation_overwrite", "none_such", 1),
		strings.Replace(whole, `"r31"`, `"none-such"`, 1), strings.Replace(whole, `"no-fence"`, `"none-such"`, 1), strings.Replace(whole, `"no-fence"`, `""`, 1),
	} {
		if _, err := model.ReadSchedule(strings.NewReader(bad)); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%s: got %v, want INVALID", bad, err)
		}
	}
}

// Names that do not exist are INVALID, and a context that ends ends the run.
func TestRunRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, o := range []model.Options{{Variant: "x"}, {Scope: "x"}} {
		if _, err := model.Run(t.Context(), o); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%+v: got %v, want INVALID", o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := model.Run(ctx, model.Options{Scope: "ci"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// The JSON of a report has the names that scripts rely on.
func TestReportHasTheNamesThatScriptsRelyOn(t *testing.T) {
	r := run(t, model.Options{Variant: "split-authority", Progress: func(model.Progress) {}})
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Variant       string
		States        uint64 `json:",string"`
		Interleavings uint64 `json:",string"`
		Violations    []struct {
			Kind   string
			Events []string
			Values []string
		}
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	v := got.Violations[0]
	if got.Variant != "split-authority" || got.States == 0 || got.Interleavings == 0 || v.Kind == "" || len(v.Events) == 0 || len(v.Events) != len(v.Values) {
		t.Errorf("got %s", b)
	}
	if right := run(t, model.Options{Scope: "r31"}); right.Violations == nil || right.Variant != "none" {
		t.Errorf("the right system's report is %+v", right)
	}
}

// Two runs of one scope are the same but for their times.
func TestRunsRepeat(t *testing.T) {
	shape := func(r model.Report) string {
		return fmt.Sprint(r.States, r.Transitions, r.Interleavings, r.Steps, r.Violations)
	}
	o := model.Options{Variant: "check-then-write"}
	if a, b := shape(run(t, o)), shape(run(t, o)); a != b {
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
}

// docs/counterexamples.md shows what the tool prints. UPDATE=1 rewrites it.
func TestTheDocumentShowsWhatTheToolPrints(t *testing.T) {
	const file = "../docs/counterexamples.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, name := range []string{"no-fence", "split-authority", "rollback-issuer"} {
		printed := draw(t, run(t, model.Options{Variant: name}).Violations[0])
		begin, end := "<!-- "+name+" -->\n```text\n", "```\n<!-- end -->"
		i := strings.Index(text, begin)
		if i < 0 {
			t.Fatalf("%s has no place for %s", file, name)
		}
		i += len(begin)
		j := i + strings.Index(text[i:], end)
		if j < i {
			t.Fatalf("%s: the place for %s has no end", file, name)
		}
		if text[i:j] != printed && os.Getenv("UPDATE") == "" {
			t.Errorf("%s: %s is not what the tool prints; UPDATE=1 go test ./model writes\n%s", file, name, printed)
		}
		text = text[:i] + printed + text[j:]
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func ExampleRun() {
	r, err := model.Run(context.Background(), model.Options{Variant: "split-authority"})
	if err != nil {
		panic(err)
	}
	v := r.Violations[0]
	last := len(v.Events) - 1
	fmt.Println(v.Kind)
	fmt.Println(v.Events[last], "leaves", v.Values[last])
	// Output:
	// unauthorized_accept
	// resource: A's op-0 under 43: APPLIED leaves A@43
}
