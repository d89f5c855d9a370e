package simulate

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/lastword/lastword/model"
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
	// Replay runs one plan of the seed again, as [Failure.Replay] names it.
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
	Seed           uint64  `json:"seed"`
	Rounds         int     `json:"rounds"`
	Signed         bool    `json:"signed"` // real grants, the real gate over memfence
	Variant        string  `json:"variant"`
	Replay         string  `json:"replay,omitempty"`
	RoundsPerWorld int     `json:"rounds_per_world"`
	Worlds         int     `json:"worlds"`
	Owners         int     `json:"owners"` // of which two have one name
	Authorities    int     `json:"authorities"`
	Resources      int     `json:"resources"`
	TTLMillis      float64 `json:"ttl_ms"`
	TickMillis     float64 `json:"tick_ms"`
	MarginPPM      int64   `json:"margin_ppm"`
	// Shares of rounds, in thousandths.
	OneFault    int `json:"rounds_with_one_fault"`
	TwoFaults   int `json:"rounds_with_two_faults"`
	ThreeFaults int `json:"rounds_with_three_faults"`
	Forged      int `json:"rounds_with_forged_traffic"`
	// Weights are how often each kind of fault is drawn, of all the weights together.
	Weights []Weight `json:"weights"`
	Build   string   `json:"build"`
}

// Weight is how often one kind of fault is drawn.
type Weight struct {
	Fault  string `json:"fault"`
	Weight int    `json:"weight"`
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
	e := Expanded{
		Seed: o.Seed, Rounds: o.rounds(), Signed: !o.Unsigned, Variant: cmp.Or(o.Variant, model.None), Replay: o.Replay,
		RoundsPerWorld: planned, Worlds: worldsOf(o.rounds()), Owners: ownerNames, Authorities: processes, Resources: lanes,
		TTLMillis: float64(ttl) / float64(ms), TickMillis: float64(tick) / float64(ms), MarginPPM: bound.RatePPM,
		OneFault: oneFault, TwoFaults: twoFaults, ThreeFaults: threeFaults, Forged: forgedShare, Build: build(),
	}
	for _, f := range catalogue {
		e.Weights = append(e.Weights, Weight{f.name, f.weight})
	}
	return e
}

// String is one line for people.
func (e Expanded) String() string {
	return fmt.Sprintf("seed %d, %d rounds in %d worlds of %d, signed %t, variant %s, TTL %.0f ms, tick %.0f ms, faults in %.1f %% of the rounds (two in %.1f %%, three in %.1f %%), build %s",
		e.Seed, e.Rounds, e.Worlds, e.RoundsPerWorld, e.Signed, e.Variant, e.TTLMillis, e.TickMillis,
		float64(e.OneFault+e.TwoFaults+e.ThreeFaults)/10, float64(e.TwoFaults)/10, float64(e.ThreeFaults)/10, e.Build)
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
