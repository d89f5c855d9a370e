package simulate

import (
	"fmt"
	"runtime/debug"
	"time"
)

// Options say what is run. The zero value is a run of 100,000 rounds from seed 0, with
// signatures.
type Options struct {
	// Rounds is how many rounds of the protocol are run; 0 is 100,000.
	Rounds int
	// Seed decides everything that is drawn.
	Seed uint64
	// Unsigned leaves the signatures out and lets core decide in place of gate and
	// memfence, for speed: what is forged is then refused by who was granted what.
	Unsigned bool
	// Variant is a broken system of package model, "" or "none" for the right one.
	Variant string
	// Replay runs one plan again, as [Failure.Replay] names it.
	Replay string
	// KeepGoing goes on after a failure and counts; else a run ends with its first one.
	KeepGoing bool
	// Timelines is how many rounds are kept to be shown; 0 is 6, negative none.
	Timelines int
	// Progress, if not nil, is called now and then with the rounds that are done.
	Progress func(done, total int)
	// Elapsed is monotonic time, for the figures of a report alone; nil takes the
	// process's.
	Elapsed func() time.Duration
}

// Expanded is Options with everything that follows from them written out.
type Expanded struct {
	Seed           uint64   `json:"seed"`
	Rounds         int      `json:"rounds"`
	Signed         bool     `json:"signed"`
	Variant        string   `json:"variant"`
	RoundsPerWorld int      `json:"rounds_per_world"`
	Worlds         int      `json:"worlds"`
	Owners         int      `json:"owners"`
	Authorities    int      `json:"authorities"`
	Resources      int      `json:"resources"`
	TTLMillis      float64  `json:"ttl_ms"`
	TickMillis     float64  `json:"tick_ms"`
	OneFault       float64  `json:"rounds_with_a_fault"`
	TwoFaults      float64  `json:"rounds_with_two_faults"`
	ThreeFaults    float64  `json:"rounds_with_three_faults"`
	Forged         float64  `json:"forged_traffic"`
	ClockRateBound float64  `json:"clock_rate_bound"`
	Faults         []string `json:"faults"`
	Build          string   `json:"build"`
}

const defaultRounds = 100_000

func (o Options) rounds() int {
	if o.Rounds <= 0 {
		return defaultRounds
	}
	return o.Rounds
}

// Expanded is what o means, in full.
func (o Options) Expanded() Expanded {
	return Expanded{Seed: o.Seed, Rounds: o.rounds(), Signed: !o.Unsigned, Variant: o.Variant, Build: build()}
}

// String is one line for people.
func (e Expanded) String() string {
	return fmt.Sprintf("seed %d, %d rounds in %d worlds, signed %t, build %s", e.Seed, e.Rounds, e.Worlds, e.Signed, e.Build)
}

// build names the program: its version, or the commit it was built from.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return info.Main.Version + " " + revision + dirty
}
