package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is what befalls a round.
type kind string

const (
	calm          kind = "nothing"
	freezing      kind = "freeze"
	killing       kind = "kill"
	crashing      kind = "crash in the calm phase"
	partition     kind = "owner and authority apart"
	oneWay        kind = "answers to the owner lost"
	unasked       kind = "resource and authority apart"
	lateWrite     kind = "write late at the resource"
	lostAcquire   kind = "answer lost: acquire"
	lostRenew     kind = "answer lost: renew"
	lostRelease   kind = "answer lost: release"
	lostCommit    kind = "answer lost: write"
	lostWrite     kind = "write lost before commit"
	duplicates    kind = "duplicates"
	lateDuplicate kind = "duplicates after a takeover"
	jump          kind = "out of order"
	slow          kind = "messages late"
	swizzle       kind = "links clogged one by one"
	revocation    kind = "operator revokes the lease"

	killAuthority   kind = "kill authority"
	freezeAuthority kind = "freeze authority"
	rotateKey       kind = "rotate key"
	revokeKey       kind = "revoke key"
	bumpEpoch       kind = "bump issuer epoch"
	bumpPolicy      kind = "bump policy"

	forgery kind = "forged"
)

// cases are the cases of the fault matrix that a kind stands for.
var cases = map[kind]string{
	freezing: "X1", killing: "X2", crashing: "X2", killAuthority: "X3", freezeAuthority: "X4", partition: "X6", oneWay: "X6, X9",
	lateWrite: "X7", unasked: "X8", lostAcquire: "X9", lostRenew: "X9", lostRelease: "X9", lostCommit: "X9", lostWrite: "X9",
	duplicates: "X10", lateDuplicate: "X10", jump: "X11", slow: "X12", swizzle: "X13", forgery: "X35",
	rotateKey: "X36", revokeKey: "X36", bumpEpoch: "X36", bumpPolicy: "X36", revocation: "R7",
}

// pauses are how long a worker is frozen, in TTLs.
var pauses = []float64{0.5, 1, 1.5, 12}

// fault is one thing that befalls one round.
type fault struct {
	Kind  kind    `json:"kind"`
	Point point   `json:"point,omitempty"`
	Pause float64 `json:"pause_ttl,omitempty"`
}

// names are what the fault counts as.
func (f fault) names() []string {
	switch f.Kind {
	case calm:
		return nil
	case freezing:
		return []string{fmt.Sprintf("freeze %s", f.Point), fmt.Sprintf("freeze for %g TTL", f.Pause)}
	case killing:
		return []string{fmt.Sprintf("kill %s", f.Point)}
	case crashing:
		return []string{string(crashing)}
	}
	return []string{string(f.Kind)}
}

// round is what is planned for one round. It is played by the cell Number % cells.
type round struct {
	Number  int           `json:"round"`
	Main    fault         `json:"fault"`
	Weather []kind        `json:"weather,omitempty"` // beside it
	Forged  []string      `json:"forged,omitempty"`  // classes
	TTL     time.Duration `json:"ttl"`
	Swap    bool          `json:"swap,omitempty"` // the second worker begins
	Seed    uint64        `json:"seed"`           // of what is drawn while it is played
	Calm    bool          `json:"-"`              // of the last phase
}

// turn is what is done to the authority, when so many rounds are over.
type turn struct {
	After int     `json:"after"`
	Kind  kind    `json:"kind"`
	Pause float64 `json:"pause_ttl,omitempty"`
}

// plan is everything that a seed decides.
type plan struct {
	Rounds []round `json:"rounds"`
	Turns  []turn  `json:"turns"`
}

// TTLs of the tenures of a run, from the fast to the slow.
var ttls = []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond}

// newPlan expands a seed. Faults come from a deck that is shuffled and dealt to its end,
// so that every kind has its turn, whatever the seed.
func newPlan(seed uint64, rounds int) plan {
	random := rand.New(rand.NewPCG(seed, 0x736f616b))
	var p plan
	var deck []fault
	decks := 0
	for n := range rounds {
		if len(deck) == 0 {
			deck = newDeck(decks)
			random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			decks++
		}
		r := round{Number: n, Main: deck[0], TTL: ttls[random.IntN(len(ttls))], Swap: random.IntN(2) == 0, Seed: random.Uint64()}
		deck = deck[1:]
		if r.Main.Pause > 2 {
			r.TTL = ttls[0]
		}
		r.Weather = drawWeather(random, r.Main)
		for range 1 + random.IntN(2) {
			r.Forged = append(r.Forged, forgeries[(n+random.IntN(2)*len(forgeries)/2)%len(forgeries)].name)
		}
		p.Rounds = append(p.Rounds, r)
	}
	p.Turns = newTurns(random, rounds)
	return p
}

func newDeck(n int) (deck []fault) {
	for i, at := range points {
		for _, d := range pauses {
			// The long sleep is rare: two points a deck, all of them in four.
			if d > 2 && i/2 != n%4 {
				continue
			}
			deck = append(deck, fault{Kind: freezing, Point: at, Pause: d})
		}
		deck = append(deck, fault{Kind: killing, Point: at})
	}
	for _, k := range []kind{partition, oneWay, unasked, lateWrite, lostAcquire, lostRenew, lostRelease, lostCommit, lostWrite, duplicates, lateDuplicate, jump} {
		deck = append(deck, fault{Kind: k}, fault{Kind: k})
	}
	for _, k := range []kind{slow, swizzle, revocation, calm, calm, calm, calm} {
		deck = append(deck, fault{Kind: k})
	}
	return deck
}

// drawWeather gives a tenth of the rounds a second fault and a fiftieth a third one.
func drawWeather(random *rand.Rand, main fault) []kind {
	kinds := slices.DeleteFunc([]kind{slow, swizzle, duplicates}, func(k kind) bool { return k == main.Kind })
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	switch n := random.IntN(100); {
	case n < 2:
		return kinds[:2]
	case n < 12:
		return kinds[:1]
	}
	return nil
}

// newTurns does something to the authority every 30 rounds or so, each kind in its turn.
func newTurns(random *rand.Rand, rounds int) (turns []turn) {
	kinds := []turn{
		{Kind: killAuthority}, {Kind: freezeAuthority, Pause: 1.5}, {Kind: bumpPolicy}, {Kind: rotateKey}, {Kind: killAuthority},
		{Kind: freezeAuthority, Pause: 0.5}, {Kind: bumpEpoch}, {Kind: freezeAuthority, Pause: 3}, {Kind: rotateKey}, {Kind: revokeKey},
	}
	const about = 30
	for at, i := 5+random.IntN(10), 0; at < rounds-5; i++ {
		t := kinds[i%len(kinds)]
		t.After = at
		turns = append(turns, t)
		at += about - 5 + random.IntN(10)
	}
	return turns
}
