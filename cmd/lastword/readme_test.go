package main

import (
	"bufio"
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// readmeCommands are the command lines of the README's section about the shell.
func readmeCommands(t *testing.T) (lines []string) {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## Use it from a shell\n")
	_, block, _ := strings.Cut(section, "\n```\n")
	block, _, _ = strings.Cut(block, "\n```")
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		lines = append(lines, strings.TrimSpace(line))
	}
	if len(lines) < 4 || !strings.HasPrefix(lines[0], "lastword serve ") {
		t.Fatalf("the README's commands are %q", lines)
	}
	return lines
}

// Word by word, in an empty directory. Only the port is another one.
func TestTheShellCommandsOfTheReadmeWorkAsTheyStand(t *testing.T) {
	t.Parallel()
	dir, lines := t.TempDir(), readmeCommands(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	command := func(line, env string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env)
		return cmd
	}
	serve := command("exec "+lines[0], "LASTWORD_GRPC=127.0.0.1:0")
	stdout, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("%s: %v", lines[0], err)
		}
	}()
	addr := ""
	for said := bufio.NewScanner(stdout); addr == "" && said.Scan(); {
		addr, _ = strings.CutPrefix(said.Text(), "ready ")
		if addr == said.Text() {
			addr = ""
		}
	}
	for _, line := range lines[1:] {
		if out, err := command(line, "LASTWORD_AUTHORITY="+addr).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var value string
	if err := db.QueryRowContext(ctx, "SELECT value FROM document WHERE id = 'doc/report'").Scan(&value); err != nil || value != "new" {
		t.Errorf("the document is %q, %v", value, err)
	}
}
