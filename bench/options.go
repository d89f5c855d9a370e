package bench

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lastword/lastword"
)

// Options say what is measured. Program is required for workloads with processes.
type Options struct {
	// Workloads by id; none means all of [Workloads].
	Workloads []string
	// Peers by name; none means all of [Peers], and "none" none of them.
	Peers []string
	// Rounds is how often everything is measured; 0 is 5.
	Rounds int
	// Duration is the length of one window; 0 is 3 s, at least 10 ms. Live leases are
	// watched for no less than the time in which each is renewed once.
	Duration time.Duration
	// Clients is how many there are where there are many; 0 is 64.
	Clients int
	// Leases are the numbers of live leases; none means 10,000 and 100,000.
	Leases []int
	// LeaseTTL is theirs; 0 is 30 s, which renews every 10 s.
	LeaseTTL time.Duration
	// Dir is where servers and databases keep their files; "" is the directory for
	// temporary files. It decides what is measured: a file system in memory syncs
	// nothing.
	Dir string
	// Program is the path of the lastword binary, which is run as server and as load
	// generator.
	Program string
	// Version is that of the program, to be shown beside the figures; "" is the commit
	// that the build noted.
	Version string
	// Command is how the run was asked for, to be shown beside the figures.
	Command string
	// Progress, if not nil, is told what is measured next, by one goroutine.
	Progress func(what string)
}

// Workloads that can be measured.
func Workloads() []string {
	var ids []string
	for _, w := range workloads {
		ids = append(ids, w.id)
	}
	return ids
}

// Peers that can be measured against.
func Peers() []string {
	var names []string
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Workloads) == 0 {
		o.Workloads = Workloads()
	}
	if len(o.Peers) == 0 {
		o.Peers = Peers()
	} else if slices.Equal(o.Peers, []string{"none"}) {
		o.Peers = nil
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Duration == 0 {
		o.Duration = 3 * time.Second
	}
	if o.Clients == 0 {
		o.Clients = 64
	}
	if len(o.Leases) == 0 {
		o.Leases = []int{10_000, 100_000}
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 30 * time.Second
	}
	if o.Dir == "" {
		o.Dir = os.TempDir()
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o, o.validate()
}

func (o Options) validate() error {
	switch {
	case o.Rounds < 1 || o.Rounds > 1000:
		return invalid("%d rounds: want 1 to 1000", o.Rounds)
	case o.Duration < 10*time.Millisecond || o.Duration > time.Hour:
		return invalid("duration %v: want 10ms to 1h", o.Duration)
	case o.Clients < 2 || o.Clients > 128:
		return invalid("%d clients: want 2 to 128", o.Clients)
	case o.LeaseTTL < time.Second || o.LeaseTTL > time.Hour || o.LeaseTTL%time.Second != 0:
		return invalid("lease ttl %v: want whole seconds, 1s to 1h", o.LeaseTTL)
	case slices.ContainsFunc(o.Leases, func(n int) bool { return n < 1 || n > 1_000_000 }):
		return invalid("live leases %v: want 1 to 1,000,000", o.Leases)
	}
	for _, id := range o.Workloads {
		if !slices.Contains(Workloads(), id) {
			return invalid("workload %q: want some of %s", id, strings.Join(Workloads(), ", "))
		}
	}
	for _, name := range o.Peers {
		if !slices.Contains(Peers(), name) {
			return invalid("peer %q: want none, or some of %s", name, strings.Join(Peers(), ", "))
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: "bench", Message: fmt.Sprintf(format, args...)}
}
