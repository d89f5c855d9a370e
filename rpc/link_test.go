package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// scripted is a server whose sessions do what a test says. Unary calls are unknown
// to it, except those that embedding gives it.
type scripted struct {
	wire.UnimplementedAuthorityServiceServer
	session func(stream wire.AuthorityService_SessionServer) error
	opened  atomic.Int64
}

func (s *scripted) Session(stream wire.AuthorityService_SessionServer) error {
	s.opened.Add(1)
	return s.session(stream)
}

func serveWire(t *testing.T, s wire.AuthorityServiceServer) string {
	t.Helper()
	lis, g := listen(t), grpc.NewServer()
	wire.RegisterAuthorityServiceServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(lis) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return lis.Addr().String()
}

// freeAnswer answers a status call.
func freeAnswer(call *wire.SessionCall) *wire.SessionAnswer {
	st := rpc.StatusMessage(lastword.Status{Resource: lastword.Resource(call.GetStatus().GetResource()), State: lastword.StateFree})
	return &wire.SessionAnswer{Id: call.GetId(), Answer: &wire.SessionAnswer_Status{Status: &wire.StatusResponse{Status: st}}}
}

func question(i int) lastword.StatusQuery {
	return lastword.StatusQuery{Resource: lastword.Resource(fmt.Sprint("doc/", i))}
}

func TestCallsOfManyGoroutinesTravelInFewMessages(t *testing.T) {
	const callers = 64
	messages, goOn := 0, make(chan struct{})
	s := &scripted{session: func(stream wire.AuthorityService_SessionServer) error {
		<-goOn // meanwhile the calls queue
		if err := stream.Send(&wire.SessionResponse{Window: 1000}); err != nil {
			return err
		}
		for calls := 0; calls < callers; {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			messages++
			a := &wire.SessionResponse{}
			for _, call := range m.GetCalls() {
				calls++
				a.Answers = append(a.Answers, freeAnswer(call))
			}
			if err := stream.Send(a); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	}}
	c := dial(t, serveWire(t, s))
	var asking, answered sync.WaitGroup
	for i := range callers {
		asking.Add(1)
		answered.Go(func() {
			asking.Done()
			if _, err := c.Status(t.Context(), question(i)); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	time.AfterFunc(50*time.Millisecond, func() { close(goOn) }) // until all have come to the queue
	answered.Wait()
	if messages > callers/4 {
		t.Errorf("%d calls took %d messages", callers, messages)
	}
}

// Neither the window is passed nor does who waits block who holds.
func TestTheClientKeepsToTheWindowAndWaitsLeaveRoom(t *testing.T) {
	const window = 16
	f, goOn := granting(), make(chan struct{})
	// None is answered before all have given up: an answer would make room for the next.
	f.acquire = func(context.Context, lastword.AcquireRequest) (lastword.Tenure, error) {
		<-goOn
		return lastword.Tenure{}, lastword.ErrHeld
	}
	t.Cleanup(sync.OnceFunc(func() { close(goOn) }))
	f.renew = func(context.Context, lastword.TenureRef) (lastword.Tenure, error) { return grantOf(req), nil }
	addr, _ := serve(t, f, rpc.ServerConfig{SessionWindow: window})
	c := dial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	var unsent atomic.Int64
	for range 10 * window {
		waits.Go(func() {
			r := req
			r.Wait = time.Minute
			_, err := c.Acquire(ctx, r)
			if errors.Is(err, lastword.ErrUnavailable) {
				unsent.Add(1)
			} else if !errors.Is(err, lastword.ErrUnknownOutcome) {
				t.Errorf("a wait that was given up: %v", err)
			}
		})
	}
	until(t, "a window full of waits", func() bool { return f.calls.Load() == window-window/8 })
	var calls sync.WaitGroup
	for range 10 * window {
		calls.Go(func() {
			if _, err := c.Renew(t.Context(), ref); err != nil {
				t.Errorf("a renewal beside waits: %v", err)
			}
		})
	}
	calls.Wait()
	cancel()
	waits.Wait()
	if got, want := unsent.Load(), int64(10*window-(window-window/8)); got != want {
		t.Errorf("%d waits say that they were not sent, want %d, those beyond the window", got, want)
	}
}

func TestACallerThatGivesUpReturnsAtOnceAndWithdraws(t *testing.T) {
	seen, withdrawn := make(chan uint64, 1), make(chan uint64, 1)
	s := &scripted{session: func(stream wire.AuthorityService_SessionServer) error {
		if err := stream.Send(&wire.SessionResponse{Window: 100}); err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			for _, call := range m.GetCalls() {
				seen <- call.GetId()
			}
			for _, id := range m.GetWithdrawn() {
				withdrawn <- id
			}
		}
	}}
	c := dial(t, serveWire(t, s))
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() { answer <- c.Release(ctx, ref) }()
	id := <-seen
	cancel()
	wantCode(t, <-answer, lastword.CodeUnknown)
	equal(t, "withdrawn", <-withdrawn, id)
}

func TestACallerThatGivesUpBeforeTheSessionOpensHasSentNothing(t *testing.T) {
	calls := make(chan *wire.SessionCall, 10)
	s := &scripted{session: func(stream wire.AuthorityService_SessionServer) error {
		if m, err := stream.Recv(); err == nil { // no call comes before the window
			calls <- m.GetCalls()[0]
		}
		return nil
	}}
	c := dial(t, serveWire(t, s))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.Release(ctx, ref)
	wantCode(t, err, lastword.CodeUnavailable)
	if !errors.Is(err, context.DeadlineExceeded) || len(calls) > 0 {
		t.Errorf("%v, %d calls came", err, len(calls))
	}
}

// older is an authority that knows no sessions.
type older struct {
	wire.UnimplementedAuthorityServiceServer
	calls atomic.Int64
}

func (o *older) Renew(context.Context, *wire.RenewRequest) (*wire.RenewResponse, error) {
	o.calls.Add(1)
	return &wire.RenewResponse{Tenure: rpc.TenureMessage(grantOf(req))}, nil
}

func TestAnAuthorityThatKnowsNoSessionsIsCalledOneByOne(t *testing.T) {
	o := &older{}
	c := dial(t, serveWire(t, o))
	for range 5 {
		if _, err := c.Renew(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "calls", o.calls.Load(), int64(5))
	wantCode(t, c.Release(t.Context(), ref), lastword.CodeUnknown) // it knows no release either
}

func TestABrokenSessionLeavesOpenWhatHadLeftAndTheNextCallOpensAnother(t *testing.T) {
	s := &scripted{}
	s.session = func(stream wire.AuthorityService_SessionServer) error {
		if err := stream.Send(&wire.SessionResponse{Window: 100}); err != nil {
			return err
		}
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetCalls()[0].GetStatus().GetResource() == "doc/1" {
			return stream.Send(&wire.SessionResponse{Answers: []*wire.SessionAnswer{freeAnswer(m.GetCalls()[0])}})
		}
		return status.Error(codes.Unavailable, "broken")
	}
	c := dial(t, serveWire(t, s))
	for i, err := range []error{
		c.Release(t.Context(), ref), c.Complete(t.Context(), ref, nil), c.Cancel(t.Context(), ref.Resource, ref.Owner, ref.RequestID),
	} {
		if e := wantCode(t, err, lastword.CodeUnknown); e.Hint == "" {
			t.Errorf("%d: %v has no way out", i, err)
		}
	}
	_, err := c.Status(t.Context(), question(0))
	wantCode(t, err, lastword.CodeUnavailable)
	if _, err := c.Status(t.Context(), question(1)); err != nil {
		t.Error(err)
	}
	equal(t, "sessions", s.opened.Load(), int64(5))
}

// A session that ends in order loses nothing and leaves nothing open: what it did
// not begin is begun once, elsewhere.
func TestWhatAnEndingSessionHasNotBegunIsMadeInTheNext(t *testing.T) {
	const callers = 20
	var mu sync.Mutex
	begun := make(map[string]int)
	s := &scripted{}
	s.session = func(stream wire.AuthorityService_SessionServer) error {
		if err := stream.Send(&wire.SessionResponse{Window: 100}); err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			for _, call := range m.GetCalls() {
				mu.Lock()
				begun[call.GetStatus().GetResource()]++
				mu.Unlock()
				a := &wire.SessionResponse{Answers: []*wire.SessionAnswer{freeAnswer(call)}}
				if s.opened.Load() == 1 { // the first session ends with its first call
					a.Last = proto.Uint64(call.GetId())
					return stream.Send(a)
				}
				if err := stream.Send(a); err != nil {
					return err
				}
			}
		}
	}
	c := dial(t, serveWire(t, s))
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			if _, err := c.Status(t.Context(), question(i)); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for r, n := range begun {
		if n != 1 {
			t.Errorf("%s was begun %d times", r, n)
		}
	}
	equal(t, "calls", len(begun), callers)
}

func TestAnAnswerToAnotherQuestionIsNotUnderstood(t *testing.T) {
	s := &scripted{session: func(stream wire.AuthorityService_SessionServer) error {
		if err := stream.Send(&wire.SessionResponse{Window: 100}); err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			for _, call := range m.GetCalls() {
				a := &wire.SessionAnswer{Id: call.GetId(), Answer: &wire.SessionAnswer_Cancel{Cancel: &wire.CancelResponse{}}}
				if call.GetCancel() != nil {
					a.Answer = nil
				}
				if err := stream.Send(&wire.SessionResponse{Answers: []*wire.SessionAnswer{{Id: 1 << 40}, a, a}}); err != nil {
					return err
				}
			}
		}
	}}
	errs := everyCall(t.Context(), dial(t, serveWire(t, s)))
	for _, unary := range []string{"bundle", "list", "report", "resume", "revoke", "watch"} {
		delete(errs, unary)
	}
	for op, err := range errs {
		code := lastword.CodeInternal
		if mutates(op) {
			code = lastword.CodeUnknown
		}
		wantCode(t, err, code)
	}
}

// R2, R27, KF-06: the connection is cut at random while 64 goroutines work. Every
// tenure is found again by its request id: as many fences are issued as leases were
// got, no two hold one resource at a time, and nobody hangs.
func TestACutConnectionLosesNoTenureAndMakesNone(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const workers, rounds, resources = 64, 6, 24
	a := newAuthority(t, authority.Config{})
	addr, _ := serve(t, a, rpc.ServerConfig{})
	proxy := newCutter(t, addr)
	remote := dialWith(t, proxy.addr(), rpc.ClientConfig{Timeout: 5 * time.Second})
	c, err := client.New(remote, client.Config{Owner: "workers", CleanupTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	stopCuts := make(chan struct{})
	var cuts atomic.Int64
	var cutting sync.WaitGroup
	cutting.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1))
		for {
			select {
			case <-stopCuts:
				return
			case <-time.After(time.Duration(1+r.IntN(25)) * time.Millisecond):
				proxy.cut()
				cuts.Add(1)
			}
		}
	})

	var holders [resources]atomic.Int64
	var got [resources]atomic.Int64
	fences := make([][]lastword.Token, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)+2))
			for range rounds {
				i := r.IntN(resources)
				l, err := c.Acquire(ctx, lastword.Resource(fmt.Sprint("doc/", i)), client.AcquireOptions{TTL: time.Minute, Wait: time.Minute})
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if n := holders[i].Add(1); n != 1 {
					t.Errorf("%d hold doc/%d", n, i)
				}
				got[i].Add(1)
				fences[w] = append(fences[w], l.Fence()*resources+lastword.Token(i))
				time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
				holders[i].Add(-1)
				if err := l.Release(ctx); err != nil && !errors.Is(err, lastword.ErrNotHolder) {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	close(stopCuts)
	cutting.Wait()
	t.Logf("%d cuts", cuts.Load())
	for i := range resources {
		st, err := a.Status(t.Context(), lastword.StatusQuery{Resource: lastword.Resource(fmt.Sprint("doc/", i))})
		if err != nil {
			t.Fatal(err)
		}
		if n := got[i].Load(); n > 0 && int64(st.NextFence.Counter()) != n+1 {
			t.Errorf("doc/%d: the next fence is the %dth after %d leases", i, st.NextFence.Counter(), n)
		}
		if st.State != lastword.StateReleased && st.State != lastword.StateFree {
			t.Errorf("doc/%d is left %s", i, st.State)
		}
	}
	all := slices.Concat(fences...)
	slices.Sort(all)
	equal(t, "leases", len(all), workers*rounds)
	equal(t, "different fences", len(slices.Compact(all)), workers*rounds)
	if cuts.Load() < 5 {
		t.Error("the connection was hardly ever cut: that proves nothing")
	}
}
