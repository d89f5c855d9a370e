package sqlfence_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/lastword/lastword"
)

// said is the verdict on a write, whether it came as a receipt or as a refusal.
func said(r lastword.Receipt, err error) lastword.Verdict {
	var refusal *lastword.Error
	if errors.As(err, &refusal) {
		return lastword.Verdict(refusal.Code)
	}
	if err != nil {
		return lastword.Verdict(err.Error())
	}
	return r.Verdict
}

// X37: a roll-out from shadow to enforce, then wider, while writers go on, with a
// resource whose old worker still writes. What shadow counts is what enforce refuses, and
// no check is ever off: nothing passes what was enforced, a second client that knows of
// no roll-out included.
func TestX37FromShadowToEnforceInMidTraffic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newSeal(t)
	rolling, _ := database(t)
	always, _ := database(t)
	cfg := s.config()
	cfg.Rollout = true
	shadow, later := guard(t, rolling, cfg), guard(t, rolling, s.config())
	enforced := guard(t, always, s.config()) // hears the same, and was never in shadow
	if err := shadow.Place().Shadow(t.Context(), domain, "doc/", anna); err != nil {
		t.Fatal(err)
	}
	resources := []lastword.Resource{"doc/a", "doc/b", "doc/c"}
	var ended [3]atomic.Bool // of each resource: told after the end is durable
	type worker struct {
		resource lastword.Resource
		index    int
		here     *holder
		twin     *holder
		late     bool
	}
	var workers []worker
	for i, r := range resources {
		mustPut(t, shadow, s.holder(r, "old", 41), r, "first", "old")
		mustPut(t, enforced, s.holder(r, "old", 41), r, "first", "old")
		mustPut(t, shadow, s.holder(r, "new", 42), r, "second", "new")
		mustPut(t, enforced, s.holder(r, "new", 42), r, "second", "new")
		workers = append(workers, worker{r, i, s.holder(r, "new", 43), s.holder(r, "new", 43), false})
		if i > 0 { // doc/a has nobody left who is late
			workers = append(workers, worker{r, i, s.holder(r, "old", 41), s.holder(r, "old", 41), true})
		}
	}
	var counted, refused atomic.Int64
	step := func(w worker, n int) error {
		operation, value := fmt.Sprintf("%v-%d", w.late, n), "new"
		if w.late {
			value = "late"
		}
		f := shadow
		if n%3 == 2 && ended[w.index].Load() {
			f = later
		}
		over := ended[w.index].Load()
		got, err := put(t.Context(), f, w.here, w.resource, operation, value)
		verdict := said(got, err)
		want := said(put(t.Context(), enforced, w.twin, w.resource, operation, value))
		would, passed := verdict.Shadowed()
		switch {
		case passed && over:
			return fmt.Errorf("%s passed with %s after the end of the roll-out", operation, verdict)
		case passed && would != want, !passed && verdict != want:
			return fmt.Errorf("%s of %s: %s here, %s where it was always enforced", operation, w.resource, verdict, want)
		case w.late != (want == lastword.StaleOwner):
			return fmt.Errorf("%s of %s: %s", operation, w.resource, want)
		case passed:
			counted.Add(1)
		case w.late:
			refused.Add(1)
		}
		return nil
	}
	random := rand.New(rand.NewPCG(seed, 0))
	next := map[int]int{}
	run := func(rounds int) {
		for range rounds {
			i := random.IntN(len(workers))
			next[i]++
			if err := step(workers[i], next[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	// beside runs traffic in its own goroutine while an operator acts.
	beside := func(act func()) {
		errs := make(chan error, 1)
		stop := make(chan struct{})
		go func() {
			for n := 10_000; ; n++ {
				select {
				case <-stop:
					errs <- nil
					return
				default:
				}
				if err := step(workers[2], n); err != nil {
					errs <- err
					return
				}
			}
		}()
		act()
		close(stop)
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	enforce := func(prefix string, index ...int) {
		beside(func() {
			if _, err := shadow.Place().Enforce(t.Context(), domain, prefix, anna); err != nil {
				t.Fatal(err)
			}
			for _, i := range index {
				ended[i].Store(true)
			}
		})
	}
	run(60)
	if counted.Load() == 0 || refused.Load() != 0 {
		t.Fatalf("in shadow %d writes were counted, %d refused", counted.Load(), refused.Load())
	}
	enforce("doc/b", 1)
	mustPut(t, shadow, s.holder("doc/b", "new", 44), "doc/b", "newest", "newest")
	mustPut(t, enforced, s.holder("doc/b", "new", 44), "doc/b", "newest", "newest")
	workers[1].here, workers[1].twin = s.holder("doc/b", "new", 45), s.holder("doc/b", "new", 45)
	run(60)
	if refused.Load() == 0 {
		t.Fatal("nothing was refused after the first resource was enforced")
	}
	enforce("doc/", 0, 1, 2)
	before := counted.Load()
	run(60)
	if counted.Load() != before {
		t.Errorf("%d writes passed after the end", counted.Load()-before)
	}
	if err := shadow.Place().Shadow(t.Context(), domain, "doc/", anna); !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("the roll-out begins again: %v", err)
	}
	var times int64
	all, err := shadow.Place().Refusals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Verdict == lastword.StaleOwner.Shadow() {
			times += int64(r.Times)
		}
	}
	if times != counted.Load() {
		t.Errorf("the database counted %d, the writers were told of %d", times, counted.Load())
	}
}

// R18: of very many writes past the fence one of a hundred is kept, and what is counted is
// said to be an estimate then. Writers that take turns are both seen.
func TestACountOfWhatBypassesSaysWhenItIsAnEstimate(t *testing.T) {
	shadow := whole
	shadow.Shadow = true
	p := pgProtect(t, pgDocuments, shadow)
	const turns = 2000 // that none of them is kept has a chance of 2e-9
	write := func(n int) {
		p.admitted(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP UPDATE doc SET body = i::text WHERE id = 'a'; UPDATE doc SET body = i::text WHERE id = 'b'; END LOOP; END $$`, n))
	}
	estimated := func() (whole, one bool) {
		counts, err := p.fence.Place().Refusals(t.Context())
		if err != nil || len(counts) != 1 || counts[0].Verdict != lastword.FenceRequired.Shadow() || counts[0].Times == 0 {
			t.Fatalf("%+v, %v", counts, err)
		}
		in, err := p.fence.Inspect(t.Context(), "doc/a")
		if err != nil {
			t.Fatal(err)
		}
		return counts[0].Estimated, in.Estimated
	}
	write(5)
	if whole, one := estimated(); whole || one || count(t, p.db, `SELECT sum(weight) FROM lastword.bypass`) != 10 {
		t.Errorf("few writes: estimated %v %v, %s", whole, one, p.evidence("doc/a"))
	}
	mustExec(t, p.db, `SELECT setval('lastword.bypass_number_seq', 10000)`)
	write(turns)
	if whole, one := estimated(); !whole || !one {
		t.Errorf("many writes: estimated %v %v", whole, one)
	}
	for _, r := range []string{"doc/a", "doc/b"} {
		n := count(t, p.db, `SELECT count(*) FROM lastword.bypass WHERE weight = 100 AND resource = '`+r+`'`)
		if n == 0 || n > turns/20 {
			t.Errorf("%d of %d writes of %s were kept", n, turns, r)
		}
	}
	mustExec(t, p.db, `TRUNCATE lastword.bypass RESTART IDENTITY`)
	write(1)
	if whole, one := estimated(); whole || one {
		t.Errorf("counted anew: estimated %v %v", whole, one)
	}
}
