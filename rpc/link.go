package rpc

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// links gives a client its session, one at a time. While there is none to be had,
// calls go one by one: a session is faster, and never the only way.
type links struct {
	stub wire.AuthorityServiceClient

	mu      sync.Mutex
	current *link
	closed  bool
	retryAt time.Time // no session is asked for before
	pause   time.Duration
}

const (
	// firstPause and lastPause bound the time between two tries to open a session,
	// and notKnown is that after an authority which knows no sessions.
	firstPause, lastPause, notKnown = 20 * time.Millisecond, time.Second, time.Minute
	// openTimeout is how long an authority may take to open one.
	openTimeout = 5 * time.Second
)

// get is the session to use, nil if there is none now. The caller waits for it to
// open.
func (s *links) get() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil
	case s.current != nil:
		return s.current
	case !s.retryAt.IsZero() && time.Now().Before(s.retryAt): //nolint:forbidigo // paces the opening of sessions
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		cancel: cancel, opened: make(chan struct{}), over: make(chan struct{}), wake: make(chan struct{}, 1),
		open: make(map[uint64]*errand),
	}
	s.current = l
	go s.run(ctx, l)
	return l
}

// run opens a session and takes its answers until it ends.
func (s *links) run(ctx context.Context, l *link) {
	defer l.cancel()
	late := time.AfterFunc(openTimeout, l.cancel) //nolint:forbidigo // bounds the opening
	stream, err := s.stub.Session(ctx)
	var first *wire.SessionResponse
	if err == nil {
		first, err = stream.Recv()
	}
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err == nil && first.GetWindow() == 0 {
		err = errors.New("the session did not begin with a window")
	}
	s.took(l, err)
	if err != nil {
		l.end(err)
		return
	}
	l.window = int(first.GetWindow())
	// Waiting acquires leave room for those that hold something.
	l.waitWindow = l.window - max(1, l.window/8)
	close(l.opened)
	go l.write(stream)
	for {
		m, err := stream.Recv()
		if err != nil {
			s.gone(l)
			l.end(err)
			return
		}
		if m.Last != nil {
			s.gone(l) // further calls do not have to be sent back first
		}
		l.take(m)
	}
}

// took notes whether a session could be opened.
func (s *links) took(l *link, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.pause, s.retryAt = 0, time.Time{}
		return
	}
	if s.current == l {
		s.current = nil
	}
	s.pause = min(max(2*s.pause, firstPause), lastPause)
	if status.Code(err) == codes.Unimplemented {
		s.pause = notKnown
	}
	pause := s.pause/2 + rand.N(s.pause)
	s.retryAt = time.Now().Add(pause) //nolint:forbidigo // as above
}

// gone makes the next call open another session.
func (s *links) gone(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == l {
		s.current = nil
	}
}

func (s *links) close() {
	s.mu.Lock()
	l := s.current
	s.current, s.closed = nil, true
	s.mu.Unlock()
	if l != nil {
		l.cancel()
	}
}

// link is a client's side of one session.
type link struct {
	cancel     context.CancelFunc
	opened     chan struct{} // closed when calls may be sent
	over       chan struct{} // closed when the session has ended
	wake       chan struct{} // there is something to send
	window     int
	waitWindow int

	mu        sync.Mutex
	last      uint64             // the highest id that was sent
	open      map[uint64]*errand // sent and without an answer
	waiting   int                // of these, acquires that may wait
	queues    [3]queue[*errand]  // not sent
	withdrawn []uint64
	leaving   bool  // the authority reads no further calls
	err       error // why it ended
}

// Queues of a link, in their order.
const (
	ofHolders = iota
	ofOthers
	ofWaits
)

// errand is one call on its way.
type errand struct {
	call     *wire.SessionCall
	kind     int
	left     *atomic.Bool // it was sent, or tried to be
	deadline time.Time    // zero: none
	done     chan struct{}
	answer   *wire.SessionAnswer
	err      error
	dropped  bool // its caller has gone
}

// errNotBegun ends a call of which nothing was done: the session ended first.
var errNotBegun = errors.New("the session ended before the call was sent")

// do makes a call. Without an answer, left tells whether it was sent.
func (l *link) do(ctx context.Context, e *errand) (*wire.SessionAnswer, error) {
	select {
	case <-l.opened:
	case <-l.over:
		return nil, errNotBegun
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !l.enqueue(e) {
		return nil, errNotBegun
	}
	select {
	case <-e.done:
		return e.answer, e.err
	case <-ctx.Done():
		return l.withdraw(ctx, e)
	}
}

func (l *link) enqueue(e *errand) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.leaving {
		return false
	}
	l.queues[e.kind].push(e)
	poke(l.wake)
	return true
}

// withdraw lets go of a call whose caller does not wait any longer.
func (l *link) withdraw(ctx context.Context, e *errand) (*wire.SessionAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-e.done:
		return e.answer, e.err
	default:
	}
	e.dropped = true
	if id := e.call.GetId(); id != 0 {
		l.withdrawn = append(l.withdrawn, id)
		poke(l.wake)
	} else {
		l.queues[e.kind].gone(func(e *errand) bool { return e.dropped })
	}
	return nil, ctx.Err()
}

// sender is what a link needs of its stream to send.
type sender interface {
	Send(*wire.SessionRequest) error
}

// write sends all that is queued, as one message if it is not too much, until the
// session ends.
func (l *link) write(stream sender) {
	m := &wire.SessionRequest{}
	for {
		select {
		case <-l.wake:
		case <-l.over:
			return
		}
		for {
			runtime.Gosched() // let others queue what can go with this one
			if !l.fill(m) {
				break
			}
			if err := stream.Send(m); err != nil {
				if !errors.Is(err, io.EOF) {
					l.cancel()
				}
				return // the reader learns why
			}
		}
	}
}

// usualCall is room in a message for one more call of names that are not uncommonly long.
const usualCall = 1 << 10

// fill moves queued calls into m, within the window. It reports whether there is
// anything to send.
func (l *link) fill(m *wire.SessionRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(m.Calls)
	m.Calls, m.Withdrawn = m.Calls[:0], m.Withdrawn[:0]
	if l.err != nil {
		return false
	}
	const fewest = 1024 // ids, 10 bytes each at most
	n := min(len(l.withdrawn), fewest)
	m.Withdrawn = append(m.Withdrawn, l.withdrawn[:n]...)
	if l.withdrawn = l.withdrawn[n:]; len(l.withdrawn) == 0 {
		l.withdrawn = nil
	}
	now := time.Now() //nolint:forbidigo // tells the authority what is left of a deadline
	for size := 0; len(m.Calls) < maxCalls && len(l.open) < l.window; {
		e := l.next()
		if e == nil {
			break
		}
		if !e.deadline.IsZero() {
			e.call.Timeout = durationpb.New(max(e.deadline.Sub(now), 0))
		}
		l.last++
		e.call.Id = l.last
		e.left.Store(true)
		l.open[l.last] = e
		size += proto.Size(e.call) + entryBytes
		m.Calls = append(m.Calls, e.call)
		if size > maxFlight-usualCall {
			break
		}
	}
	return len(m.Calls)+len(m.Withdrawn) > 0
}

// next is the next call to send, nil if there is none or no room for it.
func (l *link) next() *errand {
	for kind := range l.queues {
		if kind == ofWaits && l.waiting >= l.waitWindow {
			return nil
		}
		for {
			e, ok := l.queues[kind].pop()
			if !ok {
				break
			}
			if e.dropped {
				continue
			}
			if kind == ofWaits {
				l.waiting++
			}
			return e
		}
	}
	return nil
}

// take hands the answers of a message to their callers.
func (l *link) take(m *wire.SessionResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range m.GetAnswers() {
		if e := l.open[a.GetId()]; e != nil {
			l.finish(e, a, nil)
		}
	}
	if m.Last != nil {
		for id, e := range l.open {
			if id > m.GetLast() {
				e.left.Store(false)
				l.finish(e, nil, errNotBegun)
			}
		}
		l.leaving = true
		l.unsentLocked()
	}
	if len(l.queues[ofHolders].items)+len(l.queues[ofOthers].items)+len(l.queues[ofWaits].items) > 0 {
		poke(l.wake)
	}
}

func (l *link) finish(e *errand, a *wire.SessionAnswer, err error) {
	delete(l.open, e.call.GetId())
	if e.kind == ofWaits {
		l.waiting--
	}
	e.answer, e.err = a, err
	close(e.done)
}

// end ends every call: those that were sent with err, the others as not begun.
func (l *link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	for _, e := range l.open {
		l.finish(e, nil, err)
	}
	l.unsentLocked()
	close(l.over)
}

// unsentLocked ends what waits to be sent, as not begun.
func (l *link) unsentLocked() {
	for kind := range l.queues {
		for {
			e, ok := l.queues[kind].pop()
			if !ok {
				break
			}
			e.err = errNotBegun
			close(e.done)
		}
	}
}

// queue is first in, first out.
type queue[T any] struct {
	items []T
	left  int // items whose callers have gone
}

func (q *queue[T]) push(x T) { q.items = append(q.items, x) }

func (q *queue[T]) pop() (x T, ok bool) {
	if len(q.items) == 0 {
		return x, false
	}
	x = q.items[0]
	var none T
	q.items[0] = none
	if q.items = q.items[1:]; len(q.items) == 0 {
		q.items = nil
	}
	return x, true
}

// gone notes that one item is not wanted any more, and forgets those that are not
// when they are many.
func (q *queue[T]) gone(unwanted func(T) bool) {
	if q.left++; q.left <= len(q.items)/2 {
		return
	}
	kept := q.items[:0:0]
	for _, x := range q.items {
		if !unwanted(x) {
			kept = append(kept, x)
		}
	}
	q.items, q.left = kept, 0
}
