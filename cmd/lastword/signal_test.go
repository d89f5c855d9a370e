package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
)

// serving starts an authority as a process of its own and waits until it is ready. It
// returns what stdout said until then.
func serving(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, addr, stdout string, stderr *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	cmd = lastwordProcess(ctx, t, "", append([]string{"serve", "--grpc", "127.0.0.1:0"}, args...)...)
	stderr = &bytes.Buffer{}
	cmd.Dir, cmd.Stderr = dir, stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var said strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if addr, ready := strings.CutPrefix(lines.Text(), "ready "); ready {
			return cmd, addr, said.String(), stderr
		}
	}
	_ = cmd.Wait()
	t.Fatalf("serve was never ready: %s", stderr)
	return nil, "", "", nil
}

// timeout(1) signals its child and then the whole group.
func TestASignalThatComesTwiceInARowEndsServeInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, _, _, stderr := serving(t, dir, "--store", "sqlite:s.db", "--domain", "demo")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	tooLate := time.After(oneSignal / 2)
	for waiting := true; waiting; {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGTERM)
		case <-tooLate:
			waiting = false
			if err := <-ended; err != nil {
				t.Errorf("serve ended with %v: %s", err, stderr)
			}
		case err := <-ended:
			waiting = false
			if err != nil {
				t.Errorf("serve ended with %v: %s", err, stderr)
			}
		}
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(filepath.Join(dir, "s.db"+suffix)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("s.db%s is left: %v", suffix, err)
		}
	}
}

// Who means it, is believed: a later signal ends also what does not end by itself.
func TestALaterSignalEndsACommandThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	addr := authorityAt(t)
	p := newLateProxy(t, addr)
	cmd := lastwordProcess(t.Context(), t, p.addr(), "acquire", "doc/a", "--wait", "10m", "--timeout", "10m")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, addr, "doc/a", func(st lastword.Status) bool { return st.State == lastword.StateHeld })
	began := time.Now()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	giveUp := time.After(patience)
	for {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGINT)
		case err := <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok {
				t.Fatalf("it ended by itself: %v", err)
			}
			status, _ := exit.Sys().(syscall.WaitStatus)
			if status.Signal() != syscall.SIGINT || time.Since(began) < oneSignal {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			return
		case <-giveUp:
			_ = cmd.Process.Kill()
			t.Fatal("it does not end")
		}
	}
}

// R10: a witness beside the store notices less than one on another volume.
func TestServeSaysThatAWitnessBesideTheStoreProtectsLess(t *testing.T) {
	t.Parallel()
	const warning = "the witness lies beside the store"
	dir, elsewhere := t.TempDir(), t.TempDir()
	for _, c := range []struct {
		args  []string
		warns bool
	}{{nil, true}, {[]string{"--witness", "file:" + filepath.Join(elsewhere, "w")}, false}} {
		store := filepath.Join(dir, "s"+number(len(c.args))+".db")
		cmd, _, _, stderr := serving(t, dir, append([]string{"--store", "sqlite:" + store, "--domain", "demo"}, c.args...)...)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
		if got := strings.Contains(stderr.String(), "level=WARN msg=\""+warning); got != c.warns {
			t.Errorf("%v: warned %v: %s", c.args, got, stderr)
		}
	}
}

// What serve says to try can be tried again tomorrow.
func TestWhatServeSuggestsRunsTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, _, stdout, _ := serving(t, dir, "--store", "sqlite:s.db", "--domain", "demo")
	tried := 0
	for range 2 {
		for line := range strings.Lines(stdout) {
			args, ok := strings.CutPrefix(strings.TrimSpace(line), "lastword ")
			if !ok {
				continue
			}
			try := lastwordProcess(t.Context(), t, "", strings.Fields(args)...)
			try.Dir = dir
			if out, err := try.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", args, err, out)
			}
			tried++
		}
	}
	if tried != 6 {
		t.Errorf("%d commands in %q", tried, stdout)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve: %v", err)
	}
}

// Ctrl-C goes to every process of the terminal: what the experiment says is not that
// one of them has died.
func TestCtrlCInAnExperimentSaysThatItWasInterrupted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("heavy: several processes")
	}
	dir := t.TempDir()
	cmd := lastwordProcess(t.Context(), t, "", "lab", "takeover")
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(dir, "lastword-lab-*", "authority.db")); len(found) > 0 {
			break
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatal("the experiment does not begin")
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	want := "lastword: lab takeover: CANCELED: interrupted; its processes and files are gone, and there is no result\n"
	if code := cmd.ProcessState.ExitCode(); code != 1 || stderr.String() != want {
		t.Errorf("exit code %d: %q", code, stderr.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
