package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/realservers"
	"github.com/lastword/lastword/rpc"
)

// TestMain lets the scripts run the real main as a process of its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lastword": func() { os.Exit(program()) }})
}

// TestScripts runs every script of testdata. They assert exit code, stdout and stderr,
// and that a command which failed left nothing behind.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: hundreds of processes; runs without the race detector")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Values[serversKey{}] = &servers{stopped: map[int]*time.Timer{}}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"serve": serveScript, "dev": devScript, "pasted": pastedScript, "halt": haltScript,
			"exits": exitsScript, "sql": sqlScript, "value": valueScript, "json": jsonScript, "bytes": bytesScript,
			"grantonly": grantOnlyScript, "tamper": tamperScript, "waiters": waitersScript, "bundle": bundleScript,
			"code": codeScript, "empty": emptyScript, "appears": appearsScript, "signal": signalScript, "ended": endedScript,
			"says": saysScript, "loopback": loopbackScript, "signing": signingScript, "published": publishedScript,
			"postgresql": postgresqlScript, "refused": refusedScript,
		},
	})
}

// postgresqlScript starts a PostgreSQL for the script and sets PG to its URL, and APP to
// that of a role app, which the script makes if it wants one.
func postgresqlScript(ts *testscript.TestScript, _ bool, _ []string) {
	server, err := realservers.PostgreSQL(context.Background(), realservers.Config{})
	ts.Check(err)
	ts.Defer(func() { _ = server.Stop() })
	ts.Setenv("PG", server.DSN)
	_, port, err := net.SplitHostPort(server.Addr)
	ts.Check(err)
	ts.Setenv("PORT", port)
	ts.Setenv("APP", strings.Replace(server.DSN, "postgres@", "app@", 1))
}

type serversKey struct{}

// servers are the authorities of one script.
type servers struct {
	running []*authorityProcess
	stopped map[int]*time.Timer // processes that SIGSTOP stopped, and when each is given up
}

type authorityProcess struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	waited bool
}

// patience bounds what a script waits for; a machine that is busy gets it all.
const patience = time.Minute

// serveScript starts "lastword serve" with the given flags, waits for its ready line
// and sets LASTWORD_AUTHORITY to its address.
func serveScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("serve cannot be negated: use exits")
	}
	startAuthority(ts, append([]string{"serve", "--grpc", "127.0.0.1:0"}, args...)...)
}

// startAuthority starts a command that serves and returns what it printed until it was
// ready.
func startAuthority(ts *testscript.TestScript, args ...string) string {
	p := &authorityProcess{cmd: exec.Command("lastword", args...)}
	for _, dir := range strings.Split(ts.Getenv("PATH"), ":") {
		if _, err := os.Stat(dir + "/lastword"); err == nil {
			p.cmd.Path, p.cmd.Err = dir+"/lastword", nil
			break
		}
	}
	p.cmd.Dir, p.cmd.Stderr = ts.MkAbs("."), &p.stderr
	p.cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"), "LASTWORD_STORE="+ts.Getenv("LASTWORD_STORE"),
		"LASTWORD_DOMAIN="+ts.Getenv("LASTWORD_DOMAIN"), "LASTWORD_GRPC="+ts.Getenv("LASTWORD_GRPC"),
		"LASTWORD_WITNESS="+ts.Getenv("LASTWORD_WITNESS"))
	var said strings.Builder
	stdout, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	list := ts.Value(serversKey{}).(*servers)
	list.running = append(list.running, p)
	ts.Defer(func() {
		if !p.waited {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	watchdog := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if addr, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			ts.Setenv("LASTWORD_AUTHORITY", addr)
			return said.String()
		}
	}
	ts.Fatalf("%s ended before it was ready: %s", args[0], p.stderr.String())
	return ""
}

// loopbackScript names an authority that listens on every address by that of loopback.
func loopbackScript(ts *testscript.TestScript, _ bool, _ []string) {
	_, port, err := net.SplitHostPort(ts.Getenv("LASTWORD_AUTHORITY"))
	ts.Check(err)
	ts.Setenv("LASTWORD_AUTHORITY", net.JoinHostPort("127.0.0.1", port))
}

// haltScript sends SIGTERM, or the named signal, to the last authority and wants it to
// end as it should.
func haltScript(ts *testscript.TestScript, neg bool, args []string) {
	list := ts.Value(serversKey{}).(*servers)
	if len(list.running) == 0 {
		ts.Fatalf("no authority is running")
	}
	p := list.running[len(list.running)-1]
	list.running = list.running[:len(list.running)-1]
	signal, kill := syscall.SIGTERM, false
	if len(args) > 0 && args[0] == "KILL" {
		signal, kill = syscall.SIGKILL, true
	} else if len(args) > 0 && args[0] == "INT" {
		signal = syscall.SIGINT
	} else if len(args) > 0 && args[0] == "HUP" {
		signal = syscall.SIGHUP
	}
	ts.Check(p.cmd.Process.Signal(signal))
	err := p.cmd.Wait()
	p.waited = true
	if err != nil && !kill {
		ts.Fatalf("serve ended with %v: %s", err, p.stderr.String())
	}
	if neg {
		ts.Fatalf("halt cannot be negated")
	}
}

// exitsScript runs a command and wants this exit code, or one of 0,1.
func exitsScript(ts *testscript.TestScript, neg bool, args []string) {
	either := args[0] == "0,1" // where it depends on how fast the machine is
	want, err := strconv.Atoi(strings.TrimSuffix(args[0], ",1"))
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if either && got == 1 {
		want = 1
	}
	if (got == want) == neg {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	stderr := ts.ReadFile("stderr")
	if strings.Contains(stderr, "goroutine ") || strings.Contains(stderr, "panic") {
		ts.Fatalf("a stack trace")
	}
	if strings.Contains(stderr, "eyJ") {
		ts.Fatalf("stderr holds a grant")
	}
	if want != 0 && want != 1 && strings.Count(stderr, "\n") != 1 {
		ts.Fatalf("stderr is not one line: %q", stderr)
	}
}

func withDatabase(ts *testscript.TestScript, file string, do func(ctx context.Context, db *sql.DB) error) {
	db, err := sql.Open("sqlite", ts.MkAbs(file))
	ts.Check(err)
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.Check(do(ctx, db))
}

// sqlScript executes statements, as the application would that owns the file.
func sqlScript(ts *testscript.TestScript, _ bool, args []string) {
	withDatabase(ts, args[0], func(ctx context.Context, db *sql.DB) error {
		for _, text := range args[1:] {
			if _, err := db.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// refusedScript executes statements of a program without the fence, which a protected
// table refuses.
func refusedScript(ts *testscript.TestScript, _ bool, args []string) {
	withDatabase(ts, args[0], func(ctx context.Context, db *sql.DB) error {
		for _, text := range args[1:] {
			if _, err := db.ExecContext(ctx, text); err == nil || !strings.Contains(err.Error(), "FENCE_REQUIRED") {
				return errors.New(text + ": want FENCE_REQUIRED, got " + fmt.Sprint(err))
			}
		}
		return nil
	})
}

// valueScript compares the one value of a query.
func valueScript(ts *testscript.TestScript, neg bool, args []string) {
	withDatabase(ts, args[0], func(ctx context.Context, db *sql.DB) error {
		var got string
		if err := db.QueryRowContext(ctx, args[1]).Scan(&got); err != nil {
			return err
		}
		if (got == args[2]) == neg {
			return fmt.Errorf("%s: got %q, want %q", args[1], got, args[2])
		}
		return nil
	})
}

// jsonScript wants FILE to be one JSON object, and the member at PATH to be WANT.
func jsonScript(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile(args[0])
	if strings.Count(text, "\n") != 1 {
		ts.Fatalf("not one line: %q", text)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		ts.Fatalf("no JSON object: %v: %q", err, text)
	}
	var at any = object
	for _, name := range strings.Split(args[1], ".") {
		members, ok := at.(map[string]any)
		if !ok {
			ts.Fatalf("no member %s in %s", args[1], text)
		}
		if at, ok = members[name]; !ok {
			ts.Fatalf("no member %s in %s", args[1], text)
		}
	}
	got := fmt.Sprint(at)
	if list, ok := at.([]any); ok {
		got = fmt.Sprint(len(list))
	}
	if _, isNumber := at.(float64); !isNumber {
		if s, ok := at.(string); ok {
			got = s
		}
	}
	if (got == args[2]) == neg {
		ts.Fatalf("%s is %q, want %q", args[1], got, args[2])
	}
}

// saysScript waits until FILE has a line that is TEXT, or N of them.
func saysScript(ts *testscript.TestScript, _ bool, args []string) {
	want := 1
	if len(args) > 2 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		want = n
	}
	until(ts, args[0]+" says "+args[1], func() bool {
		b, _ := os.ReadFile(ts.MkAbs(args[0]))
		return slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool { return line == args[1] }) &&
			strings.Count("\n"+string(b), "\n"+args[1]+"\n") >= want
	})
}

// bytesScript makes a file of N bytes.
func bytesScript(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte("x"), n), 0o600))
}

// grantOnlyScript takes the grant out of the JSON of acquire.
func grantOnlyScript(ts *testscript.TestScript, _ bool, args []string) {
	var t struct {
		Grant string `json:"grant"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &t))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(t.Grant+"\n"), 0o600))
}

// tamperScript replaces the quoted text OLD by NEW.
func tamperScript(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.ReplaceAll(ts.ReadFile(args[0]), strconv.Quote(args[1]), strconv.Quote(args[2]))
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), []byte(text), 0o600))
}

// bundleScript saves the trust bundle of the authority.
func bundleScript(ts *testscript.TestScript, _ bool, args []string) {
	c, err := rpc.Dial(ts.Getenv("LASTWORD_AUTHORITY"), rpc.ClientConfig{Timeout: patience})
	ts.Check(err)
	defer func() { _ = c.Close() }()
	b, err := c.Bundle(context.Background())
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}

// waitersScript waits until N callers wait for RESOURCE.
func waitersScript(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	c, err := rpc.Dial(ts.Getenv("LASTWORD_AUTHORITY"), rpc.ClientConfig{Timeout: patience})
	ts.Check(err)
	defer func() { _ = c.Close() }()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		st, err := c.Status(context.Background(), lastword.StatusQuery{Resource: lastword.Resource(args[0])})
		ts.Check(err)
		if st.Waiters == want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%d callers wait, want %d", st.Waiters, want)
		}
	}
}
