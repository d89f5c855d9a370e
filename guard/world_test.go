//go:build linux

package guard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/memfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/store/memstore"
)

const (
	testResource = "nightly/report"

	// patience bounds what a test waits for. It only ends one that hangs.
	patience = 30 * time.Second
)

// world is an authority behind a real listener, and a desk at which the processes
// of a test write to a fenced resource.
type world struct {
	t         *testing.T
	authority *spy
	addr      string
	desk      *desk
	temp      string // where the wrappers put their private directories
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("many processes in real time; runs without the race detector")
	}
	t.Parallel()
	key, err := grant.NewKey()
	check(t, err)
	signer, err := grant.NewSigner("demo", key)
	check(t, err)
	a, err := authority.Open(context.Background(), memstore.New().Open(), signer, authority.Config{Domain: "demo", Tick: 20 * time.Millisecond})
	check(t, err)
	w := &world{t: t, authority: &spy{Authority: a}, temp: t.TempDir()}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	server := rpc.NewServer(w.authority, rpc.ServerConfig{Logger: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	w.addr = lis.Addr().String()
	w.desk = newDesk(t, a)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-served
		_ = a.Close()
	})
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that has no event of its own.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for this: %s", patience, what)
		}
	}
}

// spy is the authority, watched and disturbed.
type spy struct {
	*authority.Authority
	mu        sync.Mutex
	renewals  int
	releases  int
	released  time.Time
	onRelease func()
	mute      bool // renewals and questions about a tenure get no answer
}

func (s *spy) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	s.mu.Lock()
	s.renewals++
	mute := s.mute
	s.mu.Unlock()
	if mute {
		<-ctx.Done()
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnknown, Err: ctx.Err()}
	}
	return s.Authority.Renew(ctx, ref)
}

func (s *spy) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	s.mu.Lock()
	mute := s.mute && q.LeaseID != ""
	s.mu.Unlock()
	if mute {
		<-ctx.Done()
		return lastword.Status{}, &lastword.Error{Code: lastword.CodeUnavailable, Err: ctx.Err()}
	}
	return s.Authority.Status(ctx, q)
}

func (s *spy) Release(ctx context.Context, ref lastword.TenureRef) error {
	s.mu.Lock()
	s.releases++
	s.released = time.Now()
	if s.onRelease != nil {
		s.onRelease()
	}
	s.mu.Unlock()
	return s.Authority.Release(ctx, ref)
}

func (s *spy) count() (renewals, releases int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewals, s.releases
}

func (s *spy) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = true
}

// atRelease asks about the processes when a release arrives: none may be left.
func (s *spy) atRelease(t *testing.T, pids func() []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRelease = func() {
		for _, pid := range pids() {
			if alive(pid) {
				t.Errorf("the lease was released while process %d was alive", pid)
			}
		}
	}
}

func (w *world) status() lastword.Status {
	w.t.Helper()
	st, err := w.authority.Status(context.Background(), lastword.StatusQuery{Resource: testResource})
	check(w.t, err)
	return st
}

// waiters waits until so many callers are queued.
func (w *world) waiters(n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d callers wait", n), func() bool { return w.status().Waiters == n })
}

// rival acquires as B, which waits.
func (w *world) rival() lastword.Tenure {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	t, err := w.authority.Acquire(ctx, lastword.AcquireRequest{
		Resource: testResource, Owner: "B", RequestID: "b", TTL: time.Minute, Wait: patience, Class: lastword.ClassWrite,
	})
	check(w.t, err)
	return t
}

// holder is a client of the embedded authority, for runs inside this process.
func (w *world) holder() *client.Client {
	w.t.Helper()
	c, err := client.New(w.authority, client.Config{Owner: "here", CleanupTimeout: time.Second})
	check(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// wrapperProcess is a wrapper under way.
type wrapperProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{}
	ended  time.Time
}

type streams struct {
	in       io.Reader
	out, err *os.File
	via      []string // a command that starts the wrapper
	change   func(*exec.Cmd)
}

// wrap starts a wrapper. Its command finds the roles of this program as $SELF.
func (w *world) wrap(o wrapping, s streams) *wrapperProcess {
	w.t.Helper()
	if o.Authority == "" {
		o.Authority = w.addr
	}
	o.Owner, o.TempDir = "A", w.temp
	told, err := json.Marshal(o)
	check(w.t, err)
	self, err := os.Executable()
	check(w.t, err)
	argv := append(s.via[:len(s.via):len(s.via)], self)
	p := &wrapperProcess{t: w.t, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVariable+"=wrapper", wrappingVariable+"="+string(told), deskVariable+"="+w.desk.path, "SELF="+self)
	p.cmd.Stdin, p.cmd.Stderr = s.in, &p.stderr
	if s.out != nil {
		p.cmd.Stdout = s.out
	}
	if s.err != nil {
		p.cmd.Stderr = s.err
	}
	if s.change != nil {
		s.change(p.cmd)
	}
	p.cmd.WaitDelay = 100 * time.Millisecond // stderr may be in the hands of a grandchild
	check(w.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		p.ended = time.Now()
		close(p.done)
	}()
	w.t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
	return p
}

func (p *wrapperProcess) signal(sig syscall.Signal) {
	p.t.Helper()
	check(p.t, p.cmd.Process.Signal(sig))
}

// code waits for the end.
func (p *wrapperProcess) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("the wrapper does not end: %s", p.stderr.String())
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return -int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *wrapperProcess) wantCode(want int) {
	p.t.Helper()
	if got := p.code(); got != want {
		p.t.Errorf("exit code %d, want %d: %s", got, want, p.stderr.String())
	}
}

// stop stops the wrapper and waits until it is.
func (p *wrapperProcess) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, "the wrapper is stopped", func() bool { return state(p.cmd.Process.Pid) == "T" })
}

// state is that of a process in /proc, "" if there is none.
func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[0]
}

func alive(pid int) bool {
	s := state(pid)
	return s != "" && s != "Z" && s != "X"
}

// wantNothingLeft looks for processes and files.
func (w *world) wantNothingLeft(pids ...int) {
	w.t.Helper()
	for _, pid := range pids {
		if alive(pid) {
			w.t.Errorf("process %d is left, state %s", pid, state(pid))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	left, err := os.ReadDir(w.temp)
	check(w.t, err)
	if len(left) > 0 {
		w.t.Errorf("left behind: %s", left[0].Name())
	}
}

// pidFile waits for the process ids that a shell has written, one a line, the last
// of them followed by "end".
func pidFile(t *testing.T, path string) []int {
	t.Helper()
	var lines []string
	eventually(t, "the shell has written its process ids", func() bool {
		b, _ := os.ReadFile(path)
		lines = strings.Fields(string(b))
		return len(lines) > 0 && lines[len(lines)-1] == "end"
	})
	var pids []int
	for _, line := range lines[:len(lines)-1] {
		pid, err := strconv.Atoi(line)
		check(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// desk serves the fenced resource of a test, and hears what its processes tell.
type desk struct {
	path  string
	gate  *fence.Gate
	place *memfence.Place

	mu    sync.Mutex
	notes []noted
}

type noted struct {
	note
	at      time.Time
	verdict lastword.Code // of a write
	fence   lastword.Token
}

func newDesk(t *testing.T, a *authority.Authority) *desk {
	t.Helper()
	verifier, err := grant.NewVerifier("demo", grant.FetchBundle(a.Bundle), grant.VerifierConfig{})
	check(t, err)
	gate, err := fence.NewGate(fence.Config{Domain: "demo", Verifier: verifier, Mode: fence.FenceOnly})
	check(t, err)
	dir, err := os.MkdirTemp("", "desk") //nolint:usetesting // that path may be too long for a socket
	check(t, err)
	d := &desk{path: filepath.Join(dir, "s"), gate: gate, place: memfence.New("desk")}
	lis, err := net.Listen("unix", d.path)
	check(t, err)
	var serving sync.WaitGroup
	var conns sync.Map
	serving.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			conns.Store(conn, true)
			serving.Go(func() { d.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		conns.Range(func(conn, _ any) bool {
			_ = conn.(net.Conn).Close() // ends the processes that are left
			return true
		})
		serving.Wait()
		_ = os.RemoveAll(dir)
	})
	return d
}

func (d *desk) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var n noted
		if err := json.Unmarshal(in.Bytes(), &n.note); err != nil {
			return
		}
		n.at = time.Now()
		if n.Op != "" {
			n.verdict, n.fence = d.write(n.Grant, n.Op)
		}
		d.mu.Lock()
		d.notes = append(d.notes, n)
		d.mu.Unlock()
		if _, err := io.WriteString(conn, string(n.verdict)+"\n"); err != nil {
			return
		}
	}
}

// write is one fenced write. It asks nobody about the lease: only the fence decides.
func (d *desk) write(signed, op string) (lastword.Code, lastword.Token) {
	receipt, err := fence.Apply(context.Background(), d.gate, d.place, fence.Call{
		Content: []byte(op), Mutation: lastword.Mutation{Grant: signed, Operation: op},
	}, func(_ context.Context, tx *memfence.Tx) ([]byte, error) {
		tx.Set("last", op)
		return nil, nil
	})
	if err == nil {
		return lastword.Code(receipt.Verdict), receipt.Fence
	}
	if e, ok := err.(*lastword.Error); ok { //nolint:errorlint // a refusal of the gate itself
		return e.Code, 0
	}
	return lastword.Code(err.Error()), 0
}

func (d *desk) all() []noted {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]noted(nil), d.notes...)
}

// wait waits for a note and returns the first.
func (d *desk) wait(t *testing.T, what string, is func(noted) bool) noted {
	t.Helper()
	var found noted
	eventually(t, what, func() bool {
		for _, n := range d.all() {
			if is(n) {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

func applied(n noted) bool { return n.verdict == lastword.Code(lastword.Applied) }

// deaf loses every release.
type deaf struct{ *spy }

func (d deaf) Release(ctx context.Context, _ lastword.TenureRef) error {
	<-ctx.Done()
	return &lastword.Error{Code: lastword.CodeUnknown, Op: "release", Err: ctx.Err()}
}

func (w *world) deafToReleases() *client.Client {
	w.t.Helper()
	c, err := client.New(deaf{w.authority}, client.Config{Owner: "here", CleanupTimeout: 200 * time.Millisecond})
	check(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}
