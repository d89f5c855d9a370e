package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Unchecked is the verdict of a write that nothing checked.
const Unchecked = "UNCHECKED"

// Result is what an experiment found, read from the databases and the answers. It
// has no times and no addresses, so that a second run gives the same one.
type Result struct {
	Experiment string `json:"experiment"`
	Fence      string `json:"fence"` // on, off
	// Schedule is the task table: what the authority says became of the work.
	Schedule Schedule `json:"schedule"`
	// Business is the table that was to be protected.
	Business Business `json:"business"`
	// LateWrite and LateCompletion are what the process heard that woke up late.
	LateWrite      LateWrite      `json:"late_write"`
	LateCompletion LateCompletion `json:"late_completion"`
	Events         []Event        `json:"events"`

	// Gap: what a fence does not promise. Crash: what a half-done write leaves.
	// Boundary: the ticks around a deadline. Of a run with the fence on.
	Gap      []Gap      `json:"gap,omitempty"`
	Crash    *Crash     `json:"crash,omitempty"`
	Boundary []Boundary `json:"boundary,omitempty"`
}

// Schedule is one row of the task table.
type Schedule struct {
	Resource string `json:"resource"`
	State    string `json:"state"`
	Owner    string `json:"owner"`
	Fence    string `json:"fence"`
	Result   string `json:"result"`
}

// Business is one row of the business table, and the fence of its record.
type Business struct {
	Resource string `json:"resource"`
	Value    string `json:"value"`
	Fence    string `json:"fence"` // "" if nothing keeps one
}

// LateWrite is the write of the process that was superseded.
type LateWrite struct {
	Owner   string `json:"owner"`
	Fence   string `json:"fence"`
	Verdict string `json:"verdict"`
}

// LateCompletion is its attempt to report the work done.
type LateCompletion struct {
	Owner string `json:"owner"`
	Code  string `json:"code"`
}

// Event is one thing that a process did and what it heard. Part is the part of the
// experiment: takeover, gap, crash.
type Event struct {
	Part    string `json:"part"`
	Process string `json:"process"`
	Did     string `json:"did"`
	Heard   string `json:"heard"`
}

// Gap is a write of the older holder between the newer one's acquire and its first
// write.
type Gap struct {
	Mode    string `json:"mode"`    // status mode of the record
	Early   string `json:"early"`   // verdict on the older holder's write
	Newer   string `json:"newer"`   // verdict on the newer holder's first write after it
	Late    string `json:"late"`    // verdict on the older holder's next write
	Value   string `json:"value"`   // that stands in the end
	Stopped string `json:"stopped"` // where the older holder was asleep
}

// Crash is a process that ended by SIGKILL after record and value were written and
// before the commit.
type Crash struct {
	FenceBefore string `json:"fence_before"`
	FenceAfter  string `json:"fence_after"`
	ValueBefore string `json:"value_before"`
	ValueAfter  string `json:"value_after"`
	Retried     string `json:"retried"` // verdict on the next tenure's same operation
}

// Boundary is one tick of a lease of ten.
type Boundary struct {
	Tick    int    `json:"tick"`
	Renew   string `json:"renew"`
	Acquire string `json:"acquire"`
}

// Write writes the result as indented JSON.
func (r Result) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// ReadResult reads a stored result of an experiment. It is strict: what the file has
// beside a result makes it none.
func ReadResult(path string) (Result, error) {
	stored, err := os.ReadFile(path)
	if err != nil {
		return Result{}, err
	}
	var r Result
	d := json.NewDecoder(bytes.NewReader(stored))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Result{}, fmt.Errorf("%s is no result of an experiment: %w", path, err)
	}
	if r.Experiment == "" || d.More() {
		return Result{}, fmt.Errorf("%s is no result of an experiment", path)
	}
	return r, nil
}

// Check compares a result with the one stored in a file. The error names the lines
// that differ.
func (r Result) Check(path string) error {
	want, err := ReadResult(path)
	if err != nil {
		return err
	}
	lines, err := r.Difference(want)
	if err != nil || len(lines) == 0 {
		return err
	}
	return fmt.Errorf("this run differs from %s: %s", path, strings.Join(lines, "; "))
}

// Difference names each line in which the result, as JSON, differs from the stored
// one; none if they are the same.
func (r Result) Difference(stored Result) (lines []string, err error) {
	var want, got bytes.Buffer
	if err := errors.Join(stored.Write(&want), r.Write(&got)); err != nil {
		return nil, err
	}
	a, b := strings.Split(want.String(), "\n"), strings.Split(got.String(), "\n")
	for i := range max(len(a), len(b)) {
		if x, y := line(a, i), line(b, i); x != y {
			lines = append(lines, fmt.Sprintf("line %d: stored %s, now %s", i+1, strings.TrimSpace(x), strings.TrimSpace(y)))
		}
	}
	return lines, nil
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}
