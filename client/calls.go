package client

import (
	"container/heap"
	"sync"

	"github.com/lastword/lastword"
)

// mostCalls and fewestCalls bound how many calls about leases are under way at a time
// while answers are slow.
const mostCalls, fewestCalls = 256, 16

// quickPart of its time-out is what a quick answer takes less than.
const quickPart = 32

// calls lets the calls through that keep leases up: renewals and questions. As long as
// answers are quick it lets more and more through, so that calls which hang hold up no
// others.
// What comes in more quickly than the authority answers has to wait its turn here, where
// it has no goroutine and no time-out that runs: if it were sent, it would wait there,
// all would take longer than they may, and an authority that is a little too slow would
// answer nobody in time. Whose trust ends first goes first, and who had no answer the last
// time goes last.
type calls struct {
	now func() int64

	mu      sync.Mutex
	under   int   // calls that are under way
	most    int   // how many may be while answers are slow
	cut     int64 // when that was cut last
	took    int64 // what answers have taken lately
	heard   int64 // when the last one came
	waiting byMoment
}

func (s *calls) init(now func() int64) { s.now, s.most = now, mostCalls }

// enterLocked counts a call about l as under way, or lets l wait for its turn.
func (s *calls) enterLocked(l *Lease) bool {
	at, call := l.trust.Ends(), l.trust.Call
	if l.trust.State == lastword.HolderUnknown {
		at += int64(maxSpan)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 && s.under < s.most {
		s.under++
		return true
	}
	l.turn.at, l.turn.call = at, call
	heap.Push(&s.waiting, &l.turn)
	return false
}

// quickLocked reports whether answers take a small part of the time-out, and come.
func (s *calls) quickLocked(call int64) bool {
	return s.took < call/quickPart && s.now()-s.heard < call/8
}

// drop forgets l.
func (s *calls) drop(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.turn.index >= 0 {
		heap.Remove(&s.waiting, l.turn.index)
	}
}

// learn takes how a call has ended. Questions may be answered sooner than renewals, and
// tell nothing about them.
func (s *calls) learn(c *begunCall, err error) {
	if !c.renews {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	switch {
	case err == nil || answerOf(err) == refused:
		s.heard = now
		s.took += (now - c.began - s.took) / 16
		if s.took < c.timeout/quickPart {
			s.most = min(s.most+1, mostCalls)
		}
	case now-c.began < c.timeout || s.took < c.timeout/quickPart || c.began < s.cut:
		// It failed at once; or it hangs, while others are answered; or it is one of
		// those that were under way together, of which one counts.
	default:
		s.most, s.cut = max(s.most/2, fewestCalls), now
	}
}

// next are those whose turn it is after a call: while answers are quick two for one, so
// that their number grows as fast as it can be told that it may.
func (s *calls) next() (one, more *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
	return s.popLocked(), s.popLocked()
}

func (s *calls) popLocked() *Lease {
	s.sacrificeLocked()
	if len(s.waiting) == 0 || s.under >= s.most && !s.quickLocked(s.waiting[0].call) {
		return nil
	}
	s.under++
	return heap.Pop(&s.waiting).(*place).lease
}

// sacrificeLocked puts last whose trust ends before an answer is likely to come. If
// there are too many leases, each would get its turn too late otherwise.
func (s *calls) sacrificeLocked() {
	for soonest := s.now() + 2*s.took; len(s.waiting) > 0 && s.waiting[0].at < soonest; {
		s.waiting[0].at += int64(maxSpan)
		heap.Fix(&s.waiting, 0)
	}
}

// run makes a call, and then those whose turn comes by its end.
func (s *calls) run(call func()) {
	through := false
	defer func() {
		if !through { // the authority ended the goroutine
			go s.run(func() {})
		}
	}()
	for call != nil {
		call()
		call = s.turn()
	}
	through = true
}

// turn is the next call for a goroutine that has made one, nil if there is none.
func (s *calls) turn() func() {
	for {
		one, more := s.next()
		if more != nil {
			go func() {
				if call := more.called(); call != nil {
					s.run(call)
				} else {
					s.run(func() {})
				}
			}()
		}
		if one == nil {
			return nil
		}
		if call := one.called(); call != nil {
			return call
		}
	}
}
