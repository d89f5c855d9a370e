package simulate

import (
	"slices"
	"testing"
)

// A run in which a planned fault never had an effect fails.
func TestAFaultThatNeverHadAnEffectFailsTheRun(t *testing.T) {
	r, err := newRun(Options{Unsigned: true})
	if err != nil {
		t.Fatal(err)
	}
	gate := func() bool {
		for _, g := range r.gates() {
			if g.Name == "faults_with_effect" {
				return g.Holds
			}
		}
		t.Fatal("there is no such gate")
		return false
	}
	for k := range catalogue {
		r.w.tally.planned[k], r.w.tally.fired[k], r.w.tally.effect[k] = 100, 50, 20
	}
	if !gate() {
		t.Error("all had an effect")
	}
	r.w.tally.effect[swizzle] = 0
	if gate() {
		t.Error("one fired and had no effect")
	}
	r.w.tally.effect[swizzle], r.w.tally.fired[loseAnswer] = 1, 0
	if gate() {
		t.Error("one never fired")
	}
	r.w.tally.fired[loseAnswer], r.w.forgedBy[3].fired = 1, 100
	if gate() {
		t.Error("a class of forgery came and was never refused")
	}
}

func TestTheQueueIsOrderedByTimeAndThenByWhoCameFirst(t *testing.T) {
	var q queue
	s := stream{1}
	var want []task
	for i := range 1000 {
		x := task{at: int64(s.below(50)), who: int16(i)}
		q.push(x)
		want = append(want, x)
	}
	slices.SortStableFunc(want, func(a, b task) int { return int(a.at - b.at) })
	for i := range want {
		got, ok := q.pop()
		if !ok || got.at != want[i].at || got.who != want[i].who {
			t.Fatalf("task %d: got %+v, want %+v", i, got, want[i])
		}
	}
	if _, ok := q.pop(); ok {
		t.Error("there is one more")
	}
}

func TestReduceFindsTheFewThatFail(t *testing.T) {
	var all []item
	for i := range 100 {
		all = append(all, item(i))
	}
	got := reduce(all, func(some []item) bool { return slices.Contains(some, 17) && slices.Contains(some, 83) })
	if !slices.Equal(got, []item{17, 83}) {
		t.Errorf("got %v", got)
	}
	if got := reduce(all, func([]item) bool { return true }); got == nil || len(got) != 0 {
		t.Errorf("what always fails needs nothing: got %v", got)
	}
}

func TestAPlanWithSomethingLeftOutIsThePlanOtherwise(t *testing.T) {
	var a, b plan
	var roomA, roomB []fault
	a.make(9, 4, &roomA)
	b.make(9, 4, &roomB)
	b.keep(b.items()[:5])
	if a.seed != b.seed || a.rounds[7].writes != b.rounds[7].writes || a.ppm != b.ppm {
		t.Error("leaving out has changed what stays")
	}
	faults, two, three := 0, 0, 0
	for n := range 200 {
		a.make(9, n, &roomA)
		for i := range a.rounds {
			switch len(a.rounds[i].faults) {
			case 3:
				three++
			case 2:
				two++
			}
			faults += len(a.rounds[i].faults)
		}
	}
	of := 200 * planned
	if share := float64(two) / float64(of); share < 0.09 || share > 0.11 {
		t.Errorf("%.3f of the rounds have two faults", share)
	}
	if share := float64(three) / float64(of); share < 0.015 || share > 0.025 {
		t.Errorf("%.3f of the rounds have three faults", share)
	}
	if faults == 0 {
		t.Error("no faults")
	}
}

func TestAClockMayRunFastStandStillAndJump(t *testing.T) {
	c := clock{ppm: 10_000}
	if got := c.read(1000 * ms); got != 1010*ms {
		t.Errorf("1 %% fast: %d", got)
	}
	if at := c.when(0, 1010*ms); at < 990*ms || c.read(at) < 1010*ms-ms || c.read(at) > 1011*ms {
		t.Errorf("it shows 1.01 s at %d", at)
	}
	c.set(1000*ms, 0, true)
	if got := c.read(5000 * ms); got != 1010*ms {
		t.Errorf("it stands still: %d", got)
	}
	c.set(5000*ms, 0, false)
	c.jump(6000*ms, -500*ms)
	if got := c.read(6000 * ms); got != 1510*ms {
		t.Errorf("after a jump: %d", got)
	}
}

// A world does not depend on the worlds before it.
func TestAWorldStandsAlone(t *testing.T) {
	for _, unsigned := range []bool{true, false} {
		for _, variant := range []string{"", "epoch-compared-with-itself"} {
			r, err := newRun(Options{Seed: 5, Unsigned: unsigned, Variant: variant})
			if err != nil {
				t.Fatal(err)
			}
			worlds := 150
			if !unsigned {
				worlds = 4
			}
			for n := range worlds {
				r.p.make(5, n, &r.room)
				r.world(n, planned)
				if again := r.rerun(n, nil, nil, n%2 == 0); again.trace != r.w.trace || again.trace == 0 {
					t.Fatalf("unsigned %t, variant %q, world %d: %x, and again %x", unsigned, variant, n, r.w.trace, again.trace)
				}
			}
		}
	}
}

// R20: a restored resource is declared once, however many operators are on their way. In
// this world one waits for an authority that is frozen when the faults stop, and the calm
// sends another: the window that the second one closes must not be opened anew by the
// first, or the work of the calm is refused until no owner is left to settle it.
func TestARestoreIsDeclaredOnce(t *testing.T) {
	r, err := newRun(Options{Seed: 1, Unsigned: true})
	if err != nil {
		t.Fatal(err)
	}
	const world = 68071
	// The whole world, and what of it is enough: the restore, and the authority that is frozen.
	enough := []item{36, faultItem(36, 0), 39, faultItem(39, 0), 42, 45}
	for _, kept := range [][]item{nil, enough} {
		w := r.rerun(world, kept, nil, true)
		if w.stopped {
			t.Errorf("kept %v: %s: %s", kept, w.violation.kind, w.violation.detail)
		}
		waits, late := 0, 0 // restores that nobody has declared; those declared in the calm
		calm := false
		for _, e := range w.events {
			switch {
			case e.what == noteCalm:
				calm = true
			case e.what == noteRestored && e.who == actorResource && e.text == "declared":
				waits++
			case e.what == noteDeclared:
				if waits--; calm {
					late++
				}
			}
			if waits < 0 {
				t.Fatalf("kept %v: a restore is declared once more, %v", kept, duration(e.at))
			}
		}
		if waits != 0 || late != 1 {
			t.Errorf("kept %v: %d restores are not declared, %d are in the calm: the world does not show it any more", kept, waits, late)
		}
	}
}

// R10: a copy of the store from within a run is put back with the command that says so,
// also while that run goes on under an older epoch than the witness's: a process of this
// world has not looked since the other one started when the copy comes.
func TestACopyFromWithinARunSaysThatItIsOne(t *testing.T) {
	r, err := newRun(Options{Seed: 1, Unsigned: true})
	if err != nil {
		t.Fatal(err)
	}
	const world = 116293
	w := r.rerun(world, nil, nil, true)
	if w.stopped {
		t.Errorf("%s: %s", w.violation.kind, w.violation.detail)
	}
	var held [processes]uint64 // the epochs under which they run
	shows := false
	for _, e := range w.events {
		switch k := int(actorAuthority1 - e.who); {
		case k >= 0 && k < processes && (e.what == noteStarted || e.what == noteMoved):
			held[k] = e.fence
		case e.what == noteRestored && e.who == actorOperator && held[0] != held[1] && (held[0] == e.fence || held[1] == e.fence):
			shows = true
		}
	}
	if !shows {
		t.Error("no copy comes to a process whose epoch it has, and not the other one's: the world does not show it any more")
	}
}
