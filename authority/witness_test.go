package authority_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword/lastword/authority"
)

const racerVariable = "LASTWORD_TEST_WITNESS_RACER"

func TestMain(m *testing.M) {
	if path := os.Getenv(racerVariable); path != "" {
		race(path)
		return
	}
	os.Exit(m.Run())
}

// race is one child process: it counts the witness up as often as it wins, until
// the epoch is 200, and prints its wins.
func race(path string) {
	w := authority.NewFileWitness(path)
	wins := 0
	for {
		old, err := w.Load(context.Background())
		if err != nil {
			fmt.Println("error", err)
			return
		}
		var next authority.Mark
		if old != nil {
			next = *old
		}
		if next.Current == 200 {
			fmt.Println(wins)
			return
		}
		next.Current++
		won, err := w.Swap(context.Background(), old, next)
		if err != nil {
			fmt.Println("error", err)
			return
		}
		if won {
			wins++
		}
	}
}

func TestR10OfRacingProcessesOneWinsTheFileWitness(t *testing.T) {
	path := filepath.Join(t.TempDir(), "witness")
	var children []*exec.Cmd
	var outputs []*strings.Builder
	for range 3 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		c.Env = append(os.Environ(), racerVariable+"="+path)
		out := &strings.Builder{}
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		children, outputs = append(children, c), append(outputs, out)
	}
	sum := 0
	for i, c := range children {
		if err := c.Wait(); err != nil {
			t.Fatalf("%v: %s", err, outputs[i])
		}
		var wins int
		if _, err := fmt.Sscan(outputs[i].String(), &wins); err != nil {
			t.Fatalf("child printed %q", outputs[i])
		}
		sum += wins
	}
	if sum != 200 {
		t.Fatalf("%d swaps were won for 200 epochs", sum)
	}
}

func TestR10AFileWitnessKeepsWhatItWasGiven(t *testing.T) {
	path := filepath.Join(t.TempDir(), "witness")
	w := authority.NewFileWitness(path)
	if m, err := w.Load(t.Context()); m != nil || err != nil {
		t.Fatalf("a missing file: %+v, %v", m, err)
	}
	mark := authority.Mark{Current: 3, Pending: 4, Starting: true, Longest: 5, Store: "s"}
	if ok, err := w.Swap(t.Context(), nil, mark); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got, err := authority.NewFileWitness(path).Load(t.Context()); err != nil || *got != mark {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, old := range map[string]*authority.Mark{"none": nil, "another": {Current: 3}} {
		if ok, err := w.Swap(t.Context(), old, authority.Mark{}); ok || err != nil {
			t.Fatalf("swap of %s: %v, %v", name, ok, err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Fatalf("left beside witness and lock: %v, %v", entries, err)
	}
	// What a process has left that was killed while it wrote does not stay.
	if err := os.WriteFile(path+".new", []byte(strings.Repeat("half", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	next := mark
	next.Longest++
	if ok, err := w.Swap(t.Context(), &mark, next); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if now, err := w.Load(t.Context()); err != nil || *now != next {
		t.Fatalf("%+v, %v", now, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 2 {
		t.Fatalf("left beside witness and lock: %v, %v", entries, err)
	}
}

func TestR10AnUnusableFileWitnessIsOneClearLine(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty":     "",
		"garbage":   "\x00\x01garbage",
		"cut":       `{"version": 1, "current_ep`,
		"version":   `{"version": 2, "current_epoch": 1}`,
		"no-number": `{"version": 1, "current_epoch": -1}`,
		"epoch":     `{"version": 1, "current_epoch": 1048576}`,
		"trailing":  `{"version": 1} {"version": 1}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		w := authority.NewFileWitness(path)
		_, err := w.Load(t.Context())
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want one line that names the file", name, err)
		}
		if ok, err := w.Swap(t.Context(), nil, authority.Mark{}); ok || err == nil {
			t.Errorf("%s: a swap went through: %v", name, err)
		}
	}
	pipe, endless := filepath.Join(dir, "pipe"), filepath.Join(dir, "endless")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("/dev/zero", endless), os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, endless, filepath.Join(dir, "large")} {
		w := authority.NewFileWitness(path)
		if _, err := w.Load(t.Context()); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s was read: %v", path, err)
		}
		if ok, err := w.Swap(t.Context(), nil, authority.Mark{}); ok || err == nil {
			t.Errorf("%s: a swap went through: %v", path, err)
		}
	}
	missing := authority.NewFileWitness(filepath.Join(dir, "no", "such", "witness"))
	if ok, err := missing.Swap(t.Context(), nil, authority.Mark{}); ok || err == nil {
		t.Error("a swap in a directory that is not there went through")
	}
}
