package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// authorityAt is an authority in this process, by its address.
func authorityAt(t *testing.T) string {
	t.Helper()
	s, err := server.Open(t.Context(), server.Config{
		Store: "sqlite:" + filepath.Join(t.TempDir(), "s.db"), Domain: "demo", GRPC: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s.Addr().String()
}

// outcome is what a command left: exit code and output.
type outcome struct {
	code           int
	stdout, stderr string
}

// lastwordCommand runs one command line in this process.
func lastwordCommand(ctx context.Context, addr string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := run(ctx, nil, args, []string{"LASTWORD_AUTHORITY=" + addr}, strings.NewReader(""), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func (o outcome) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.stdout+o.stderr, text) {
			t.Errorf("%q is neither in stdout nor in stderr", text)
		}
	}
	if o.code != code {
		t.Errorf("exit code %d, want %d", o.code, code)
	}
	if t.Failed() {
		t.Fatalf("stdout: %s\nstderr: %s", o.stdout, o.stderr)
	}
}

// eventually waits until the status of a resource is as it should be.
func eventually(t *testing.T, addr, resource string, is func(lastword.Status) bool) lastword.Status {
	t.Helper()
	c, err := rpc.Dial(addr, rpc.ClientConfig{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		st, err := c.Status(t.Context(), lastword.StatusQuery{Resource: lastword.Resource(resource)})
		if err != nil {
			t.Fatal(err)
		}
		if is(st) {
			return st
		}
		if time.Now().After(deadline) {
			t.Fatalf("the status stays %+v", st)
		}
	}
}

// lateProxy passes everything on to an authority, and holds its answers back until
// they are let go: the settings of a connection go through, the first HEADERS frame
// of the server and everything behind it does not.
type lateProxy struct {
	lis  net.Listener
	late chan struct{} // closed: let go
	once sync.Once
	wg   sync.WaitGroup
}

func newLateProxy(t *testing.T, target string) *lateProxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lateProxy{lis: lis, late: make(chan struct{})}
	p.wg.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(conn, target) })
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		p.letGo()
		p.wg.Wait()
	})
	return p
}

func (p *lateProxy) addr() string { return p.lis.Addr().String() }
func (p *lateProxy) letGo()       { p.once.Do(func() { close(p.late) }) }

func (p *lateProxy) serve(client net.Conn, target string) {
	defer func() { _ = client.Close() }()
	behind, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = behind.Close() }()
	p.wg.Go(func() {
		defer func() { _ = behind.Close() }()
		_, _ = io.Copy(behind, client)
	})
	var frame [9]byte
	for {
		if _, err := io.ReadFull(behind, frame[:]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(frame[:4])>>8)
		if _, err := io.ReadFull(behind, payload); err != nil {
			return
		}
		const headers = 1
		if frame[3] == headers {
			<-p.late
		}
		if _, err := client.Write(append(frame[:], payload...)); err != nil {
			return
		}
	}
}

// noAnswer runs an acquire whose answer comes too late.
func noAnswer(t *testing.T, p *lateProxy, file string, more ...string) {
	t.Helper()
	args := append([]string{"acquire", "jobs/nightly", "--request-id", "R1", "--owner", "A", "--grant", file, "--timeout", "2s"}, more...)
	got := lastwordCommand(t.Context(), p.addr(), args...)
	got.want(t, 123, "acquire jobs/nightly: UNKNOWN", "--request-id R1 --owner A", "lastword cancel jobs/nightly --request-id R1 --owner A")
	missing(t, file)
}

func missing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".lastword-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// KF-02 (a): the repetition gets the same grant, and no number is used up.
func TestAnAcquireWithoutAnswerIsFoundOutByRepeatingIt(t *testing.T) {
	t.Parallel()
	addr, file := authorityAt(t), filepath.Join(t.TempDir(), "a.grant")
	p := newLateProxy(t, addr)
	noAnswer(t, p, file)
	first := eventually(t, addr, "jobs/nightly", func(st lastword.Status) bool { return st.State == lastword.StateHeld })
	got := lastwordCommand(t.Context(), addr, "acquire", "jobs/nightly", "--request-id", "R1", "--owner", "A", "--grant", file)
	got.want(t, 0, "fence       1 (0.1)", first.Holder.LeaseID, "had been granted before")
	lastwordCommand(t.Context(), addr, "status", "jobs/nightly", "--grant", file).want(t, 0, "next fence    2 (0.2)")
}

// KF-02 (b): A cancels and B has it at once, with the next fence. (d): the answer that
// comes at last finds nobody.
func TestAnAcquireWithoutAnswerIsTakenBackByACancel(t *testing.T) {
	t.Parallel()
	addr, file := authorityAt(t), filepath.Join(t.TempDir(), "a.grant")
	p := newLateProxy(t, addr)
	noAnswer(t, p, file)
	lastwordCommand(t.Context(), addr, "cancel", "jobs/nightly", "--request-id", "R1", "--owner", "A").want(t, 0, "cancelled")
	lastwordCommand(t.Context(), addr, "acquire", "jobs/nightly", "--owner", "B").want(t, 0, "fence       2 (0.2)")
	p.letGo()
	missing(t, file)
	lastwordCommand(t.Context(), addr, "acquire", "jobs/nightly", "--request-id", "R1", "--owner", "A", "--grant", file).want(t, 122, "TENURE_ENDED")
	missing(t, file)
}

// KF-02 (c): A is gone without a word, and B gets it when the TTL is over.
func TestAnAcquireWithoutAnswerLapsesByItself(t *testing.T) {
	t.Parallel()
	addr, file := authorityAt(t), filepath.Join(t.TempDir(), "a.grant")
	noAnswer(t, newLateProxy(t, addr), file, "--ttl", "3s")
	began := time.Now()
	got := lastwordCommand(t.Context(), addr, "acquire", "jobs/nightly", "--owner", "B", "--wait", "1m")
	got.want(t, 0, "fence       2 (0.2)", "before it   EXPIRED, fence 1 (0.1) of A")
	if waited := time.Since(began); waited > 3*time.Second+10*time.Second { // the bound of a busy machine
		t.Errorf("B waited %v", waited)
	}
}

func TestAnInterruptedWaitIsTakenBack(t *testing.T) {
	t.Parallel()
	addr, file := authorityAt(t), filepath.Join(t.TempDir(), "b.grant")
	lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--owner", "A", "--request-id", "R").want(t, 0)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan outcome, 1)
	go func() { ended <- lastwordCommand(ctx, addr, "acquire", "doc/a", "--wait", "10m", "--grant", file) }()
	eventually(t, addr, "doc/a", func(st lastword.Status) bool { return st.Waiters == 1 })
	interrupt()
	(<-ended).want(t, 1, "CANCELED: interrupted; the attempt is cancelled and nothing is held")
	missing(t, file)
	eventually(t, addr, "doc/a", func(st lastword.Status) bool { return st.Waiters == 0 })
	lastwordCommand(t.Context(), addr, "cancel", "doc/a", "--owner", "A", "--request-id", "R").want(t, 0)
	lastwordCommand(t.Context(), addr, "status", "doc/a").want(t, 0, "next fence  2 (0.2)")
}

func TestAnInterruptThatCannotBeConfirmedSaysSo(t *testing.T) {
	t.Parallel()
	addr, file := authorityAt(t), filepath.Join(t.TempDir(), "a.grant")
	p := newLateProxy(t, addr)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan outcome, 1)
	go func() {
		ended <- lastwordCommand(ctx, p.addr(), "acquire", "doc/a", "--request-id", "R", "--owner", "two words", "--wait", "10m", "--grant", file, "--timeout", "1s")
	}()
	eventually(t, addr, "doc/a", func(st lastword.Status) bool { return st.State == lastword.StateHeld })
	interrupt()
	(<-ended).want(t, 123, "UNKNOWN: interrupted, and the attempt could not be cancelled", "--owner 'two words'")
	missing(t, file)
}

// A lease that nobody can use only stands in the way.
func TestALeaseWhoseGrantFileCannotBeMadeIsGivenBack(t *testing.T) {
	t.Parallel()
	addr, file := authorityAt(t), filepath.Join(t.TempDir(), "b.grant")
	lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--owner", "A", "--request-id", "R").want(t, 0)
	ended := make(chan outcome, 1)
	go func() {
		ended <- lastwordCommand(t.Context(), addr, "acquire", "doc/a", "--wait", "10m", "--grant", file)
	}()
	eventually(t, addr, "doc/a", func(st lastword.Status) bool { return st.Waiters == 1 })
	if err := os.WriteFile(file, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	lastwordCommand(t.Context(), addr, "cancel", "doc/a", "--owner", "A", "--request-id", "R").want(t, 0)
	(<-ended).want(t, 1, "acquire doc/a: grant file "+file+": file exists; the lease was given back")
	if b, err := os.ReadFile(file); err != nil || string(b) != "another's" {
		t.Errorf("content %q, %v", b, err)
	}
	lastwordCommand(t.Context(), addr, "status", "doc/a").want(t, 0, "state       RELEASED", "next fence  3 (0.3)")
}

// KF-38: several at once, on a file that is not there yet.
func TestManyFenceInitsAtOnceAllSucceedAndOneMakesTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	const n = 8
	results := make(chan outcome, n)
	for range n {
		go func() { results <- lastwordCommand(t.Context(), "", "fence", "init", "sqlite:"+path) }()
	}
	created := 0
	for range n {
		got := <-results
		got.want(t, 0, "initialized")
		if strings.Contains(got.stdout, "the file was made") {
			created++
		}
	}
	if created != 1 {
		t.Errorf("%d of them made the file", created)
	}
	lastwordCommand(t.Context(), "", "fence", "status", "sqlite:"+path, "doc/a").want(t, 0, "no record")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "app.db") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}
