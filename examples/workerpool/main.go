// Command workerpool lets agents claim tasks and write their results. It shows how the
// parts fit together in a Go program: a lease for each task, a fenced write for its
// result, and what happens to an agent that hangs and comes back too late.
//
//	go run ./examples/workerpool
//
// # Guarantees
//
// Every task has exactly one result at the end, or the program says what is wrong and
// ends with exit code 1. It leaves no file and no process behind.
//
// # Not guaranteed
//
// It is an example: its authority and its database live in a temporary directory.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const tasks = 12

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "workerpool:", err)
		os.Exit(1) //nolint:gocritic // run has cleaned up
	}
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "workerpool-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	// A program of yours has one address instead: rpc.Dial("127.0.0.1:7420", …).
	a, err := startAuthority(ctx, dir)
	if err != nil {
		return err
	}
	defer a.stop()

	results, err := openResults(ctx, dir, a.remote)
	if err != nil {
		return err
	}
	defer results.close()

	if err := work(ctx, a.remote, results); err != nil {
		return err
	}
	return results.check(ctx)
}
