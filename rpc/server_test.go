package rpc_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// T22
func TestAnOversizedRequestIsRefusedAndTheServerServesOn(t *testing.T) {
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c := rawClient(t, addr)
	for _, n := range []int{rpc.MaxRequestBytes + 1, 8 << 20} {
		_, err := c.Complete(t.Context(), &wire.CompleteRequest{Result: make([]byte, n)})
		if st := status.Convert(err); st.Code() != codes.ResourceExhausted || !strings.Contains(st.Message(), "65536") {
			t.Errorf("%d bytes: %v, want RESOURCE_EXHAUSTED that names the limit", n, err)
		}
	}
	// Just inside: it is read, and refused for what is wrong with it.
	_, err := c.Complete(t.Context(), &wire.CompleteRequest{Result: make([]byte, rpc.MaxRequestBytes-100)})
	equal(t, "reason", refusal(t, err).GetReason(), "INVALID")
	if _, err := c.Acquire(t.Context(), &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	equal(t, "calls of the authority", f.calls.Load(), int64(1))
}

// T22
func TestARequestThatNeverArrivesIsEnded(t *testing.T) {
	addr, _ := serve(t, granting(), rpc.ServerConfig{RequestTimeout: 50 * time.Millisecond})
	conn := raw(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, wire.AuthorityService_Acquire_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(&wire.AcquireResponse{}) // nothing was sent
	if err == nil || ctx.Err() != nil {
		t.Errorf("the stream stood for 10 s, err = %v", err)
	}
}

func TestAWaitMayLastLongerThanARequestMayTakeToArrive(t *testing.T) {
	f := granting()
	f.acquire = func(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		select {
		case <-ctx.Done():
			return lastword.Tenure{}, ctx.Err()
		case <-time.After(200 * time.Millisecond):
			return grantOf(r), nil
		}
	}
	addr, _ := serve(t, f, rpc.ServerConfig{RequestTimeout: 20 * time.Millisecond})
	if _, err := dial(t, addr).Acquire(t.Context(), req); err != nil {
		t.Error(err)
	}
}

func TestHealthFollowsTheServer(t *testing.T) {
	addr, s := serve(t, granting(), rpc.ServerConfig{})
	hc := healthpb.NewHealthClient(raw(t, addr))
	for _, service := range []string{"", "lastword.v1.AuthorityService"} {
		check := func(want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			a, err := hc.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
			if err != nil || a.GetStatus() != want {
				t.Errorf("%q: %v, %v; want %v", service, a.GetStatus(), err, want)
			}
		}
		check(healthpb.HealthCheckResponse_SERVING)
		s.SetServing(false)
		check(healthpb.HealthCheckResponse_NOT_SERVING)
		s.SetServing(true)
	}
}

func TestAHealthWatchDoesNotHoldUpAShutdown(t *testing.T) {
	addr, s := serve(t, granting(), rpc.ServerConfig{})
	watch, err := healthpb.NewHealthClient(raw(t, addr)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := watch.Recv(); err != nil || a.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("watch: %v, %v", a, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
}

func TestReflectionListsTheServiceAndItsMethods(t *testing.T) {
	addr, _ := serve(t, granting(), rpc.ServerConfig{})
	stream, err := reflectionpb.NewServerReflectionClient(raw(t, addr)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range a.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{"lastword.v1.AuthorityService", "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("services = %v, want %s among them", names, want)
		}
	}
	_ = stream.CloseSend()
	_, _ = stream.Recv()
}

func TestAGracefulShutdownLetsCallsFinishAndEndsWaits(t *testing.T) {
	f, under := granting(), make(chan struct{}, 2)
	goOn := make(chan struct{})
	f.acquire = func(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		under <- struct{}{}
		<-ctx.Done() // the wait of an hour
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnavailable, Message: "stopping"}
	}
	f.renew = func(ctx context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
		under <- struct{}{}
		<-goOn
		return grantOf(req), ctx.Err()
	}
	addr, s := serve(t, f, rpc.ServerConfig{})
	c := dial(t, addr)
	waits, renews, stopped := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	long := req
	long.Wait = time.Hour
	go func() { _, err := c.Acquire(t.Context(), long); waits <- err }()
	go func() { _, err := c.Renew(t.Context(), ref); renews <- err }()
	<-under
	<-under
	go func() { stopped <- s.Shutdown(context.Background()) }()
	wantCode(t, <-waits, lastword.CodeUnavailable)
	close(goOn)
	equal(t, "the renewal under way", <-renews, nil)
	equal(t, "Shutdown", <-stopped, nil)
}

func TestAHardShutdownLeavesOutcomesOpenAndSaysSo(t *testing.T) {
	f, under, ended := granting(), make(chan struct{}), make(chan struct{})
	release := make(chan struct{})
	f.renew = func(ctx context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
		defer close(ended)
		close(under)
		<-release // it does not look at its context
		return grantOf(req), nil
	}
	addr, s := serve(t, f, rpc.ServerConfig{})
	c, answer := dial(t, addr), make(chan error, 1)
	go func() { _, err := c.Renew(t.Context(), ref); answer <- err }()
	soon(t, "the renewal", under)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Shutdown(ctx)
	wantCode(t, err, lastword.CodeUnknown)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v, want the context as its cause", err)
	}
	wantCode(t, <-answer, lastword.CodeUnknown)
	close(release)
	soon(t, "the end of the authority's call", ended)
}

func TestAServerWithoutIdentitiesServesLoopbackOnly(t *testing.T) {
	lis, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	err = rpc.NewServer(granting(), rpc.ServerConfig{}).Serve(lis)
	if e := wantCode(t, err, lastword.CodeInvalid); !strings.Contains(e.Message, "identities") || e.Hint == "" {
		t.Errorf("err = %v, want the reason and the way out", err)
	}
	if _, err := lis.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
}

func TestAConfigurationThatIsNotValidIsRefused(t *testing.T) {
	for _, cfg := range []rpc.ServerConfig{{MaxWait: -1}, {HandshakeTimeout: -1}, {RequestTimeout: -1}, {MaxIdle: -1}, {PingEvery: -1}, {PingEvery: 1}} {
		s := rpc.NewServer(granting(), cfg)
		wantCode(t, s.Serve(listen(t)), lastword.CodeInvalid)
		s.SetServing(true)
		equal(t, "Shutdown", s.Shutdown(t.Context()), nil)
	}
	if _, err := rpc.Dial("127.0.0.1:1", rpc.ClientConfig{Timeout: -1}); err == nil {
		t.Error("a negative Timeout is accepted")
	}
	for _, addr := range []string{"", "127.0.0.1", ":7420", "http://127.0.0.1:7420", "127.0.0.1:99999", "[::1]", "a/b:1"} {
		_, err := rpc.Dial(addr, rpc.ClientConfig{})
		wantCode(t, err, lastword.CodeInvalid)
	}
}

func TestLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"localhost:7420", "127.0.0.1:7420", "127.8.9.10:0", "[::1]:7420", "[::ffff:127.0.0.1]:1"} {
		if err := rpc.LoopbackOnly(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{
		"0.0.0.0:7420", "[::]:7420", ":7420", "192.0.2.1:7420", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1",
		"no-such-host.invalid:7420", "127.0.0.1", "", "127.0.0.1:", "127.0.0.1:port", "127.1:7420",
	} {
		err := rpc.LoopbackOnly(addr)
		e := wantCode(t, err, lastword.CodeInvalid)
		if e.Hint == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with a way out", addr, err)
		}
	}
}

func TestAServerThatWasShutDownBeforeItServedEndsWell(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := rpc.NewServer(nil, rpc.ServerConfig{})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := s.Serve(lis); err != nil {
		t.Errorf("serve: %v, want nil", err)
	}
	if _, err := lis.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}
