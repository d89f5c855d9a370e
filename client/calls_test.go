package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// counter serves one renewal after the other, each for as long, whether its caller
// still waits or not, as an authority does with what has been sent to it.
type counter struct {
	client.Authority
	each time.Duration
	hang func(lastword.Resource) bool // nil: nothing

	mu                sync.Mutex
	free              time.Time
	under, most       int
	answered, unheard int
	longest           time.Duration // since a lease was renewed last
	last              map[lastword.Resource]time.Time
}

// served waits for its turn. It is false if the caller's time-out came first.
func (s *counter) served(ctx context.Context, r lastword.Resource) bool {
	if s.hang != nil && s.hang(r) {
		<-ctx.Done()
		return false
	}
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.each)
	wait := time.NewTimer(s.free.Sub(now))
	s.mu.Unlock()
	defer wait.Stop()
	in := false
	select {
	case <-wait.C:
		in = true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
	return in
}

func (s *counter) Renew(ctx context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	in := s.served(ctx, ref.Resource)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !in {
		s.unheard++
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnknown, Err: ctx.Err()}
	}
	s.answered++
	now := time.Now()
	if before, ok := s.last[ref.Resource]; ok {
		s.longest = max(s.longest, now.Sub(before))
	}
	s.last[ref.Resource] = now
	return s.Authority.Renew(ctx, ref)
}

func (s *counter) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	if !s.served(ctx, q.Resource) {
		return lastword.Status{}, &lastword.Error{Code: lastword.CodeUnavailable, Err: ctx.Err()}
	}
	return s.Authority.Status(ctx, q)
}

// crowd holds leases for two minutes, and counts those that are lost.
func crowd(t *testing.T, w *world, s *counter, leases int) (lost, unknown int64) {
	t.Helper()
	s.Authority, s.last = w.fake, map[lastword.Resource]time.Time{}
	var ended, doubted atomic.Int64
	start := time.Now()
	c, err := client.New(s, client.Config{
		Owner: "crowd", Elapsed: func() time.Duration { return time.Since(start) },
		OnEvent: func(e client.Event) {
			switch {
			case e.Final():
				ended.Add(1)
			case e.To == lastword.HolderUnknown:
				doubted.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range leases {
		if _, err := c.Acquire(t.Context(), lastword.Resource(fmt.Sprintf("doc/%d", i)), client.AcquireOptions{TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second / time.Duration(leases))
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	lost, unknown = ended.Load(), doubted.Load()
	s.mu.Lock()
	t.Logf("%d leases, %v a renewal: %d lost, %d times unknown, %d renewals answered, %d given up, %d under way at most, renewed after %v at most",
		leases, s.each, lost, unknown, s.answered, s.unheard, s.most, s.longest.Round(time.Millisecond))
	s.mu.Unlock()
	_ = c.Close()
	return lost, unknown
}

// many is more than are let through at a time, several times.
func many() int {
	if testing.Short() { // the race detector is slow
		return 3000
	}
	return 12_000
}

// T23: an authority that answers a third too slowly for renewals at a third of the TTL
// gets them a little later, and in the order in which trust ends; nothing is lost by
// calls that wait for each other until all of them take too long.
func TestT23AnAuthorityThatIsALittleTooSlowLosesNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		leases := many()
		s := &counter{each: 15 * time.Second / time.Duration(leases)}
		if lost, unknown := crowd(t, w, s, leases); lost != 0 || unknown != 0 || s.most > 4096 {
			t.Error("it was too much for them")
		}
	})
}

// T23: where it cannot answer for all, those for which it can are kept.
func TestT23AnAuthorityThatIsMuchTooSlowKeepsAsManyAsItCan(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		leases := many()
		s := &counter{each: 60 * time.Second / time.Duration(leases)} // enough for a little less than half of them
		if lost, _ := crowd(t, w, s, leases); leases-int(lost) < leases/4 {
			t.Errorf("%d of %d are lost", lost, leases)
		}
	})
}

// Calls that hang, more of them than are let through at a time, hold up no others.
func TestCallsThatHangHoldUpNoOtherLeases(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		leases := many() / 3
		s := &counter{each: time.Microsecond, hang: func(r lastword.Resource) bool { return r[len(r)-1]%3 == 0 }}
		hang := int64(0)
		for i := range leases {
			if (i%10+'0')%3 == 0 {
				hang++
			}
		}
		if lost, _ := crowd(t, w, s, leases); lost > hang {
			t.Errorf("%d are lost, and %d hang", lost, hang)
		}
		if s.longest > 16*time.Second {
			t.Errorf("one was renewed after %v, want 10 s, and a time-out of 5 s at most", s.longest)
		}
	})
}
