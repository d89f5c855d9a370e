// Package examples_test runs the examples as a user does.
package examples_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword/internal/realservers"
)

// run starts an example with one command, in a directory for temporary files that has to
// be empty afterwards, and gives what it printed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program; runs without the race detector")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "CGO_ENABLED=0")
	// A group of its own: whatever it leaves is found, and ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err == nil {
		t.Errorf("%s left a process behind", name)
	}
	left, err := filepath.Glob(temp + "/*")
	if err != nil || len(left) > 0 {
		t.Errorf("%s left behind: %v, %v", name, left, err)
	}
	return string(out)
}

func wantInOrder(t *testing.T, out string, texts ...string) {
	t.Helper()
	rest := out
	for _, text := range texts {
		at := strings.Index(rest, text)
		if at < 0 {
			t.Fatalf("no %q, or not in this order:\n%s", text, out)
		}
		rest = rest[at+len(text):]
	}
}

func TestTheNightlyJobRunsWithOneCommand(t *testing.T) {
	t.Parallel()
	wantInOrder(t, run(t, "./nightly/run.sh"),
		"== the job of one night", "APPLIED     nightly/report\noperation   report-2026-07-18",
		"== the same night once more", "REPLAYED    nightly/report",
		"== a host freezes", "APPLIED     nightly/report\noperation   report-2026-07-20",
		"== it thaws", "STALE_OWNER",
		"== what the fence has seen", "refused         1 STALE_OWNER", "no receipt  report-2026-07-19",
		"== done",
	)
}

func TestTheWorkerPoolRunsWithOneCommand(t *testing.T) {
	t.Parallel()
	wantInOrder(t, run(t, "go", "run", "./workerpool"),
		"agent-1 hangs", "agent-1 wakes up: its lease says NOT_HOLDER", "the database says STALE_OWNER",
		"12 tasks, 12 results, each of them once",
	)
}

// R14b, with a real etcd: its create revision fences a table.
func TestTheLocksOfAnEtcdGuardATable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts an etcd; runs without the race detector")
	}
	etcd, err := realservers.Etcd(t.Context(), 1, realservers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := etcd.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for range 2 { // it may be run again
		wantInOrder(t, run(t, "go", "run", "./etcd", "--etcd", etcd.Addr),
			"edit-1: APPLIED", "worker-1 hangs", "edit-2: apply doc/a: UNVERIFIED", "edit-3: APPLIED",
			"worker-1 wakes up", "edit-4: apply doc/a: STALE_OWNER", `the document is "two", as worker-2 left it`,
		)
	}
}

// As a user runs it: dev, and the script with what it prints for people. That it sees
// the numbers which every other door sees is tested in cmd/lastword.
func TestThePythonSessionRunsAgainstDev(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program; runs without the race detector")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "lastword")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "../cmd/lastword")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dev := exec.CommandContext(ctx, binary, "dev", "-o", "json", "--grpc", "127.0.0.1:0")
	dev.Dir = dir
	stdout, err := dev.StdoutPipe()
	if err == nil {
		err = dev.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = dev.Process.Signal(syscall.SIGINT)
		if err := dev.Wait(); err != nil {
			t.Errorf("dev: %v", err)
		}
	}()
	var ready struct {
		HTTP string `json:"http"`
	}
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be run again
		out, err := exec.CommandContext(ctx, "python3", "./http-python/session.py", "--address", ready.HTTP).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		wantInOrder(t, string(out), "a holds session/python with fence", "b is refused: HELD", "b waits", "b holds it with fence",
			"before it: RELEASED, result 'done'", "the watch showed it: RELEASED")
	}
}
