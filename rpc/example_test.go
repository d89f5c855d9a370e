package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
)

// The fake stands for an authority.Authority.
func Example() {
	held := false
	authority := granting()
	authority.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		if held {
			return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeHeld, Holder: "worker-a", Fence: 41, Remaining: 12 * time.Second}
		}
		held = true
		return grantOf(r), nil
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := rpc.NewServer(authority, rpc.ServerConfig{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()

	c, err := rpc.Dial(lis.Addr().String(), rpc.ClientConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, owner := range []string{"worker-a", "worker-b"} {
		t, err := c.Acquire(ctx, lastword.AcquireRequest{
			Resource: "invoice-batch/2026-07-19", Owner: owner, RequestID: owner + "-1", TTL: 30 * time.Second,
		})
		var e *lastword.Error
		switch {
		case err == nil:
			fmt.Println(owner, "holds it with fence", t.Fence)
		case errors.Is(err, lastword.ErrHeld) && errors.As(err, &e):
			fmt.Println(owner, "is told that", e.Holder, "holds it for", e.Remaining)
		case errors.Is(err, lastword.ErrUnknownOutcome):
			fmt.Println(owner, "does not know: repeat with the same request id")
		default:
			fmt.Println(owner, err)
		}
	}
	fmt.Println(c.Close(), server.Shutdown(ctx), <-served)
	// Output:
	// worker-a holds it with fence 41
	// worker-b is told that worker-a holds it for 12s
	// <nil> <nil> <nil>
}

func ExampleLoopbackOnly() {
	fmt.Println(rpc.LoopbackOnly("127.0.0.1:7420"))
	fmt.Println(rpc.LoopbackOnly("0.0.0.0:7420"))
	// Output:
	// <nil>
	// INVALID: listen address "0.0.0.0:7420": it is not a loopback address, and without identities anybody who reaches it could act as any owner (listen on 127.0.0.1, [::1] or localhost)
}
