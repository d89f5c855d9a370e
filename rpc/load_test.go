package rpc_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// servedWithin is how long a call may take beside a crowd. It is generous, for
// machines that do other things; what it took is logged.
const servedWithin = time.Second

// inUse is the memory of this process that is in use, in bytes.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// othersAreServed makes cycles of another client and logs what they took.
func othersAreServed(t *testing.T, addr, beside string) {
	t.Helper()
	c := dial(t, addr)
	var longest, sum time.Duration
	const cycles = 100
	for i := range cycles {
		began := time.Now()
		tenure, err := c.Acquire(t.Context(), lastword.AcquireRequest{Resource: "other", RequestID: fmt.Sprint(beside, i), Owner: "other", TTL: time.Minute})
		if err == nil {
			_, err = c.Renew(t.Context(), tenure.TenureRef)
		}
		if err == nil {
			err = c.Release(t.Context(), tenure.TenureRef)
		}
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began) / 3
		longest, sum = max(longest, took), sum+took
	}
	t.Logf("beside %s a call of another session takes %v, at most %v", beside, (sum / cycles).Round(time.Microsecond), longest.Round(time.Microsecond))
	if longest > servedWithin {
		t.Errorf("beside %s a call took %v", beside, longest)
	}
}

// T23: memory is bounded, and others are served.
func TestTenThousandWaitersOfOneResource(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: runs without the race detector")
	}
	const waiters, perWaiter = 10_000, 32 << 10
	for _, sessions := range []int{1, 100} {
		t.Run(fmt.Sprint("sessions=", sessions), func(t *testing.T) {
			a := newAuthority(t, authority.Config{})
			addr, _ := serve(t, a, rpc.ServerConfig{})
			c := rawClient(t, addr)
			held, err := a.Acquire(t.Context(), lastword.AcquireRequest{Resource: "one", RequestID: "h", Owner: "h", TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			var all []*rawSession
			for range sessions {
				all = append(all, openSession(t, c))
			}
			before := inUse()
			for i := range waiters {
				s := all[i%sessions]
				s.send(acquireCall(uint64(i)+1, &wire.AcquireRequest{
					Resource: "one", RequestId: fmt.Sprint(i), Owner: fmt.Sprint("owner-", i%sessions),
					Ttl: durationpb.New(time.Hour), Wait: durationpb.New(time.Hour),
				}))
			}
			waiting := func() int {
				st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: "one"})
				if err != nil {
					t.Fatal(err)
				}
				return st.Waiters
			}
			until(t, "everybody's waiting", func() bool { return waiting() == waiters })
			used := inUse() - before
			t.Logf("%d waiters in %d sessions: %.1f MiB, %d bytes each", waiters, sessions, float64(used)/(1<<20), used/waiters)
			if used > waiters*perWaiter {
				t.Errorf("a waiter takes %d bytes, want at most %d", used/waiters, perWaiter)
			}
			othersAreServed(t, addr, fmt.Sprint(waiters, " waiters in ", sessions, " sessions"))
			if err := a.Release(t.Context(), held.TenureRef); err != nil {
				t.Fatal(err)
			}
			until(t, "the next one's turn", func() bool { return waiting() == waiters-1 })
			for _, s := range all {
				s.cancel()
			}
			until(t, "the end of the waiting", func() bool { return waiting() == 0 })
		})
	}
}

// T23: a session with thousands of calls does not hold up another one.
func TestASessionThatFloodsDoesNotHoldUpOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: runs without the race detector")
	}
	a := newAuthority(t, authority.Config{})
	addr, _ := serve(t, a, rpc.ServerConfig{})
	flood := openSession(t, rawClient(t, addr))
	done := make(chan struct{})
	var wg sync.WaitGroup
	var answered, sent int
	wg.Go(func() {
		for {
			m, err := flood.stream.Recv()
			if err != nil {
				return
			}
			answered += len(m.GetAnswers())
		}
	})
	wg.Go(func() {
		defer flood.cancel()
		for i := 0; i < int(flood.window)/100; i++ { // all of them at once
			m := &wire.SessionRequest{}
			for range 100 {
				sent++
				m.Calls = append(m.Calls, acquireCall(uint64(sent), &wire.AcquireRequest{
					Resource: fmt.Sprint("flood/", sent), RequestId: "r", Owner: "o", Ttl: durationpb.New(time.Minute),
				}))
			}
			if flood.stream.Send(m) != nil {
				return
			}
		}
		<-done
	})
	othersAreServed(t, addr, "a flood")
	close(done)
	wg.Wait()
	t.Logf("%d of %d calls of the flood were answered meanwhile", answered, sent)
}

// T22: what a session costs the program that nobody uses.
func TestFiveThousandIdleSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: starts the program and 5,000 connections")
	}
	const sessions, perSession = 5000, 64 << 10
	addr, pid := process(t)
	c := dial(t, addr)
	if _, err := c.Status(t.Context(), lastword.StatusQuery{Resource: "warm"}); err != nil {
		t.Fatal(err)
	}
	before := resident(t, pid)
	var wg sync.WaitGroup
	work := make(chan struct{}, sessions)
	for range sessions {
		work <- struct{}{}
	}
	close(work)
	var mu sync.Mutex
	var conns []*grpc.ClientConn
	for range 16 {
		wg.Go(func() {
			for range work {
				conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithReadBufferSize(1<<10), grpc.WithWriteBufferSize(1<<10))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
				stream, err := wire.NewAuthorityServiceClient(conn).Session(t.Context())
				if err == nil {
					_, err = stream.Recv()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	used := resident(t, pid) - before
	t.Logf("%d idle sessions, each with its connection: %.0f MiB resident, %d bytes each", sessions, float64(used)/(1<<20), used/sessions)
	if used > sessions*perSession {
		t.Errorf("an idle session takes %d bytes, want at most %d", used/sessions, perSession)
	}
	othersAreServed(t, addr, "5000 idle sessions")
}

// resident is the memory of a process, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprint("/proc/", pid, "/status"))
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := strings.CutPrefix(string(line), "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
