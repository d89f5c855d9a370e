package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// Commands of scripts about processes.

// codeScript runs a command and wants this exit code. Unlike exits it leaves stderr to
// the command, which may be another program's.
func codeScript(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// emptyScript wants an empty directory.
func emptyScript(ts *testscript.TestScript, _ bool, args []string) {
	left, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(left) > 0 {
		ts.Fatalf("left in %s: %s", args[0], left[0].Name())
	}
}

// appearsScript waits for a file that another process makes, by its name or a pattern.
func appearsScript(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, args[0]+" is there", func() bool {
		found, err := filepath.Glob(ts.MkAbs(args[0]))
		ts.Check(err)
		return len(found) > 0
	})
}

// signalScript sends STOP or CONT to the wrapper or the process group of a script under
// exec, whose process ids are in FILE. After a STOP the processes are stopped.
func signalScript(ts *testscript.TestScript, _ bool, args []string) {
	wrapper, script := processes(ts, args[2])
	pid, target := wrapper, wrapper
	if args[1] == "group" {
		pid, target = script, -script
	}
	stopped := ts.Value(serversKey{}).(*servers).stopped
	if args[0] == "CONT" {
		if !stopped[target].Stop() {
			ts.Fatalf("it was stopped for too long")
		}
		ts.Check(syscall.Kill(target, syscall.SIGCONT))
		return
	}
	ts.Check(syscall.Kill(target, syscall.SIGSTOP))
	// A shell that is inside vfork stays in D for as long as its child is stopped: with
	// the signal pending it runs none of its own code before a CONT, either.
	until(ts, "it is stopped", func() bool { state := processState(pid); return state == "T" || state == "D" })
	// A script that fails waits for what it has started.
	stopped[target] = time.AfterFunc(patience, func() { _ = syscall.Kill(target, syscall.SIGKILL) })
}

// endedScript wants neither the wrapper of FILE alive nor anything of its script's
// process group. Zombies that nobody has buried yet are dead.
func endedScript(ts *testscript.TestScript, _ bool, args []string) {
	wrapper, script := processes(ts, args[0])
	all, err := os.ReadDir("/proc")
	ts.Check(err)
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		group, _ := syscall.Getpgid(pid)
		if s := processState(pid); (pid == wrapper || group == script) && s != "" && s != "Z" {
			ts.Fatalf("process %d is alive, state %s", pid, s)
		}
	}
}

func processes(ts *testscript.TestScript, file string) (wrapper, script int) {
	if _, err := fmt.Sscan(ts.ReadFile(file), &wrapper, &script); err != nil {
		ts.Fatalf("%s: %v", file, err)
	}
	return wrapper, script
}

// processState is that of /proc, "" for none.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0]
}

func until(ts *testscript.TestScript, what string, is func() bool) {
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("waited %s for this: %s", patience, what)
		}
	}
}
