package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe nobody writes to must not hang a command that was given it as a file, and
// signals end it.
func TestAPipeIsNoSchedule(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	lastwordCommand(t.Context(), "", "lab", "model", "--replay", pipe).want(t, 2, "it is not a regular file")
}

func TestAScheduleFileHasABound(t *testing.T) {
	t.Parallel()
	large := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(large, make([]byte, maxSchedule+1), 0o600); err != nil {
		t.Fatal(err)
	}
	lastwordCommand(t.Context(), "", "lab", "model", "--replay", large).want(t, 2, "it has more than 1048576 bytes")
}

// An interruption is an error like any other: code, operation, message, way out.
func TestAnInterruptedExplorationSaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lastwordCommand(ctx, "", "lab", "model").want(t, 1,
		"lastword: lab model: CANCELED: interrupted, and there is no result (a smaller --scope ends sooner: r31, quick, ci, large)\n")
	var got struct{ Reason, Op, Hint string }
	out := lastwordCommand(ctx, "", "lab", "model", "-o", "json")
	if err := json.Unmarshal([]byte(out.stderr), &got); err != nil {
		t.Fatal(err)
	}
	if got.Reason != "CANCELED" || got.Op != "lab model" || got.Hint == "" || out.stdout != "" {
		t.Errorf("got %+v and stdout %q", got, out.stdout)
	}
	// Of all variants none begins after it, and one line tells.
	all := lastwordCommand(ctx, "", "lab", "model", "--variant", "all")
	if n := strings.Count(all.stderr, "\n"); n != 1 || all.code != 1 || all.stdout != "" {
		t.Errorf("exit code %d, %d lines: %s", all.code, n, all.stderr)
	}
}

// closedAfter takes some writes, and then nobody reads any more.
type closedAfter struct {
	left   int
	writes int
}

func (w *closedAfter) Write(b []byte) (int, error) {
	w.writes++
	if w.left--; w.left < 0 {
		return 0, errors.New("broken pipe")
	}
	return len(b), nil
}

// Who does not read the second answer does not wait for the fortieth.
func TestAllVariantsEndWhenNobodyReads(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		out := &closedAfter{left: 1}
		var stderr strings.Builder
		begin := time.Now()
		code := run(t.Context(), nil, []string{"lab", "model", "--variant", "all", "-o", format}, nil, strings.NewReader(""), out, &stderr)
		if code != 1 || out.writes != 2 || strings.Count(stderr.String(), "broken pipe") != 1 {
			t.Errorf("%s: exit code %d after %d writes and %s: %s", format, code, out.writes, time.Since(begin), stderr.String())
		}
	}
}

// A result that cannot be written is no success, and no file stays.
func TestAModelWhoseAnswerIsLostFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"lab", "model", "--scope", "r31"},
		{"lab", "model", "--scope", "r31", "-o", "text"},
		{"lab", "model", "--variant", "no-fence", "--out", filepath.Join(dir, "f.json")},
	} {
		nobodyReads(t, "", args...).want(t, 1, "lastword: lab model: no space left on device")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Every name of the help stands in its column.
func TestTheHelpOfTheModelKeepsItsColumns(t *testing.T) {
	t.Parallel()
	for _, list := range []string{variantList(), scopeList()} {
		column := -1
		for line := range strings.Lines(list) {
			name := strings.Fields(line)[0]
			at := len(line) - len(strings.TrimLeft(line[2+len(name):], " "))
			if column >= 0 && at != column {
				t.Errorf("%q begins its text at %d, others at %d", name, at, column)
			}
			column = at
		}
	}
}
