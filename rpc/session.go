package rpc

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lastword/lastword"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// A session carries the calls of one client process in one stream. One goroutine
// reads, one writes whatever answers are there in one message, and each call that
// the authority is at work on has one.
const (
	// sessionShare is how many calls of one session the authority is at work on at
	// a time, waiting acquires not counted: so many calls of each other session a
	// call can find before it.
	sessionShare = 128
	// maxUntaken bounds the answers that a session's client has not taken, in bytes.
	// Above it, with those that are being made, the session begins nothing more.
	maxUntaken = 256 << 10
	// The calls of all sessions that wait for their share have allBacklogs bytes of
	// memory together, of which each session with such calls has the same part, between
	// leastBacklog and mostBacklog. Above its part a session reads nothing more.
	allBacklogs, mostBacklog, leastBacklog = 64 << 20, 4 << 20, 64 << 10
	// callMemory is what a call takes there beside its bytes.
	callMemory = 600
	// maxCalls bounds the calls of one message.
	maxCalls = 1024
	// maxFlight is how much is put into one message, in bytes, unless one call or answer
	// alone is larger: small enough to begin soon, large enough to cost little. With its
	// frame it fits into 32 KiB: gRPC keeps a message of more in a whole mebibyte.
	maxFlight = 31 << 10
	// entryBytes is what a call or an answer takes in a message beside its own bytes.
	entryBytes = 5
)

// session is the authority's side of one stream.
type session struct {
	svc    *service
	stream grpc.BidiStreamingServer[wire.SessionRequest, wire.SessionResponse]
	wake   chan struct{} // there is something for the writer
	room   chan struct{} // there is room for the reader

	mu       sync.Mutex
	last     uint64 // the highest id that was read
	open     map[uint64]*sessionCall
	holders  []*sessionCall // not begun: what holders say comes first
	others   []*sessionCall // not begun: what others want and ask
	backlog  int            // bytes of what was not begun, in memory
	atWork   int            // begun, and not waiting for its turn
	out      []sized
	outBytes int
	lately   int   // bytes of the last answer
	busy     bool  // something was read since the last look
	draining bool  // no call is read any more
	leaving  bool  // its client is told of that at once, and not with the last answer
	told     bool  // it has been
	err      error // why the stream ends at once
	ended    bool  // the stream is over
}

// sessionCall is one call until its answer has been handed to the stream.
type sessionCall struct {
	call      *wire.SessionCall
	read      time.Time
	cancel    context.CancelFunc // nil until it begins
	withdrawn bool               // before it began
	size      int
	waits     bool // it is not among those at work
}

// sized is an answer and its bytes.
type sized struct {
	answer *wire.SessionAnswer
	size   int
}

// Session implements the service.
func (s *service) Session(stream grpc.BidiStreamingServer[wire.SessionRequest, wire.SessionResponse]) error {
	defer s.sessions.Add(-1)
	if n := s.sessions.Add(1); n > int64(s.cfg.MaxSessions) {
		return s.refuse(stream.Context(), opSession, "", &lastword.Error{
			Code: lastword.CodeQuota, Message: "too many sessions are open", Hint: "try again later, or call one by one",
		})
	}
	x := &session{
		svc: s, stream: stream, open: make(map[uint64]*sessionCall),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	defer x.over()
	if err := stream.Send(&wire.SessionResponse{Window: uint32(s.cfg.SessionWindow)}); err != nil {
		return err
	}
	go x.read()
	return x.write()
}

// read takes in calls until the stream ends.
func (x *session) read() {
	for {
		m, err := x.stream.Recv()
		if err != nil {
			x.readEnded(err)
			return
		}
		if err := x.admit(m); err != nil {
			x.fail(x.svc.refuse(x.stream.Context(), opSession, "", err))
			return
		}
		if !x.awaitRoom() {
			return
		}
	}
}

// readEnded: a client that has no more calls still wants its answers.
func (x *session) readEnded(err error) {
	if errors.Is(err, io.EOF) {
		x.mu.Lock()
		x.draining = true
		x.mu.Unlock()
		poke(x.wake)
		return
	}
	x.fail(err)
}

// admit takes the calls of one message in. An error is a breach of what a session
// is, and ends it.
func (x *session) admit(m *wire.SessionRequest) error {
	if err := checkKnown(m); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return nil
	}
	x.busy = true
	calls, now := m.GetCalls(), time.Now() //nolint:forbidigo // how long a call listens counts from its arrival
	if len(calls) > maxCalls {
		return invalid("%d calls in one message: want at most %d", len(calls), maxCalls)
	}
	if x.draining {
		calls = nil // above last: not begun
	}
	for _, call := range calls {
		switch {
		case call.GetId() <= x.last:
			return invalid("call %d: its id is not above %d, the one before it", call.GetId(), x.last)
		case len(x.open) >= x.svc.cfg.SessionWindow:
			return &lastword.Error{
				Code: lastword.CodeQuota, Message: "more calls without an answer than the window of the session",
				Hint: "wait for answers, as the window says",
			}
		}
		x.last = call.GetId()
		c := &sessionCall{call: call, read: now, size: proto.Size(call) + callMemory}
		x.open[call.GetId()] = c
		x.owesLocked(c.size)
		if holds(call) {
			x.holders = append(x.holders, c)
		} else {
			x.others = append(x.others, c)
		}
	}
	for _, id := range m.GetWithdrawn() {
		switch c := x.open[id]; {
		case c == nil:
		case c.cancel != nil:
			c.cancel()
		default:
			c.withdrawn = true
		}
	}
	x.beginLocked()
	return nil
}

// owesLocked adds to what was not begun.
func (x *session) owesLocked(size int) {
	before := x.backlog
	x.backlog += size
	switch {
	case before == 0 && x.backlog > 0:
		x.svc.owing.Add(1)
	case before > 0 && x.backlog == 0:
		x.svc.owing.Add(-1)
	}
}

// fullLocked reports whether enough was read that was not begun.
func (x *session) fullLocked() bool {
	part := allBacklogs / max(1, x.svc.owing.Load())
	return int64(x.backlog) > min(max(part, leastBacklog), mostBacklog)
}

// callContextLocked ends with the stream, with the time that the caller listens, and
// when the caller withdraws. A timeout that is no duration is refused later.
func (x *session) callContextLocked(c *sessionCall) context.Context {
	ctx, cancel := x.stream.Context(), context.CancelFunc(nil)
	if d, err := duration("timeout", c.call.GetTimeout()); err == nil && c.call.GetTimeout() != nil {
		ctx, cancel = context.WithDeadline(ctx, c.read.Add(d))
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	c.cancel = cancel
	if c.withdrawn {
		cancel()
	}
	return ctx
}

// holds reports whether a call is a holder's or ends something, which comes first.
func holds(call *wire.SessionCall) bool {
	switch call.GetRequest().(type) {
	case *wire.SessionCall_Acquire, *wire.SessionCall_Status:
		return false
	}
	return true
}

// beginLocked begins calls, as far as their share goes.
func (x *session) beginLocked() {
	for {
		c, ctx := x.nextLocked()
		if c == nil {
			return
		}
		x.svc.crew.run(func() { x.work(c, ctx) })
	}
}

// nextLocked is the next call to begin, nil if none may.
func (x *session) nextLocked() (*sessionCall, context.Context) {
	if x.ended || x.atWork >= sessionShare || x.outBytes+x.atWork*x.lately > maxUntaken {
		return nil, nil
	}
	queue := &x.holders
	if len(*queue) == 0 {
		queue = &x.others
	}
	if len(*queue) == 0 {
		return nil, nil
	}
	c := (*queue)[0]
	(*queue)[0] = nil
	if *queue = (*queue)[1:]; len(*queue) == 0 {
		*queue = nil
	}
	x.atWork++
	x.owesLocked(-c.size)
	if !x.fullLocked() {
		poke(x.room)
	}
	return c, x.callContextLocked(c)
}

// work makes a call, and then the next ones that may begin.
func (x *session) work(c *sessionCall, ctx context.Context) {
	for c != nil {
		c, ctx = x.finish(c, x.perform(ctx, c))
	}
}

func (x *session) perform(ctx context.Context, c *sessionCall) *wire.SessionAnswer {
	defer c.cancel()
	if c.call.GetAcquire().GetWait() != nil {
		ctx = context.WithValue(ctx, queuedKey{}, func() { x.waits(c) })
	}
	return x.svc.answer(ctx, c.call)
}

type queuedKey struct{}

// waits takes a call out of those at work, for as long as it waits for its turn.
func (x *session) waits(c *sessionCall) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !c.waits {
		c.waits = true
		x.atWork--
		x.beginLocked()
	}
}

// finish hands the answer of c to the writer. It returns a call to go on with.
func (x *session) finish(c *sessionCall, a *wire.SessionAnswer) (*sessionCall, context.Context) {
	size := proto.Size(a)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !c.waits {
		c.waits = true
		x.atWork--
	}
	if x.ended {
		return nil, nil
	}
	x.out = append(x.out, sized{a, size})
	x.outBytes, x.lately = x.outBytes+size, size
	poke(x.wake)
	return x.nextLocked()
}

// awaitRoom holds the reader up while too much is not begun, so that HTTP/2 holds
// up the client. It is false when the stream is over.
func (x *session) awaitRoom() bool {
	for {
		x.mu.Lock()
		full := x.fullLocked()
		x.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-x.room:
		case <-x.stream.Context().Done():
			return false
		}
	}
}

// write sends what there is to say until the stream is to end.
func (x *session) write() error {
	idle := time.NewTicker(x.svc.cfg.MaxIdle) //nolint:forbidigo // ends a session that nobody uses
	defer idle.Stop()
	stopping := x.svc.stopping.Done()
	var aged <-chan time.Time
	if left, ends := x.svc.age(x.stream.Context()); ends {
		aged = time.After(left) //nolint:forbidigo // the age of a connection
	}
	m := &wire.SessionResponse{}
	for {
		runtime.Gosched() // let others finish whose answers can go with this one
		last, err := x.take(m)
		if err != nil {
			return err
		}
		if len(m.GetAnswers()) > 0 || m.Last != nil {
			if err := x.send(m); err != nil || last {
				return err
			}
			continue
		}
		select {
		case <-x.wake:
		case <-x.stream.Context().Done():
			return status.FromContextError(x.stream.Context().Err()).Err()
		case <-stopping:
			stopping = nil
			x.drain(true)
		case <-idle.C:
			x.drain(false)
		case <-aged:
			x.leave()
		}
	}
}

// take moves answers into m, as many as make a message. It reports whether m is
// the last one.
func (x *session) take(m *wire.SessionResponse) (last bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return false, x.err
	}
	clear(m.Answers)
	m.Answers, m.Last = m.Answers[:0], nil
	n, size := 0, 0
	for n < len(x.out) && (n == 0 || size+(n+1)*entryBytes+x.out[n].size <= maxFlight) {
		a := x.out[n]
		size += a.size
		m.Answers = append(m.Answers, a.answer)
		delete(x.open, a.answer.GetId())
		n++
	}
	rest := copy(x.out, x.out[n:])
	clear(x.out[rest:])
	x.out = x.out[:rest]
	x.outBytes -= size
	if n > 0 {
		x.beginLocked()
	}
	if x.draining && len(x.open) == 0 {
		m.Last = proto.Uint64(x.last)
		return true, nil
	}
	if x.leaving && !x.told {
		m.Last, x.told = proto.Uint64(x.last), true
	}
	return false, nil
}

// send bounds how long the client may leave a message untaken.
func (x *session) send(m *wire.SessionResponse) error {
	if end := ending(x.stream.Context()); end != nil {
		stall := time.AfterFunc(x.svc.cfg.StallTimeout, func() { end(errStalled) }) //nolint:forbidigo // ends a session that is not read
		defer stall.Stop()
	}
	return x.stream.Send(m)
}

var errStalled = errors.New("the client takes no answers")

// drain stops reading: calls that were read are answered, and then the stream
// ends. Without must only a session that nobody has used since the last look is.
func (x *session) drain(must bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if must || !x.busy && len(x.open) == 0 {
		x.draining = true
	}
	x.busy = false
}

// leave lets the client make its further calls over another connection, while those
// under way go on here: one that waits may do so for long.
func (x *session) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.draining, x.leaving = true, true
}

// fail ends the stream at once.
func (x *session) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = err
	}
	poke(x.wake)
}

// over lets go of everything when the stream is over. Its context has ended, or
// does so now, and with it the calls that the authority is at work on.
func (x *session) over() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	for _, c := range x.open {
		if c.cancel != nil {
			c.cancel()
		}
	}
	x.owesLocked(-x.backlog)
	x.open, x.holders, x.others, x.out = nil, nil, nil, nil
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// answer makes one call of a session. It goes the way of the unary call.
func (s *service) answer(ctx context.Context, c *wire.SessionCall) *wire.SessionAnswer {
	a := &wire.SessionAnswer{Id: c.GetId()}
	_, err := netted(ctx, s, opSession.name, func() (struct{}, error) { return struct{}{}, s.call(ctx, c, a) })
	if err != nil {
		a.Answer = &wire.SessionAnswer_Failure{Failure: failure(err)}
	}
	return a
}

func (s *service) call(ctx context.Context, c *wire.SessionCall, a *wire.SessionAnswer) (err error) {
	if err := checkKnown(c); err != nil {
		return s.refuse(ctx, opSession, "", err)
	}
	if _, err := duration("timeout", c.GetTimeout()); err != nil {
		return s.refuse(ctx, opSession, "", err)
	}
	switch r := c.GetRequest().(type) {
	case *wire.SessionCall_Acquire:
		m := &wire.SessionAnswer_Acquire{}
		m.Acquire, err = s.Acquire(ctx, r.Acquire)
		a.Answer = m
	case *wire.SessionCall_Renew:
		m := &wire.SessionAnswer_Renew{}
		m.Renew, err = s.Renew(ctx, r.Renew)
		a.Answer = m
	case *wire.SessionCall_Release:
		m := &wire.SessionAnswer_Release{}
		m.Release, err = s.Release(ctx, r.Release)
		a.Answer = m
	case *wire.SessionCall_Complete:
		m := &wire.SessionAnswer_Complete{}
		m.Complete, err = s.Complete(ctx, r.Complete)
		a.Answer = m
	case *wire.SessionCall_Cancel:
		m := &wire.SessionAnswer_Cancel{}
		m.Cancel, err = s.Cancel(ctx, r.Cancel)
		a.Answer = m
	case *wire.SessionCall_Status:
		m := &wire.SessionAnswer_Status{}
		m.Status, err = s.Status(ctx, r.Status)
		a.Answer = m
	default:
		return s.refuse(ctx, opSession, "", invalid("the call asks for nothing"))
	}
	return err
}

// failure is err, which a handler returned, as a session says it.
func failure(err error) *wire.SessionFailure {
	if r := (*refused)(nil); errors.As(err, &r) {
		return &wire.SessionFailure{Code: int32(r.code), Message: r.text, Refusal: r.detail}
	}
	st := status.Convert(err)
	return &wire.SessionFailure{Code: int32(st.Code()), Message: st.Message()}
}
