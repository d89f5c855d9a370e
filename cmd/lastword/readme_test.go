package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword/lastword/server"
)

// readmeCommands are the command lines of a section of the README.
func readmeCommands(t *testing.T, title string) (lines []string) {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## "+title+"\n")
	_, block, _ := strings.Cut(section, "\n```\n")
	block, _, _ = strings.Cut(block, "\n```")
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		lines = append(lines, strings.TrimSpace(line))
	}
	if len(lines) < 4 {
		t.Fatalf("the README's commands under %q are %q", title, lines)
	}
	return lines
}

// Word by word, in an empty directory. Only the port is another one.
func TestTheShellCommandsOfTheReadmeWorkAsTheyStand(t *testing.T) {
	t.Parallel()
	dir, lines := t.TempDir(), readmeCommands(t, "Use it from a shell")
	if !strings.HasPrefix(lines[0], "lastword serve ") {
		t.Fatalf("the first command is %q", lines[0])
	}
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

// As they stand, while dev runs. Only the ports and the place of the program are other
// ones.
func TestTheFiveMinutesOfTheReadmeWorkAsTheyStand(t *testing.T) {
	t.Parallel()
	dir, lines := t.TempDir(), readmeCommands(t, "Five minutes")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	dev := exec.CommandContext(ctx, "lastword", "dev", "-o", "json", "--grpc", "127.0.0.1:0")
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
	var ready devJSON
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, line := range lines {
		line = strings.ReplaceAll(strings.ReplaceAll(line, server.DefaultHTTP, ready.HTTP), "bin/lastword", "lastword")
		cmd := exec.CommandContext(ctx, "sh", "-ec", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "LASTWORD_AUTHORITY="+ready.GRPC)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		all.Write(out)
	}
	for _, want := range []string{`{"tenure":{"resource":"doc/hello","owner":"me"`, `"state":"HELD"`, "I hold it, with fence 1\n", "nightly/report  RELEASED"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no %q in\n%s", want, all.String())
		}
	}
}
