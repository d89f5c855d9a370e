package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword/bench"
)

const benchLong = `Measures lastword against what people use today, both in one run, in turns: server and
load generator of each side are processes of their own, on loopback, and what is compared
are the medians of the rounds. docs/performance.md says what the workloads are.

Peers: etcd (1 member), etcd3 (3 members), redis, zookeeper, postgresql. A peer that is
not installed is named and left out. The peers' load generator and etcd are built in a
checkout of lastword, with Go; elsewhere there are none.

All of it takes about a quarter of an hour. Whatever else the machine does meanwhile is
measured, too. --dir should lie on the disk that is meant: a file system in memory syncs
nothing.`

func (a *app) benchCommand() *cobra.Command {
	o := bench.Options{}
	out, doc := outFlags{}, ""
	cmd := &cobra.Command{
		Use: "bench [--workload W1,W2…] [--peers NAME,…|none]", Short: "measure lastword against its peers", Long: benchLong, Args: want(),
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Workloads, "workload", nil, "`ID`s of what is measured: "+strings.Join(bench.Workloads(), ", ")+" (default all)")
	f.StringSliceVar(&o.Peers, "peers", nil, "`NAME`s of the peers: "+strings.Join(bench.Peers(), ", ")+", or none (default all)")
	f.IntVar(&o.Rounds, "rounds", 5, "how often each is measured")
	f.Var(&durationFlag{value: durationOr(&o.Duration, 3*time.Second), least: 10 * time.Millisecond, most: time.Hour}, "duration", "length of one measurement")
	f.IntVar(&o.Clients, "clients", 64, "how many clients, where there are many; 2 to 128")
	f.IntSliceVar(&o.Leases, "leases", []int{10_000, 100_000}, "`NUMBER`s of live leases of W7")
	f.Var(&durationFlag{value: durationOr(&o.LeaseTTL, 30*time.Second), least: time.Second, most: time.Hour}, "lease-ttl", "theirs; a third of it is the interval of renewals")
	f.StringVar(&o.Dir, "dir", "", "`DIR` for the files of all servers (default: the one for temporary files)")
	out.add(cmd, "the result, as JSON,")
	f.StringVar(&doc, "doc", "", "put the table into the page `FILE`, between its marks")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.bench(cmd, o, out, doc) }
	cmd.AddCommand(&cobra.Command{
		Use: "load KIND WHERE", Short: "the inside of a load generator's process", Args: want("KIND", "WHERE"), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Load(cmd.Context(), args[0], args[1], a.stdin, a.stdout)
		},
	})
	return cmd
}

func durationOr(d *time.Duration, value time.Duration) *time.Duration {
	*d = value
	return d
}

func (a *app) bench(cmd *cobra.Command, o bench.Options, out outFlags, doc string) (err error) {
	if o.Rounds < 1 { // to the package 0 is its default
		return usage(cmd, "--rounds: %d: want 1 to 1000", o.Rounds)
	}
	var page []byte
	if doc != "" { // a page that is none is found before anything runs
		if page, err = os.ReadFile(doc); err != nil {
			return usage(cmd, "--doc: %s", err)
		}
		if _, err := bench.Paste(page, bench.Result{}); err != nil {
			return usage(cmd, "--doc: %s", reason(err))
		}
	}
	file, err := out.reserve(cmd)
	if err != nil {
		return err
	}
	defer file.discard()
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	o.Version, o.Command = buildVersion(), asked(cmd)
	if terminal(a.stderr) {
		o.Progress = func(what string) { fmt.Fprintf(a.stderr, "\r\033[K%s", what) }
	}
	r, err := bench.Run(cmd.Context(), o)
	if o.Progress != nil {
		fmt.Fprint(a.stderr, "\r\033[K")
	}
	if err != nil {
		return stoppedBench(cmd.Context(), err)
	}
	if a.json {
		err = a.object(r)
	} else {
		err = r.Print(a.stdout)
	}
	err = errors.Join(err, file.commit(r.Write))
	if doc != "" {
		err = errors.Join(err, pasteFigures(page, r, doc))
	}
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// stoppedBench is the error of a run that did not come to its end.
func stoppedBench(ctx context.Context, err error) error {
	if e, ok := asError(err); ok && ctx.Err() == nil {
		return e
	}
	return stopped(ctx, "bench", err)
}

func pasteFigures(page []byte, r bench.Result, path string) error {
	with, err := bench.Paste(page, r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, with, 0o644)
}

// asked is the command as it can be given again.
func asked(cmd *cobra.Command) string {
	text := []string{cmd.CommandPath()}
	for _, name := range []string{"workload", "peers", "rounds", "duration", "clients", "leases", "lease-ttl"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			text = append(text, "--"+name+"="+strings.Trim(f.Value.String(), "[]"))
		}
	}
	return strings.Join(text, " ")
}
