package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// noAuthority takes calls and answers none of them as an authority would.
type noAuthority struct {
	wire.UnimplementedAuthorityServiceServer
	answer   func(ctx context.Context) error
	acquires atomic.Int32
	cancels  atomic.Int32
}

func (a *noAuthority) Acquire(ctx context.Context, _ *wire.AcquireRequest) (*wire.AcquireResponse, error) {
	a.acquires.Add(1)
	return nil, a.answer(ctx)
}

func (a *noAuthority) Cancel(ctx context.Context, _ *wire.CancelRequest) (*wire.CancelResponse, error) {
	a.cancels.Add(1)
	return nil, a.answer(ctx)
}

func (a *noAuthority) serve(t *testing.T) (addr string, stop func()) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	wire.RegisterAuthorityServiceServer(s, a)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return lis.Addr().String(), s.Stop
}

func TestExecGivesUpAnAcquireWithoutAnAnswer(t *testing.T) { // R27
	t.Parallel()
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	says := func(code codes.Code) func(context.Context) error {
		return func(context.Context) error { return status.Error(code, "no authority") }
	}
	for name, c := range map[string]struct {
		answer func(context.Context) error
		dies   bool
		wait   string
	}{
		"it never answers":            {silent, false, "0s"},
		"it never answers a wait":     {silent, false, "1s"},
		"it dies after it received":   {says(codes.Unknown), true, "0s"},
		"it answers Internal":         {says(codes.Internal), false, "0s"},
		"it answers Unimplemented":    {says(codes.Unimplemented), false, "0s"},
		"something is in front of it": {says(codes.Unavailable), false, "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			received := make(chan struct{})
			first := sync.OnceFunc(func() { close(received) })
			a := &noAuthority{answer: func(ctx context.Context) error { first(); return c.answer(ctx) }}
			addr, stop := a.serve(t)
			if c.dies {
				go func() { <-received; stop() }()
			}
			ran := filepath.Join(t.TempDir(), "ran")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var stderr bytes.Buffer
			cmd := lastwordProcess(ctx, t, addr, "exec", "doc/a", "--ttl", "2s", "--wait", c.wait, "--timeout", "200ms",
				"--owner", "me", "--request-id", "R1", "--", "touch", ran)
			cmd.Stderr = &stderr
			began := time.Now()
			_ = cmd.Run()
			took := time.Since(began)
			if code := cmd.ProcessState.ExitCode(); code != 123 || took < 2*time.Second {
				t.Errorf("exit code %d after %s: %s", code, took, &stderr)
			}
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			last := lines[len(lines)-1]
			for part, line := range map[string]string{
				"lastword: exec doc/a: no answer to the acquire yet; asking again with the same request id": lines[0],
				"request id R1 of owner me": last,
				"UNKNOWN":                   last,
				"lastword status doc/a --request-id R1 --owner me; to take it back: lastword cancel": last,
			} {
				if !strings.Contains(line, part) {
					t.Errorf("no %q in %q", part, line)
				}
			}
			// The pauses grow to a twelfth of the TTL.
			if n := a.acquires.Load() + a.cancels.Load(); n > 60 || !c.dies && a.cancels.Load() == 0 {
				t.Errorf("%d acquires and %d cancels in %s", a.acquires.Load(), a.cancels.Load(), took)
			}
			missing(t, ran)
		})
	}
}

// A signal that comes while the program begins is neither lost nor an end with a stack
// trace, and the command does not run to its end.
func TestASignalDuringTheStartOfExecEndsIt(t *testing.T) { // KF-31 (a)
	t.Parallel()
	if testing.Short() {
		t.Skip("heavy: many processes")
	}
	addr := authorityAt(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			for i := range 25 {
				delay := time.Duration(i) * 500 * time.Microsecond
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				var stderr bytes.Buffer
				cmd := lastwordProcess(ctx, t, addr, "exec", fmt.Sprintf("doc/%d", sig), "--wait", "1m", "--", "sleep", "300")
				cmd.Stderr = &stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(delay) // this is what the test is about
				_ = cmd.Process.Signal(sig)
				_ = cmd.Wait()
				cancel()
				code := cmd.ProcessState.ExitCode()
				if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() && s.Signal() != syscall.SIGKILL {
					code = 128 + int(s.Signal()) // as a shell sees it; nobody was listening yet
				}
				if sig == syscall.SIGQUIT && code == 2 && !strings.Contains(stderr.String(), "main.main") {
					t.Logf("after %s: in the runtime's own first moments", delay)
					continue
				}
				if code != 128+int(sig) || strings.Contains(stderr.String(), "goroutine ") {
					t.Errorf("after %s: exit code %d: %s", delay, code, &stderr)
				}
			}
		})
	}
}

// Nobody reads stderr: what exec would say there must not hold up the end of a command
// whose lease is over.
func TestAStderrThatBlocksHoldsUpNothing(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	n := newNotices(w, false, "exec doc/a")
	began := time.Now()
	for range 100 {
		_, _ = n.Write(bytes.Repeat([]byte("x"), 1<<12))
	}
	n.close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestNoticesAreOneLineEachAndLeaveTheEndToTheEnd(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		n := newNotices(&out, asJSON, "exec doc/a")
		log := slog.New(n)
		log.Info("not worth a line")
		log.Warn("the lease ended", "to", "EXPIRED")
		log.Warn("no\nanswer", "resource", "doc/a", "owner", "me", "error", errors.New("a\x1bb"))
		n.close()
		got := out.String()
		want := "lastword: exec doc/a: no; answer, owner me, error a b\n"
		if !asJSON && got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		var object map[string]any
		if err := json.Unmarshal(out.Bytes(), &object); asJSON && (err != nil || object["msg"] != "no\nanswer" || object["owner"] != "me") {
			t.Errorf("got %q: %v", got, err)
		}
	}
}

// exec has exit codes of its own there.
func TestTheDocumentedExitCodesOfExecAreTheRealOnes(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## `exec`")
	rows := map[string]string{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			rows[strings.TrimSpace(cells[1])] = cells[2]
		}
	}
	for code, row := range map[lastword.Code]string{
		lastword.CodeHeld: "121", lastword.CodeNotHolder: "122", lastword.CodeTenureEnded: "122",
		lastword.CodeUnavailable: "123", lastword.CodeUnknown: "123",
		lastword.CodeRequestConflict: "125", lastword.CodeCanceled: "125", lastword.CodeQuota: "125", lastword.CodeExhausted: "125",
		lastword.CodeInternal: "125", lastword.CodeInvalid: "125", lastword.CodeFenceRegression: "125",
	} {
		for number, cell := range rows {
			if got, want := strings.Contains(cell, "`"+string(code)+"`"), number == row; got != want {
				t.Errorf("%s in the row of exit code %s: %v, want %v", code, number, got, want)
			}
		}
	}
	if len(rows) < 6 {
		t.Errorf("rows: %v", rows)
	}
}
