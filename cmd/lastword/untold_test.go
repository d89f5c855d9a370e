package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword/lastword"
)

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// nobodyReads runs a command line whose stdout cannot be written to.
func nobodyReads(t *testing.T, addr string, args ...string) outcome {
	t.Helper()
	var stderr bytes.Buffer
	code := run(t.Context(), nil, args, []string{"LASTWORD_AUTHORITY=" + addr}, strings.NewReader(""), fullDisk{}, &stderr)
	if n := strings.Count(stderr.String(), "\n"); n != 1 {
		t.Errorf("%v: %d lines on stderr: %q", args, n, stderr.String())
	}
	return outcome{code: code, stderr: stderr.String()}
}

// What is done is done: "failed, for certain" would be a lie that makes scripts do it
// again.
func TestAnEffectWhoseAnswerCannotBeWrittenIsNotAFailure(t *testing.T) {
	t.Parallel()
	addr, dir := authorityAt(t), t.TempDir()
	grant, db := filepath.Join(dir, "a.grant"), "sqlite:"+filepath.Join(dir, "app.db")
	const unwritten = "but the answer could not be written: no space left on device"
	for _, c := range []struct {
		done string
		args []string
	}{
		{"acquire doc/a: granted with fence 1 (0.1) to owner A, request id R, ", []string{"acquire", "doc/a", "--owner", "A", "--request-id", "R", "--grant", grant}},
		{"renew doc/a: renewed, ", []string{"renew", "--grant", grant}},
		{"fence init: initialized ", []string{"fence", "init", db}},
		{"apply doc/a: APPLIED with operation o and fence 1 (0.1), ", []string{"fence", "apply", db, "doc/a", "--grant", grant, "--op", "o", "--sql", "CREATE TABLE t (x)"}},
		{"apply doc/a: REPLAYED with operation o and fence 1 (0.1), ", []string{"fence", "apply", db, "doc/a", "--grant", grant, "--op", "o", "--sql", "CREATE TABLE t (x)"}},
		{"complete doc/a: completed, ", []string{"complete", "--grant", grant, "--result", "r"}},
		{"release doc/a: released, ", []string{"release", "--grant", grant}},
		{"cancel doc/a: cancelled, ", []string{"cancel", "doc/a", "--owner", "A", "--request-id", "S"}},
	} {
		nobodyReads(t, addr, c.args...).want(t, 123, "lastword: "+c.done, unwritten)
	}
	lastwordCommand(t.Context(), addr, "status", "doc/a").want(t, 0, "RELEASED", `completed with "r"`)
	lastwordCommand(t.Context(), addr, "fence", "lookup", db, "doc/a", "--op", "o").want(t, 0, "receipt")
}

func TestACommandThatOnlyReadsFailsWithoutItsAnswer(t *testing.T) {
	t.Parallel()
	addr, db := authorityAt(t), "sqlite:"+filepath.Join(t.TempDir(), "app.db")
	lastwordCommand(t.Context(), addr, "fence", "init", db).want(t, 0)
	for _, args := range [][]string{{"status", "doc/a"}, {"fence", "status", db, "doc/a"}, {"fence", "lookup", db, "doc/a", "--op", "o"}, {"version"}} {
		nobodyReads(t, addr, args...).want(t, 1, "no space left")
	}
}

// Without a grant file nobody could use the lease.
func TestALeaseThatNobodyWasToldOfIsGivenBack(t *testing.T) {
	t.Parallel()
	addr := authorityAt(t)
	for _, format := range []string{"text", "json"} {
		nobodyReads(t, addr, "acquire", "doc/"+format, "--owner", "A", "--request-id", "R", "-o", format).
			want(t, 123, "to owner A, request id R, but the answer could not be written", "; the lease was given back")
		lastwordCommand(t.Context(), addr, "status", "doc/"+format).want(t, 0, "state       RELEASED")
	}
}

// Somebody was told of this one before.
func TestARepeatedAcquireThatCannotAnswerKeepsTheLease(t *testing.T) {
	t.Parallel()
	addr := authorityAt(t)
	again := []string{"acquire", "doc/a", "--owner", "A", "--request-id", "R"}
	lastwordCommand(t.Context(), addr, again...).want(t, 0)
	nobodyReads(t, addr, again...).want(t, 123, "it had been granted before, and is still held")
	eventually(t, addr, "doc/a", func(st lastword.Status) bool { return st.State == lastword.StateHeld })
}

func TestARefusalIsARefusalAlsoIfNobodyReadsItsVerdict(t *testing.T) {
	t.Parallel()
	addr, dir := authorityAt(t), t.TempDir()
	grant, db := filepath.Join(dir, "a.grant"), "sqlite:"+filepath.Join(dir, "app.db")
	lastwordCommand(t.Context(), addr, "fence", "init", db).want(t, 0)
	lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--grant", grant).want(t, 0)
	nobodyReads(t, addr, "fence", "apply", db, "doc/a", "--grant", grant, "--op", "o", "--seq", "9", "--sql", "CREATE TABLE t (x)", "-o", "json").
		want(t, 124, "OUT_OF_ORDER")
}

// lastwordProcess is this program as a command of its own.
func lastwordProcess(ctx context.Context, t *testing.T, addr string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := exec.LookPath("lastword") // TestMain has put it there
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0] = "lastword"
	cmd.Env = append(os.Environ(), "LASTWORD_AUTHORITY="+addr)
	return cmd
}

// A pipe whose reader is gone kills nobody silently.
func TestABrokenPipeIsToldAsWell(t *testing.T) {
	t.Parallel()
	addr := authorityAt(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := lastwordProcess(t.Context(), t, addr, "acquire", "doc/a", "--owner", "A", "--request-id", "R")
	cmd.Stdout, cmd.Stderr = w, &stderr
	err = cmd.Run()
	_ = w.Close()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 123 || !strings.Contains(stderr.String(), "the lease was given back") {
		t.Fatalf("%v: %s", err, stderr.String())
	}
}
