package authority_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// watcher is an observer that remembers, and can be made to do worse.
type watcher struct {
	mu       sync.Mutex
	answers  []authority.Answer
	commits  []authority.Commit
	ended    []authority.TenureEnd
	handed   []time.Duration
	failures int
	dropped  int
	state    authority.State

	answered func(authority.Answer)
	report   func(authority.Report)
}

func (w *watcher) Answered(_ context.Context, a authority.Answer) {
	if w.answered != nil {
		w.answered(a)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, a)
}

func (w *watcher) Report(r authority.Report) {
	if w.report != nil {
		w.report(r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits = append(w.commits, r.Commits...)
	w.ended = append(w.ended, r.Ended...)
	w.handed = append(w.handed, r.HandOvers...)
	w.failures += r.WitnessFailures
	w.dropped += r.Dropped
	w.state = r.State
}

// now is the state told last, once everything has been told.
func (w *watcher) now() authority.State {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// last is the answer told last.
func (w *watcher) last(t *testing.T) authority.Answer {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.answers) == 0 {
		t.Fatal("no answer was told")
	}
	return w.answers[len(w.answers)-1]
}

func wantState(t *testing.T, w *watcher, want authority.State) {
	t.Helper()
	if got := w.now(); got != want {
		t.Errorf("state: got %+v, want %+v", got, want)
	}
}

func TestAnObserverIsToldOfEveryAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		seen := &watcher{}
		a := w.open(authority.Config{Observer: seen})
		want := func(want authority.Answer) {
			t.Helper()
			want.Resource = "jobs/nightly"
			if got := seen.last(t); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		}
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		want(authority.Answer{Op: authority.OpAcquire, Fence: 1})
		mustAcquire(t, a, request("a", "1", time.Minute))
		want(authority.Answer{Op: authority.OpAcquire, Fence: 1, Repeated: true})
		_, err := a.Acquire(t.Context(), request("b", "1", time.Minute))
		wantCode(t, err, lastword.ErrHeld)
		want(authority.Answer{Op: authority.OpAcquire, Code: lastword.CodeHeld})
		_, err = a.Acquire(t.Context(), request("b", "2", -1))
		wantCode(t, err, lastword.ErrInvalid)
		want(authority.Answer{Op: authority.OpAcquire, Code: lastword.CodeInvalid})
		if _, err := a.Renew(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		want(authority.Answer{Op: authority.OpRenew, Fence: 1})
		if err := a.Complete(t.Context(), held.TenureRef, []byte("x")); err != nil {
			t.Fatal(err)
		}
		want(authority.Answer{Op: authority.OpComplete, Fence: 1})
		status(t, a)
		want(authority.Answer{Op: authority.OpStatus})

		short := waiting("b", "3", time.Minute)
		short.Wait = 10 * time.Second
		_, err = a.Acquire(t.Context(), short)
		wantCode(t, err, lastword.ErrHeld)
		want(authority.Answer{Op: authority.OpAcquire, Code: lastword.CodeHeld, Queued: true, Took: 10 * time.Second})

		b := background(t.Context(), a, waiting("b", "4", time.Minute))
		time.Sleep(5 * time.Second)
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		next := <-b
		synctest.Wait()
		seen.mu.Lock()
		got := slices.Clone(seen.answers[len(seen.answers)-2:])
		seen.mu.Unlock()
		for _, answer := range []authority.Answer{
			{Op: authority.OpAcquire, Resource: "jobs/nightly", Fence: 2, Queued: true, Took: 5 * time.Second},
			{Op: authority.OpRelease, Resource: "jobs/nightly", Fence: 1},
		} {
			if !slices.Contains(got, answer) {
				t.Errorf("got %+v, want %+v among them", got, answer)
			}
		}
		if err := a.Revoke(t.Context(), "jobs/nightly", next.tenure.Fence, "op", "test"); err != nil {
			t.Fatal(err)
		}
		want(authority.Answer{Op: authority.OpRevoke, Fence: 2})
		if err := a.Cancel(t.Context(), "jobs/nightly", "c", "1"); err != nil {
			t.Fatal(err)
		}
		want(authority.Answer{Op: authority.OpCancel})
	})
}

// TestAnObserverIsToldHowTenuresEnd: each of the four ends once, with how long it was
// held, and how long the next one had to wait for it.
func TestAnObserverIsToldHowTenuresEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		seen := &watcher{}
		a := w.open(authority.Config{Observer: seen})
		end := []func(lastword.Tenure) error{
			func(l lastword.Tenure) error { return a.Release(t.Context(), l.TenureRef) },
			func(l lastword.Tenure) error { return a.Revoke(t.Context(), l.Resource, l.Fence, "op", "test") },
			func(l lastword.Tenure) error { return a.Cancel(t.Context(), l.Resource, l.Owner, l.RequestID) },
		}
		held := mustAcquire(t, a, request("0", "1", time.Minute))
		for i, f := range end {
			next := background(t.Context(), a, waiting(string(rune('1'+i)), "1", time.Minute))
			time.Sleep(time.Duration(i+1) * time.Second)
			if err := f(held); err != nil {
				t.Fatal(err)
			}
			got := <-next
			if got.err != nil {
				t.Fatal(got.err)
			}
			held = got.tenure
		}
		if _, err := a.Renew(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		wantState(t, seen, authority.State{Epoch: epoch(t, a), Counter: 4, Live: 1})
		next := background(t.Context(), a, waiting("last", "1", time.Minute))
		time.Sleep(20 * time.Second)
		if got := seen.now(); got.Waiters != 1 || got.OldestWaiter < 19*time.Second || got.OldestWaiter > 20*time.Second {
			t.Errorf("somebody has waited for 20s: got %+v", got)
		}
		if got := <-next; got.err != nil {
			t.Fatal(got.err)
		}
		synctest.Wait()
		want := []authority.TenureEnd{
			{How: lastword.StateReleased, Held: time.Second, Known: true},
			{How: lastword.StateRevoked, Held: 2 * time.Second, Known: true},
			{How: lastword.StateCanceled, Held: 3 * time.Second, Known: true},
			{How: lastword.StateExpired, Held: time.Minute, Known: true},
		}
		if !slices.Equal(seen.ended, want) {
			t.Errorf("got  %+v\nwant %+v", seen.ended, want)
		}
		if len(seen.handed) != 4 {
			t.Fatalf("got %d hand-overs, want 4: %v", len(seen.handed), seen.handed)
		}
		for i, d := range seen.handed {
			if late := 5 * time.Millisecond; d > late {
				t.Errorf("hand-over %d took %v, more than %v", i, d, late)
			}
		}
	})
}

// TestAnObserverSeesLiveLeasesEndWithTheirDeadline although nobody asks for them.
func TestAnObserverSeesLiveLeasesEndWithTheirDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		seen := &watcher{}
		a := w.open(authority.Config{Observer: seen})
		for i := range 10 {
			r := request("a", "1", time.Duration(i+1)*10*time.Second)
			r.Resource = lastword.Resource("r/" + string(rune('0'+i)))
			mustAcquire(t, a, r)
		}
		for n := 10; n >= 0; n-- {
			if got := seen.now().Live; got != n {
				t.Fatalf("got %d live leases, want %d", got, n)
			}
			time.Sleep(10*time.Second + 300*time.Millisecond)
		}
		if len(seen.ended) != 0 {
			t.Errorf("an end was told that nobody made durable: %+v", seen.ended)
		}
	})
}

// TestAnObserverIsToldOfGroupCommits: of the size of each, and of one that got no
// answer.
func TestAnObserverIsToldOfGroupCommits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		seen := &watcher{}
		s := &hooked{Store: w.memory.Open()}
		a := w.openOn(s, authority.Config{Observer: seen})
		synctest.Wait() // for the loop's first look
		thaw := make(chan struct{})
		s.hook(func(h *hooked) { h.read = func([]store.Query) error { <-thaw; return nil } })
		var waits []<-chan outcome
		for i := range 10 {
			r := request("a", "1", time.Minute)
			r.Resource = lastword.Resource("r/" + string(rune('0'+i)))
			waits = append(waits, background(t.Context(), a, r))
		}
		s.hook(func(h *hooked) {
			h.read = nil
			h.sent = func(context.Context, []store.Step) error { time.Sleep(time.Millisecond); return nil }
		})
		close(thaw)
		for _, done := range waits {
			if got := <-done; got.err != nil {
				t.Fatal(got.err)
			}
		}
		synctest.Wait()
		want := []authority.Commit{
			{Records: 1, Calls: 1, Took: time.Millisecond},
			{Records: 9, Calls: 9, Took: time.Millisecond},
		}
		if !slices.Equal(seen.commits, want) {
			t.Errorf("got %+v, want %+v", seen.commits, want)
		}
		s.hook(func(h *hooked) { h.sent = func(context.Context, []store.Step) error { return lostReply() } })
		_, err := a.Acquire(t.Context(), request("a", "1", time.Minute))
		wantCode(t, err, lastword.ErrUnknownOutcome)
		synctest.Wait()
		if got := seen.commits[len(seen.commits)-1]; got.Code != lastword.CodeUnknown || got.Calls != 1 {
			t.Errorf("a commit without an answer is told as %+v", got)
		}
	})
}

// brokenWitness fails while it is told to.
type brokenWitness struct {
	authority.Witness
	mu     sync.Mutex
	broken bool
}

func (b *brokenWitness) set(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = on
}

func (b *brokenWitness) Load(ctx context.Context) (*authority.Mark, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return nil, errors.New("the witness is away")
	}
	return b.Witness.Load(ctx)
}

// TestR10AnObserverIsToldOfATroubledWitness, and of an authority that has stopped.
func TestR10AnObserverIsToldOfATroubledWitness(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		seen := &watcher{}
		witness := &brokenWitness{Witness: w.witness}
		a := w.open(authority.Config{Observer: seen, Witness: witness})
		mustAcquire(t, a, request("a", "1", time.Minute))
		witness.set(true)
		time.Sleep(time.Second)
		_, err := a.Acquire(t.Context(), request("b", "1", time.Minute))
		wantCode(t, err, lastword.ErrUnavailable)
		synctest.Wait()
		if seen.failures == 0 || seen.state.Stopped {
			t.Errorf("got %d failures of the witness, %+v", seen.failures, seen.state)
		}
		witness.set(false)
		mark, err := w.witness.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := *mark
		other.Store, other.Current = "another", mark.Current+1
		if ok, err := w.witness.Swap(t.Context(), mark, other); !ok || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(time.Second)
		if got := seen.now(); !got.Stopped {
			t.Errorf("the witness is another store's, and the state told is %+v", got)
		}
	})
}

// TestAnObserverThatPanicsHarmsNobody and is told of what follows.
func TestAnObserverThatPanicsHarmsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var told sync.Map
		seen := &watcher{
			answered: func(a authority.Answer) { told.Store(a.Op, true); panic("answered") },
			report:   func(authority.Report) { told.Store("report", true); panic("report") },
		}
		a := w.open(authority.Config{Observer: seen})
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, key := range []any{authority.OpAcquire, authority.OpRelease, "report"} {
			if _, ok := told.Load(key); !ok {
				t.Errorf("%v was not told", key)
			}
		}
	})
}

// TestAnObserverThatBlocksDelaysNobodyElse: one stuck in Report delays nothing at
// all, a close by a second at most; one stuck in Answered keeps its own caller.
func TestAnObserverThatBlocksDelaysNobodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		open := make(chan struct{})
		defer close(open)
		seen := &watcher{
			answered: func(a authority.Answer) {
				if a.Resource == "stuck" {
					<-open
				}
			},
			report: func(authority.Report) { <-open },
		}
		a := w.open(authority.Config{Observer: seen})
		stuck := request("a", "1", time.Minute)
		stuck.Resource = "stuck"
		first := background(t.Context(), a, stuck)
		start := time.Now()
		for range 100 {
			held := mustAcquire(t, a, request("a", time.Since(start).String(), time.Minute))
			if err := a.Release(t.Context(), held.TenureRef); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took != 100*time.Second {
			t.Errorf("a stuck observer delayed others: %v", took)
		}
		select {
		case got := <-first:
			t.Errorf("an answer got past its observer: %+v", got)
		default:
		}
		start = time.Now()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("a stuck observer held the close up for %v", took)
		}
	})
}

// TestAClosedAuthorityHasNoWaiters in what is told last.
func TestAClosedAuthorityHasNoWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		seen := &watcher{}
		a := w.open(authority.Config{Observer: seen})
		mustAcquire(t, a, request("a", "1", time.Minute))
		b := background(t.Context(), a, waiting("b", "1", time.Minute))
		gone, leave := context.WithCancel(t.Context())
		c := background(gone, a, waiting("c", "1", time.Minute))
		if got := seen.now(); got.Waiters != 2 || got.Live != 1 {
			t.Errorf("got %+v, want 2 waiters and 1 live lease", got)
		}
		leave()
		<-c
		if got := seen.now(); got.Waiters != 1 {
			t.Errorf("one of two waiters has left: got %+v", got)
		}
		e := epoch(t, a)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		<-b
		wantState(t, seen, authority.State{Epoch: e, Counter: 1})
	})
}
