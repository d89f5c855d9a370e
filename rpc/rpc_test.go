package rpc_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

var (
	_ rpc.Authority = (*rpc.Client)(nil)
	_ rpc.Authority = (*fake)(nil)
)

// TestMain fails the run when a goroutine of a server or client is left over.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := goroutinesLeft(5 * time.Second); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

func goroutinesLeft(patience time.Duration) string {
	end := time.Now().Add(patience)
	for {
		buf := make([]byte, 1<<20)
		var left []string
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			ours := strings.Contains(g, "google.golang.org/grpc") || strings.Contains(g, "lastword/rpc")
			if ours && !strings.Contains(g, "TestMain") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
		if time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fake is an authority of functions. A call without one fails the test.
type fake struct {
	acquire  func(context.Context, lastword.AcquireRequest) (lastword.Tenure, error)
	renew    func(context.Context, lastword.TenureRef) (lastword.Tenure, error)
	release  func(context.Context, lastword.TenureRef) error
	complete func(context.Context, lastword.TenureRef, []byte) error
	cancel   func(context.Context, lastword.Resource, string, string) error
	status   func(context.Context, lastword.StatusQuery) (lastword.Status, error)
	list     func(context.Context, lastword.ListQuery) (lastword.Page, error)
	revoke   func(context.Context, lastword.Resource, lastword.Token, string, string) error
	watch    func(context.Context, string) iter.Seq2[lastword.Sight, error]
	bundle   func(context.Context) ([]byte, error)
	proof    func(context.Context, lastword.StatusQuery, time.Duration) (lastword.Status, string, error)
	renewed  func(context.Context, lastword.TenureRef, time.Duration) (lastword.Tenure, error)
	report   func(context.Context, lastword.Report) (lastword.ReportAnswer, error)
	resume   func(context.Context, lastword.Resource, lastword.Token, string, string) (lastword.Token, error)
	calls    atomic.Int64
}

func (f *fake) Acquire(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	f.calls.Add(1)
	return f.acquire(ctx, r)
}

func (f *fake) Renew(ctx context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
	f.calls.Add(1)
	return f.renew(ctx, r)
}

func (f *fake) Release(ctx context.Context, r lastword.TenureRef) error {
	f.calls.Add(1)
	return f.release(ctx, r)
}

func (f *fake) Complete(ctx context.Context, r lastword.TenureRef, result []byte) error {
	f.calls.Add(1)
	return f.complete(ctx, r, result)
}

func (f *fake) Cancel(ctx context.Context, r lastword.Resource, owner, id string) error {
	f.calls.Add(1)
	return f.cancel(ctx, r, owner, id)
}

func (f *fake) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	f.calls.Add(1)
	return f.status(ctx, q)
}

func (f *fake) Bundle(ctx context.Context) ([]byte, error) {
	f.calls.Add(1)
	return f.bundle(ctx)
}

func (f *fake) List(ctx context.Context, q lastword.ListQuery) (lastword.Page, error) {
	f.calls.Add(1)
	return f.list(ctx, q)
}

func (f *fake) Revoke(ctx context.Context, r lastword.Resource, fence lastword.Token, operator, reason string) error {
	f.calls.Add(1)
	return f.revoke(ctx, r, fence, operator, reason)
}

func (f *fake) Proof(ctx context.Context, q lastword.StatusQuery, life time.Duration) (lastword.Status, string, error) {
	f.calls.Add(1)
	return f.proof(ctx, q, life)
}

func (f *fake) RenewProof(ctx context.Context, r lastword.TenureRef, life time.Duration) (lastword.Tenure, error) {
	f.calls.Add(1)
	return f.renewed(ctx, r, life)
}

func (f *fake) Report(ctx context.Context, r lastword.Report) (lastword.ReportAnswer, error) {
	f.calls.Add(1)
	return f.report(ctx, r)
}

func (f *fake) Resume(ctx context.Context, r lastword.Resource, reported lastword.Token, operator, reason string) (lastword.Token, error) {
	f.calls.Add(1)
	return f.resume(ctx, r, reported, operator, reason)
}

func (f *fake) Watch(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error] {
	f.calls.Add(1)
	return f.watch(ctx, prefix)
}

// failing is a fake of which every call fails with err.
func failing(err error) *fake {
	return &fake{
		acquire:  func(context.Context, lastword.AcquireRequest) (lastword.Tenure, error) { return lastword.Tenure{}, err },
		renew:    func(context.Context, lastword.TenureRef) (lastword.Tenure, error) { return lastword.Tenure{}, err },
		release:  func(context.Context, lastword.TenureRef) error { return err },
		complete: func(context.Context, lastword.TenureRef, []byte) error { return err },
		cancel:   func(context.Context, lastword.Resource, string, string) error { return err },
		status:   func(context.Context, lastword.StatusQuery) (lastword.Status, error) { return lastword.Status{}, err },
		list:     func(context.Context, lastword.ListQuery) (lastword.Page, error) { return lastword.Page{}, err },
		revoke:   func(context.Context, lastword.Resource, lastword.Token, string, string) error { return err },
		watch:    func(context.Context, string) iter.Seq2[lastword.Sight, error] { return ending(err) },
		bundle:   func(context.Context) ([]byte, error) { return nil, err },
		proof: func(context.Context, lastword.StatusQuery, time.Duration) (lastword.Status, string, error) {
			return lastword.Status{}, "", err
		},
		renewed: func(context.Context, lastword.TenureRef, time.Duration) (lastword.Tenure, error) {
			return lastword.Tenure{}, err
		},
		report: func(context.Context, lastword.Report) (lastword.ReportAnswer, error) {
			return lastword.ReportAnswer{}, err
		},
		resume: func(context.Context, lastword.Resource, lastword.Token, string, string) (lastword.Token, error) {
			return 0, err
		},
	}
}

// granting is a fake that grants fence 41 to everybody.
func granting() *fake {
	f := failing(lastword.ErrInternal)
	f.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) { return grantOf(r), nil }
	f.status = func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		return lastword.Status{Resource: q.Resource, State: lastword.StateFree, NextFence: 41}, nil
	}
	return f
}

func grantOf(r lastword.AcquireRequest) lastword.Tenure {
	return lastword.Tenure{
		TenureRef: lastword.TenureRef{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID, LeaseID: "lease-1", Fence: 41},
		State:     lastword.StateHeld, Grant: "e30.e30.AA", GrantDigest: lastword.DigestOf([]byte("e30.e30")),
		Class: lastword.ClassWrite, TTL: r.TTL, Remaining: r.TTL,
	}
}

var (
	ref = lastword.TenureRef{Resource: "doc/a", Owner: "worker-a", RequestID: "req-1", LeaseID: "lease-1", Fence: 41}
	req = lastword.AcquireRequest{Resource: "doc/a", RequestID: "req-1", Owner: "worker-a", TTL: 30 * time.Second}
)

// everyCall calls each method of a once and gives the errors by operation.
func everyCall(ctx context.Context, a rpc.Authority) map[string]error {
	errs := make(map[string]error)
	_, errs["acquire"] = a.Acquire(ctx, req)
	_, errs["renew"] = a.Renew(ctx, ref)
	errs["release"] = a.Release(ctx, ref)
	errs["complete"] = a.Complete(ctx, ref, []byte("done"))
	errs["cancel"] = a.Cancel(ctx, ref.Resource, ref.Owner, ref.RequestID)
	_, errs["status"] = a.Status(ctx, lastword.StatusQuery{Resource: ref.Resource})
	_, errs["list"] = a.List(ctx, lastword.ListQuery{Prefix: "doc/"})
	_, errs["report"] = a.Report(ctx, lastword.Report{Resource: ref.Resource, Grant: "e30.e30.AA", Reporter: "fence"})
	_, errs["resume"] = a.Resume(ctx, ref.Resource, ref.Fence, "operator", "a reason")
	errs["revoke"] = a.Revoke(ctx, ref.Resource, ref.Fence, "operator", "a reason")
	for _, err := range a.Watch(ctx, "doc/") {
		errs["watch"] = err
	}
	_, errs["bundle"] = a.Bundle(ctx)
	return errs
}

func mutates(op string) bool {
	return op != "status" && op != "list" && op != "watch" && op != "bundle"
}

// ending is a watch that ends at once.
func ending(err error) iter.Seq2[lastword.Sight, error] {
	return func(yield func(lastword.Sight, error) bool) { yield(lastword.Sight{}, err) }
}

// serve starts a server of a on a free loopback port until the end of the test.
func serve(t testing.TB, a rpc.Authority, cfg rpc.ServerConfig) (addr string, s *rpc.Server) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	lis := listen(t)
	s = rpc.NewServer(a, cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return lis.Addr().String(), s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	return lis
}

func dial(t *testing.T, addr string) *rpc.Client {
	t.Helper()
	return dialWith(t, addr, rpc.ClientConfig{})
}

func dialWith(t testing.TB, addr string, cfg rpc.ClientConfig) *rpc.Client {
	t.Helper()
	c, err := rpc.Dial(addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// raw is a bare gRPC connection, as another language has it.
func raw(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func rawClient(t *testing.T, addr string) wire.AuthorityServiceClient {
	return wire.NewAuthorityServiceClient(raw(t, addr))
}

// soon bounds a wait for something that must happen.
func soon(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
}
