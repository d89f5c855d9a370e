package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/rpc"
)

// margin is what timers may be late on a busy machine, where a case names no other
// tolerance.
const margin = 500 * time.Millisecond

// agentName makes this binary an agent; TestMain knows it.
const agentName = "run-as-lab-agent"

// children are what a process of this test binary can be instead of the tests.
var children = map[string]func(config string) error{
	"run-as-authority": asChild(authorityChild),
	"run-as-worker":    asChild(workerChild),
	"run-as-writer":    asChild(writerChild),
}

func asChild[C any](run func(C) error) func(string) error {
	return func(config string) error {
		var c C
		if err := json.Unmarshal([]byte(config), &c); err != nil {
			return err
		}
		return run(c)
	}
}

// kid is a child process of a test, which ends with its input.
type kid struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	gone  chan struct{} // closed when it has been waited for
	err   error         // then: how it ended
	said  *safeBuffer   // its standard error
}

type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// spawn starts this binary as the named child. It is ended with the test.
func spawn(t testing.TB, name string, config any) *kid {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	k := &kid{cmd: exec.Command(os.Args[0], name, string(b)), lines: make(chan string, 64), gone: make(chan struct{}), said: &safeBuffer{}}
	k.cmd.Stderr = k.said
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		k.in, err = k.cmd.StdinPipe()
	}
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go k.read(out)
	t.Cleanup(func() {
		_ = k.cmd.Process.Signal(syscall.SIGCONT)
		_ = k.in.Close()
		stop := time.AfterFunc(patience, func() { _ = k.cmd.Process.Kill() })
		defer stop.Stop()
		for range k.lines { // so that it is not kept from ending
		}
		<-k.gone
		if err := syscall.Kill(k.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", k.cmd.Process.Pid, err)
		}
	})
	return k
}

func (k *kid) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		k.lines <- lines.Text()
	}
	k.err = k.cmd.Wait()
	close(k.lines)
	close(k.gone)
}

func (k *kid) kill(t testing.TB) {
	t.Helper()
	if err := k.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-k.gone
}

// killed reports whether SIGKILL ended it, once it is gone.
func (k *kid) killed() bool {
	var exit *exec.ExitError
	if !errors.As(k.err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// expect waits for a line that begins with prefix and returns what follows; false if
// the process ended first.
func (k *kid) expect(t testing.TB, prefix string) (string, bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case line, ok := <-k.lines:
			if !ok {
				return "", false
			}
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return rest, true
			}
		case <-late.C:
			t.Fatalf("no %q after %v; it said %s", prefix, patience, k.said)
		}
	}
}

// serve starts an authority on the SQLite file of a directory.
func serve(t testing.TB, c authorityConfig) (k *kid, addr string) {
	t.Helper()
	k = spawn(t, "run-as-authority", c)
	addr, ok := k.expect(t, "ready ")
	if !ok {
		<-k.gone
		t.Fatalf("the authority did not start: %v: %s", k.err, k.said)
	}
	return k, addr
}

// servedAt starts an authority in a new directory.
func servedAt(t testing.TB) (addr string) {
	t.Helper()
	_, addr = serve(t, authorityConfig{Dir: t.TempDir()})
	return addr
}

// steadyAddr is an address for an authority that is restarted: outside the range
// from which the kernel takes ports, so that no connection ends up at itself.
func steadyAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if c, err := net.Dial("tcp", addr); err == nil {
					_ = c.Close()
					t.Errorf("something still listens on %s", addr)
				}
			})
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// worker starts an agent, the process that experiments use, for one test.
func worker(t testing.TB, name string) *process {
	t.Helper()
	p, err := start(name, []string{os.Args[0], agentName})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := syscall.Kill(p.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s is still there: %v", name, err)
		}
	})
	return p
}

// tell gives an agent an order that must not fail.
func tell(t testing.TB, p *process, o order) answer {
	t.Helper()
	a, err := p.call(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// killNow ends an agent as a crash would.
func killNow(t testing.TB, p *process) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.died(); err != nil {
		t.Fatal(err)
	}
	for range p.answers {
	}
}

func dial(t testing.TB, addr string) *rpc.Client {
	t.Helper()
	c, err := rpc.Dial(addr, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func authorityPath(dir string) string { return filepath.Join(dir, "authority.db") }

// wanted is an acquire of resource by owner, whose request id is its own.
func wanted(resource, owner, id string, ttl, wait time.Duration) lastword.AcquireRequest {
	return lastword.AcquireRequest{Resource: lastword.Resource(resource), Owner: owner, RequestID: id, TTL: ttl, Wait: wait}
}

func mustAcquire(t testing.TB, a client.Authority, r lastword.AcquireRequest) lastword.Tenure {
	t.Helper()
	tenure, err := a.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return tenure
}

func wantCode(t testing.TB, what string, err error, want lastword.Code) {
	t.Helper()
	if got := history.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want %s", what, err, want)
	}
}

// book collects facts of many.
type book struct {
	mu    sync.Mutex
	facts []history.Fact
}

func (b *book) note(f history.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.facts = append(b.facts, f)
}

func (b *book) all() []history.Fact {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.facts
}

// drag measures how long the machine kept everybody waiting, for a turn or for the
// disk. It is what a timer may be late beyond the stated tolerance.
type drag struct{ total atomic.Int64 }

func measureDrag(t testing.TB) *drag {
	t.Helper()
	const pause, usual = 20 * time.Millisecond, 15 * time.Millisecond
	f, err := os.Create(filepath.Join(t.TempDir(), "drag"))
	if err != nil {
		t.Fatal(err)
	}
	d, stop, stopped := &drag{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			began := history.Clock()
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
			if _, err := f.WriteAt([]byte{0}, 0); err != nil {
				panic(err)
			}
			if err := f.Sync(); err != nil {
				panic(err)
			}
			if over := history.Clock() - began - pause - usual; over > 0 {
				d.total.Add(int64(over))
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		_ = f.Close()
	})
	return d
}

// within is a tolerance, and what the machine added since the mark.
func (d *drag) within(tolerance, mark time.Duration) time.Duration {
	return tolerance + d.mark() - mark
}

func (d *drag) mark() time.Duration { return time.Duration(d.total.Load()) }
