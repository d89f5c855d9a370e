package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

func free(r lastword.Resource) lastword.Sight {
	return lastword.Sight{Status: lastword.Status{Resource: r, State: lastword.StateFree, NextFence: 1}}
}

// showing is a watch of these sights that then waits for its end.
func showing(sights ...lastword.Sight) func(context.Context, string) iter.Seq2[lastword.Sight, error] {
	return func(ctx context.Context, _ string) iter.Seq2[lastword.Sight, error] {
		return func(yield func(lastword.Sight, error) bool) {
			for _, s := range sights {
				if !yield(s, nil) {
					return
				}
			}
			<-ctx.Done()
			yield(lastword.Sight{}, &lastword.Error{Code: lastword.CodeUnavailable, Message: "the watch was ended"})
		}
	}
}

func TestAWatchArrivesExactlyAndEndsWithItsReader(t *testing.T) {
	held := lastword.Sight{Status: lastword.Status{
		Resource: "doc/ä", State: lastword.StateHeld, Digest: lastword.DigestOf(nil), Remaining: 1, TTL: 2,
		Holder: lastword.TenureRef{Resource: "doc/ä", Owner: "o", Fence: lastword.MaxToken}, NextFence: 7, Revision: 1<<64 - 1,
		Last: lastword.Ending{State: lastword.StateRevoked, Fence: 6, LeaseID: "l", Owner: "p", Completed: true},
	}}
	want := []lastword.Sight{free("doc/a"), {Complete: true}, held}
	queued := held
	queued.Status.Waiters = 3 // which nobody follows, so that it is not told
	f := granting()
	left := make(chan struct{})
	f.watch = func(ctx context.Context, prefix string) iter.Seq2[lastword.Sight, error] {
		equal(t, "prefix", prefix, "doc/")
		context.AfterFunc(ctx, func() { close(left) })
		return showing(want[0], want[1], queued)(ctx, prefix)
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	var got []lastword.Sight
	for s, err := range dial(t, addr).Watch(t.Context(), "doc/") {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, s); len(got) == len(want) {
			break
		}
	}
	equal(t, "sights", got, want)
	soon(t, "the end of the watch at the authority", left)
}

func TestAWatchEndsWithWhatTheAuthoritySays(t *testing.T) {
	for _, code := range []lastword.Code{lastword.CodeFenceRegression, lastword.CodeUnavailable, lastword.CodeQuota} {
		f := granting()
		f.watch = func(context.Context, string) iter.Seq2[lastword.Sight, error] {
			return func(yield func(lastword.Sight, error) bool) {
				if yield(free("doc/a"), nil) {
					yield(lastword.Sight{}, &lastword.Error{Code: code, Op: "watch", Message: "m", Hint: "h"})
				}
			}
		}
		addr, _ := serve(t, f, rpc.ServerConfig{})
		n := 0
		for s, err := range dial(t, addr).Watch(t.Context(), "") {
			if n++; n == 1 {
				equal(t, "the first sight", []any{s, err}, []any{free("doc/a"), nil})
				continue
			}
			e := wantCode(t, err, code)
			equal(t, "what it says", []string{e.Op, e.Message, e.Hint}, []string{"watch", "m", "h"})
		}
		equal(t, "steps", n, 2)
	}
}

// Whoever ends a watch finds the reason that was given in its error.
func TestAWatchThatItsCallerEndsIsTheErrorOfItsContext(t *testing.T) {
	f := granting()
	f.watch = showing(free("doc/a"))
	addr, _ := serve(t, f, rpc.ServerConfig{})
	for name, end := range map[error]func() (context.Context, context.CancelFunc){
		context.Canceled: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		context.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 300*time.Millisecond)
		},
	} {
		ctx, cancel := end()
		var last error
		for _, err := range dial(t, addr).Watch(ctx, "") {
			if last = err; err == nil && errors.Is(name, context.Canceled) {
				cancel()
			}
		}
		cancel()
		e := wantCode(t, last, lastword.CodeUnavailable)
		if !errors.Is(last, name) || e.Message != "the watch was ended by its caller" || e.Hint != "" {
			t.Errorf("got %v, want %v", last, name)
		}
	}
}

func TestAWatchThatIsNoneIsRefused(t *testing.T) {
	f := granting()
	f.watch = showing()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	for _, prefix := range []string{"a\n", strings.Repeat("a", 513)} {
		stream, err := rawClient(t, addr).Watch(t.Context(), &wire.WatchRequest{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if r := refusal(t, err); r.GetReason() != "INVALID" || status.Code(err) != codes.InvalidArgument {
			t.Errorf("err = %v, want INVALID", err)
		}
		for _, err := range dial(t, addr).Watch(t.Context(), prefix) {
			wantCode(t, err, lastword.CodeInvalid)
		}
	}
	equal(t, "what reached the authority", f.calls.Load(), int64(0))
}

// KF-27
func TestKF27AWatchThatShowsWhatWasNotAskedForIsNotBelieved(t *testing.T) {
	f := granting()
	f.watch = showing(free("docs"))
	addr, _ := serve(t, f, rpc.ServerConfig{})
	for _, err := range dial(t, addr).Watch(t.Context(), "doc/") {
		wantCode(t, err, lastword.CodeInternal)
	}
}

func TestAWatchWhoseConnectionBreaksIsUnavailable(t *testing.T) {
	f := granting()
	f.watch = showing(free("doc/a"))
	addr, _ := serve(t, f, rpc.ServerConfig{})
	proxy := newCutter(t, addr)
	n := 0
	for _, err := range dial(t, proxy.addr()).Watch(t.Context(), "") {
		if n++; n == 1 {
			proxy.cut()
			continue
		}
		wantCode(t, err, lastword.CodeUnavailable)
	}
	equal(t, "steps", n, 2)
}

func TestAWatchWithoutAFirstSightIsGivenUp(t *testing.T) {
	f := granting()
	f.watch = showing()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c, err := rpc.Dial(addr, rpc.ClientConfig{Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range c.Watch(t.Context(), "") {
		if e := wantCode(t, err, lastword.CodeUnavailable); !errors.Is(e.Err, context.DeadlineExceeded) {
			t.Errorf("the cause is %v", e.Err)
		}
	}
}

func TestAWatchWithAFirstSightOutlivesTheTimeout(t *testing.T) {
	f := granting()
	f.watch = showing(free("a"))
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c, err := rpc.Dial(addr, rpc.ClientConfig{Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	n := 0
	for range c.Watch(ctx, "") { // the second step is the end of ctx, not of the time-out
		n++
	}
	if n != 2 || ctx.Err() == nil {
		t.Errorf("a watch with a first sight ended after %d steps, %v", n, ctx.Err())
	}
}

func TestAShutdownEndsWatches(t *testing.T) {
	f := granting()
	f.watch = showing(free("a"))
	addr, s := serve(t, f, rpc.ServerConfig{})
	n := 0
	for _, err := range dial(t, addr).Watch(t.Context(), "") {
		if n++; n > 1 {
			e := wantCode(t, err, lastword.CodeUnavailable)
			equal(t, "message", e.Message, "the server is shutting down")
			continue
		}
		go func() { _ = s.Shutdown(t.Context()) }()
	}
	equal(t, "steps", n, 2)
}

// T23: it takes the time of the shutdown, and is no failure.
func TestT23AWatcherThatDoesNotReadDoesNotFailAShutdown(t *testing.T) {
	f := granting()
	stuck := make(chan struct{})
	f.watch = func(context.Context, string) iter.Seq2[lastword.Sight, error] {
		return func(yield func(lastword.Sight, error) bool) {
			timer := time.AfterFunc(300*time.Millisecond, func() { close(stuck) })
			for i := 0; yield(free(lastword.Resource(fmt.Sprintf("%s/%d", strings.Repeat("x", 400), i))), nil); i++ {
				if timer.Stop() {
					timer.Reset(300 * time.Millisecond)
				}
			}
		}
	}
	addr, s := serve(t, f, rpc.ServerConfig{})
	stream, err := rawClient(t, addr).Watch(t.Context(), &wire.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "a reader that is full", stuck)
	if _, err := dial(t, addr).Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"}); err != nil {
		t.Errorf("beside it: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	for err = nil; err == nil; {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		t.Error("the reader was told that all is well")
	}
}
