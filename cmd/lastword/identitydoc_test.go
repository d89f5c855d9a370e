package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lastword/lastword/identity"
)

// blocks are the fenced blocks of docs/identity.md in this language.
func blocks(t *testing.T, language string) (list []string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(b), "```") {
		if text, ok := strings.CutPrefix(part, language+"\n"); ok && i%2 == 1 {
			list = append(list, text)
		}
	}
	return list
}

// The commands of docs/identity.md, word by word, in an empty directory, with its policy.
// Only the port is another one.
func TestTheCommandsOfTheIdentityPageWorkAsTheyStand(t *testing.T) {
	t.Parallel()
	sh, yaml := blocks(t, "sh"), blocks(t, "yaml")
	if len(sh) != 4 || len(yaml) != 2 {
		t.Fatalf("the page has %d blocks of commands and %d of YAML, want 4 and 2", len(sh), len(yaml))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(yaml[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(tokens, []byte(yaml[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.OpenTokens(tokens); err != nil {
		t.Errorf("the tokens of the page: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	command := func(text string, env ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "sh", "-ec", text)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		return cmd
	}
	if out, err := command(sh[0]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", sh[0], err, out)
	}
	serve := command("exec "+strings.TrimSpace(sh[1])+" --policy policy.yaml", "LASTWORD_GRPC=127.0.0.1:0")
	stdout, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	addr, web, ready := "", "", false
	for said := bufio.NewScanner(stdout); !ready && said.Scan(); {
		if at := regexp.MustCompile(`^http +https://127\.0\.0\.1:([0-9]+)/, TLS 1\.3$`).FindStringSubmatch(said.Text()); at != nil {
			web = at[1]
		}
		addr, ready = strings.CutPrefix(said.Text(), "ready ")
	}
	if out, err := command(sh[2], "LASTWORD_AUTHORITY="+addr).CombinedOutput(); err != nil || !strings.Contains(string(out), "spiffe://lastword.test/ann") {
		t.Fatalf("%s: %v: %s", sh[2], err, out)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("this test calls the authority with curl, which is not there")
	}
	curl := strings.Replace(sh[3], ":7421/", ":"+web+"/", 1)
	if out, err := command(curl).CombinedOutput(); err != nil || !strings.Contains(string(out), `"state":"RELEASED"`) {
		t.Errorf("%s: %v: %s", curl, err, out)
	}
	bare := strings.Replace(curl, "--cert pki/ann.crt --key pki/ann.key", "-s", 1)
	if out, err := command(bare).CombinedOutput(); err != nil || !strings.Contains(string(out), `"reason":"UNVERIFIED"`) {
		t.Errorf("%s: %v: %s", bare, err, out)
	}
	again := "lastword ca issue pki spiffe://lastword.test/ann --force"
	if b, _ := os.ReadFile("../../docs/identity.md"); !strings.Contains(string(b), "`"+again+"`") {
		t.Errorf("the page has no %q", again)
	}
	if out, err := command(again).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", again, err, out)
	}
}
