package guard

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// lease is what the supervision needs to know of a [client.Lease].
type lease interface {
	Context() context.Context
	State() lastword.HolderState
	Remaining() time.Duration
	TTL() time.Duration
}

// group is the process group of a command.
type group interface {
	// signal goes to every process of the group.
	signal(sig syscall.Signal)
	// exited is closed when the command itself has ended.
	exited() <-chan struct{}
	// empty says that no process of the group lives. It is asked after exited only.
	empty() bool
	// stopped tells that the command was stopped at its terminal.
	stopped() <-chan struct{}
	// suspend stops this process until it is continued.
	suspend()
}

// reason is why a group is ended.
type reason uint8

const (
	goesOn   reason = iota
	itself          // the command has ended
	canceled        // the caller wants it
	lost            // the lease is lost, or will be when the grace is over
)

// unkillable is how long a group may outlive SIGKILL until it is given up. The
// kernel needs no time worth mentioning, unless a process hangs in it.
const unkillable = 10 * time.Second

// supervisor watches one group under one lease.
type supervisor struct {
	lease    lease
	group    group
	grace    time.Duration
	signals  <-chan os.Signal
	canceled <-chan struct{}
	log      *slog.Logger
	look     func() // at what has to be kept while the command runs
}

// watch returns when no process of the group is left, and says why that is so. gone is
// false if they could not be ended.
func (s *supervisor) watch() (why reason, gone bool) {
	for why == goesOn {
		why = s.step()
	}
	if why == itself && s.group.empty() {
		return why, true
	}
	return why, s.end(why)
}

// step waits for one thing to happen. Whether the lease holds is looked at before
// anything is done about it: after this process was stopped all of it happens at
// once, and a signal must not wake up a command whose lease is over.
func (s *supervisor) step() reason {
	if why := s.now(); why != goesOn {
		return why
	}
	timer := newTimer(s.pause())
	defer timer.Stop()
	select {
	case <-s.group.exited():
	case <-s.lease.Context().Done():
	case <-s.canceled:
	case <-timer.C:
	case <-s.group.stopped():
		s.group.suspend()
		if s.now() == goesOn {
			s.group.signal(syscall.SIGCONT)
		}
	case sig, open := <-s.signals:
		switch why := s.now(); {
		case !open:
			s.signals = nil
		case why != goesOn:
			return why
		case sig == syscall.SIGTSTP:
			s.group.signal(syscall.SIGTSTP)
			s.group.suspend()
		default:
			s.forward(sig)
		}
	}
	why := s.now()
	if why == goesOn {
		s.look()
	}
	return why
}

func (s *supervisor) forward(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		s.group.signal(number)
	}
}

// now is why the group has to end at this moment.
func (s *supervisor) now() reason {
	switch {
	case isDone(s.group.exited()):
		return itself
	case s.left() == 0:
		return lost
	case s.lease.State() == lastword.HolderUnknown && s.left() <= s.grace:
		return lost
	case isDone(s.canceled):
		return canceled
	}
	return goesOn
}

// left is what is left of the lease; its context may end earlier, when its client is
// closed.
func (s *supervisor) left() time.Duration {
	if s.lease.Context().Err() != nil {
		return 0
	}
	return s.lease.Remaining()
}

// lookEvery is how often the grant file is looked at, at least.
const lookEvery = time.Second

// pause is how long nothing has to be looked at. Timers may stop in a suspend while
// the lease goes on, so it is never long.
func (s *supervisor) pause() time.Duration {
	sixth := min(s.lease.TTL()/6, lookEvery)
	if wait := s.left() - s.grace; wait > 0 {
		return min(wait, sixth)
	}
	// Still HELD: the renewal that is due now will tell.
	return max(s.lease.TTL()/48, time.Millisecond)
}

// end ends the group: SIGTERM, and SIGKILL after the grace or when trust is over. What
// is stopped is continued, or it would not hear of it.
func (s *supervisor) end(why reason) (gone bool) {
	e := &ending{supervisor: s, exited: s.group.exited(), leaseOver: s.lease.Context().Done()}
	grace := s.grace
	switch left := s.left(); {
	case why == lost && s.expired():
		e.kill()
		grace = unkillable
	default:
		if left > 0 {
			grace = min(grace, left)
		}
		s.log.Info("the command is told to stop", "grace", grace)
		s.group.signal(syscall.SIGTERM)
		s.group.signal(syscall.SIGCONT)
	}
	e.graceOver = newTimer(grace)
	defer e.graceOver.Stop()
	e.poll = newTimer(time.Hour)
	defer e.poll.Stop()
	for !e.done() {
		if e.gaveUp {
			return false
		}
		e.step()
	}
	return true
}

// expired says that trust is over by the clock: there is no grace left to give.
func (s *supervisor) expired() bool {
	return errors.Is(context.Cause(s.lease.Context()), client.ErrExpired)
}

// ending is the end of a group under way.
type ending struct {
	*supervisor
	exited    <-chan struct{}
	leaseOver <-chan struct{}
	graceOver *time.Timer
	poll      *time.Timer
	pollEvery time.Duration
	killed    bool
	gaveUp    bool
}

func (e *ending) kill() {
	e.killed = true
	e.group.signal(syscall.SIGKILL)
}

// done looks whether anything lives. There is no event for the end of the last process
// of a group, so it is asked for again and again, soon at first.
func (e *ending) done() bool {
	if e.exited != nil && !isDone(e.exited) {
		return false
	}
	e.exited = nil
	if e.group.empty() {
		return true
	}
	e.pollEvery = min(max(2*e.pollEvery, time.Millisecond), 20*time.Millisecond)
	e.poll.Reset(e.pollEvery)
	return false
}

func (e *ending) step() {
	select {
	case <-e.exited:
	case <-e.poll.C:
	case <-e.leaseOver:
		e.leaseOver = nil
		if e.expired() && !e.killed {
			e.kill()
			e.graceOver.Reset(unkillable)
		}
	case <-e.graceOver.C:
		e.gaveUp = e.killed
		e.log.Info("the command is killed")
		e.kill()
		e.graceOver.Reset(unkillable)
	case sig, open := <-e.signals:
		switch {
		case !open:
			e.signals = nil
		case !e.killed && sig != syscall.SIGTSTP:
			e.forward(sig)
		}
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func newTimer(d time.Duration) *time.Timer {
	return time.NewTimer(d) //nolint:forbidigo // the one place; tests run in a bubble of testing/synctest
}
