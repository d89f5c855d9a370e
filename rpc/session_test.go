package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// rawSession is a session as another language may have it.
type rawSession struct {
	t      testing.TB
	stream wire.AuthorityService_SessionClient
	window uint32
	cancel context.CancelFunc
}

func openSession(t testing.TB, c wire.AuthorityServiceClient) *rawSession {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return &rawSession{t, stream, m.GetWindow(), cancel}
}

func (s *rawSession) send(calls ...*wire.SessionCall) {
	s.t.Helper()
	if err := s.stream.Send(&wire.SessionRequest{Calls: calls}); err != nil {
		s.t.Fatal(err)
	}
}

// answer is the next answer, which must be the only one of its message.
func (s *rawSession) answer() *wire.SessionAnswer {
	s.t.Helper()
	m, err := s.stream.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	if len(m.GetAnswers()) != 1 {
		s.t.Fatalf("%v, want one answer", m)
	}
	return m.GetAnswers()[0]
}

// answers are the next n answers.
func (s *rawSession) answers(n int) map[uint64]*wire.SessionAnswer {
	s.t.Helper()
	got := make(map[uint64]*wire.SessionAnswer)
	for len(got) < n {
		m, err := s.stream.Recv()
		if err != nil {
			s.t.Fatalf("after %d answers: %v", len(got), err)
		}
		for _, a := range m.GetAnswers() {
			if got[a.GetId()] != nil {
				s.t.Fatalf("call %d was answered twice", a.GetId())
			}
			got[a.GetId()] = a
		}
	}
	return got
}

// ended is what the session ended with, after whatever answers came before.
func (s *rawSession) ended() (last *wire.SessionResponse, err error) {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return last, err
		}
		last = m
	}
}

func acquireCall(id uint64, m *wire.AcquireRequest) *wire.SessionCall {
	return &wire.SessionCall{Id: id, Request: &wire.SessionCall_Acquire{Acquire: m}}
}

func statusCall(id uint64) *wire.SessionCall {
	return &wire.SessionCall{Id: id, Request: &wire.SessionCall_Status{Status: &wire.StatusRequest{Resource: "doc/a"}}}
}

func renewCall(id uint64) *wire.SessionCall {
	return &wire.SessionCall{Id: id, Request: &wire.SessionCall_Renew{Renew: &wire.RenewRequest{
		Resource: "doc/a", Owner: "worker-a", RequestId: "req-1", LeaseId: "lease-1", Fence: 41,
	}}}
}

// unknownField is a field that this version does not know.
var unknownField = protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)

// calls are one of each kind, and broken ones.
func everyRequest() []*wire.SessionCall {
	acquire := &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Ttl: durationpb.New(time.Second)}
	waits := proto.CloneOf(acquire)
	waits.Wait = durationpb.New(time.Second)
	newer, negative, long, zero := proto.CloneOf(acquire), proto.CloneOf(acquire), proto.CloneOf(acquire), proto.CloneOf(acquire)
	newer.ProtoReflect().SetUnknown(unknownField)
	negative.Ttl = &durationpb.Duration{Seconds: -1}
	long.Wait = durationpb.New(2 * time.Hour)
	zero.RequestId = ""
	other := proto.CloneOf(acquire)
	other.Resource = strings.Repeat("x", 50_000)
	calls := []*wire.SessionCall{
		renewCall(0), statusCall(0),
		{Request: &wire.SessionCall_Release{Release: &wire.ReleaseRequest{Resource: "doc/a", Owner: "o", RequestId: "r", LeaseId: "l", Fence: 1}}},
		{Request: &wire.SessionCall_Release{Release: &wire.ReleaseRequest{Resource: "doc/a", Owner: "o", RequestId: "r", LeaseId: "l"}}},
		{Request: &wire.SessionCall_Complete{Complete: &wire.CompleteRequest{Resource: "doc/a", Owner: "o", RequestId: "r", LeaseId: "l", Fence: 1, Result: []byte("x")}}},
		{Request: &wire.SessionCall_Complete{Complete: &wire.CompleteRequest{Resource: "doc/a", Owner: "o", RequestId: "r", LeaseId: "l", Fence: 1, Result: make([]byte, lastword.MaxResultBytes+1)}}},
		{Request: &wire.SessionCall_Cancel{Cancel: &wire.CancelRequest{Resource: "doc/a", Owner: "o", RequestId: "r"}}},
		{Request: &wire.SessionCall_Cancel{Cancel: &wire.CancelRequest{}}},
		{Request: &wire.SessionCall_Status{Status: &wire.StatusRequest{Resource: "doc/a", Owner: "o"}}},
	}
	for _, m := range []*wire.AcquireRequest{acquire, waits, newer, negative, long, zero, other} {
		calls = append(calls, acquireCall(0, m))
	}
	return calls
}

// unary makes the call of a session as a unary one.
func unary(ctx context.Context, c wire.AuthorityServiceClient, call *wire.SessionCall) (proto.Message, error) {
	switch r := call.GetRequest().(type) {
	case *wire.SessionCall_Acquire:
		return c.Acquire(ctx, r.Acquire)
	case *wire.SessionCall_Renew:
		return c.Renew(ctx, r.Renew)
	case *wire.SessionCall_Release:
		return c.Release(ctx, r.Release)
	case *wire.SessionCall_Complete:
		return c.Complete(ctx, r.Complete)
	case *wire.SessionCall_Cancel:
		return c.Cancel(ctx, r.Cancel)
	case *wire.SessionCall_Status:
		return c.Status(ctx, r.Status)
	}
	return nil, errors.New("no such call")
}

// content is the answer that is set in a.
func content(a *wire.SessionAnswer) proto.Message {
	m := a.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("answer"))
	if field == nil {
		return nil
	}
	return m.Get(field).Message().Interface()
}

// One code path: what is right, what is refused at the door and by the authority,
// what panics, what is not ours, with and without identities.
func TestACallOfASessionMeansWhatTheUnaryCallMeans(t *testing.T) {
	ended := &lastword.Error{
		Code: lastword.CodeTenureEnded, Message: "over", Hint: "again",
		Ended: lastword.Ending{State: lastword.StateReleased, Fence: 3, LeaseID: "l", Owner: "o", Completed: true, Result: make([]byte, 10<<10)},
	}
	held := &lastword.Error{Code: lastword.CodeHeld, Holder: "h", Fence: 7, Remaining: time.Second, Waiters: 3}
	panics := failing(nil)
	panics.acquire = func(context.Context, lastword.AcquireRequest) (lastword.Tenure, error) { panic("on purpose") }
	panics.status = func(context.Context, lastword.StatusQuery) (lastword.Status, error) { panic("on purpose") }
	good := failing(nil)
	good.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) { return grantOf(r), nil }
	good.renew = func(context.Context, lastword.TenureRef) (lastword.Tenure, error) { return grantOf(req), nil }
	identities := map[string]func(context.Context) (string, error){
		"nobody is known":  nil,
		"the owner":        func(context.Context) (string, error) { return "o", nil },
		"cannot be known":  func(context.Context) (string, error) { return "", errors.New("no certificate") },
		"identity panics":  func(context.Context) (string, error) { panic("on purpose") },
		"no owner's words": func(context.Context) (string, error) { return "\n", nil },
	}
	for what, f := range map[string]*fake{
		"good": good, "panics": panics, "ended": failing(ended), "held": failing(held),
		"not ours": failing(errors.New("secret")), "over": failing(context.Canceled), "unknown": failing(lastword.ErrUnknownOutcome),
	} {
		for who, identify := range identities {
			t.Run(what+"/"+who, func(t *testing.T) {
				addr, _ := serve(t, f, rpc.ServerConfig{Identify: identify})
				c := rawClient(t, addr)
				s := openSession(t, c)
				for i, call := range everyRequest() {
					call.Id = uint64(i) + 1
					want, wantErr := unary(t.Context(), c, call)
					s.send(call)
					got := s.answer()
					equal(t, "id", got.GetId(), call.GetId())
					if wantErr == nil {
						if !proto.Equal(content(got), want) {
							t.Errorf("%.80v:\n got %v\nwant %v", call, got, want)
						}
						continue
					}
					st := status.Convert(wantErr)
					f := got.GetFailure()
					if f.GetCode() != int32(st.Code()) || f.GetMessage() != st.Message() || !proto.Equal(f.GetRefusal(), refusal(t, wantErr)) {
						t.Errorf("%.80v:\n got %v\nwant %v with %v", call, f, st, refusal(t, wantErr))
					}
				}
			})
		}
	}
}

func TestACallThatThisVersionDoesNotKnowIsRefusedAndTheSessionGoesOn(t *testing.T) {
	f := granting()
	addr, _ := serve(t, f, rpc.ServerConfig{})
	s := openSession(t, rawClient(t, addr))
	restricted, other := statusCall(1), &wire.SessionCall{Id: 2}
	restricted.ProtoReflect().SetUnknown(unknownField)
	other.ProtoReflect().SetUnknown(unknownField) // as a new kind of call is seen
	late := statusCall(4)
	late.Timeout = &durationpb.Duration{Seconds: -1}
	s.send(restricted, other, &wire.SessionCall{Id: 3}, late, statusCall(5))
	got := s.answers(5)
	for id := uint64(1); id < 5; id++ {
		equal(t, "reason", got[id].GetFailure().GetRefusal().GetReason(), "INVALID")
	}
	if got[5].GetStatus() == nil || f.calls.Load() != 1 {
		t.Errorf("%v after %d calls, want one that is answered", got[5], f.calls.Load())
	}
}

// What breaks the rules of a session ends it: nothing of the message is begun, and
// other sessions of the same connection go on (T22, T23).
func TestABreachEndsTheSessionAndNoOther(t *testing.T) {
	const window = 20
	ids := func(ids ...uint64) *wire.SessionRequest {
		m := &wire.SessionRequest{}
		for _, id := range ids {
			m.Calls = append(m.Calls, statusCall(id))
		}
		return m
	}
	many := &wire.SessionRequest{}
	for id := range uint64(1025) {
		many.Calls = append(many.Calls, &wire.SessionCall{Id: id + 1})
	}
	newer := ids(1)
	newer.ProtoReflect().SetUnknown(unknownField)
	flood := &wire.SessionRequest{}
	for id := range uint64(window + 1) {
		flood.Calls = append(flood.Calls, acquireCall(id+1, &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Wait: durationpb.New(time.Minute)}))
	}
	big := statusCall(1)
	big.GetStatus().LeaseId = strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		m    *wire.SessionRequest
		code codes.Code
		says string
	}{
		"the id 0":          {ids(0), codes.InvalidArgument, "not above 0"},
		"the same id again": {ids(1, 1), codes.InvalidArgument, "not above 1"},
		"a smaller id":      {ids(5, 4), codes.InvalidArgument, "not above 5"},
		"a newer message":   {newer, codes.InvalidArgument, "does not know"},
		"a flood":           {flood, codes.ResourceExhausted, "window"},
		"too many calls":    {many, codes.InvalidArgument, "want at most 1024"},
		"an id of 1 MiB":    {&wire.SessionRequest{Calls: []*wire.SessionCall{big}}, codes.ResourceExhausted, "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			f := granting()
			var begun, ended atomic.Int64
			f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
				begun.Add(1)
				<-ctx.Done()
				ended.Add(1)
				return lastword.Tenure{}, ctx.Err()
			}
			addr, _ := serve(t, f, rpc.ServerConfig{SessionWindow: window})
			client := rawClient(t, addr)
			bad, good := openSession(t, client), openSession(t, client)
			if err := bad.stream.Send(c.m); err != nil {
				t.Fatal(err)
			}
			_, err := bad.ended()
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it ended with %v, want %v: %s", err, c.code, c.says)
			}
			good.send(statusCall(1))
			if good.answer().GetStatus() == nil {
				t.Error("another session does not go on")
			}
			until(t, "the end of its calls", func() bool { return begun.Load() == ended.Load() })
		})
	}
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestAWithdrawnCallEndsAtTheAuthorityAndIsAnswered(t *testing.T) {
	f, waiting := granting(), make(chan struct{})
	f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		close(waiting)
		<-ctx.Done()
		return lastword.Tenure{}, ctx.Err()
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	s := openSession(t, rawClient(t, addr))
	s.send(acquireCall(7, &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Wait: durationpb.New(time.Minute)}))
	soon(t, "the wait", waiting)
	if err := s.stream.Send(&wire.SessionRequest{Withdrawn: []uint64{3, 7, 1000}}); err != nil {
		t.Fatal(err)
	}
	a := s.answer()
	if a.GetId() != 7 || a.GetFailure().GetRefusal().GetReason() != "UNKNOWN" {
		t.Errorf("%v, want call 7 as unknown", a)
	}
}

func TestTheTimeoutOfACallReachesTheAuthority(t *testing.T) {
	f, left := granting(), make(chan time.Duration, 1)
	f.status = func(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		end, ok := ctx.Deadline()
		if !ok {
			end = time.Now()
		}
		left <- time.Until(end)
		return lastword.Status{Resource: q.Resource, State: lastword.StateFree}, nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	s := openSession(t, rawClient(t, addr))
	for id, d := range []time.Duration{0, time.Minute} {
		call := statusCall(uint64(id) + 1)
		if d > 0 {
			call.Timeout = durationpb.New(d)
		}
		s.send(call)
		s.answer()
		if got := <-left; got > d || got < d-10*time.Second {
			t.Errorf("the authority sees %v left, want about %v", got, d)
		}
	}
}

// The shutdown of a session is that of unary calls: those under way are answered,
// waits end; and what was not read is told apart.
func TestAShutdownAnswersWhatASessionHasReadAndSaysSo(t *testing.T) {
	f, under, goOn := granting(), make(chan struct{}, 2), make(chan struct{})
	f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		under <- struct{}{}
		<-ctx.Done() // the wait of a minute
		return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnavailable, Message: "stopping"}
	}
	f.renew = func(ctx context.Context, _ lastword.TenureRef) (lastword.Tenure, error) {
		under <- struct{}{}
		<-goOn
		return grantOf(req), ctx.Err()
	}
	addr, server := serve(t, f, rpc.ServerConfig{})
	s, idle := openSession(t, rawClient(t, addr)), openSession(t, rawClient(t, addr))
	s.send(acquireCall(1, &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Wait: durationpb.New(time.Minute)}), renewCall(5))
	<-under
	<-under
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	equal(t, "the wait", s.answer().GetFailure().GetRefusal().GetReason(), "UNAVAILABLE")
	s.send(statusCall(6)) // too late
	m, err := idle.ended()
	if !errors.Is(err, io.EOF) || m == nil || m.Last == nil || m.GetLast() != 0 {
		t.Errorf("the idle session ended with %v, %v", m, err)
	}
	time.Sleep(50 * time.Millisecond) // long enough to begin what must not be begun
	close(goOn)
	var renewed bool
	for m := (*wire.SessionResponse)(nil); ; {
		m, err = s.stream.Recv()
		if err != nil {
			t.Fatalf("it ended with %v before it told its last call", err)
		}
		for _, a := range m.GetAnswers() {
			renewed = renewed || a.GetId() == 5 && a.GetRenew() != nil
		}
		if m.Last != nil {
			equal(t, "last", m.GetLast(), uint64(5))
			break
		}
	}
	if _, err := s.stream.Recv(); !renewed || !errors.Is(err, io.EOF) {
		t.Errorf("renewed %v, ended with %v", renewed, err)
	}
	equal(t, "Shutdown", <-stopped, nil)
	equal(t, "calls of the authority", f.calls.Load(), int64(2))
}

func TestASessionThatNobodyUsesEndsAndOneThatWaitsDoesNot(t *testing.T) {
	f := granting()
	f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		<-ctx.Done()
		return lastword.Tenure{}, ctx.Err()
	}
	addr, _ := serve(t, f, rpc.ServerConfig{MaxIdle: 50 * time.Millisecond})
	waits, idle := openSession(t, rawClient(t, addr)), openSession(t, rawClient(t, addr))
	waits.send(acquireCall(1, &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Wait: durationpb.New(time.Minute)}))
	if m, err := idle.ended(); !errors.Is(err, io.EOF) || m == nil || m.Last == nil {
		t.Errorf("the idle session ended with %v, %v", m, err)
	}
	waits.send(statusCall(2))
	if waits.answer().GetStatus() == nil {
		t.Error("the session that waits has ended")
	}
}

func TestAClientThatHasNoMoreCallsGetsItsAnswers(t *testing.T) {
	f := granting()
	goOn := make(chan struct{})
	f.renew = func(context.Context, lastword.TenureRef) (lastword.Tenure, error) { <-goOn; return grantOf(req), nil }
	addr, _ := serve(t, f, rpc.ServerConfig{})
	s := openSession(t, rawClient(t, addr))
	s.send(renewCall(1))
	if err := s.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if s.answer().GetRenew() == nil {
		t.Error("no answer")
	}
	if _, err := s.ended(); !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v", err)
	}
}

func TestSessionsAboveTheBoundAreRefusedAndTheClientCallsOneByOne(t *testing.T) {
	addr, _ := serve(t, granting(), rpc.ServerConfig{MaxSessions: 1})
	c := rawClient(t, addr)
	first := openSession(t, c)
	stream, err := c.Session(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	equal(t, "reason", refusal(t, err).GetReason(), "QUOTA")
	if _, err := dial(t, addr).Acquire(t.Context(), req); err != nil {
		t.Errorf("without a session: %v", err)
	}
	first.cancel()
	until(t, "room for another session", func() bool {
		stream, err := c.Session(t.Context())
		if err == nil {
			_, err = stream.Recv()
		}
		return err == nil
	})
}

// T23: one session's calls in hand are bounded, and what holders say passes what
// others want.
func TestASessionHasItsShareOfTheAuthorityAndHoldersComeFirst(t *testing.T) {
	const share, calls = 128, 5000
	f, goOn := granting(), make(chan struct{})
	var now, most, before atomic.Int64
	f.acquire = func(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		most.Store(max(most.Load(), now.Add(1)))
		before.Add(1)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		now.Add(-1)
		return grantOf(r), nil
	}
	f.renew = func(context.Context, lastword.TenureRef) (lastword.Tenure, error) {
		t := grantOf(req)
		t.Revision = uint64(before.Load())
		return t, nil
	}
	addr, _ := serve(t, f, rpc.ServerConfig{})
	c := rawClient(t, addr)
	s := openSession(t, c)
	var id uint64
	acquires := func(n int) (calls []*wire.SessionCall) {
		for range n {
			id++
			calls = append(calls, acquireCall(id, &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o"}))
		}
		return calls
	}
	for id < calls {
		s.send(acquires(100)...)
	}
	until(t, "the share in hand", func() bool { return now.Load() == share })
	id++
	s.send(renewCall(id))
	// Another session is served beside all that.
	other := openSession(t, c)
	other.send(renewCall(1))
	if other.answer().GetRenew() == nil {
		t.Error("another session is not served")
	}
	// Makes room for one call, once the renewal has been read.
	if err := s.stream.Send(&wire.SessionRequest{Withdrawn: []uint64{1}}); err != nil {
		t.Fatal(err)
	}
	var renewed *wire.Tenure
	for renewed == nil {
		m, err := s.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range m.GetAnswers() {
			if a.GetRenew() != nil {
				renewed = a.GetRenew().GetTenure()
			}
		}
	}
	close(goOn)
	equal(t, "acquires that came before the renewal", renewed.GetRevision(), uint64(share))
	if most.Load() > share {
		t.Errorf("%d acquires were in hand at a time, want at most %d", most.Load(), share)
	}
}

// T22: a client that takes no answers is read no further, and ends after a while.
func TestAClientThatTakesNoAnswersIsHeldUpAndEnded(t *testing.T) {
	f := granting()
	f.status = func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		return lastword.Status{
			Resource: q.Resource, State: lastword.StateFree, Asked: lastword.StateReleased, AskedCompleted: true,
			AskedResult: make([]byte, lastword.MaxResultBytes),
		}, nil
	}
	waiting, ended := make(chan struct{}), make(chan struct{})
	f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		close(waiting)
		<-ctx.Done()
		close(ended)
		return lastword.Tenure{}, ctx.Err()
	}
	addr, _ := serve(t, f, rpc.ServerConfig{StallTimeout: 300 * time.Millisecond})
	s := openSession(t, rawClient(t, addr))
	s.send(acquireCall(1, &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Wait: durationpb.New(time.Minute)}))
	soon(t, "the wait", waiting)
	var wg sync.WaitGroup
	wg.Go(func() {
		for id := uint64(2); id < 16_000; id++ {
			call := statusCall(id)
			call.GetStatus().LeaseId = "l"
			if s.stream.Send(&wire.SessionRequest{Calls: []*wire.SessionCall{call}}) != nil {
				return
			}
		}
	})
	soon(t, "the end of the session's wait", ended)
	// 16 KiB an answer: those not taken, one message, and what HTTP/2 takes.
	if n := f.calls.Load(); n > 300 {
		t.Errorf("%d calls were made for a client that takes no answers", n)
	}
	if _, err := dial(t, addr).Renew(t.Context(), ref); err == nil || !errors.Is(err, lastword.ErrInternal) {
		t.Errorf("another client: %v, want the authority's own answer", err)
	}
	s.cancel()
	wg.Wait()
}

// T22: a connection that is open at one end only.
func TestWaitsOfAHalfOpenConnectionEnd(t *testing.T) {
	f, waiting, ended := granting(), make(chan struct{}), make(chan struct{})
	f.acquire = func(ctx context.Context, _ lastword.AcquireRequest) (lastword.Tenure, error) {
		close(waiting)
		<-ctx.Done()
		close(ended)
		return lastword.Tenure{}, ctx.Err()
	}
	addr, _ := serve(t, f, rpc.ServerConfig{PingEvery: time.Second})
	proxy := newCutter(t, addr)
	s := openSession(t, rawClient(t, proxy.addr()))
	s.send(acquireCall(1, &wire.AcquireRequest{Resource: "doc/a", RequestId: "r", Owner: "o", Wait: durationpb.New(time.Minute)}))
	soon(t, "the wait", waiting)
	proxy.mute.Store(true)
	began := time.Now()
	soon(t, "the end of the wait", ended)
	t.Logf("noticed after %v", time.Since(began).Round(10*time.Millisecond))
}
