package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/store/sqlstore"
)

// killPoints are the steps at which an authority is made to kill itself. Those of
// the start are R10's three: announce, set, settle.
func killPoints() (points []killPoint) {
	for _, p := range []struct {
		phase, op string
		nth       int32
		when      string
	}{
		{"start", "read", 1, "after"},
		{"start", "load", 1, "before after"},
		{"start", "swap", 1, "before after"},
		{"start", "commit", 1, "before amid after"},
		{"start", "swap", 2, "before after"},
		{"run", "swap", 1, "before amid after"},
		{"run", "commit", 0, "before amid after"},
		{"run", "read", 0, "before after"},
	} {
		for when := range strings.SplitSeq(p.when, " ") {
			points = append(points, killPoint{Phase: p.phase, Op: p.op, When: when, Nth: p.nth})
		}
	}
	return points
}

func (k killPoint) kind() string {
	if k.Phase == "start" {
		return fmt.Sprintf("%s %d", k, k.Nth)
	}
	return k.String()
}

// killing is one run of the kill loop.
type killing struct {
	t      testing.TB
	random *rand.Rand
	config authorityConfig
	tried  map[string]int
	fired  map[string]int
}

// exact starts an authority that kills itself at a point.
func (k *killing) exact(p killPoint) {
	if p.Nth == 0 {
		p.Nth = 1 + k.random.Int32N(25)
	}
	c := k.config
	c.Kill = p
	a := spawn(k.t, "run-as-authority", c)
	k.tried[p.kind()]++
	late := time.NewTimer(3 * time.Second)
	defer late.Stop()
	select {
	case <-a.gone:
		if !a.killed() {
			k.t.Fatalf("the authority ended by itself, kill point %v: %v: %s", p, a.err, a.said)
		}
		k.fired[p.kind()]++
	case <-late.C:
		a.kill(k.t)
	}
}

// anywhere kills an authority at a random moment, of its start or of its work.
func (k *killing) anywhere() {
	a := spawn(k.t, "run-as-authority", k.config)
	k.tried["anywhere"]++
	if k.random.IntN(3) > 0 {
		if _, ok := a.expect(k.t, "ready "); !ok {
			<-a.gone
			k.t.Fatalf("the authority did not start: %v: %s", a.err, a.said)
		}
	}
	time.Sleep(time.Duration(k.random.Int64N(int64(250 * time.Millisecond))))
	a.kill(k.t)
	if !a.killed() {
		k.t.Fatalf("the authority ended by itself: %v: %s", a.err, a.said)
	}
	k.fired["anywhere"]++
}

func TestAuthorityKilledBetweenAnyTwoStepsLosesNothing(t *testing.T) { // R1, R2, R4, R8, R10
	t.Parallel()
	kills := 200
	if testing.Short() {
		kills = 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	k := &killing{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), tried: map[string]int{}, fired: map[string]int{},
		config: authorityConfig{Dir: t.TempDir(), Addr: steadyAddr(t), Tick: 20 * time.Millisecond},
	}
	seen := &book{}
	crew := newCrew(t, k.config.Addr, seed, seen)
	began := history.Clock()
	points := killPoints()
	if testing.Short() {
		k.random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	}
	for i := range kills {
		if i%2 == 0 {
			k.exact(points[i/2%len(points)])
		} else {
			k.anywhere()
		}
	}
	t.Logf("%d kills in %v", kills, history.Clock()-began)
	a, _ := serve(t, k.config)
	time.Sleep(time.Second) // of undisturbed work
	crew.finish()
	end(t, a)

	for _, kind := range slices.Sorted(maps.Keys(k.tried)) {
		t.Logf("%-24s killed %d of %d", kind, k.fired[kind], k.tried[kind])
		if k.fired[kind] == 0 {
			t.Errorf("kill point %s was never reached", kind)
		}
	}
	verifyAll(t, k.config.Dir, seen.all())
}

// end stops an authority as a service is stopped.
func end(t testing.TB, a *kid) {
	t.Helper()
	_ = a.in.Close()
	<-a.gone
	if a.err != nil {
		t.Errorf("the authority ended with %v: %s", a.err, a.said)
	}
}

// verifyAll looks through a history and the store that it left.
func verifyAll(t testing.TB, dir string, facts []history.Fact) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), authorityPath(dir), sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wrong := history.Verify(facts)
	inStore, err := history.VerifyStore(t.Context(), facts, s)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range append(wrong, inStore...) {
		if i == 10 {
			t.Errorf("and %d more", len(wrong)+len(inStore)-10)
			break
		}
		t.Error(w)
	}
	counts := map[string]int{}
	for _, f := range facts {
		answered := f.Op + " " + string(f.Code)
		if f.Accepted() && f.Repeated {
			answered += "again"
		}
		counts[answered]++
	}
	t.Logf("%d calls: %v", len(facts), counts)
	for _, op := range []string{"acquire ", "acquire again", "renew ", "release ", "complete "} {
		if counts[op] == 0 {
			t.Errorf("no accepted %q: the history proves nothing", op)
		}
	}
}

// crew are the worker processes of a test, and one caller in this process that asks
// for longer and longer leases, so that the witness is written too.
type crew struct {
	t       testing.TB
	workers []*kid
	readers sync.WaitGroup
	stop    context.CancelFunc
	mu      sync.Mutex
	done    int
	lost    int
}

func newCrew(t testing.TB, addr string, seed uint64, seen *book) *crew {
	t.Helper()
	c := &crew{t: t}
	for i := range 3 {
		w := spawn(t, "run-as-worker", workerConfig{Addr: addr, Name: fmt.Sprint("w", i), Seed: seed + uint64(i), Hands: 4})
		c.workers = append(c.workers, w)
		c.readers.Go(func() {
			for line := range w.lines {
				c.take(line, seen)
			}
		})
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	a := history.Recorder{Authority: dial(t, addr), Note: seen.note}
	c.readers.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			ttl := steadyTTL + time.Second + time.Duration(n)*time.Millisecond
			_, _ = a.Acquire(ctx, wanted(fmt.Sprint("longer/", n), "longer", "1", ttl, 0))
			time.Sleep(10 * time.Millisecond)
		}
	})
	return c
}

func (c *crew) take(line string, seen *book) {
	kind, rest, _ := strings.Cut(line, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case "fact":
		var f history.Fact
		if err := json.Unmarshal([]byte(rest), &f); err != nil {
			c.t.Errorf("%q: %v", line, err)
		}
		seen.note(f)
	case "violation":
		c.t.Error(rest)
	case "lost":
		c.lost++
	case "done":
		c.done++
	}
}

// finish lets every worker come to its end and waits for it.
func (c *crew) finish() {
	c.t.Helper()
	c.stop()
	for _, w := range c.workers {
		if _, err := w.in.Write([]byte("finish\n")); err != nil {
			c.t.Errorf("a worker has gone: %v: %s", err, w.said)
		}
	}
	for _, w := range c.workers {
		select {
		case <-w.gone:
		case <-time.After(2 * patience):
			c.t.Fatalf("a worker does not come to its end: %s", w.said)
		}
		if w.err != nil {
			c.t.Errorf("a worker ended with %v: %s", w.err, w.said)
		}
	}
	c.readers.Wait()
	if c.done != len(c.workers) {
		c.t.Errorf("%d of %d workers are done", c.done, len(c.workers))
	}
	c.t.Logf("steady leases lost: %d", c.lost)
}

func TestTheVeryFirstStartKilledAtEachStepCanBeRepeated(t *testing.T) { // R10
	t.Parallel()
	for i, p := range killPoints() {
		if p.Phase != "start" || testing.Short() && i%3 != 0 {
			continue
		}
		dir := t.TempDir()
		a := spawn(t, "run-as-authority", authorityConfig{Dir: dir, Kill: p})
		<-a.gone
		if !a.killed() {
			t.Fatalf("%s: the authority was not killed: %v %s", p.kind(), a.err, a.said)
		}
		b, addr := serve(t, authorityConfig{Dir: dir})
		tenure := mustAcquire(t, dial(t, addr), wanted("doc", "a", "1", time.Second, 0))
		if tenure.Fence.Counter() != 1 {
			t.Errorf("%s: the first fence is %s", p.kind(), tenure.Fence.Text())
		}
		end(t, b)
	}
}
