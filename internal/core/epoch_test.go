package core_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// The search below explores every order of the durable steps of two starting (or
// advancing) processes, with a crash before each of them, over one store or over two
// copies of one. Everything is small enough to be a map key.

const (
	pcLook = iota // read the store
	pcWitness
	pcAgain // read the store again: both must be of one moment
	pcPlan  // make the planned witness durable
	pcStore // set the store's epoch
	pcSettle
	pcRelook // the settling met another witness: look again, in the same three steps
	pcRewitness
	pcReagain
	pcFollow // make At durable
	pcGrants
	pcRefused
)

// starter is one process.
type starter struct {
	pc      int
	store   int // which copy it runs on
	crashes int // how often it may still crash
	advance bool
	header  core.Header
	found   core.Witness
	missing bool // the witness, when it was read
	plan    core.Start
	planned core.Header
	epoch   uint32 // granted under
}

type scene struct {
	stores  [2]core.Header
	witness core.Witness
	missing bool
	procs   [2]starter
}

// search goes through every reachable scene once.
type search struct {
	t       *testing.T
	seen    map[reached]bool
	granted int
	refused int
	// excused: a refusal is right in this scene (a copy, a real regression).
	excused bool
}

// history is what must be remembered beside the scene: for each epoch 1 + the store on
// which it was granted under.
type history [32]int8

type reached struct {
	sc scene
	h  history
}

func (s *search) explore(sc scene, h history, depth int, path []string) {
	if depth > 200 {
		s.t.Fatalf("a start does not end: %v", path)
	}
	key := reached{sc, h}
	if s.seen[key] {
		return
	}
	s.seen[key] = true
	for i := range sc.procs {
		p := sc.procs[i]
		if p.pc == pcGrants || p.pc == pcRefused {
			continue
		}
		s.take(sc, h, i, depth, path)
		if p.crashes > 0 {
			next := sc
			next.procs[i] = starter{store: p.store, crashes: p.crashes - 1, advance: p.advance}
			s.explore(next, h, depth+1, append(path[:len(path):len(path)], fmt.Sprintf("%d crashes at %d", i, p.pc)))
		}
	}
}

func (s *search) take(sc scene, h history, i, depth int, path []string) {
	was := sc.procs[i].pc
	sc.step(i)
	p := sc.procs[i]
	path = append(path[:len(path):len(path)], fmt.Sprintf("%d: from %d to %d", i, was, p.pc))
	switch p.pc {
	case pcGrants:
		s.granted++
		on := int8(p.store) + 1
		if h[p.epoch] != 0 && h[p.epoch] != on {
			s.t.Fatalf("epoch %d is granted under on two stores:\n%s", p.epoch, strings.Join(path, "\n"))
		}
		h[p.epoch] = on
	case pcRefused:
		s.refused++
		if !s.excused {
			s.t.Fatalf("a start is refused (%s):\n%s", p.plan.Why, strings.Join(path, "\n"))
		}
	}
	s.explore(sc, h, depth+1, path)
}

// step is the next step of one process. Reads and durable writes are one each.
func (sc *scene) step(i int) {
	p := &sc.procs[i]
	store := &sc.stores[p.store]
	switch p.pc {
	case pcLook, pcRelook:
		p.header = *store
		p.pc++
	case pcWitness, pcRewitness:
		p.found, p.missing = sc.witness, sc.missing
		p.pc++
	case pcAgain, pcReagain:
		if *store != p.header {
			p.pc -= 2
			return
		}
		p.decide()
	case pcPlan:
		if sc.missing != p.missing || !sc.missing && sc.witness != p.found {
			p.pc = pcLook
			return
		}
		sc.witness, sc.missing = p.plan.Witness, false
		p.pc = pcStore
	case pcStore:
		if store.Exists != p.header.Exists || store.Epoch != p.header.Epoch {
			p.pc = pcLook
			return
		}
		*store = p.planned
		p.pc = pcSettle
	case pcSettle:
		if sc.witness != p.plan.Witness {
			p.pc = pcRelook
			return
		}
		sc.witness = p.plan.Witness.Settled()
		p.epoch, p.pc = p.plan.Epoch, pcGrants
	case pcFollow:
		if sc.witness != p.found {
			p.pc = pcRelook
			return
		}
		sc.witness = p.found.At(p.header.Epoch)
		p.epoch, p.pc = p.header.Epoch, pcGrants
	}
}

// decide is what the rules say to what was read in one moment.
func (p *starter) decide() {
	w := &p.found
	if p.missing {
		w = nil
	}
	if p.pc == pcReagain {
		switch core.Compare(p.plan.Epoch, p.header, w) {
		case core.Steady, core.Moved:
			p.pc = pcFollow
		case core.Regressed:
			p.pc = pcRefused
		}
		return
	}
	p.plan = core.PlanStart(p.header, w)
	p.planned = p.header
	p.planned.Exists, p.planned.Witnessed, p.planned.Epoch = true, true, p.plan.Epoch
	p.planned.Identity = p.plan.Witness.Store
	if p.advance && p.plan.Code == lastword.CodeFenceRegression {
		p.plan, p.planned = core.PlanAdvance(p.header, w)
		p.planned.Witnessed = true
	}
	if p.plan.Code != "" {
		p.pc = pcRefused
		return
	}
	p.pc = pcPlan
}

func exploreScene(t *testing.T, sc scene, excused bool) *search {
	t.Helper()
	s := &search{t: t, seen: map[reached]bool{}, excused: excused}
	s.explore(sc, history{}, 0, nil)
	t.Logf("%d states, %d grants, %d refusals", len(s.seen), s.granted, s.refused)
	if s.granted == 0 {
		t.Fatal("no start ever finished")
	}
	return s
}

func two(storeA, storeB, crashesA, crashesB int) [2]starter {
	return [2]starter{{store: storeA, crashes: crashesA}, {store: storeB, crashes: crashesB}}
}

func TestFirstStartsOfOneEmptyStoreAlwaysEndAndNeverRegress(t *testing.T) {
	empty := core.Header{Identity: "s", TickSpan: 1}
	exploreScene(t, scene{stores: [2]core.Header{empty, empty}, missing: true, procs: two(0, 0, 2, 1)}, false)
}

func TestLaterStartsOfOneStoreAlwaysEndAndNeverRegress(t *testing.T) {
	h := core.Header{Exists: true, Identity: "s", TickSpan: 1, Epoch: 5, Witnessed: true}
	w := core.Witness{Current: 5, Pending: 5, Store: "s"}
	exploreScene(t, scene{stores: [2]core.Header{h, h}, witness: w, procs: two(0, 0, 1, 1)}, false)
}

func TestStartsThatAdoptAStoreWithoutAWitnessAlwaysEnd(t *testing.T) {
	h := core.Header{Exists: true, Identity: "s", TickSpan: 1, Epoch: 5}
	exploreScene(t, scene{stores: [2]core.Header{h, h}, missing: true, procs: two(0, 0, 1, 1)}, false)
}

// R10, P2: whatever the order and wherever a process crashes, two copies of one store
// are never granted from under one epoch.
func TestTwoCopiesOfAStoreNeverShareAnEpoch(t *testing.T) {
	h := core.Header{Exists: true, Identity: "s", TickSpan: 1, Epoch: 5, Witnessed: true}
	w := core.Witness{Current: 5, Pending: 5, Store: "s"}
	s := exploreScene(t, scene{stores: [2]core.Header{h, h}, witness: w, procs: two(0, 1, 2, 2)}, true)
	if s.refused == 0 {
		t.Fatal("a copy was never noticed")
	}
}

func TestTwoEmptyStoresBesideOneWitnessNeverShareAnEpoch(t *testing.T) {
	a := core.Header{Identity: "a", TickSpan: 1}
	b := core.Header{Identity: "b", TickSpan: 1}
	s := exploreScene(t, scene{stores: [2]core.Header{a, b}, missing: true, procs: two(0, 1, 2, 2)}, true)
	if s.refused == 0 {
		t.Fatal("the second store was never noticed")
	}
}

// R10: an operator's advance that crashes is found again as a regression until the
// header that ends the tenures is in the store; a plain start never slips through.
func TestAnInterruptedAdvanceLetsNoStartSlipThrough(t *testing.T) {
	for _, found := range []core.Header{
		{Exists: true, Identity: "s", TickSpan: 1, Epoch: 3, Witnessed: true},     // restored
		{Exists: true, Identity: "other", TickSpan: 1, Epoch: 7, Witnessed: true}, // exchanged
		{Identity: "new", TickSpan: 1},                                            // emptied
	} {
		w := core.Witness{Current: 5, Pending: 6, Longest: 20, Store: "s"}
		for crash := range 3 {
			plan, header := core.PlanAdvance(found, &w)
			if plan.Code != "" || plan.Epoch <= 6 || plan.Epoch <= found.Epoch {
				t.Fatalf("%+v: %+v", found, plan)
			}
			store, witness := found, plan.Witness
			if crash >= 1 {
				store = header
			}
			if crash >= 2 {
				witness = witness.Settled()
			}
			again := core.PlanStart(store, &witness)
			if crash == 0 && again.Code != lastword.CodeFenceRegression {
				t.Errorf("%+v: a crash after the witness hides the regression: %+v", found, again)
			}
			if crash > 0 && (again.Code != "" || store.Floor != plan.Epoch || store.HoldUntil != store.Tick+21) {
				t.Errorf("%+v: after %d steps: %+v, %+v", found, crash+1, again, store)
			}
		}
	}
}

func TestAdvancesAndStartsOfARestoredStoreAlwaysEnd(t *testing.T) {
	h := core.Header{Exists: true, Identity: "s", TickSpan: 1, Epoch: 3, Witnessed: true}
	w := core.Witness{Current: 5, Pending: 5, Longest: 20, Store: "s"}
	procs := two(0, 0, 2, 1)
	procs[0].advance = true
	s := exploreScene(t, scene{stores: [2]core.Header{h, h}, witness: w, procs: procs}, true)
	if s.refused == 0 {
		t.Fatal("the plain start was never refused")
	}
}

// KF-16: what the witness shows to a start that finds something else in the store.
func TestAStartFindsEveryRegression(t *testing.T) {
	w := core.Witness{Current: 5, Pending: 5, Store: "s"}
	starting := core.Witness{Current: 5, Pending: 7, Starting: true, Store: "s"}
	at := func(epoch uint32) core.Header {
		return core.Header{Exists: true, Identity: "s", Epoch: epoch, Witnessed: true}
	}
	other := at(5)
	other.Identity = "t"
	for _, c := range []struct {
		name string
		h    core.Header
		w    *core.Witness
		code lastword.Code
	}{
		{"the same", at(5), &w, ""},
		{"an older store", at(4), &w, lastword.CodeFenceRegression},
		{"a newer store", at(6), &w, lastword.CodeFenceRegression},
		{"an unfinished start", at(5), &starting, ""},
		{"an unfinished start, further", at(6), &starting, ""},
		{"an unfinished start, as far as it goes", at(7), &starting, ""},
		{"beyond the unfinished start", at(8), &starting, lastword.CodeFenceRegression},
		{"below the unfinished start", at(4), &starting, lastword.CodeFenceRegression},
		{"another store", other, &w, lastword.CodeFenceRegression},
		{"no witness", at(5), nil, lastword.CodeFenceRegression},
		{"no store", core.Header{Identity: "s"}, &w, lastword.CodeFenceRegression},
		{"no store during a later start", core.Header{Identity: "s"}, &starting, lastword.CodeFenceRegression},
		{"the last epoch", at(lastword.MaxEpoch), &core.Witness{Current: lastword.MaxEpoch, Store: "s"}, lastword.CodeExhausted},
		{"one before the last epoch", at(lastword.MaxEpoch - 1), &core.Witness{Current: lastword.MaxEpoch - 1, Store: "s"}, ""},
	} {
		got := core.PlanStart(c.h, c.w)
		if got.Code != c.code {
			t.Errorf("%s: %+v", c.name, got)
		}
		if got.Code == "" && (got.Epoch != max(c.h.Epoch, c.w.Pending)+1 || got.Witness.Pending != got.Epoch || got.Witness.Current != c.h.Epoch) {
			t.Errorf("%s: plans %+v", c.name, got)
		}
	}
}

// R10: only while no start has ever finished is an empty store no loss.
func TestAnEmptyStoreIsALossOnceAStoreWasSeen(t *testing.T) {
	empty := core.Header{Identity: "s", TickSpan: 1}
	first := core.PlanStart(empty, nil)
	if again := core.PlanStart(empty, &first.Witness); again.Code != "" || again.Epoch == first.Epoch || again.Witness.Store != "s" {
		t.Errorf("a first start that crashed: %+v, then %+v", first, again)
	}
	settled := first.Witness.Settled()
	created := core.Header{Exists: true, Identity: "s", Epoch: 0}
	second := core.PlanStart(created, &first.Witness) // the first start crashed after the store
	for name, w := range map[string]core.Witness{"settled": settled, "a second start": second.Witness} {
		if got := core.PlanStart(empty, &w); got.Code != lastword.CodeFenceRegression {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// At goes on with an epoch that the witness knows; a start that planned a later one
// stays under way.
func TestAWitnessGoesOnWithTheEpochOfTheStore(t *testing.T) {
	starting := core.Witness{Current: 5, Pending: 7, Starting: true, First: true, Store: "s"}
	settled := core.Witness{Current: 5, Pending: 7, Store: "s"}
	for _, c := range []struct {
		w     core.Witness
		epoch uint32
		want  core.Witness
	}{
		{starting, 5, core.Witness{Current: 5, Pending: 7, Starting: true, Store: "s"}},
		{starting, 6, core.Witness{Current: 6, Pending: 7, Starting: true, Store: "s"}},
		{starting, 7, core.Witness{Current: 7, Pending: 7, Store: "s"}},
		{starting, 8, starting},
		{starting, 4, starting},
		{settled, 5, settled},
		{settled, 6, settled},
	} {
		if got := c.w.At(c.epoch); got != c.want {
			t.Errorf("%+v at %d: %+v, want %+v", c.w, c.epoch, got, c.want)
		}
	}
	if got := starting.Settled(); got != starting.At(7) {
		t.Errorf("settled: %+v", got)
	}
	if settled.Settled() != settled {
		t.Error("what is settled changes")
	}
}

func TestARunningProcessComparesItsEpoch(t *testing.T) {
	at := func(epoch uint32) core.Header {
		return core.Header{Exists: true, Identity: "s", Epoch: epoch, Witnessed: true}
	}
	alone := at(5)
	alone.Witnessed = false
	for _, c := range []struct {
		name string
		h    core.Header
		w    *core.Witness
		want core.Drift
	}{
		{"nothing changed", at(5), &core.Witness{Current: 5, Store: "s"}, core.Steady},
		{"another one is starting", at(5), &core.Witness{Current: 5, Pending: 6, Starting: true, Store: "s"}, core.Steady},
		{"another one has set the store", at(6), &core.Witness{Current: 5, Pending: 6, Starting: true, Store: "s"}, core.Moved},
		{"another one has started", at(6), &core.Witness{Current: 6, Pending: 6, Store: "s"}, core.Moved},
		{"the witness is ahead", at(5), &core.Witness{Current: 6, Pending: 6, Store: "s"}, core.Regressed},
		{"the store is ahead", at(7), &core.Witness{Current: 6, Pending: 6, Store: "s"}, core.Regressed},
		{"store and witness went back", at(4), &core.Witness{Current: 4, Pending: 4, Store: "s"}, core.Regressed},
		{"the witness is of another store", at(5), &core.Witness{Current: 5, Store: "t"}, core.Regressed},
		{"the witness is gone", at(5), nil, core.Regressed},
		{"there never was a witness", alone, nil, core.Steady},
		{"the store is gone", core.Header{Identity: "s"}, &core.Witness{Current: 5, Store: "s"}, core.Regressed},
	} {
		if got := core.Compare(5, c.h, c.w); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	moved := alone
	moved.Epoch = 6
	if core.Compare(5, moved, nil) != core.Regressed {
		t.Error("another epoch that no witness explains")
	}
}

// R10: the wait after a regression fails closed and never shrinks.
func TestTheWaitAfterARegressionIsNeverTooShort(t *testing.T) {
	h := core.Header{Exists: true, Identity: "s", TickSpan: 1e8, Tick: 1000, Epoch: 3, Witnessed: true}
	day := core.Ticks(core.LongestTTL, h.TickSpan)
	_, blind := core.PlanAdvance(h, nil)
	if blind.HoldUntil != 1000+day {
		t.Errorf("without a witness: until %d", blind.HoldUntil)
	}
	_, known := core.PlanAdvance(h, &core.Witness{Longest: 30e9})
	if known.HoldUntil != 1000+301 || known.Floor != known.Epoch {
		t.Errorf("with a longest TTL of 30 s: %+v", known)
	}
	blind.Tick += 5
	if _, twice := core.PlanAdvance(blind, &core.Witness{Longest: 1}); twice.HoldUntil != blind.HoldUntil {
		t.Errorf("a second advance shortened the wait to %d", twice.HoldUntil)
	}
	adopted := core.PlanStart(core.Header{Exists: true, Identity: "s", TickSpan: 1e8, Epoch: 3}, nil)
	if !adopted.Adopted || adopted.Witness.Longest != core.LongestTTL {
		t.Errorf("an adopted witness forgets what was granted before it: %+v", adopted)
	}
	if plan, _ := core.PlanAdvance(h, nil, 45, 7); plan.Epoch != 46 {
		t.Errorf("epoch 45 was found, planned %d", plan.Epoch)
	}
	last := core.Header{Exists: true, Epoch: lastword.MaxEpoch, TickSpan: 1}
	if plan, after := core.PlanAdvance(last, nil); plan.Code != lastword.CodeExhausted || after != last {
		t.Errorf("beyond the last epoch: %+v", plan)
	}
	edge := h
	edge.Tick = math.MaxUint64 - 3
	if _, after := core.PlanAdvance(edge, nil); after.HoldUntil != math.MaxUint64 {
		t.Errorf("the wait wrapped to %d", after.HoldUntil)
	}
}
