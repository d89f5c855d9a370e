package bench

import (
	"encoding/json"
	"io"
	"time"

	"github.com/lastword/lastword/bench/load"
)

// Result is one run. Its JSON has plain names with their units.
type Result struct {
	Date     time.Time `json:"date"`
	Command  string    `json:"command"`
	Commit   string    `json:"commit"` // or version, of the program; "" if the build did not say
	Machine  Machine   `json:"machine"`
	Rounds   int       `json:"rounds"`
	WindowMS int64     `json:"window_ms"` // length of one measurement
	Reports  []Report  `json:"workloads"`
	Missing  []Missing `json:"missing"`
}

// Machine is what the figures were measured on.
type Machine struct {
	System string `json:"system"` // "linux/amd64"
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	// FsyncMicros is the median time of writing and syncing 4 KiB where the servers
	// have their files, in µs.
	FsyncMicros float64 `json:"fsync_us"`
	// LoadBefore is the machine's load over one minute before the run; 0 where it is
	// not known.
	LoadBefore float64 `json:"load_before"`
}

// Missing is a peer that was asked for and is not there.
type Missing struct {
	Peer string `json:"peer"`
	Why  string `json:"why"`
}

// Report is what one workload came to.
type Report struct {
	ID      string   `json:"id"` // "W1"
	Title   string   `json:"title"`
	Columns []Column `json:"columns"` // of the rows' values, in the order of the table
	Rows    []Row    `json:"rows"`
	Ratios  []Ratio  `json:"ratios"`
	Notes   []string `json:"notes"`
}

// Column is one kind of figure.
type Column struct {
	Name  string `json:"name"`  // key in values, with its unit
	Title string `json:"title"` // for people
}

// Row is one side in one case.
type Row struct {
	Subject string `json:"subject"` // "lastword", "etcd, 1 member"
	Version string `json:"version"`
	Case    string `json:"case"` // "64 clients"
	// Values are the medians of the rounds, Samples each round's value in order.
	Values  map[string]float64   `json:"values"`
	Samples map[string][]float64 `json:"samples"`
}

// Ratio is a claim: ours divided by theirs, of the medians.
type Ratio struct {
	Case    string  `json:"case"`
	Of      string  `json:"of"`      // column
	Subject string  `json:"subject"` // ours
	Against string  `json:"against"`
	Ratio   float64 `json:"ratio"`
	// Goal is what the ratio should be at least, or at most; 0 is none.
	AtLeast float64 `json:"at_least"`
	AtMost  float64 `json:"at_most"`
}

// Met says whether the ratio has reached its goal; a ratio without a goal has.
func (r Ratio) Met() bool {
	return (r.AtLeast == 0 || r.Ratio >= r.AtLeast) && (r.AtMost == 0 || r.Ratio <= r.AtMost)
}

// Write stores the result as JSON.
func (r Result) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Read is the inverse of [Result.Write].
func Read(r io.Reader) (Result, error) {
	var out Result
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	err := d.Decode(&out)
	return out, err
}

// report collects the rounds of a workload.
type report struct{ Report }

func newReport(id, title string, columns ...Column) *report {
	return &report{Report{ID: id, Title: title, Columns: columns, Rows: []Row{}, Ratios: []Ratio{}, Notes: []string{}}}
}

// add takes one round of one side in one case.
func (r *report) add(subject, version, in string, values map[string]float64) {
	row := r.find(subject, in)
	if row == nil {
		r.Rows = append(r.Rows, Row{
			Subject: subject, Version: version, Case: in, Values: map[string]float64{}, Samples: map[string][]float64{},
		})
		row = &r.Rows[len(r.Rows)-1]
	}
	for name, v := range values {
		row.Samples[name] = append(row.Samples[name], v)
		row.Values[name] = load.Median(row.Samples[name])
	}
}

func (r *report) find(subject, in string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Subject == subject && r.Rows[i].Case == in {
			return &r.Rows[i]
		}
	}
	return nil
}

// goal is what a ratio should come to.
type goal struct{ atLeast, atMost float64 }

// ratio claims column of subject against that of another side, if both are there.
func (r *report) ratio(in, of, subject, against string, g goal) {
	ours, theirs := r.find(subject, in), r.find(against, in)
	if ours == nil || theirs == nil || theirs.Values[of] == 0 {
		return
	}
	r.Ratios = append(r.Ratios, Ratio{
		Case: in, Of: of, Subject: subject, Against: against, Ratio: ours.Values[of] / theirs.Values[of],
		AtLeast: g.atLeast, AtMost: g.atMost,
	})
}

func (r *report) note(text string) { r.Notes = append(r.Notes, text) }
