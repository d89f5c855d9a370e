package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/bench"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata; commit the change only if you know why")

// sample is a result with every kind of thing in it.
func sample() bench.Result {
	return bench.Result{
		Date: time.Date(2026, 11, 29, 18, 0, 0, 0, time.UTC), Command: "lastword bench", Commit: "v0.4.0",
		Machine: bench.Machine{System: "linux/amd64", CPU: "some processor", Cores: 2, Go: "go1.26.8", FsyncMicros: 239.4, LoadBefore: 0.25},
		Rounds:  5, WindowMS: 3000,
		Reports: []bench.Report{{
			ID: "W1", Title: "acquire and release",
			Columns: []bench.Column{{Name: "cycles_per_second", Title: "cycles/s"}, {Name: "p50_us", Title: "p50"}},
			Rows: []bench.Row{
				{Subject: "lastword", Case: "1 client", Values: map[string]float64{"cycles_per_second": 1605, "p50_us": 612.5}, Samples: map[string][]float64{"cycles_per_second": {1600, 1605, 1700}}},
				{Subject: "lastword", Case: "64 clients", Values: map[string]float64{"cycles_per_second": 22_000, "p50_us": 2_812}},
				{Subject: "etcd, 1 member", Version: "3.7.3", Case: "1 client", Values: map[string]float64{"cycles_per_second": 642}},
			},
			Ratios: []bench.Ratio{
				{Case: "1 client", Of: "cycles_per_second", Subject: "lastword", Against: "etcd, 1 member", Ratio: 2.5, AtLeast: 2.5},
				{Case: "1 client", Of: "p50_us", Subject: "lastword", Against: "etcd, 1 member", Ratio: 0.9, AtMost: 0.5},
				{Case: "1 client", Of: "p50_us", Subject: "lastword", Against: "the moon", Ratio: 0.1},
			},
			Notes: []string{"a note"},
		}},
		Missing: []bench.Missing{{Peer: "ZooKeeper", Why: "zookeeper is not there: apt-get install zookeeper"}},
	}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test ./bench -rewrite shows how:\n%s", path, got)
	}
}

func TestTheJSONKeepsItsShape(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().Write(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "result.json", b.Bytes())
	back, err := bench.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := json.Marshal(sample()); err != nil || !bytes.Equal(first, again) {
		t.Errorf("read back, it differs: %v", err)
	}
}

func TestTheTableIsForPeople(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().Print(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.md", b.Bytes())
}

func TestATableReplacesWhatStandsBetweenTheMarks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	once, err := bench.Paste(page, sample())
	if err != nil {
		t.Fatal(err)
	}
	twice, err := bench.Paste(once, sample())
	if err != nil || !bytes.Equal(once, twice) {
		t.Errorf("a second time it is another page: %v", err)
	}
	head, _, _ := bytes.Cut(page, []byte("<!-- figures"))
	if !bytes.HasPrefix(once, head) || !bytes.Contains(once, []byte("some processor")) {
		t.Error("the page lost its words, or got no table")
	}
	if _, err := bench.Paste([]byte("no marks"), sample()); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a page without marks: got %v", err)
	}
}

func TestOptionsThatCannotBeAreInvalidBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	for _, o := range []bench.Options{
		{Workloads: []string{"W4"}}, {Peers: []string{"memcached"}}, {Peers: []string{"none", "etcd"}}, {Rounds: -1}, {Rounds: 1001},
		{Duration: time.Millisecond}, {Clients: 1}, {Clients: 129}, {Leases: []int{0}}, {LeaseTTL: 1500 * time.Millisecond},
	} {
		if _, err := bench.Run(t.Context(), o); !errors.Is(err, lastword.ErrInvalid) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
	err := bench.Load(t.Context(), "no", "", nil, nil)
	if !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a load of no kind: got %v", err)
	}
}

// TestEveryWorkloadIsMeasured with tiny windows, against every peer. What is missing
// fails: `make test` installs it.
func TestEveryWorkloadIsMeasured(t *testing.T) {
	heavy(t)
	dir := shared(t)
	r, err := bench.Run(t.Context(), bench.Options{
		Program: lastwordProgram(t), Rounds: 2, Duration: 100 * time.Millisecond, Clients: 8, Leases: []int{50}, LeaseTTL: 2 * time.Second, Dir: dir,
		Workloads: []string{"W1", "W2", "W3", "W5", "W6", "W7"}, Command: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Missing {
		t.Errorf("%s is missing: %s", m.Peer, m.Why)
	}
	if r.Machine.FsyncMicros <= 0 || r.Machine.Go == "" {
		t.Errorf("machine %+v", r.Machine)
	}
	rows := map[string]int{"W1": 12, "W2": 6, "W3": 3, "W5": 14, "W6": 3, "W7": 2}
	for _, report := range r.Reports {
		if len(report.Rows) != rows[report.ID] {
			t.Errorf("%s has %d rows, want %d", report.ID, len(report.Rows), rows[report.ID])
		}
		if len(report.Ratios) == 0 {
			t.Errorf("%s claims nothing", report.ID)
		}
		for _, row := range report.Rows {
			first := report.Columns[0].Name
			if row.Values[first] <= 0 || len(row.Samples[first]) != 2 {
				t.Errorf("%s, %s, %s: %s is %v of %v", report.ID, row.Subject, row.Case, first, row.Values[first], row.Samples[first])
			}
			for name := range maps.Keys(row.Values) {
				if !slices.ContainsFunc(report.Columns, func(c bench.Column) bool { return c.Name == name }) {
					t.Errorf("%s has no column for %s", report.ID, name)
				}
			}
		}
		for _, q := range report.Ratios {
			if q.Ratio <= 0 {
				t.Errorf("%s: ratio %+v", report.ID, q)
			}
		}
	}
	if len(r.Reports) != len(rows) {
		t.Errorf("%d reports, want %d", len(r.Reports), len(rows))
	}
	nothingLeft(t, dir)
}

// A run that is interrupted ends soon, and leaves nothing.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	heavy(t)
	dir := shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := bench.Run(ctx, bench.Options{
		Program: lastwordProgram(t), Peers: []string{"redis"}, Workloads: []string{"W1"}, Duration: time.Hour, Dir: dir,
		Progress: func(what string) {
			if strings.HasPrefix(what, "W1 round 1 of 5: ") {
				time.AfterFunc(50*time.Millisecond, cancel) // in the middle of a window
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, dir)
}

func TestAServerThatDoesNotStartIsAnErrorWithItsOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "lastword")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho out of luck >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := bench.Run(t.Context(), bench.Options{Program: program, Peers: []string{"none"}, Workloads: []string{"W1"}, Dir: files})
	if err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, files)
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func ExampleResult_Print() {
	r := bench.Result{Reports: []bench.Report{{
		ID: "W6", Title: "a grant is verified",
		Columns: []bench.Column{{Name: "us_each", Title: "each"}},
		Rows: []bench.Row{
			{Subject: "grant, first sight", Case: "1 goroutine", Values: map[string]float64{"us_each": 56}},
			{Subject: "ed25519.Verify alone", Case: "1 goroutine", Values: map[string]float64{"us_each": 40}},
		},
	}}}
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		fmt.Println(err)
	}
	_, table, _ := strings.Cut(b.String(), "###")
	fmt.Println("###" + table)
	// Output:
	// ### W6: a grant is verified
	//
	// | case        | side                 | each  |
	// |-------------|----------------------|-------|
	// | 1 goroutine | grant, first sight   | 56 µs |
	// | 1 goroutine | ed25519.Verify alone | 40 µs |
}
