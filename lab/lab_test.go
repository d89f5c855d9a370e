package lab_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword/lab"
)

var update = flag.Bool("update", false, "write the results in testdata anew; commit them only if you understand what changed them")

const agentArg = "run-as-lab-agent"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == agentArg {
		if err := lab.Agent(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	m.Run()
}

func run(t *testing.T, fence bool) lab.Result {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	r, err := lab.Takeover(t.Context(), lab.Options{Agent: []string{os.Args[0], agentArg}, Fence: fence})
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	return r
}

// check compares a run with the stored result (R33), or stores it.
func check(t *testing.T, r lab.Result) {
	t.Helper()
	path := filepath.Join("testdata", "takeover-"+r.Fence+".json")
	if *update {
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Check(path); err != nil {
		t.Error(err)
	}
}

func TestR33WithoutTheFenceTheTaskTableSaysNewAndTheBusinessTableOld(t *testing.T) {
	r := run(t, false)
	if r.Schedule.Result != "new" || r.Business.Value != "old" || r.LateCompletion.Code != "NOT_HOLDER" {
		t.Errorf("got %+v", r)
	}
	check(t, r)
}

func TestR33WithTheFenceBothTablesSayNew(t *testing.T) {
	r := run(t, true)
	if r.Schedule.Result != "new" || r.Business.Value != "new" || r.LateWrite.Verdict != "STALE_OWNER" || r.LateCompletion.Code != "NOT_HOLDER" {
		t.Errorf("got %+v", r)
	}
	for _, g := range r.Gap {
		if g.Early != "APPLIED" || g.Newer != "APPLIED" || g.Late != "STALE_OWNER" || g.Value != "new" {
			t.Errorf("gap %+v", g)
		}
	}
	if c := r.Crash; c == nil || c.FenceAfter != c.FenceBefore || c.ValueAfter != c.ValueBefore || c.Retried != "APPLIED" {
		t.Errorf("crash %+v", r.Crash)
	}
	check(t, r)
}

func TestACheckThatDiffersNamesTheLine(t *testing.T) {
	r := run(t, false)
	r.Business.Value = "new"
	err := r.Check(filepath.Join("testdata", "takeover-off.json"))
	if err == nil || !strings.Contains(err.Error(), `"value": "old"`) {
		t.Fatalf("got %v, want the differing line", err)
	}
}

func TestR32TheOperationsScriptHasTwoEffects(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o, err := lab.RunOperations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range o.Steps {
		got = append(got, s.Outcome)
	}
	if want := "applied applied duplicate conflict stale"; strings.Join(got, " ") != want || o.Effects != 2 {
		t.Fatalf("got %v with %d effects, want %s with 2", got, o.Effects, want)
	}
}
