package authority_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
)

// seen is a sight and when it came.
type seen struct {
	lastword.Sight
	at time.Time
}

func (s seen) String() string {
	if s.Complete {
		return "complete"
	}
	fence := s.Status.Holder.Fence
	if fence == 0 {
		fence = s.Status.Last.Fence
	}
	return fmt.Sprintf("%s %s %d", s.Status.Resource, s.Status.State, fence)
}

// watched is a watch that a test reads at its own pace.
type watched struct {
	t      *testing.T
	sights chan seen
	ended  chan error
	stop   context.CancelFunc
	last   map[lastword.Resource]uint64
}

func watch(t *testing.T, a *authority.Authority, prefix string) *watched {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{t: t, sights: make(chan seen), ended: make(chan error, 1), stop: stop, last: map[lastword.Resource]uint64{}}
	go func() {
		for s, err := range a.Watch(ctx, prefix) {
			if err != nil {
				w.ended <- err
				return
			}
			select {
			case w.sights <- seen{s, time.Now()}:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(stop)
	return w
}

// next is the next sight. Revisions never go back.
func (w *watched) next() seen {
	w.t.Helper()
	select {
	case s := <-w.sights:
		st := s.Status
		if !s.Complete && st.Revision < w.last[st.Resource] {
			w.t.Fatalf("%s: revision %d after %d", s, st.Revision, w.last[st.Resource])
		}
		w.last[st.Resource] = st.Revision
		return s
	case err := <-w.ended:
		w.t.Fatalf("the watch ended: %v", err)
	case <-time.After(2 * time.Hour):
		w.t.Fatal("nothing is shown")
	}
	return seen{}
}

func (w *watched) want(want ...string) (last seen) {
	w.t.Helper()
	for i, text := range want {
		if last = w.next(); last.String() != text {
			w.t.Fatalf("sight %d is %q, want %q", i, last, text)
		}
	}
	return last
}

// quiet wants nothing to be shown for a while.
func (w *watched) quiet(d time.Duration) {
	w.t.Helper()
	select {
	case s := <-w.sights:
		w.t.Fatalf("shown: %s (%+v)", s, s.Status)
	case <-time.After(d):
	}
}

func (w *watched) error() error {
	w.t.Helper()
	for {
		select {
		case err := <-w.ended:
			return err
		case <-w.sights:
		case <-time.After(time.Hour):
			w.t.Fatal("the watch does not end")
		}
	}
}

func on(resource, owner, id string, ttl time.Duration) lastword.AcquireRequest {
	r := request(owner, id, ttl)
	r.Resource = lastword.Resource(resource)
	return r
}

func TestAWatchShowsWhatThereIsAndThenWhatChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		first := mustAcquire(t, a, on("doc/b", "o", "1", time.Hour))
		if err := a.Release(t.Context(), mustAcquire(t, a, on("doc/a", "o", "1", time.Hour)).TenureRef); err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, a, on("docs", "o", "1", time.Hour))
		v := watch(t, a, "doc/")
		v.want("doc/a RELEASED 1", "doc/b HELD 1", "complete")
		v.quiet(time.Minute)

		// A renewal, a result and a waiter alone are no change.
		if _, err := a.Renew(t.Context(), first.TenureRef); err != nil {
			t.Fatal(err)
		}
		if err := a.Complete(t.Context(), first.TenureRef, []byte("a result")); err != nil {
			t.Fatal(err)
		}
		queued := background(t.Context(), a, func() lastword.AcquireRequest { r := on("doc/b", "p", "1", time.Hour); r.Wait = time.Hour; return r }())
		another := background(t.Context(), a, func() lastword.AcquireRequest { r := on("doc/b", "q", "1", time.Hour); r.Wait = time.Hour; return r }())
		mustAcquire(t, a, on("docs2", "o", "1", time.Hour))
		v.quiet(time.Minute)

		// A hand-over is one change: the state between is left out.
		if err := a.Release(t.Context(), first.TenureRef); err != nil {
			t.Fatal(err)
		}
		s := v.want("doc/b HELD 2")
		if st := s.Status; st.Holder.Owner != "p" || st.Holder.LeaseID != "" || st.Remaining <= 0 || st.Remaining > st.TTL || st.NextFence != 3 || st.Digest.IsZero() || st.Waiters != 0 {
			t.Errorf("shown as %+v", st)
		}
		second := (<-queued).tenure
		if err := a.Cancel(t.Context(), second.Resource, second.Owner, second.RequestID); err != nil {
			t.Fatal(err)
		}
		v.want("doc/b HELD 3")
		if err := a.Release(t.Context(), (<-another).tenure.TenureRef); err != nil {
			t.Fatal(err)
		}
		v.want("doc/b RELEASED 3")
		third := mustAcquire(t, a, on("doc/new", "o", "1", time.Hour))
		v.want("doc/new HELD 1")
		if err := a.Revoke(t.Context(), third.Resource, third.Fence, "op", "r"); err != nil {
			t.Fatal(err)
		}
		v.want("doc/new REVOKED 1")
		v.quiet(time.Minute)
	})
}

func TestWhatASightSaysToRemainIsWhatIsLeftWhenItIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		v := watch(t, a, "")
		v.want("complete")
		for i := range 3 {
			mustAcquire(t, a, on(fmt.Sprint(i), "o", "1", time.Minute))
		}
		time.Sleep(50 * time.Second) // a slow reader; the first one was on its way
		v.next()
		for range 2 {
			if st := v.next().Status; st.Remaining > 10*time.Second || st.Remaining < 9*time.Second {
				t.Errorf("%s: %v remain of a minute after 50 s", st.Resource, st.Remaining)
			}
		}
	})
}

// R8: nobody but a watcher is there when a lease lapses.
func TestR8ALeaseThatLapsesIsShownAlthoughNobodyAsks(t *testing.T) {
	for _, ttl := range []time.Duration{100 * time.Millisecond, 1500 * time.Millisecond, 20 * time.Second, time.Hour} {
		inBubble(t, func(t *testing.T, w *world) {
			a := w.open(authority.Config{})
			v := watch(t, a, "doc")
			v.want("complete")
			mustAcquire(t, a, on("doc/a", "o", "1", ttl))
			granted := time.Now()
			v.want("doc/a HELD 1")
			late := v.want("doc/a EXPIRED 1").at.Sub(granted)
			if late < ttl || late > ttl+2*time.Millisecond {
				t.Errorf("a ttl of %v is shown as over after %v", ttl, late)
			}
			view, err := w.memory.Open().Read(context.Background(), store.Query{Resource: "doc/a"})
			if err != nil || view.Entries[0].Record.Lease.State != lastword.StateExpired {
				t.Errorf("it is told, but not durable: %v, %v", view.Entries[0].Record.Lease.State, err)
			}
		})
	}
}

func TestR8ALeaseThatIsRenewedIsNotShownToLapse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		held := mustAcquire(t, a, on("doc/a", "o", "1", 3*time.Second))
		v := watch(t, a, "")
		v.want("doc/a HELD 1", "complete")
		for range 20 {
			v.quiet(time.Second)
			if _, err := a.Renew(t.Context(), held.TenureRef); err != nil {
				t.Fatal(err)
			}
		}
		renewed := time.Now()
		if late := v.want("doc/a EXPIRED 1").at.Sub(renewed); late < 3*time.Second || late > 3*time.Second+2*time.Millisecond {
			t.Errorf("shown as over %v after its last renewal", late)
		}
	})
}

// R8: a tenure of an earlier run was never renewed; its whole TTL is watched anew, or
// the store's counter tells.
func TestR8ALeaseOfAnEarlierRunIsShownToLapse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		mustAcquire(t, a, on("doc/a", "o", "1", 10*time.Second))
		granted := time.Now()
		_ = a.Close()
		b := w.open(authority.Config{})
		v := watch(t, b, "")
		v.want("doc/a HELD 1", "complete")
		if late := v.want("doc/a EXPIRED 1").at.Sub(granted); late < 10*time.Second || late > 11*time.Second {
			t.Errorf("shown as over after %v", late)
		}
	})
}

// R9: the lag for what another process does is stated.
func TestR9WhatAnotherProcessDoesIsShownWithinTheStatedTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.open(authority.Config{}), w.open(authority.Config{})
		const resources = 1000
		fences := map[lastword.Resource]lastword.Token{}
		for i := range resources {
			got := mustAcquire(t, b, on(fmt.Sprintf("doc/%04d", i), "o", "1", time.Hour))
			fences[got.Resource] = got.Fence
		}
		v := watch(t, a, "doc/")
		for range resources {
			v.next()
		}
		v.want("complete")
		limit := time.Second + (resources/128+2)*100*time.Millisecond
		for i := range 10 {
			r := on(fmt.Sprintf("doc/%04d", i*99), "p", fmt.Sprint(i), time.Hour)
			if i%2 == 0 {
				r.Resource = lastword.Resource(fmt.Sprintf("doc/new%d", i)) // one that was not there
				mustAcquire(t, b, r)
			} else if err := b.Revoke(t.Context(), r.Resource, fences[r.Resource], "op", "r"); err != nil {
				t.Fatal(err)
			}
			done := time.Now()
			if s := v.next(); s.Status.Resource != r.Resource || s.at.Sub(done) > limit {
				t.Errorf("%s is shown %v after %s was changed, want at most %v", s, s.at.Sub(done), r.Resource, limit)
			}
		}
		v.quiet(10 * time.Second)
	})
}

// KF-27
func TestKF27AWatchBeginsWithItsPrefixByteByByte(t *testing.T) {
	for _, prefix := range prefixes {
		inBubble(t, func(t *testing.T, w *world) {
			a := w.open(authority.Config{})
			all := watch(t, a, "") // other views beside it
			all.want("complete")
			for _, name := range names[:len(names)/2] {
				mustAcquire(t, a, on(name, "o", "1", time.Hour))
			}
			v := watch(t, a, prefix)
			var got []string
			for s := v.next(); !s.Complete; s = v.next() {
				got = append(got, string(s.Status.Resource))
			}
			for _, name := range names[len(names)/2:] {
				mustAcquire(t, a, on(name, "o", "1", time.Hour))
			}
			for want := len(beginWith(prefix)); len(got) < want; {
				got = append(got, string(v.next().Status.Resource))
			}
			v.quiet(time.Minute)
			if slices.Sort(got); !slices.Equal(got, beginWith(prefix)) {
				t.Errorf("prefix %q:\n got %q\nwant %q", prefix, got, beginWith(prefix))
			}
			for range names {
				all.next()
			}
		})
	}
}

// T23: whoever does not read costs bounded memory, holds up nobody, and is shown the
// newest states when it reads on.
func TestT23AReaderThatDoesNotReadHarmsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{Retention: time.Second})
		stuck, lively := watch(t, a, ""), watch(t, a, "")
		stuck.want("complete")
		lively.want("complete")
		const resources, rounds = 2000, 5
		fences := map[lastword.Resource]lastword.Token{}
		before := heap()
		for i := range rounds {
			for j := range resources {
				r := on(fmt.Sprintf("doc/%04d", j), "o", fmt.Sprint(i), time.Hour)
				got := mustAcquire(t, a, r)
				if s := lively.next(); s.Status.Resource != r.Resource || s.Status.State != lastword.StateHeld {
					t.Fatalf("the lively one is shown %s", s)
				}
				if i < rounds-1 {
					if err := a.Release(t.Context(), got.TenureRef); err != nil {
						t.Fatal(err)
					}
					lively.next()
				}
				fences[r.Resource] = got.Fence
			}
		}
		t.Logf("heap grew by %d KiB for %d changes nobody read, records and requests of the store included", (heap()-before)>>10, 2*resources*rounds)
		found := map[lastword.Resource]lastword.Token{}
		shown := 0
		for !maps.Equal(found, fences) {
			s := stuck.next()
			if s.Complete {
				t.Fatal("complete is shown twice")
			}
			if shown++; shown > 4*resources {
				t.Fatalf("%d sights and still not up to date", shown)
			}
			if s.Status.State == lastword.StateHeld {
				found[s.Status.Resource] = s.Status.Holder.Fence
			}
		}
		t.Logf("up to date after %d sights", shown)
		if shown < resources || shown > resources+200 {
			t.Errorf("%d sights of %d resources: changes are merged", shown, resources)
		}
	})
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// T23
func TestT23WatchesAreBoundedAndAPlaceIsFreeWhenOneEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{MaxWatchers: 2})
		one, two := watch(t, a, "a"), watch(t, a, "b")
		one.want("complete")
		two.want("complete")
		wantCode(t, watch(t, a, "a").error(), lastword.ErrQuota)
		one.stop()
		wantCode(t, one.error(), lastword.ErrUnavailable)
		synctest.Wait()
		watch(t, a, "a").want("complete")
		wantCode(t, watch(t, a, "a\n").error(), lastword.ErrInvalid)
	})
}

func TestAWatchEndsWithAReaderThatHasSeenEnough(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{MaxWatchers: 1})
		for range 3 { // or the second one would be too many
			for s, err := range a.Watch(t.Context(), "") {
				if err != nil || !s.Complete {
					t.Fatal(s, err)
				}
				break
			}
		}
	})
}

// R10: a stopped authority shows nothing more, and nobody has to ask for it to notice.
func TestR10AWatchEndsWhenItsAuthorityStops(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		mustAcquire(t, a, on("doc/a", "o", "1", 24*time.Hour))
		v := watch(t, a, "")
		v.want("doc/a HELD 1", "complete")
		idle := watch(t, a, "none")
		idle.want("complete")
		w.openOn(w.memory.Copy().Open(), authority.Config{}) // a clone moves the witness on
		cloned := time.Now()
		wantCode(t, v.error(), lastword.ErrRegression)
		wantCode(t, idle.error(), lastword.ErrRegression)
		if late := time.Since(cloned); late > 1500*time.Millisecond {
			t.Errorf("noticed only after %v", late)
		}
		wantCode(t, watch(t, a, "").error(), lastword.ErrRegression)
	})
}

func TestR10WhoNoticesFirstEndsEveryWatchAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		v := watch(t, a, "")
		v.want("complete")
		w.openOn(w.memory.Copy().Open(), authority.Config{})
		time.Sleep(110 * time.Millisecond)
		_, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "doc/a"})
		wantCode(t, err, lastword.ErrRegression)
		asked := time.Now()
		wantCode(t, v.error(), lastword.ErrRegression)
		if late := time.Since(asked); late > 0 {
			t.Errorf("the watch ended %v later", late)
		}
	})
}

func TestAWatchEndsWhenItsAuthorityIsClosedOrItsStoreDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		h := &hooked{Store: w.memory.Open()}
		a := w.openOn(h, authority.Config{})
		v := watch(t, a, "")
		v.want("complete")
		h.hook(func(h *hooked) { h.read = func([]store.Query) error { return lastword.ErrUnavailable } })
		wantCode(t, v.error(), lastword.ErrUnavailable)
		h.hook(func(h *hooked) { h.read = nil })
		v = watch(t, a, "")
		v.want("complete")
		_ = a.Close()
		err := v.error()
		wantCode(t, err, lastword.ErrUnavailable)
		if !strings.Contains(err.Error(), "watch: UNAVAILABLE: the authority is being closed") {
			t.Errorf("the reason is %v", err)
		}
		wantCode(t, watch(t, a, "").error(), lastword.ErrUnavailable)
	})
}

// A commit without an answer may have been done: the store is asked.
func TestWhatACommitWithoutAnAnswerDidIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		h := &hooked{Store: w.memory.Open()}
		a := w.openOn(h, authority.Config{})
		v := watch(t, a, "")
		v.want("complete")
		h.hook(func(h *hooked) {
			h.answered = func([]store.Step, []bool) error { return errors.New("the line is cut") }
		})
		_, err := a.Acquire(t.Context(), on("doc/a", "o", "1", time.Hour))
		wantCode(t, err, lastword.ErrUnknownOutcome)
		h.hook(func(h *hooked) { h.answered = nil })
		done := time.Now()
		if late := v.want("doc/a HELD 1").at.Sub(done); late > 150*time.Millisecond {
			t.Errorf("shown only after %v", late)
		}
	})
}
