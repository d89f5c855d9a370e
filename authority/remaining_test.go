package authority_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// TestR25RemainingIsNeverMoreThanWhatIsLeft: whatever any process says is left at a
// moment, the tenure is not taken over before that.
func TestR25RemainingIsNeverMoreThanWhatIsLeft(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	told := 0
	for i := range uint64(60) {
		inBubble(t, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, i))
			told += remainings(t, w, rnd)
		})
	}
	if told < 150 {
		t.Errorf("only %d answers told a remaining time", told)
	}
}

func remainings(t *testing.T, w *world, rnd *rand.Rand) (told int) {
	tick := time.Duration(20+rnd.IntN(300)) * time.Millisecond
	ttl := time.Duration(200+rnd.IntN(2000)) * time.Millisecond
	slow := time.Duration(rnd.IntN(40)) * time.Millisecond
	open := func() *authority.Authority {
		s := &hooked{Store: w.memory.Open(), read: func([]store.Query) error { time.Sleep(slow); return nil }}
		return w.openOn(s, authority.Config{Tick: tick})
	}
	processes := []*authority.Authority{open(), open()}
	r := request("a", "1", ttl)
	held, err := processes[0].Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	b := background(t.Context(), processes[1], waiting("b", "1", time.Minute))
	var promise time.Time // the latest end that was told
	for range rnd.IntN(30) {
		time.Sleep(time.Duration(rnd.Int64N(int64(ttl) / 3)))
		p := processes[rnd.IntN(2)]
		sent := time.Now()
		var left time.Duration
		switch rnd.IntN(5) {
		case 0:
			got, err := p.Renew(t.Context(), held.TenureRef)
			if err == nil {
				left = got.Remaining
			}
		case 1:
			processes[0] = restart(t, processes[0], open)
		case 2:
			got, err := p.Acquire(t.Context(), r)
			if err == nil {
				left = got.Remaining
			}
		case 3:
			st, err := p.Status(t.Context(), lastword.StatusQuery{Resource: r.Resource})
			if err == nil && st.Holder.Fence == held.Fence {
				left = st.Remaining
			}
		case 4:
			_, err := p.Acquire(t.Context(), request("c", "1", ttl))
			var e *lastword.Error
			if errors.As(err, &e) && e.Holder == "a" {
				left = e.Remaining
			}
		}
		if left < 0 || left > ttl {
			t.Fatalf("remaining %v of a ttl of %v", left, ttl)
		}
		if left > 0 {
			told++
		}
		if end := sent.Add(left); left > 0 && end.After(promise) {
			promise = end
		}
	}
	got := <-b
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.at.Before(promise) {
		t.Fatalf("tick %v, ttl %v, slow %v: taken over %v before the end that was told", tick, ttl, slow, promise.Sub(got.at))
	}
	return told
}

func restart(t *testing.T, a *authority.Authority, open func() *authority.Authority) *authority.Authority {
	t.Helper()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return open()
}

func TestR25AnotherProcessKnowsWhatIsLeftOnceItHasSeenARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p1, p2 := w.open(authority.Config{}), w.open(authority.Config{})
		held := mustAcquire(t, p1, request("a", "1", 10*time.Second))
		if st := status(t, p2); st.State != lastword.StateHeld || st.Remaining != 0 {
			t.Fatalf("it cannot know: %+v", st)
		}
		time.Sleep(time.Second)
		if _, err := p1.Renew(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		if st := status(t, p2); st.Remaining < 8*time.Second || st.Remaining > 10*time.Second {
			t.Fatalf("remaining %v after a renewal seen at another process", st.Remaining)
		}
		if st := status(t, p1); st.Remaining != 10*time.Second {
			t.Fatalf("remaining %v at the process that renewed", st.Remaining)
		}
		// A completion is no renewal.
		time.Sleep(2 * time.Second)
		if err := p2.Complete(t.Context(), held.TenureRef, []byte("x")); err != nil {
			t.Fatal(err)
		}
		for i, p := range []*authority.Authority{p1, p2} {
			if st := status(t, p); st.Remaining > 8*time.Second {
				t.Fatalf("process %d: %v after a completion", i, st.Remaining)
			}
		}
	})
}

func TestR6bACompletionDoesNotMakeTheNextOneWaitLonger(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{Tick: 10 * time.Second})
		held := mustAcquire(t, a, request("a", "1", 3*time.Second))
		at := time.Now()
		b := background(t.Context(), a, waiting("b", "1", time.Second))
		time.Sleep(2 * time.Second)
		if err := a.Complete(t.Context(), held.TenureRef, []byte("x")); err != nil {
			t.Fatal(err)
		}
		got := <-b
		if late := got.at.Sub(at); got.err != nil || late > 3100*time.Millisecond {
			t.Fatalf("%v, granted after %v", got.err, late)
		}
		if p := got.tenure.Previous; p.State != lastword.StateExpired || !p.Completed || string(p.Result) != "x" {
			t.Fatalf("previous %+v", p)
		}
	})
}

func TestR6bARepeatedCompletionIsTheSameAlsoAfterTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		held := mustAcquire(t, a, request("a", "1", time.Second))
		if err := a.Complete(t.Context(), held.TenureRef, []byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		next := mustAcquire(t, a, request("b", "1", time.Minute))
		if err := a.Complete(t.Context(), held.TenureRef, []byte("x")); err != nil {
			t.Fatalf("the same result again: %v", err)
		}
		wantCode(t, a.Complete(t.Context(), held.TenureRef, []byte("y")), lastword.ErrRequestConflict)
		wantCode(t, a.Complete(t.Context(), held.TenureRef, make([]byte, lastword.MaxResultBytes+1)), lastword.ErrInvalid)
		_, err := a.Acquire(t.Context(), request("a", "1", time.Second))
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != lastword.CodeTenureEnded || e.Ended.State != lastword.StateExpired || !e.Ended.Completed {
			t.Fatalf("the repeated acquire: %v", err)
		}
		st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: held.Resource, Owner: "a", RequestID: "1"})
		if err != nil || st.Asked != lastword.StateExpired || string(st.AskedResult) != "x" || st.Holder.Fence != next.Fence {
			t.Fatalf("status %+v, %v", st, err)
		}
	})
}

func TestR2RequestRecordsAreKeptForTheRetentionAndThenForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const tick, retention = 100 * time.Millisecond, time.Minute
		a := w.open(authority.Config{Retention: retention})
		held := mustAcquire(t, a, request("a", "1", 20*time.Second))
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		if err := a.Cancel(t.Context(), held.Resource, "c", "1"); err != nil {
			t.Fatal(err)
		}
		ended := time.Now()
		// Something else keeps the counter running.
		for i := range 100 {
			r := lastword.AcquireRequest{Resource: lastword.Resource(fmt.Sprint("x/", i%3)), Owner: "x", RequestID: fmt.Sprint(i), TTL: 10 * time.Second, Wait: time.Minute}
			mustAcquire(t, a, r)
			_, err := a.Acquire(t.Context(), request("a", "1", 20*time.Second))
			_, canceled := a.Acquire(t.Context(), request("c", "1", time.Second))
			gone := time.Since(ended)
			if err == nil || canceled == nil {
				if gone < 200*time.Second { // 10 × TTL, which is more than the retention
					t.Fatalf("forgotten after %v", gone)
				}
				if gone > 260*time.Second {
					t.Fatalf("forgotten only after %v", gone)
				}
				return
			}
			wantCode(t, err, lastword.ErrTenureEnded)
			wantCode(t, canceled, lastword.ErrCanceled)
			synctest.Wait()
		}
		t.Fatal("never forgotten")
	})
}

func TestR2ForgettingLeavesOpenTenuresAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{Retention: 10 * time.Second})
		for i := range 5 {
			r := request("a", fmt.Sprint(i), time.Second)
			held := mustAcquire(t, a, r)
			if err := a.Release(t.Context(), held.TenureRef); err != nil {
				t.Fatal(err)
			}
		}
		held := mustAcquire(t, a, request("a", "live", time.Second))
		revision := held.Revision
		for range 120 {
			time.Sleep(500 * time.Millisecond)
			renewed, err := a.Renew(t.Context(), held.TenureRef)
			if err != nil {
				t.Fatal(err)
			}
			if revision++; renewed.Revision != revision {
				t.Fatalf("revision %d, want %d: somebody wrote an open tenure's record", renewed.Revision, revision)
			}
		}
		_, err := a.Acquire(t.Context(), request("a", "0", time.Second))
		wantCode(t, err, lastword.ErrTenureEnded)
		if err := a.Release(t.Context(), held.TenureRef); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			mustAcquire(t, a, lastword.AcquireRequest{Resource: "x", Owner: "x", RequestID: fmt.Sprint(i), TTL: 5 * time.Second, Wait: time.Minute})
		}
		ended, err := w.memory.Open().Ended(t.Context(), store.Tick(1<<40), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range ended {
			if e.Resource == "jobs/nightly" && e.Request.ID != "live" {
				t.Fatalf("%s is still kept", e.Request.ID)
			}
		}
	})
}
