package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/lab/history"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// granularity is how much longer than its TTL a tenure may last where one authority
// runs all the time: one tick, of which its own watching uses a few milliseconds on a
// machine that has time (R8). By the store's counter alone it would be two ticks.
const granularity = usualTick

func TestKF19TTLIsALowerBoundAndIsKeptWithinTheGranularity(t *testing.T) {
	t.Parallel()
	grants := 200
	if testing.Short() || raceOn {
		grants = 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	addr := servedAt(t)
	slow := measureDrag(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	over := map[time.Duration][]time.Duration{}
	for i, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 900 * time.Millisecond} {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		c := dial(t, addr)
		for n := range grants {
			offset := time.Duration(random.Int64N(int64(time.Second)))
			resource := fmt.Sprintf("kf19/%v/%d", ttl, n)
			all.Go(func() {
				time.Sleep(offset)
				sent := history.Clock()
				a, err := c.Acquire(t.Context(), wanted(resource, "a", "1", ttl, 0))
				heard := history.Clock()
				if err != nil || a.TTL != ttl {
					t.Errorf("%s: granted %v (%v)", resource, a.TTL, err)
					return
				}
				mark := slow.mark()
				_, err = c.Acquire(t.Context(), wanted(resource, "b", "1", ttl, patience)) // A never renews
				next := history.Clock()
				if err != nil || next-sent < ttl || next-heard > ttl+slow.within(granularity+margin, mark) {
					t.Errorf("%s: the next grant came %v after the one before (%v)", resource, next-sent, err)
				}
				mu.Lock()
				over[ttl] = append(over[ttl], next-heard-ttl)
				mu.Unlock()
			})
		}
	}
	all.Wait()
	for ttl, late := range over {
		slices.Sort(late)
		median := late[len(late)/2]
		t.Logf("ttl %v: %d grants lasted longer by %v (median), %v (most); drag %v", ttl, len(late), median, slices.Max(late), slow.mark())
		if median > granularity/2+slow.mark() && !raceOn {
			t.Errorf("ttl %v: half of the grants last more than %v longer", ttl, granularity/2)
		}
	}
}

func TestKF19RenewedAtAThirdNothingIsLostForTwentyPeriods(t *testing.T) {
	t.Parallel()
	periods := 20
	if testing.Short() {
		periods = 6
	}
	addr := servedAt(t)
	for _, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 900 * time.Millisecond} {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			seen := &book{}
			c, err := client.New(history.Recorder{Authority: dial(t, addr), Note: seen.note}, client.Config{Owner: "a"})
			if err != nil {
				t.Fatal(err)
			}
			l, err := c.Acquire(t.Context(), lastword.Resource("kf19/"+ttl.String()), client.AcquireOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.Context().Done():
				t.Fatalf("lost: %v", context.Cause(l.Context()))
			case <-time.After(time.Duration(periods) * ttl / 3):
			}
			if !l.State().Admits() {
				t.Errorf("after %d periods it is %s", periods, l.State())
			}
			renewals := 0
			for _, f := range seen.all() {
				if f.Op == "renew" && f.Accepted() && f.Fence == l.Fence() {
					renewals++
				}
			}
			if renewals < periods-2 || renewals > periods+1 {
				t.Errorf("%d renewals in %d periods", renewals, periods)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// rawAcquire sends what no client of ours would send.
func rawAcquire(t *testing.T, addr string) func(ttl, wait *durationpb.Duration) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stub := wire.NewAuthorityServiceClient(conn)
	return func(ttl, wait *durationpb.Duration) error {
		_, err := stub.Acquire(t.Context(), &wire.AcquireRequest{Resource: "doc", Owner: "a", RequestId: "1", Class: "write", Ttl: ttl, Wait: wait})
		return err
	}
}

func TestKF19AndKF20DurationsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	direct := dial(t, addr)
	raw := rawAcquire(t, addr)
	for _, d := range []*durationpb.Duration{
		nil, {}, {Seconds: -1}, {Nanos: -1}, durationpb.New(10 * time.Millisecond), // KF-19
		durationpb.New(1 << 50 * time.Microsecond), {Seconds: 1 << 50}, {Seconds: 1 << 62}, // KF-20
		{Seconds: 1<<63 - 1}, {Seconds: 1<<63 - 1, Nanos: 1<<31 - 1}, durationpb.New(100_000 * time.Hour),
	} {
		if err := raw(d, nil); err == nil {
			t.Errorf("a ttl of %v was granted", d)
		}
		if d.GetSeconds() > 1<<20 || d.GetSeconds() < 0 {
			if err := raw(durationpb.New(time.Second), d); err == nil {
				t.Errorf("a wait of %v was accepted", d)
			}
		}
	}
	for _, ttl := range []time.Duration{0, -1, 10 * time.Millisecond, 100_000 * time.Hour, 1<<63 - 1} {
		_, err := direct.Acquire(t.Context(), wanted("doc", "a", "1", ttl, 0))
		wantCode(t, "ttl "+ttl.String(), err, lastword.CodeInvalid)
	}
	st, err := direct.Status(t.Context(), lastword.StatusQuery{Resource: "doc"})
	if err != nil || st.State != lastword.StateFree || st.NextFence.Counter() != 1 {
		t.Errorf("a refused acquire left %+v (%v)", st, err)
	}
}

// The times of KF-08 are scaled by ten: TTL 3 s for 30 s, renewed each second, tried
// every 100 ms.
func TestKF08WallClocksOfHostsDecideNothing(t *testing.T) {
	t.Parallel()
	skew := 3 * time.Minute
	for _, c := range []struct {
		name      string
		authority time.Duration // its wall clock is off by so much, against A and B
	}{
		{"authority behind", -skew},
		{"authority ahead", skew},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, addr := serve(t, authorityConfig{Dir: t.TempDir(), WallSkew: c.authority})
			const ttl = 3 * time.Second
			tries := 120
			if testing.Short() {
				tries = 50
			}
			seen := &book{}
			a, err := client.New(history.Recorder{Authority: dial(t, addr), Note: seen.note}, client.Config{Owner: "a"})
			if err != nil {
				t.Fatal(err)
			}
			l, err := a.Acquire(t.Context(), "doc", client.AcquireOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			b := history.Recorder{Authority: dial(t, addr), Note: seen.note}
			for i := range tries {
				_, err := b.Acquire(t.Context(), wanted("doc", "b", fmt.Sprint(i), ttl, 0))
				wantCode(t, "B while A's lease is live", err, lastword.CodeHeld)
				time.Sleep(100 * time.Millisecond)
			}
			// Third run: a resource whose wall clock is off, too.
			for i, now := range []func() time.Time{nil, func() time.Time { return time.Now().Add(skew) }, func() time.Time { return time.Now().Add(-skew) }} {
				f := newPlace(t, addr, fence.Config{Now: now}, "doc")
				receipt, err := f.write(t.Context(), l, fmt.Sprint("op-", i), "doc", fmt.Sprint(i))
				if err != nil || receipt.Verdict != lastword.Applied {
					t.Errorf("a resource with another clock: %v, %v", receipt.Verdict, err)
				}
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			for _, w := range history.Verify(seen.all()) {
				t.Error(w)
			}
		})
	}
}

func TestKF08OnlyTheGrantedTTLCounts(t *testing.T) {
	t.Parallel()
	addr := servedAt(t)
	c := dial(t, addr)
	const ttl = 3 * time.Second
	slow := measureDrag(t)
	sent := history.Clock()
	a := mustAcquire(t, c, wanted("doc", "a", "1", ttl, 0)) // and no renewal
	last := history.Clock()
	for i := 0; ; i++ {
		got, err := c.Acquire(t.Context(), wanted("doc", "b", fmt.Sprint(i), ttl/6, 0))
		now := history.Clock()
		if err == nil {
			if now-sent < ttl || now-last > ttl+slow.within(margin, 0) || got.Fence != a.Fence+1 {
				t.Errorf("B was granted fence %d, %v after A's last answer, ttl %v", got.Fence, now-last, ttl)
			}
			return
		}
		wantCode(t, "B", err, lastword.CodeHeld)
		if now-last > 4*ttl {
			t.Fatal("B is never granted")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
