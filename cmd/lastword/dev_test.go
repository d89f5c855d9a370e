package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// devScript starts "lastword dev" and keeps what it printed in the file stdout.
// HTTP is set to its HTTP address.
func devScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("dev cannot be negated: use exits")
	}
	said := startAuthority(ts, append([]string{"dev"}, args...)...)
	ts.Check(os.WriteFile(ts.MkAbs("said"), []byte(said), 0o600))
	if m := regexp.MustCompile(`(?m)^http +http://([0-9.:]+)/$`).FindStringSubmatch(said); m != nil {
		ts.Setenv("HTTP", m[1])
	}
	ts.Check(ts.Exec("cat", "said")) // for stdout
}

// pastedScript gives a command that dev printed to a shell in another directory and
// wants its output to match.
func pastedScript(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var commands []string
	_, tries, _ := strings.Cut(ts.ReadFile("said"), "\ntry, in another terminal\n")
	for line := range strings.Lines(tries) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			commands = append(commands, command)
		}
	}
	if len(commands) != 3 {
		ts.Fatalf("dev printed %d commands: %q", len(commands), commands)
	}
	sh := exec.Command("sh", "-c", commands[n-1])
	sh.Dir = "/"
	sh.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH")) // and nothing of the script's
	out, err := sh.CombinedOutput()
	matched, bad := regexp.Match("(?m)"+args[1], out)
	ts.Check(bad)
	if err != nil || matched == neg {
		ts.Fatalf("%s: %v: %s", commands[n-1], err, out)
	}
}
