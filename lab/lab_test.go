package lab_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

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
	if len(os.Args) == 3 {
		if known, err := lab.RunChild(os.Args[1], os.Args[2]); known {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	flag.Parse()
	// Most tests wait most of the time, so more of them than processors run at once.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(leavingNothing(m.Run))
}

// leavingNothing runs the tests in a temporary directory of their own and fails
// them if a file, a child process or a goroutine of ours is left.
func leavingNothing(run func() int) int {
	dir, err := os.MkdirTemp("", "lastword-lab-test-")
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := run()
	var left []string
	files, err := os.ReadDir(dir)
	for _, f := range files {
		left = append(left, "file "+f.Name())
	}
	if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		left = append(left, "a child process")
	}
	left = append(left, goroutinesLeft()...)
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		left = append(left, err.Error())
	}
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: left behind:\n%s\n", strings.Join(left, "\n"))
		return 1
	}
	return code
}

// goroutinesLeft are the goroutines in which there is code of ours, apart from this
// one. They get a moment to return after what they worked for has ended.
func goroutinesLeft() (left []string) {
	for range 100 {
		left = nil
		room := make([]byte, 4<<20)
		for g := range strings.SplitSeq(string(room[:runtime.Stack(room, true)]), "\n\n") {
			if strings.Contains(g, "lastword/lastword/") && !strings.Contains(g, "goroutinesLeft") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
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
