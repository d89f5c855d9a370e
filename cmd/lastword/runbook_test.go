package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheScriptRunsEveryCommandOfTheRunBook: a step that nobody has run is a step that
// fails on the day that it is needed. The script's numbers and ids are its own.
func TestTheScriptRunsEveryCommandOfTheRunBook(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	loose := func(line string) string {
		line = regexp.MustCompile(`--epochs-below (\d+|\$\(cat epoch\))`).ReplaceAllString(line, "--epochs-below N")
		return strings.NewReplacer(" -- $(cat kid)", " KID", "''", "'", "--yes KID", "--yes KID").Replace(line)
	}
	run := map[string]bool{"lastword serve": true}
	for line := range strings.Lines(read("testdata/restore.txtar")) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "exits 0 "); ok {
			run[loose(rest)] = true
		}
		if rest, ok := strings.CutPrefix(line, "exec sh -c '"); ok {
			run[loose(strings.TrimSuffix(rest, "'"))] = true
		}
		if rest, ok := strings.CutPrefix(line, "env "); ok {
			run["export "+rest] = true
		}
	}
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(read("../../docs/restore.md"), -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			if commands++; !run[loose(line)] {
				t.Errorf("no script runs %q", line)
			}
		}
	}
	if commands < 15 {
		t.Fatalf("%d commands were found", commands)
	}
}

// TestTheScriptsRunEveryCommandOfThePageOnProtection, on both databases.
func TestTheScriptsRunEveryCommandOfThePageOnProtection(t *testing.T) {
	page, err := os.ReadFile("../../docs/protect.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"testdata/protect.txtar", "testdata/protectpg.txtar"} {
		b, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		plain := strings.NewReplacer("'", "", `"`, "").Replace // scripts quote otherwise
		run := map[string]bool{"export DB=sqlite:app.db": true}
		for line := range strings.Lines(string(b)) {
			line = plain(strings.TrimSpace(line))
			run[strings.TrimPrefix(line, "exits 0 ")], run["lastword "+line] = true, true
		}
		commands := 0
		commanded := regexp.MustCompile("(?s)```sql\n.*?```\n").ReplaceAll(page, nil)
		for _, block := range regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(string(commanded), -1) {
			for line := range strings.Lines(block[1]) {
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				if commands++; !run[plain(line)] {
					t.Errorf("%s does not run %q", script, line)
				}
			}
		}
		if commands < 13 {
			t.Fatalf("%d commands were found", commands)
		}
	}
}

// TestNoScriptEndsBeforeItsEnd: "stop" is a command of testscript itself, which ends a
// script there and calls it passed; a command of ours with that name is never reached.
func TestNoScriptEndsBeforeItsEnd(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut("\n"+string(b), "\n-- ")
		for n, line := range strings.Split(script, "\n") {
			if f := strings.Fields(line); len(f) > 0 && (f[0] == "stop" || f[0] == "skip") {
				t.Errorf("%s:%d: %q ends the script: nothing after it is run (halt stops an authority)", file, n, line)
			}
		}
	}
}
