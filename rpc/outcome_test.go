package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
)

type trailerOf = metadata.MD

// safeLog is a log that several goroutines write.
type safeLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *safeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}
func (l *safeLog) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.String() }

func newLog() (*safeLog, *slog.Logger) {
	l := &safeLog{}
	return l, slog.New(slog.NewTextHandler(l, nil))
}

// serveStatus is a server, or a proxy, that answers everything with err.
func serveStatus(t *testing.T, err error) string {
	t.Helper()
	lis := listen(t)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return err }))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return lis.Addr().String()
}

// cutter is a TCP proxy whose connections can be cut.
type cutter struct {
	lis   net.Listener
	mu    sync.Mutex
	conns []net.Conn
	mute  atomic.Bool // what it reads goes nowhere
}

func newCutter(t *testing.T, backend string) *cutter {
	t.Helper()
	c := &cutter{lis: listen(t)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := c.lis.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", backend)
			if err != nil {
				_ = in.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, in, out)
			c.mu.Unlock()
			for _, p := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(mutable{p[0], &c.mute}, p[1])
					_ = p[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = c.lis.Close(); c.cut(); wg.Wait() })
	return c
}

type mutable struct {
	io.Writer
	mute *atomic.Bool
}

func (m mutable) Write(b []byte) (int, error) {
	if m.mute.Load() {
		return len(b), nil
	}
	return m.Writer.Write(b)
}

func (c *cutter) addr() string { return c.lis.Addr().String() }

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// R2, P5: the reply is lost after the authority has granted.
func TestALostReplyIsAnUnknownOutcomeAndTheSameRequestIDFindsIt(t *testing.T) {
	granted := make(map[string]lastword.Tenure)
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	proxy := newCutter(t, addr)
	f.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		if got, ok := granted[r.RequestID]; ok {
			got.Repeated = true
			return got, nil
		}
		granted[r.RequestID] = grantOf(r)
		proxy.cut() // done, and the reply cannot get through any more
		return granted[r.RequestID], nil
	}
	c := dial(t, proxy.addr())
	_, err := c.Acquire(t.Context(), req)
	wantCode(t, err, lastword.CodeUnknown)
	if !errors.Is(err, lastword.ErrUnknownOutcome) || errors.Is(err, lastword.ErrUnavailable) {
		t.Fatalf("err = %v, want an unknown outcome", err)
	}
	got, err := c.Acquire(t.Context(), req)
	if err != nil || !got.Repeated || got.Fence != 41 || len(granted) != 1 {
		t.Fatalf("repeated: %+v, %v; want the tenure of fence 41", got, err)
	}
}

func TestEveryMutationWhoseReplyIsLostIsUnknownAndNoQuestionIs(t *testing.T) {
	lost := &cutting{Authority: failing(lastword.ErrHeld)}
	addr, _ := serve(t, lost, rpc.ServerConfig{})
	lost.proxy = newCutter(t, addr)
	for op, err := range everyCall(t.Context(), dial(t, lost.proxy.addr())) {
		code := lastword.CodeUnavailable
		if mutates(op) {
			code = lastword.CodeUnknown
		}
		wantCode(t, err, code)
	}
}

// cutting cuts the connections of proxy during every call.
type cutting struct {
	rpc.Authority
	proxy *cutter
}

func (c *cutting) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	c.proxy.cut()
	return c.Authority.Acquire(ctx, r)
}

func (c *cutting) Renew(ctx context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
	c.proxy.cut()
	return c.Authority.Renew(ctx, r)
}

func (c *cutting) Release(ctx context.Context, r lastword.TenureRef) error {
	c.proxy.cut()
	return c.Authority.Release(ctx, r)
}

func (c *cutting) Complete(ctx context.Context, r lastword.TenureRef, b []byte) error {
	c.proxy.cut()
	return c.Authority.Complete(ctx, r, b)
}

func (c *cutting) Cancel(ctx context.Context, r lastword.Resource, owner, id string) error {
	c.proxy.cut()
	return c.Authority.Cancel(ctx, r, owner, id)
}

func (c *cutting) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	c.proxy.cut()
	return c.Authority.Status(ctx, q)
}

func (c *cutting) List(ctx context.Context, q lastword.ListQuery) (lastword.Page, error) {
	c.proxy.cut()
	return c.Authority.List(ctx, q)
}

func (c *cutting) Revoke(ctx context.Context, r lastword.Resource, fence lastword.Token, operator, reason string) error {
	c.proxy.cut()
	return c.Authority.Revoke(ctx, r, fence, operator, reason)
}

func (c *cutting) Proof(ctx context.Context, q lastword.StatusQuery, life time.Duration) (lastword.Status, string, error) {
	c.proxy.cut()
	return c.Authority.Proof(ctx, q, life)
}

func (c *cutting) RenewProof(ctx context.Context, ref lastword.TenureRef, life time.Duration) (lastword.Tenure, error) {
	c.proxy.cut()
	return c.Authority.RenewProof(ctx, ref, life)
}

func (c *cutting) Report(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error) {
	c.proxy.cut()
	return c.Authority.Report(ctx, r)
}

func (c *cutting) Resume(ctx context.Context, r lastword.Resource, reported lastword.Token, operator, reason string) (lastword.Token, error) {
	c.proxy.cut()
	return c.Authority.Resume(ctx, r, reported, operator, reason)
}

func (c *cutting) Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error] {
	c.proxy.cut()
	return c.Authority.Watch(ctx, prefix)
}

func (c *cutting) Bundle(ctx context.Context) ([]byte, error) {
	c.proxy.cut()
	return c.Authority.Bundle(ctx)
}

func TestAStatusWithoutARefusalIsUnknownWhateverItsCode(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		c := dial(t, serveStatus(t, status.Error(code, "said by a proxy")))
		for op, err := range everyCall(t.Context(), c) {
			want := lastword.CodeUnavailable
			if mutates(op) {
				want = lastword.CodeUnknown
			}
			wantCode(t, err, want)
		}
	}
}

func TestACallThatNeverLeftIsUnavailable(t *testing.T) {
	lis := listen(t)
	addr := lis.Addr().String()
	_ = lis.Close() // nobody listens there now
	c := dial(t, addr)
	for op, err := range everyCall(t.Context(), c) {
		e := wantCode(t, err, lastword.CodeUnavailable)
		if !strings.Contains(e.Message, "not sent") {
			t.Errorf("%s: %v, want that it was not sent", op, err)
		}
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()
	f := granting()
	addr, _ = serve(t, f, rpc.ServerConfig{})
	for op, err := range everyCall(over, dial(t, addr)) {
		wantCode(t, err, lastword.CodeUnavailable)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v does not tell that the context was cancelled", op, err)
		}
	}
	if f.calls.Load() != 0 {
		t.Error("a call with a context that was over reached the authority")
	}

	closed := dial(t, addr)
	_ = closed.Close()
	for _, err := range everyCall(t.Context(), closed) {
		wantCode(t, err, lastword.CodeUnavailable)
	}
}

func TestAServerThatIsGoneBeforeTheCallIsUnavailable(t *testing.T) {
	addr, s := serve(t, granting(), rpc.ServerConfig{})
	c := dial(t, addr)
	if _, err := c.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Until the client has noticed, a call may still leave.
	for {
		_, err := c.Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"})
		if e := wantCode(t, err, lastword.CodeUnavailable); strings.Contains(e.Message, "not sent") {
			break
		}
	}
	_, err := c.Acquire(t.Context(), req)
	wantCode(t, err, lastword.CodeUnavailable)
}

func TestACallThatWaitsForAFreeStreamWasNotSentAndRenewalsPassIt(t *testing.T) {
	f, waiting := granting(), make(chan struct{})
	f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		close(waiting)
		<-ctx.Done()
		return lastword.Tenure{}, lastword.ErrHeld
	}
	f.renew = func(_ context.Context, r lastword.TenureRef) (lastword.Tenure, error) { return grantOf(req), nil }
	addr, _ := serve(t, f, rpc.ServerConfig{MaxStreams: 1})
	c := dialWith(t, addr, rpc.ClientConfig{OneByOne: true})
	long := req
	long.Wait = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { _, err := c.Acquire(ctx, long); first <- err }()
	soon(t, "the first wait", waiting)

	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err := c.Acquire(short, long)
	wantCode(t, err, lastword.CodeUnavailable)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the deadline as its cause", err)
	}
	if _, err := c.Renew(t.Context(), ref); err != nil {
		t.Errorf("a renewal beside waiting acquires: %v", err)
	}
	cancel()
	wantCode(t, <-first, lastword.CodeUnknown)
}

func TestAWaitEndsWhenTheClientGoesAway(t *testing.T) {
	for _, how := range []string{"it gives up", "it closes", "its machine is gone"} {
		t.Run(how, func(t *testing.T) {
			f, waiting, ended := granting(), make(chan struct{}), make(chan struct{})
			f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
				close(waiting)
				<-ctx.Done()
				close(ended)
				return lastword.Tenure{}, context.Cause(ctx)
			}
			addr, _ := serve(t, f, rpc.ServerConfig{})
			proxy := newCutter(t, addr)
			c := dial(t, proxy.addr())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			long := req
			long.Wait = time.Minute
			answer := make(chan error, 1)
			go func() { _, err := c.Acquire(ctx, long); answer <- err }()
			soon(t, "the wait", waiting)
			switch how {
			case "it gives up":
				cancel()
			case "it closes":
				_ = c.Close()
			default:
				proxy.cut()
			}
			soon(t, "the end of the wait", ended)
			wantCode(t, <-answer, lastword.CodeUnknown)
		})
	}
}

func TestTheDeadlineOfTheCallerReachesTheAuthority(t *testing.T) {
	f, left := granting(), make(chan time.Duration, 1)
	f.acquire = func(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		end, ok := ctx.Deadline()
		if !ok {
			t.Error("the authority sees no deadline")
		}
		left <- time.Until(end)
		return grantOf(r), nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c, err := rpc.Dial(addr, rpc.ClientConfig{Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	check := func(ctx context.Context, wait, atMost time.Duration) {
		t.Helper()
		r := req
		r.Wait = wait
		if _, err := c.Acquire(ctx, r); err != nil {
			t.Fatal(err)
		}
		if got := <-left; got > atMost || got < atMost-15*time.Second {
			t.Errorf("the authority sees %s left, want about %s", got, atMost)
		}
	}
	check(t.Context(), 0, 20*time.Second)
	check(t.Context(), time.Minute, 80*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	check(ctx, time.Minute, 40*time.Second)
}

func TestAnAuthorityThatIsTooSlowLeavesTheOutcomeOpen(t *testing.T) {
	f := granting()
	f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		<-ctx.Done()
		return lastword.Tenure{}, ctx.Err()
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c, err := rpc.Dial(addr, rpc.ClientConfig{Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"}); err != nil {
		t.Fatal(err) // connected, so that the next call leaves at once
	}
	_, err = c.Acquire(t.Context(), req)
	wantCode(t, err, lastword.CodeUnknown)
}
