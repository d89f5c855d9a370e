package authority_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/grant"
)

func TestR1AGrantCarriesItsFenceAndTellsHowTheOneBeforeEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		first := mustAcquire(t, a, request("a", "1", time.Second))
		if first.Fence != 1 || first.Previous.State != "" || first.Remaining != time.Second {
			t.Fatalf("first tenure %+v", first)
		}
		if err := a.Complete(t.Context(), first.TenureRef, []byte("done")); err != nil {
			t.Fatal(err)
		}
		if err := a.Release(t.Context(), first.TenureRef); err != nil {
			t.Fatal(err)
		}
		second := mustAcquire(t, a, request("b", "1", time.Second))
		p := second.Previous
		if second.Fence != 2 || p.State != lastword.StateReleased || !p.Completed || string(p.Result) != "done" || p.Fence != 1 {
			t.Fatalf("second tenure %+v", second)
		}
		verifyGrant(t, a, second)
	})
}

func TestR2ARepeatedRequestGetsTheSameGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		first := mustAcquire(t, a, request("a", "1", 10*time.Second))
		time.Sleep(4 * time.Second)
		again := mustAcquire(t, a, request("a", "1", 10*time.Second))
		if again.Grant != first.Grant || again.Fence != first.Fence || !again.Repeated {
			t.Fatalf("got %+v, want the same grant as %+v", again, first)
		}
		if again.Remaining > 6*time.Second || again.Remaining < 5900*time.Millisecond {
			t.Fatalf("remaining %v, want just under 6s", again.Remaining)
		}
		_, err := a.Acquire(t.Context(), request("a", "1", 11*time.Second))
		wantCode(t, err, lastword.ErrRequestConflict)
		time.Sleep(7 * time.Second)
		_, err = a.Acquire(t.Context(), request("a", "1", 10*time.Second))
		wantCode(t, err, lastword.ErrTenureEnded)
		if next := mustAcquire(t, a, request("a", "2", time.Second)); next.Fence != 2 {
			t.Fatalf("fence %d after a repetition that issued none, want 2", next.Fence)
		}
	})
}

func TestR4ALeaseLastsItsTTLAndNotATickLonger(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		mustAcquire(t, a, request("a", "1", 1500*time.Millisecond))
		start := time.Now()
		r := request("b", "1", time.Second)
		r.Wait = time.Minute
		got := mustAcquire(t, a, r)
		waited := time.Since(start)
		if waited < 1500*time.Millisecond || waited > 1505*time.Millisecond {
			t.Fatalf("taken over after %v, want the TTL of 1.5s and a few milliseconds", waited)
		}
		if got.Fence != 2 || got.Previous.State != lastword.StateExpired || !got.Waited {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestKF05ARenewalAfterTheTenureEndedIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		first := mustAcquire(t, a, request("a", "1", 2*time.Second))
		time.Sleep(3 * time.Second) // nobody took over
		_, err := a.Renew(t.Context(), first.TenureRef)
		wantCode(t, err, lastword.ErrNotHolder)

		r := request("b", "1", 500*time.Millisecond)
		second := mustAcquire(t, a, r)
		time.Sleep(time.Second)
		_, err = a.Renew(t.Context(), first.TenureRef)
		wantCode(t, err, lastword.ErrNotHolder)
		third := mustAcquire(t, a, request("a", "2", time.Second))
		if first.Fence != 1 || second.Fence != 2 || third.Fence != 3 {
			t.Fatalf("fences %d %d %d, want 1 2 3", first.Fence, second.Fence, third.Fence)
		}
	})
}

func TestKF05ARenewalAtTheDeadlineIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		first := mustAcquire(t, a, request("a", "1", time.Second))
		time.Sleep(time.Second - time.Millisecond)
		if _, err := a.Renew(t.Context(), first.TenureRef); err != nil {
			t.Fatalf("a millisecond before the deadline: %v", err)
		}
		time.Sleep(time.Second + 200*time.Millisecond)
		_, err := a.Renew(t.Context(), first.TenureRef)
		wantCode(t, err, lastword.ErrNotHolder)
	})
}

func TestKF04ALateReleaseDoesNotTouchTheNextTenure(t *testing.T) {
	for _, successor := range []string{"b", "a"} {
		t.Run("taken over by "+successor, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a := w.open(authority.Config{})
				first := mustAcquire(t, a, request("a", "1", 2*time.Second))
				time.Sleep(3 * time.Second)
				second := mustAcquire(t, a, request(successor, "2", 2*time.Second))
				wantCode(t, a.Release(t.Context(), first.TenureRef), lastword.ErrNotHolder)
				_, err := a.Acquire(t.Context(), request("c", "1", time.Second))
				wantCode(t, err, lastword.ErrHeld)
				st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "jobs/nightly"})
				if err != nil || st.Holder.Fence != second.Fence {
					t.Fatalf("holder %+v (%v), want %+v", st.Holder, err, second.TenureRef)
				}
			})
		})
	}
}

func TestR3WaitersAreServedInTheirOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		const n = 50
		got := make(chan string, n)
		for i := range n {
			owner := fmt.Sprintf("w%02d", i)
			go func() {
				r := request(owner, "1", time.Minute)
				r.Wait = time.Hour
				tenure, err := a.Acquire(context.WithoutCancel(t.Context()), r)
				if err != nil {
					t.Error(err)
				}
				got <- owner
				if err := a.Release(context.WithoutCancel(t.Context()), tenure.TenureRef); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		_, err := a.Acquire(t.Context(), request("late", "1", time.Second))
		var held *lastword.Error
		if !errors.As(err, &held) || held.Waiters != n || held.Holder != "holder" || held.Fence != holder.Fence {
			t.Fatalf("refusal %+v, want one that names holder, fence and %d waiters", held, n)
		}
		if err := a.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if owner := <-got; owner != fmt.Sprintf("w%02d", i) {
				t.Fatalf("%s was served at place %d", owner, i)
			}
		}
		synctest.Wait()
	})
}

func TestR3AWaiterThatHasGoneIsSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			r := request("gone", "1", time.Minute)
			r.Wait = time.Hour
			_, err := a.Acquire(ctx, r)
			gone <- err
		}()
		synctest.Wait()
		next := make(chan lastword.Tenure, 1)
		go func() {
			r := request("next", "1", time.Minute)
			r.Wait = time.Hour
			tenure, err := a.Acquire(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			next <- tenure
		}()
		synctest.Wait()
		leave()
		wantCode(t, <-gone, lastword.ErrUnavailable)
		if err := a.Release(t.Context(), holder.TenureRef); err != nil {
			t.Fatal(err)
		}
		if tenure := <-next; tenure.Owner != "next" || tenure.Fence != 2 {
			t.Fatalf("got %+v", tenure)
		}
	})
}

func TestR3AWaitEndsWithTheRefusal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		mustAcquire(t, a, request("holder", "1", time.Minute))
		r := request("b", "1", time.Second)
		r.Wait = 3 * time.Second
		start := time.Now()
		_, err := a.Acquire(t.Context(), r)
		wantCode(t, err, lastword.ErrHeld)
		if waited := time.Since(start); waited != 3*time.Second {
			t.Fatalf("waited %v, want 3s", waited)
		}
		st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "jobs/nightly"})
		if err != nil || st.Waiters != 0 {
			t.Fatalf("status %+v, %v: want no waiter left", st, err)
		}
	})
}

func TestR3WaitersAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{MaxWaiters: 2})
		mustAcquire(t, a, request("holder", "1", time.Minute))
		ctx, stop := context.WithCancel(t.Context())
		for i := range 2 {
			go func() {
				r := request(fmt.Sprint("w", i), "1", time.Second)
				r.Wait = time.Hour
				_, _ = a.Acquire(ctx, r)
			}()
		}
		synctest.Wait()
		r := request("w3", "1", time.Second)
		r.Wait = time.Hour
		_, err := a.Acquire(t.Context(), r)
		wantCode(t, err, lastword.ErrQuota)
		stop()
		synctest.Wait()
	})
}

func TestT23CallsOfOneOwnerAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{MaxPerOwner: 1})
		mustAcquire(t, a, request("holder", "1", time.Minute))
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			r := request("w", "1", time.Second)
			r.Wait = time.Hour
			_, _ = a.Acquire(ctx, r)
		}()
		synctest.Wait()
		_, err := a.Acquire(t.Context(), request("w", "2", time.Second))
		wantCode(t, err, lastword.ErrQuota)
		stop()
		synctest.Wait()
		_, err = a.Acquire(t.Context(), request("w", "2", time.Second))
		wantCode(t, err, lastword.ErrHeld)
	})
}

func TestR6aACancelEndsTheWaitAndTheTenure(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		holder := mustAcquire(t, a, request("holder", "1", time.Minute))
		waiting := make(chan error, 1)
		go func() {
			r := request("w", "1", time.Second)
			r.Wait = time.Hour
			_, err := a.Acquire(t.Context(), r)
			waiting <- err
		}()
		synctest.Wait()
		if err := a.Cancel(t.Context(), "jobs/nightly", "w", "1"); err != nil {
			t.Fatal(err)
		}
		wantCode(t, <-waiting, lastword.ErrCanceled)
		if err := a.Cancel(t.Context(), "jobs/nightly", "holder", "1"); err != nil {
			t.Fatal(err)
		}
		_, err := a.Renew(t.Context(), holder.TenureRef)
		wantCode(t, err, lastword.ErrNotHolder)
		_, err = a.Acquire(t.Context(), request("w", "1", time.Second))
		wantCode(t, err, lastword.ErrCanceled)
		if next := mustAcquire(t, a, request("w", "2", time.Second)); next.Fence != 2 {
			t.Fatalf("fence %d, want 2", next.Fence)
		}
	})
}

func TestR7ARevokeNamesItsFence(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		first := mustAcquire(t, a, request("a", "1", time.Minute))
		wantCode(t, a.Revoke(t.Context(), first.Resource, 7, "op", "wrong fence"), lastword.ErrNotHolder)
		wantCode(t, a.Revoke(t.Context(), first.Resource, 0, "op", "no fence"), lastword.ErrInvalid)
		wantCode(t, a.Revoke(t.Context(), first.Resource, 1, "", "no operator"), lastword.ErrInvalid)
		if err := a.Revoke(t.Context(), first.Resource, 1, "op", "stuck"); err != nil {
			t.Fatal(err)
		}
		_, err := a.Renew(t.Context(), first.TenureRef)
		wantCode(t, err, lastword.ErrNotHolder)
		var e *lastword.Error
		if !errors.As(err, &e) || e.Ended.State != lastword.StateRevoked || e.Ended.Fence != first.Fence {
			t.Fatalf("the refusal tells %+v, not that the tenure was revoked", e.Ended)
		}
		if next := mustAcquire(t, a, request("c", "1", time.Second)); next.Fence != 2 || next.Previous.State != lastword.StateRevoked {
			t.Fatalf("got %+v", next)
		}
	})
}

func TestR3ALockDelayFollowsAnExpiryAndNotARelease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{LockDelay: map[string]time.Duration{"jobs/": 2 * time.Second, "": 0}})
		first := mustAcquire(t, a, request("a", "1", time.Second))
		if err := a.Release(t.Context(), first.TenureRef); err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, a, request("a", "2", time.Second))
		start := time.Now()
		r := request("b", "1", time.Second)
		r.Wait = time.Minute
		mustAcquire(t, a, r)
		if waited := time.Since(start); waited < 3*time.Second || waited > 3400*time.Millisecond {
			t.Fatalf("granted after %v, want TTL and delay, 3s, and two ticks at most", waited)
		}
	})
}

// TestKF29AStatusDoesNotLetOthersActForTheHolder: with owner and request id of a live
// tenure, or with its lease id, anybody could ask for its grant or release it.
func TestKF29AStatusDoesNotLetOthersActForTheHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.open(authority.Config{})
		held := mustAcquire(t, a, request("a", "1", time.Minute))
		for name, c := range map[string]struct {
			query lastword.StatusQuery
			want  lastword.TenureRef
		}{
			"of the resource": {lastword.StatusQuery{Resource: held.Resource}, lastword.TenureRef{Resource: held.Resource, Owner: "a", Fence: held.Fence}},
			"of another request": {
				lastword.StatusQuery{Resource: held.Resource, Owner: "a", RequestID: "2"},
				lastword.TenureRef{Resource: held.Resource, Owner: "a", Fence: held.Fence},
			},
			"of this request": {lastword.StatusQuery{Resource: held.Resource, Owner: "a", RequestID: "1"}, held.TenureRef},
			"of this lease":   {lastword.StatusQuery{Resource: held.Resource, LeaseID: held.LeaseID}, held.TenureRef},
		} {
			if st, err := a.Status(t.Context(), c.query); err != nil || st.Holder != c.want {
				t.Errorf("%s: holder %+v, %v, want %+v", name, st.Holder, err, c.want)
			}
		}
	})
}

func TestAStoreKeepsToItsDomain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(authority.Config{})
		key, err := grant.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		other, err := grant.NewSigner("other", key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = authority.Open(t.Context(), w.memory.Open(), other, authority.Config{Domain: "other", Witness: w.witness})
		wantCode(t, err, lastword.ErrInvalid)
		if !strings.Contains(err.Error(), `"test"`) {
			t.Errorf("%v does not name the store's domain", err)
		}
	})
}
