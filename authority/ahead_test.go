package authority_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// sole is a store with one user.
type sole struct{ *hooked }

func (sole) Sole() bool { return true }

// beside runs a call in the background; over says that it has its answer.
func beside(call func() error) (over func() (bool, error)) {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return func() (bool, error) {
		synctest.Wait()
		select {
		case err := <-done:
			return true, err
		default:
			return false, nil
		}
	}
}

// R1, R6: of all that is decided, only the answer to a release runs ahead of the disk,
// and nothing that depends on it.
func TestOnlyTheAnswerToAReleaseRunsAheadOfTheDisk(t *testing.T) {
	for name, c := range map[string]struct{ sole, touched bool }{
		"one user": {true, false}, "one user, and the resource is being written": {true, true}, "several users": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { onlyARelease(t, w, c.sole, c.touched) })
		})
	}
}

func onlyARelease(t *testing.T, w *world, only, touched bool) {
	hooks := &hooked{Store: w.memory.Open()}
	s := store.Store(hooks)
	if only {
		s = sole{hooks}
	}
	a := w.openOn(s, authority.Config{})
	ask := func(resource, owner, id string) lastword.AcquireRequest {
		r := request(owner, id, time.Minute)
		r.Resource = lastword.Resource(resource)
		return r
	}
	hold := func(resource, id string) lastword.TenureRef {
		return mustAcquire(t, a, ask(resource, "a", id)).TenureRef
	}
	acquire := func(r lastword.AcquireRequest) func() error {
		return func() error { _, err := a.Acquire(t.Context(), r); return err }
	}
	const doc = "jobs/nightly"
	released, renewed, completed, canceled := hold(doc, "1"), hold("r/2", "2"), hold("r/3", "3"), hold("r/4", "4")

	disk := make(chan struct{})
	hooks.hook(func(h *hooked) {
		h.sent = func(context.Context, []store.Step) error { <-disk; return nil }
	})
	// A first call waits for the disk, so that the others share a round.
	first := acquire(ask("r/first", "a", "first"))
	if touched {
		first = func() error { _, err := a.Renew(t.Context(), released); return err }
	}
	calls := map[string]func() (bool, error){"first": beside(first)}
	expect := func(answered bool) {
		t.Helper()
		for name, call := range calls {
			over, err := call()
			if want := answered || only && name == "release"; over != want || err != nil {
				t.Errorf("%s: answered %v, want %v, %v", name, over, want, err)
			}
			if over {
				delete(calls, name)
			}
		}
	}
	expect(false)
	calls["release"] = beside(func() error { return a.Release(t.Context(), released) })
	if only && touched {
		if over, _ := calls["release"](); over {
			t.Error("a release was answered by a record that was just being written")
		}
	} else {
		expect(false)
	}
	calls["renew"] = beside(func() error { _, err := a.Renew(t.Context(), renewed); return err })
	calls["complete"] = beside(func() error { return a.Complete(t.Context(), completed, []byte("x")) })
	calls["cancel"] = beside(func() error { return a.Cancel(t.Context(), canceled.Resource, "a", "4") })
	calls["acquire"] = beside(acquire(ask("r/5", "b", "5")))
	calls["next"] = beside(acquire(ask(doc, "b", "6")))
	calls["status"] = beside(func() error {
		_, err := a.Status(t.Context(), lastword.StatusQuery{Resource: doc})
		return err
	})
	for name, call := range calls {
		if over, err := call(); over {
			t.Errorf("%s was answered before its round began: %v", name, err)
		}
	}
	disk <- struct{}{} // the first round is on the disk, and the second one is not
	if over, err := calls["first"](); !over || err != nil {
		t.Errorf("the first call: answered %v, %v", over, err)
	}
	delete(calls, "first")
	expect(false)
	after := beside(acquire(ask(doc, "c", "7")))
	if over, _ := after(); over {
		t.Error("a call that came after the release was answered before that was on the disk")
	}
	close(disk)
	expect(true)
	if over, err := after(); !over || !errors.Is(err, lastword.ErrHeld) {
		t.Errorf("a third one: %v, %v", over, err)
	}
}

// R6: a release that was answered and did not become durable is tried once more; if
// that fails, too, the tenure is still held, and lapses by time.
func TestAnAnsweredReleaseThatWasNotWrittenIsTriedAgainOrLapses(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		times int
		want  lastword.State
	}{
		"not sent":               {unavailable(), 1, lastword.StateReleased},
		"no answer":              {lostReply(), 1, lastword.StateReleased},
		"not sent, twice":        {unavailable(), 2, lastword.StateHeld},
		"no answer, three times": {lostReply(), 3, lastword.StateHeld},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				hooks := &hooked{Store: w.memory.Open()}
				a := w.openOn(sole{hooks}, authority.Config{})
				held := mustAcquire(t, a, request("a", "1", time.Second))
				left := c.times
				hooks.hook(func(h *hooked) {
					h.sent = func(_ context.Context, steps []store.Step) error {
						ends := func(r store.Record) bool { return r.Lease.State == lastword.StateReleased }
						if left > 0 && writes(steps, ends) {
							left--
							return c.fault
						}
						return nil
					}
				})
				if err := a.Release(t.Context(), held.TenureRef); err != nil {
					t.Fatalf("release: %v", err)
				}
				time.Sleep(10 * time.Millisecond) // the fake time of the bubble
				synctest.Wait()
				if st := status(t, a); st.State != c.want {
					t.Fatalf("the state is %s, want %s", st.State, c.want)
				}
				next := mustAcquire(t, a, waiting("b", "2", time.Minute))
				if next.Fence <= held.Fence {
					t.Fatalf("fence %s after %s", next.Fence, held.Fence)
				}
			})
		})
	}
}

// releases counts the commits, and notes the steps that end a tenure by its release.
type releases struct {
	commits int
	ended   map[lastword.Resource]time.Time
}

func (r *releases) watch(hooks *hooked) {
	r.ended = map[lastword.Resource]time.Time{}
	hooks.hook(func(h *hooked) {
		h.answered = func(steps []store.Step, applied []bool) error {
			written := false
			for i, s := range steps {
				if s.Record == nil || !applied[i] {
					continue
				}
				written = true
				for _, q := range s.Requests {
					if q.State == lastword.StateReleased {
						r.ended[s.Record.Resource] = time.Now()
					}
				}
			}
			if written {
				r.commits++
			}
			return nil
		}
	})
}

// R6: a release and what is asked next are one write, the release first; with nothing
// to come it is on the disk a moment later.
func TestAReleaseSharesTheWriteOfWhatComesNext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hooks := &hooked{Store: w.memory.Open()}
		a := w.openOn(sole{hooks}, authority.Config{})
		held := mustAcquire(t, a, request("a", "0", time.Minute))
		var seen releases
		seen.watch(hooks)
		for i := range 10 {
			if err := a.Release(t.Context(), held.TenureRef); err != nil {
				t.Fatal(err)
			}
			if i%2 == 1 { // who has released holds nothing, whatever comes next
				_, err := a.Renew(t.Context(), held.TenureRef)
				wantCode(t, err, lastword.ErrNotHolder)
			}
			next := mustAcquire(t, a, request("a", string(rune('A'+i)), time.Minute))
			if next.Fence != held.Fence+1 || next.Previous.State != lastword.StateReleased || next.Previous.LeaseID != held.LeaseID {
				t.Fatalf("fence %s after %s, before it %+v", next.Fence, held.Fence, next.Previous)
			}
			held = next
		}
		if seen.commits != 15 || len(seen.ended) != 1 {
			t.Errorf("%d writes for 10 cycles and 5 renewals, %v", seen.commits, seen.ended)
		}
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		answered := time.Now()
		time.Sleep(10 * time.Millisecond) // the fake time of the bubble
		synctest.Wait()
		if took := seen.ended[held.Resource].Sub(answered); seen.commits != 16 || took < 0 || took > time.Millisecond {
			t.Errorf("%d writes; the last release was on the disk %v after its answer", seen.commits, took)
		}
	})
}

// R3, R6: what somebody waits for is not put off, also if it is released while
// something else is being written.
func TestAReleaseThatSomebodyWaitsForIsNotPutOff(t *testing.T) {
	for _, busy := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			hooks := &hooked{Store: w.memory.Open()}
			a := w.openOn(sole{hooks}, authority.Config{})
			held := mustAcquire(t, a, request("a", "1", time.Minute))
			b := background(t.Context(), a, waiting("b", "1", time.Minute))
			disk := make(chan struct{})
			var other func() (bool, error)
			if busy {
				hooks.hook(func(h *hooked) {
					h.sent = func(context.Context, []store.Step) error { <-disk; return nil }
				})
				r := request("a", "2", time.Minute)
				r.Resource = "other"
				other = beside(func() error { _, err := a.Acquire(t.Context(), r); return err })
				other()
			}
			release := beside(func() error { return a.Release(t.Context(), held.TenureRef) })
			early, _ := release()
			free := time.Now()
			close(disk)
			if got := <-b; got.err != nil || got.at != free {
				t.Fatalf("busy %v: granted %v after the release, %v", busy, got.at.Sub(free), got.err)
			}
			if over, err := release(); over == early || err != nil {
				t.Fatalf("the release: answered %v, %v", over, err)
			}
			if busy {
				if over, err := other(); !over || err != nil {
					t.Fatalf("the other call: answered %v, %v", over, err)
				}
			}
		})
	}
}

// R6: an authority that is closed writes what it has answered; one that dies leaves a
// tenure that lapses.
func TestACloseWritesTheReleasesThatWereAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.openOn(sole{&hooked{Store: w.memory.Open()}}, authority.Config{})
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		next := w.open(authority.Config{})
		if st := status(t, next); st.State != lastword.StateReleased {
			t.Fatalf("after the next start the state is %s", st.State)
		}
	})
}

// R6, R35: a crash between the answer to a release and its write costs waiting time.
func TestACrashUndoesAnAnsweredReleaseAndTheTenureLapses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hooks := &hooked{Store: w.memory.Open()}
		a := w.openOn(sole{hooks}, authority.Config{})
		held := mustAcquire(t, a, request("a", "1", 3*time.Second))
		hooks.hook(func(h *hooked) { // nothing reaches the disk any more
			h.sent = func(context.Context, []store.Step) error { return unavailable() }
		})
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		next := w.open(authority.Config{})
		if _, err := next.Acquire(t.Context(), request("b", "1", time.Minute)); !errors.Is(err, lastword.ErrHeld) {
			t.Fatalf("acquired at once: %v", err)
		}
		got := mustAcquire(t, next, waiting("b", "2", time.Minute))
		if got.Fence <= held.Fence || got.Previous.State != lastword.StateExpired {
			t.Fatalf("fence %s after %s, before it %+v", got.Fence, held.Fence, got.Previous)
		}
	})
}

// R1, R2: what was signed while a step was on its way is not the answer to another
// step, which had to be decided anew.
func TestAGrantThatWasSignedAheadIsTheAnswerToItsOwnStepOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hooks, raw := &hooked{Store: w.memory.Open()}, w.memory.Open()
		a := w.openOn(hooks, authority.Config{})
		commits := 0
		hooks.hook(func(h *hooked) {
			h.sent = func(_ context.Context, steps []store.Step) error {
				for _, s := range steps {
					if s.Record == nil {
						continue
					}
					if commits++; commits > 1 {
						return nil
					}
					time.Sleep(time.Millisecond) // the caller signs
					other := *s.Record           // another process is faster
					other.Lease, other.Epoch, other.Counter = store.Lease{}, 0, 41
					if ok, err := raw.Commit(context.Background(), store.Step{Epoch: s.Epoch, Record: &other}); err != nil || !ok[0] {
						t.Error("no conflict made", err)
					}
				}
				return nil
			}
		})
		got := mustAcquire(t, a, request("a", "1", time.Minute))
		if got.Fence != 42 || commits != 2 {
			t.Fatalf("fence %s after %d commits", got.Fence, commits)
		}
		verifyGrant(t, a, got)
	})
}
