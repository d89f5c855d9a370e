package simulate

import "time"

// Counters are what a run counts. The names in JSON are those of every soak of lastword.
type Counters struct {
	Rounds int `json:"rounds"`

	// The gates of R34.
	StaleAccepted        uint64  `json:"stale_accepted"`
	ForgedAccepted       uint64  `json:"forged_accepted"`
	HighwaterPolluted    uint64  `json:"highwater_polluted"`
	SegmentJumpsAccepted uint64  `json:"segment_jumps_accepted"`
	ProtectedMutations   uint64  `json:"protected_mutations"`
	CheckedMutations     uint64  `json:"checked_mutations"`
	UnknownOpen          uint64  `json:"unknown_open"`
	HandoverP99Millis    float64 `json:"handover_p99_ms"`       // after a release
	CrashHandoverMillis  float64 `json:"handover_crash_p99_ms"` // after a crash, beyond the TTL

	// Violations by their names in package model, those of the gates left out.
	Violations map[string]uint64 `json:"violations,omitempty"`

	// What else was seen.
	Grants         uint64 `json:"grants"`
	Renewals       uint64 `json:"renewals"`
	Takeovers      uint64 `json:"takeovers"` // granted after an expiry
	Writes         uint64 `json:"writes"`    // that reached the resource
	Refused        uint64 `json:"refused"`
	Replayed       uint64 `json:"replayed"`
	ForgedSent     uint64 `json:"forged_sent"`
	UnknownSettled uint64 `json:"unknown_settled"`
	Events         uint64 `json:"events"`
}

// Gate is one condition that a run has to meet.
type Gate struct {
	Name  string `json:"name"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Holds bool   `json:"holds"`
}

// FaultCount is how often one kind of fault came and how often it changed something.
type FaultCount struct {
	Name   string   `json:"name"`
	Cases  []string `json:"cases,omitempty"` // of the fault matrix: X1, …
	Fired  uint64   `json:"fired"`
	Effect uint64   `json:"effect"`
}

// Bucket is one bar of the distribution of hand-overs: how many took at most so long.
type Bucket struct {
	UpToMillis float64 `json:"up_to_ms"`
	Released   uint64  `json:"released"`
	Crashed    uint64  `json:"crashed"` // counted from the end of the TTL
}

// Event is one line of a time line.
type Event struct {
	At      time.Duration `json:"at"`    // since the world began
	Actor   string        `json:"actor"` // "owner 2", "authority 1", "resource", "operator", "fault"
	Text    string        `json:"text"`
	Verdict string        `json:"verdict,omitempty"` // of a write that was decided
	Fence   uint64        `json:"fence,omitempty"`
}

// Tenure is who held a resource, from when to when.
type Tenure struct {
	Owner string        `json:"owner"`
	Fence uint64        `json:"fence"`
	From  time.Duration `json:"from"`
	To    time.Duration `json:"to"`
	End   string        `json:"end"` // released, expired, revoked, …
}

// Timeline is one round to be shown, with all that befell its resource meanwhile.
type Timeline struct {
	World    int      `json:"world"`
	Round    int      `json:"round"`
	Resource string   `json:"resource"`
	Faults   []string `json:"faults,omitempty"`
	Tenures  []Tenure `json:"tenures"`
	Events   []Event  `json:"events"`
}

// Failure is a violation, shrunk to as little as still shows it.
type Failure struct {
	Kind   string   `json:"kind"`   // as package model names it, or a gate
	Detail string   `json:"detail"` // in a sentence
	World  int      `json:"world"`
	Plan   []string `json:"plan"`   // the rounds and faults that are left
	Events []Event  `json:"events"` // the time line, ends with the violation
	Replay string   `json:"replay"` // for Options.Replay
	// Command runs it again.
	Command string `json:"command"`
}

// Report is what a run comes to.
type Report struct {
	Options   Expanded     `json:"options"`
	Counters  Counters     `json:"counters"`
	Gates     []Gate       `json:"gates"`
	Faults    []FaultCount `json:"faults"`
	Handover  []Bucket     `json:"handover"`
	Timelines []Timeline   `json:"timelines,omitempty"`
	Failure   *Failure     `json:"failure,omitempty"`
	// TraceHash is of everything that happened, in its order.
	TraceHash string        `json:"trace_hash"`
	Took      time.Duration `json:"took"`
}

// OK reports whether every gate holds and nothing was violated.
func (r *Report) OK() bool {
	for _, g := range r.Gates {
		if !g.Holds {
			return false
		}
	}
	return r.Failure == nil
}
