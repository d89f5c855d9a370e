package simulate

import (
	"fmt"
	"slices"

	"github.com/lastword/lastword/internal/core"
)

// Sizes of a world.
const (
	lanes      = 3  // resources
	planned    = 48 // rounds
	calmRounds = 3  // of one resource, at most
	maxRounds  = planned + calmRounds*lanes
	maxIntents = 240 // of one resource
	shared     = 80  // of them are one row of work, the next ones are single rounds' own
	ownWrites  = 3
	maxFaults  = 3 // of one round
	ownerNames = 4
	processes  = 2
	junk       = maxIntents - 1 // what mistaken owners do is no part of the work
)

// Time in a world, in nanoseconds.
const (
	ms   int64 = 1_000_000
	tick       = 100 * ms
	ttl        = 1000 * ms
)

// bound is how much of a TTL a holder does not trust: what its margin is made of.
var bound = core.TrustBound{RatePPM: 10_000, Floor: ms}

// plannedRound is one round of work: an acquire, writes, an end.
type plannedRound struct {
	lane, name uint8
	writes     uint8
	slow       bool  // works for longer than a TTL, so that it has to renew
	complete   bool  // stores a result before it releases
	leave      bool  // goes without a release: the tenure lapses
	maxHold    bool  // holds for 1.5 TTL at the longest
	stop       bool  // is told to stop while it works
	together   bool  // acquires together with the one before
	own        bool  // works on intents of its own
	submit     bool  // settles an unknown outcome by submitting again
	forged     uint8 // class of the forged message that comes with it, 0 for none
	gap        int64 // between the grant before and its acquire

	faults []fault
}

// plan is all that is drawn for a world.
type plan struct {
	seed   uint64
	number int
	mode   [lanes]core.StatusMode
	ppm    [ownerNames]int64 // how much the clocks of owners run fast
	procs  [processes]int64
	rounds [planned]plannedRound
	// without are the rounds and faults that are left out: rounds by number, faults by
	// planned + maxFaults × round + place.
	without [planned * (1 + maxFaults)]bool
	// less makes rounds smaller, for the shrinking: one write, no result.
	less [planned]bool
}

// item is one thing that can be left out of a plan.
type item int

func faultItem(round, place int) item { return item(planned + maxFaults*round + place) }

// makePlan draws the plan of world number n. The faults are kept in room, which grows.
func (p *plan) make(seed uint64, n int, room *[]fault) {
	p.seed, p.number = draw(seed, uint64(n), 1, 0), n
	s := stream{p.seed}
	p.without, p.less = [planned * (1 + maxFaults)]bool{}, [planned]bool{}
	for l := range p.mode {
		p.mode[l] = core.FenceOnly
		if s.chance(500) {
			p.mode[l] = core.Query
		}
	}
	for i := range p.ppm {
		p.ppm[i] = s.between(-5_000, 5_000)
	}
	for i := range p.procs {
		p.procs[i] = s.between(-5_000, 5_000)
	}
	*room = (*room)[:0]
	var counts [planned]int
	for i := range p.rounds {
		p.rounds[i] = drawRound(&s, i)
		counts[i] = drawFaultCount(&s)
		for range counts[i] {
			*room = append(*room, drawFault(&s, i, &p.rounds[i]))
		}
	}
	at := 0
	for i, n := range counts {
		p.rounds[i].faults = (*room)[at : at+n : at+n]
		at += n
	}
}

// Shares, in thousandths.
const (
	oneFault    = 280
	twoFaults   = 100
	threeFaults = 20
	forgedShare = 170 // rounds with a forged message: about 5 % of the traffic at the resource
)

func drawFaultCount(s *stream) int {
	switch n := s.below(1000); {
	case n < threeFaults:
		return 3
	case n < threeFaults+twoFaults:
		return 2
	case n < threeFaults+twoFaults+oneFault:
		return 1
	}
	return 0
}

func drawRound(s *stream, i int) plannedRound {
	r := plannedRound{
		lane: uint8(i % lanes), name: uint8(s.below(ownerNames)), writes: uint8(1 + s.below(3)),
		slow: s.chance(50), complete: s.chance(250), leave: s.chance(50), maxHold: s.chance(40),
		stop: s.chance(30), together: s.chance(120), submit: s.chance(500), gap: s.between(0, 12*ms),
	}
	r.own = s.chance(400)
	if r.maxHold {
		r.slow, r.leave = true, false
	}
	if s.chance(forgedShare) {
		r.forged = uint8(1 + s.below(len(forgeries)))
	}
	return r
}

var totalWeight = func() (sum int) {
	for _, f := range catalogue {
		sum += f.weight
	}
	return sum
}()

func drawFault(s *stream, round int, r *plannedRound) fault {
	n := s.below(totalWeight)
	kind := faultKind(0)
	for n >= catalogue[kind].weight {
		n -= catalogue[kind].weight
		kind++
	}
	info := &catalogue[kind]
	f := fault{kind: kind, round: int16(round), at: info.points[s.below(len(info.points))], arg: s.next()}
	switch messageKind(f.at &^ (before | after)) { //nolint:exhaustive // the others are none of its
	case askRenew, reRenew, askStatus, reStatus:
		r.slow, r.leave = true, false
	case askComplete, reComplete:
		r.complete, r.leave = true, false
	case askRelease, reRelease:
		r.leave = false
	case doWrite, reWrite:
		f.nth = uint8(s.below(int(r.writes)))
	default:
	}
	if kind == crashOwner || kind == stopOwner || kind == stopMachine {
		r.stop = false
	}
	if kind == clockRate {
		r.slow = true
	}
	return f
}

// items are all things that can be left out and are not.
func (p *plan) items() (all []item) {
	for i := range p.rounds {
		if p.without[i] {
			continue
		}
		all = append(all, item(i))
		for k := range p.rounds[i].faults {
			if it := faultItem(i, k); !p.without[it] {
				all = append(all, it)
			}
		}
		if p.rounds[i].forged != 0 && !p.less[i] {
			continue
		}
	}
	return all
}

// keep leaves everything out but these.
func (p *plan) keep(items []item) {
	for i := range p.without {
		p.without[i] = true
	}
	for _, it := range items {
		p.without[it] = false
	}
}

// describe is the plan as people read it.
func (p *plan) describe() (lines []string) {
	for i := range p.rounds {
		if p.without[i] {
			continue
		}
		r := &p.rounds[i]
		line := fmt.Sprintf("round %d: owner %d takes %s, %d writes", i, r.name+1, laneNames[r.lane], p.writes(i))
		for _, x := range []struct {
			is   bool
			text string
		}{
			{r.own, "on work of its own"}, {r.slow, "works for longer than a TTL"}, {r.complete && !p.less[i], "completes"}, {r.leave, "leaves without a release"},
			{r.maxHold, "holds 1.5 TTL at most"}, {r.stop, "is told to stop"}, {r.together, "acquires with the one before"},
			{r.forged != 0 && !p.less[i], "a forged message comes with it"},
		} {
			if x.is {
				line += ", " + x.text
			}
		}
		lines = append(lines, line)
		for k, f := range r.faults {
			if !p.without[faultItem(i, k)] {
				lines = append(lines, fmt.Sprintf("fault in round %d: %s, at %s no. %d", i, catalogue[f.kind].name, f.at, f.nth+1))
			}
		}
	}
	return slices.Clip(lines)
}

func (p *plan) writes(round int) int {
	if p.less[round] {
		return 1
	}
	return int(p.rounds[round].writes)
}

func (p point) String() string {
	name := messageNames[messageKind(p&^(before|after))]
	switch {
	case p&before != 0:
		return "before the step of " + name
	case p&after != 0:
		return "after the step of " + name
	}
	return name
}

// writesOf is how many writes a round makes.
func (p *plan) writesOf(o *owner) int {
	if int(o.round) < planned && p.less[o.round] {
		return 1
	}
	return int(o.writes)
}

// smaller reports whether a round was made smaller.
func (p *plan) smaller(o *owner) bool { return int(o.round) < planned && p.less[o.round] }
