// Package report holds what a soak found, as data, and shows it: as JSON, as lines for a
// terminal, and as one page of HTML that needs nothing beside itself.
//
// # Guarantees
//
// A gate holds or does not; nothing that was not counted counts as held. What a page
// shows is the data of the run, escaped: no name of a resource, an owner or a fault can
// become markup. The page has no script and loads nothing.
//
// # Not guaranteed
//
// A report is as true as the run that wrote it. Nothing signs it.
package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Run is what one soak came to. Its counters stand beside the other members in JSON.
type Run struct {
	Kind    string  `json:"kind"` // "simulated" or "real"
	Build   string  `json:"build"`
	Command string  `json:"command"` // repeats the run
	Seed    uint64  `json:"seed,string"`
	Options Options `json:"options"`
	// Variant is the defect that the system had, and that the run was to find; "" for the
	// right system.
	Variant string `json:"variant,omitempty"`

	Counters

	Gates     []Gate     `json:"gates"`
	Faults    []Fault    `json:"faults"`
	Handover  []Bucket   `json:"handover,omitempty"`
	Timelines []Timeline `json:"timelines,omitempty"`
	Failures  []Failure  `json:"failures,omitempty"`
	// Notes are what a reader should know beside the figures.
	Notes     []string `json:"notes,omitempty"`
	TraceHash string   `json:"trace_hash,omitempty"` // of a simulated run
	TookMS    float64  `json:"took_ms"`
	// Interrupted says that the run was ended before its end, and proves less.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Counters are the figures that gates look at, by their names in every soak.
type Counters struct {
	Rounds               int     `json:"rounds"`
	StaleAccepted        int     `json:"stale_accepted"`
	ForgedAccepted       int     `json:"forged_accepted"`
	HighwaterPolluted    int     `json:"highwater_polluted"`
	SegmentJumpsAccepted int     `json:"segment_jumps_accepted"`
	ProtectedMutations   int     `json:"protected_mutations"`
	CheckedMutations     int     `json:"checked_mutations"`
	UnknownOpen          int     `json:"unknown_open"`
	HandoverP99MS        float64 `json:"handover_p99_ms"`       // after a release
	HandoverCrashP99MS   float64 `json:"handover_crash_p99_ms"` // after a crash, beyond the TTL
	// More are further counters, by name.
	More map[string]int `json:"more,omitempty"`
}

// Gate is one condition that a run has to meet.
type Gate struct {
	Name  string `json:"name"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Holds bool   `json:"holds"`
}

// Fault is how often one kind of fault was planned and came, and how often it changed
// something.
type Fault struct {
	Name    string   `json:"name"`
	Cases   []string `json:"cases,omitempty"` // of the fault matrix: X1, …
	Planned int      `json:"planned,omitempty"`
	Fired   int      `json:"fired"`
	Effect  int      `json:"effect"`
}

// Bucket is one bar of the distribution of hand-overs: how many took at most so long,
// and longer than the bucket before.
type Bucket struct {
	UpToMS   float64 `json:"up_to_ms"`
	Released int     `json:"released"`
	Crashed  int     `json:"crashed"` // beyond the end of the TTL
}

// Timeline is one round to be shown. Times are milliseconds since its beginning.
type Timeline struct {
	Title    string   `json:"title"`
	Resource string   `json:"resource"`
	Round    int      `json:"round"`
	Faults   []string `json:"faults,omitempty"`
	EndMS    float64  `json:"end_ms"`
	Lanes    []Lane   `json:"lanes"`
}

// Lane is what befell one of them.
type Lane struct {
	Name  string `json:"name"`
	Spans []Span `json:"spans,omitempty"`
	Marks []Mark `json:"marks,omitempty"`
}

// Span is a time that something lasted.
type Span struct {
	FromMS float64  `json:"from_ms"`
	ToMS   float64  `json:"to_ms"`
	Kind   SpanKind `json:"kind"`
	Label  string   `json:"label"`
	End    string   `json:"end,omitempty"` // how a tenure ended
}

// SpanKind is what lasts.
type SpanKind string

// The kinds of spans.
const (
	Held SpanKind = "held"  // a tenure
	Hurt SpanKind = "fault" // asleep, cut off, dead
)

// Mark is one thing that happened.
type Mark struct {
	AtMS  float64  `json:"at_ms"`
	Kind  MarkKind `json:"kind"`
	Label string   `json:"label"`
	Why   string   `json:"why,omitempty"`
}

// MarkKind is what a mark says.
type MarkKind string

// The kinds of marks.
const (
	Accepted MarkKind = "accepted" // a write that had its effect
	Refused  MarkKind = "refused"
	Unknown  MarkKind = "unknown" // a write that nobody heard the end of
	Note     MarkKind = "note"
)

// Failure is what must not be.
type Failure struct {
	Kind   string   `json:"kind"`
	Detail string   `json:"detail"`
	Events []string `json:"events,omitempty"`
	Repeat string   `json:"repeat,omitempty"` // a command
}

// notSafety are the gates and failures that do not say that something went wrong, but that a run did
// not come to what it was to show.
var notSafety = map[string]bool{
	"handover_p99_ms": true, "handover_crash_p99_ms": true, "fault_coverage": true, "faults_with_effect": true, "rounds": true, "unknown_open": true, "not_live": true,
	"round": true, "end": true, "checker_timeouts": true, // failures of a run
}

// Found reports whether something happened that must not, and names the gates that show
// it.
func (r *Run) Found() (gates []string, found bool) {
	for _, g := range r.Gates {
		if !g.Holds && !notSafety[g.Name] {
			gates = append(gates, g.Name)
		}
	}
	for _, f := range r.Failures {
		if !notSafety[f.Kind] && !slices.Contains(gates, f.Kind) {
			gates = append(gates, f.Kind)
		}
	}
	return gates, len(gates) > 0
}

// OK reports whether the run came to what it was to come to: all gates hold and it was
// played to its end; of a system with a defect, that this was found.
func (r *Run) OK() bool {
	if r.Variant != "" {
		_, found := r.Found()
		return found
	}
	for _, g := range r.Gates {
		if !g.Holds {
			return false
		}
	}
	return len(r.Gates) > 0 && len(r.Failures) == 0 && !r.Interrupted
}

// Option is one setting of a run, as it was after everything that follows from the seed
// and the flags was written out.
type Option struct{ Name, Value string }

// Options are the settings in their order. In JSON they are one object of strings.
type Options []Option

// MarshalJSON implements json.Marshaler.
func (o Options) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range o {
		name, err := json.Marshal(p.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(p.Value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s", name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON implements json.Unmarshaler. A value that is no string is kept as JSON.
func (o *Options) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t == nil { // null
		return nil
	}
	if t != json.Delim('{') {
		return errors.New("options are no object")
	}
	*o = nil
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		value := string(raw)
		var text string
		if json.Unmarshal(raw, &text) == nil {
			value = text
		}
		*o = append(*o, Option{fmt.Sprint(name), value})
	}
	return nil
}

// maxReport bounds what Read reads.
const maxReport = 64 << 20

// Read reads a run as Write wrote it. It is strict: a member that a run does not have
// makes it none.
func Read(r io.Reader) (*Run, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxReport+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxReport {
		return nil, errors.New("it is too large for a run of a soak")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var run Run
	if err := d.Decode(&run); err != nil {
		return nil, fmt.Errorf("it is no run of a soak: %w", err)
	}
	if run.Kind == "" || d.More() {
		return nil, errors.New("it is no run of a soak")
	}
	return &run, nil
}

// Write writes the run as indented JSON.
func (r *Run) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// CompareCases orders names of cases: X2 before X10, and letters before that.
func CompareCases(a, b string) int {
	split := func(s string) (string, int) {
		letters := strings.TrimRight(s, "0123456789abcdefghijklmnopqrstuvwxyz")
		n, err := strconv.Atoi(strings.TrimRight(s[len(letters):], "abcdefghijklmnopqrstuvwxyz"))
		if err != nil {
			n = 0
		}
		return letters, n
	}
	aw, an := split(a)
	bw, bn := split(b)
	if aw != bw { // the matrix's first
		return cmp.Compare(bw, aw)
	}
	return cmp.Or(cmp.Compare(an, bn), cmp.Compare(a, b))
}

// Round is v with as many digits as a person reads.
func Round(v float64) float64 { return math.Round(v*1000) / 1000 }
