package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastword/lastword/bench/load"
)

// workload is one of docs/performance.md.
type workload struct {
	id    string
	crowd bool // needs servers, ours and the peers'
	run   func(ctx context.Context, o Options, c *crowd) (Report, error)
}

var workloads = []workload{
	{"W1", true, w1},
	{"W2", true, w2},
	{"W3", false, embeddedSides},
	{"W5", false, alone(w5)},
	{"W6", false, alone(w6)},
	{"W7", true, w7},
	{"W8", false, alone(w8)},
}

func alone(f func(ctx context.Context, o Options) (Report, error)) func(context.Context, Options, *crowd) (Report, error) {
	return func(ctx context.Context, o Options, _ *crowd) (Report, error) { return f(ctx, o) }
}

// Run measures. It returns when everything that it started has ended. Errors are
// [lastword.CodeInvalid] for options that cannot be, ctx's, or what went wrong.
func Run(ctx context.Context, o Options) (_ Result, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Date: time.Now().UTC().Truncate(time.Second), Command: o.Command, Commit: cmp.Or(o.Version, commit()), Rounds: o.Rounds,
		WindowMS: o.Duration.Milliseconds(), Reports: []Report{}, Missing: []Missing{},
	}
	if r.Machine, err = machine(o.Dir); err != nil {
		return Result{}, err
	}
	var c *crowd
	defer func() {
		if c != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	for _, w := range workloads {
		if !slices.Contains(o.Workloads, w.id) {
			continue
		}
		if w.crowd && c == nil {
			if c, err = gather(ctx, o); err != nil {
				return r, err
			}
			r.Missing = append(r.Missing, c.missing...)
		}
		report, err := w.run(ctx, o, c)
		if err != nil {
			return r, fmt.Errorf("%s: %w", w.id, err)
		}
		r.Reports = append(r.Reports, report)
	}
	return r, nil
}

// embeddedSides starts the sides of W3, each in a process and a directory of its own.
func embeddedSides(ctx context.Context, o Options, _ *crowd) (_ Report, err error) {
	c := &crowd{}
	defer func() { err = errors.Join(err, c.stop()) }()
	for _, side := range []struct{ name, kind string }{{inside, inProcess}, {insideHolders, inProcessHolder}, {bareLoop, bare}} {
		s := &subject{name: side.name}
		dir, err := os.MkdirTemp(o.Dir, "lastword-bench-")
		if err != nil {
			return Report{}, err
		}
		s.close = append(s.close, func() error { return os.RemoveAll(dir) })
		c.subjects = append(c.subjects, s)
		if s.driver, err = startDriver(ctx, o.Program, "bench", "load", side.kind, dir); err != nil {
			return Report{}, err
		}
	}
	return w3(ctx, o, c)
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

func machine(dir string) (Machine, error) {
	m := Machine{System: runtime.GOOS + "/" + runtime.GOARCH, CPU: processor(), Cores: runtime.NumCPU(), Go: runtime.Version(), LoadBefore: loadAverage()}
	d, err := syncTime(dir)
	m.FsyncMicros = micros(d)
	return m, err
}

// syncTime is the median time of a write of 4 KiB and its sync.
func syncTime(dir string) (_ time.Duration, err error) {
	const times = 200
	f, err := os.CreateTemp(dir, "lastword-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 4<<10)
	var all []time.Duration
	for i := range times {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(i*len(block))); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all = append(all, time.Since(start))
	}
	return load.Median(all), nil
}

// processor is its name, where the system tells it.
func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}
