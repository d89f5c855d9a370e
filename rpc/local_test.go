package rpc_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

func TestALocalCallIsTheSameCallWithoutAConnection(t *testing.T) {
	t.Parallel()
	a := granting()
	s := rpc.NewServer(a, rpc.ServerConfig{})
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	c := wire.NewAuthorityServiceClient(s.Local())
	m := &wire.AcquireRequest{Resource: "doc/a", RequestId: "r1", Owner: "w1"}
	before := proto.Clone(m)
	got, err := c.Acquire(t.Context(), m)
	if err != nil || got.GetTenure().GetFence() != 41 || !proto.Equal(m, before) {
		t.Errorf("got %v, %v; the request is %v", got, err, m)
	}
	// The same door: nothing that is not valid reaches the authority.
	calls := a.calls.Load()
	_, err = c.Acquire(t.Context(), &wire.AcquireRequest{Resource: "/a", RequestId: "r1", Owner: "w1"})
	if status.Code(err) != codes.InvalidArgument || len(status.Convert(err).Details()) != 1 || a.calls.Load() != calls {
		t.Errorf("an id that is none: %v", err)
	}
	if err := s.Local().Invoke(t.Context(), "/lastword.v1.AuthorityService/Nothing", m, m); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is none: %v", err)
	}
	if _, err := s.Local().NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, wire.AuthorityService_Session_FullMethodName); status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream of requests: %v", err)
	}
	if err := rpc.NewServer(a, rpc.ServerConfig{MaxWait: -1}).Local().Invoke(t.Context(), wire.AuthorityService_Acquire_FullMethodName, m, m); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a configuration that is none: %v", err)
	}
}

func TestALocalCallEndsWithItsCallerAndAtShutdown(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	a := granting()
	a.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnavailable, Message: "gone"}
	}
	s := rpc.NewServer(a, rpc.ServerConfig{})
	c := wire.NewAuthorityServiceClient(s.Local())
	wait := &wire.AcquireRequest{Resource: "doc/a", RequestId: "r1", Owner: "w1", Wait: durationpb.New(time.Minute)}
	ended := make(chan error)
	call := func(ctx context.Context) {
		_, err := c.Acquire(ctx, wait)
		ended <- err
	}
	ctx, cancel := context.WithCancel(t.Context())
	go call(ctx)
	<-entered
	cancel()
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("its caller has gone: %v", err)
	}
	go call(t.Context())
	<-entered
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if status.Code(err) != codes.Unavailable {
			t.Errorf("at shutdown: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
}

// A reader that has stopped reading holds up its own stream and leaves nothing behind
// (TestMain looks).
func TestALocalStreamEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	a := granting()
	a.watch = func(ctx context.Context, _ string) iter.Seq2[lastword.Sight, error] {
		return func(yield func(lastword.Sight, error) bool) {
			for ctx.Err() == nil && yield(lastword.Sight{Status: lastword.Status{Resource: "doc/a", State: lastword.StateFree}}, nil) {
			}
		}
	}
	s := rpc.NewServer(a, rpc.ServerConfig{})
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := wire.NewAuthorityServiceClient(s.Local()).Watch(ctx, &wire.WatchRequest{Prefix: "doc/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if m, err := stream.Recv(); err != nil || m.GetStatus().GetResource() != "doc/a" {
			t.Fatalf("got %v, %v", m, err)
		}
	}
	cancel()
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		t.Error("a stream that was cut looks like one that has ended well")
	}
	// One that fails before it has shown anything says so at once.
	stream, err = wire.NewAuthorityServiceClient(s.Local()).Watch(t.Context(), &wire.WatchRequest{Prefix: "\xff"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a prefix that is none: %v", err)
	}
}
