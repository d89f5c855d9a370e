// Command peerload is the load generator for the peers of lastword: what package load
// does, through each peer's own client as its documentation says.
//
// # Guarantees
//
// Its loops are those that measure lastword. It ends with its standard input.
//
// # Not guaranteed
//
// Only locks are compared. What a peer's lock protects against, and what it keeps over
// a crash of its server, differs; docs/performance.md says how.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lastword/lastword/bench/load"
)

// targets by name; each takes where the server is.
var targets = map[string]func(ctx context.Context, where string) (load.Target, error){
	"etcd":       openEtcd,
	"redis":      openRedis,
	"zookeeper":  openZooKeeper,
	"postgresql": openPostgreSQL,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peerload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) != 3 || targets[os.Args[1]] == nil {
		return fmt.Errorf("want the name of a peer (etcd, redis, zookeeper, postgresql) and where it is")
	}
	return load.Serve(ctx, os.Stdin, os.Stdout, func(ctx context.Context) (load.Target, error) {
		return targets[os.Args[1]](ctx, os.Args[2])
	})
}
