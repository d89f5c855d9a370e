package bench

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/lastword/lastword/bench/load"
	"github.com/lastword/lastword/rpc"
)

// What the load generator of lastword can be told to measure.
const (
	remote          = "remote"           // an authority at an address, through package client
	remoteCalls     = "remote-calls"     // the same, without it: what package client costs
	inProcess       = "embedded"         // one inside the process, its files in a directory
	inProcessHolder = "embedded-holders" // the same, through package client
	bare            = "bare"             // the disk's limit, in a directory
)

// Load is the inside of a load generator's process: it measures one target as the
// lines of in order, until in ends. kind is remote or remote-calls, with an address, or
// embedded, embedded-holders or bare, with a directory.
func Load(ctx context.Context, kind, where string, in io.Reader, out io.Writer) error {
	kinds := map[string]func(ctx context.Context) (load.Target, error){
		remote: func(context.Context) (load.Target, error) { return dial(where) },
		remoteCalls: func(context.Context) (load.Target, error) {
			c, err := rpc.Dial(where, rpc.ClientConfig{})
			if err != nil {
				return nil, err
			}
			return &calls{c, c.Close}, nil
		},
		inProcess: func(ctx context.Context) (load.Target, error) {
			e, err := openEmbedded(ctx, where)
			if err != nil {
				return nil, err
			}
			return &calls{e.Authority, e.Close}, nil
		},
		inProcessHolder: func(ctx context.Context) (load.Target, error) {
			e, err := openEmbedded(ctx, where)
			if err != nil {
				return nil, err
			}
			return e.holders(), nil
		},
		bare: func(ctx context.Context) (load.Target, error) {
			b, err := openBareCommits(ctx, where)
			if err != nil {
				return nil, err
			}
			return b, nil
		},
	}
	open, ok := kinds[kind]
	if !ok {
		known := []string{remote, remoteCalls, inProcess, inProcessHolder, bare}
		slices.Sort(known)
		return invalid("load %q: want one of %s", kind, strings.Join(known, ", "))
	}
	return load.Serve(ctx, in, out, open)
}
