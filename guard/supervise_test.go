package guard

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// The rules of the supervision, by the clock of a bubble. That real processes and a real
// lease behave like these two is what the process tests are for.

// fakeLease is renewed in full every third of its TTL, until silent is set.
type fakeLease struct {
	ctx    context.Context
	end    context.CancelCauseFunc
	ttl    time.Duration
	mu     sync.Mutex
	until  time.Time
	silent bool // no renewal is answered any more
	late   bool // its timers do not run: only who looks at the clock sees its end
	state  lastword.HolderState
}

func (l *fakeLease) Context() context.Context { return l.ctx }
func (l *fakeLease) TTL() time.Duration       { return l.ttl }

func (l *fakeLease) State() lastword.HolderState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *fakeLease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := time.Until(l.until)
	if left <= 0 {
		l.end(client.ErrExpired) // looking at the clock is enough
	}
	if l.ctx.Err() != nil {
		return 0
	}
	return left
}

// renew is the keeper: a renewal every third, OWNERSHIP_UNKNOWN a sixth later.
func (l *fakeLease) renew(ctx context.Context) {
	for {
		select {
		case <-time.After(l.ttl / 3):
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		silent := l.silent
		if !silent {
			l.until, l.state = time.Now().Add(l.ttl), lastword.HolderHeld
		}
		l.mu.Unlock()
		if silent {
			break
		}
	}
	select {
	case <-time.After(l.ttl / 6):
	case <-ctx.Done():
		return
	}
	l.mu.Lock()
	l.state = lastword.HolderUnknown
	left := time.Until(l.until)
	l.mu.Unlock()
	select {
	case <-time.After(left):
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.late {
			l.end(client.ErrExpired)
		}
	case <-ctx.Done():
	}
}

// fakeGroup notes what is sent to it, and when.
type fakeGroup struct {
	start time.Time
	gone  chan struct{}
	obeys []syscall.Signal // the signals that end the command
	left  int              // processes that only SIGKILL ends
	hangs bool             // nothing ends it

	halted chan struct{} // the command was stopped at its terminal
	away   func()        // what happens while this process is stopped with it

	mu    sync.Mutex
	heard []heard
	dead  bool
}

type heard struct {
	sig syscall.Signal
	at  time.Duration
}

func (g *fakeGroup) exited() <-chan struct{}  { return g.gone }
func (g *fakeGroup) stopped() <-chan struct{} { return g.halted }
func (g *fakeGroup) suspend()                 { g.away() }

func (g *fakeGroup) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead && g.left == 0
}

func (g *fakeGroup) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = append(g.heard, heard{sig, time.Since(g.start)})
	if g.hangs {
		return
	}
	if sig == syscall.SIGKILL {
		g.left = 0
	}
	if !g.dead && (sig == syscall.SIGKILL || slices.Contains(g.obeys, sig)) {
		g.dead = true
		close(g.gone)
	}
}

func (g *fakeGroup) exit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
	close(g.gone)
}

type scene struct {
	*supervisor
	lease   *fakeLease
	group   *fakeGroup
	signals chan os.Signal
	cancel  context.CancelFunc
}

// supervised runs play beside a supervision and gives what that came to.
func supervised(t *testing.T, ttl, grace time.Duration, play func(s *scene)) (why reason, gone bool, took time.Duration, log []heard) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLease{ttl: ttl, until: time.Now().Add(ttl), state: lastword.HolderHeld}
		l.ctx, l.end = context.WithCancelCause(context.Background())
		g := &fakeGroup{start: time.Now(), gone: make(chan struct{}), halted: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &scene{lease: l, group: g, signals: make(chan os.Signal, 4), cancel: cancel}
		s.supervisor = &supervisor{
			lease: l, group: g, grace: grace, signals: s.signals, canceled: ctx.Done(), log: slog.New(slog.DiscardHandler), look: func() {},
		}
		keeper, stop := context.WithCancel(context.Background())
		defer stop()
		go l.renew(keeper)
		go play(s)
		why, gone = s.watch()
		g.mu.Lock()
		took, log = time.Since(g.start), g.heard
		g.mu.Unlock()
		l.end(client.ErrReleased)
	})
	return why, gone, took, log
}

func wantHeard(t *testing.T, got []heard, want ...heard) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the group heard %v, want %v", got, want)
	}
}

func TestSilenceEndsTheGroupByTheLocalDeadline(t *testing.T) { // R25, R28, KF-10
	t.Parallel()
	why, gone, took, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		time.Sleep(25 * time.Second) // renewed at 10 s and 20 s
		s.lease.mu.Lock()
		defer s.lease.mu.Unlock()
		s.lease.silent = true
	})
	if why != lost || !gone {
		t.Errorf("got %v, %v", why, gone)
	}
	wantHeard(t, log, heard{syscall.SIGTERM, 40 * time.Second}, heard{syscall.SIGCONT, 40 * time.Second}, heard{syscall.SIGKILL, 50 * time.Second})
	if took > 50*time.Second+20*time.Millisecond {
		t.Errorf("it took %s; the deadline was 50s", took)
	}
}

func TestAGroupThatStopsInTimeIsNotKilled(t *testing.T) {
	t.Parallel()
	why, gone, took, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		s.group.mu.Lock()
		s.group.obeys = []syscall.Signal{syscall.SIGTERM}
		s.group.mu.Unlock()
		s.lease.mu.Lock()
		defer s.lease.mu.Unlock()
		s.lease.silent = true
	})
	if why != lost || !gone || took != 20*time.Second {
		t.Errorf("got %v, %v after %s", why, gone, took)
	}
	wantHeard(t, log, heard{syscall.SIGTERM, 20 * time.Second}, heard{syscall.SIGCONT, 20 * time.Second})
}

func TestALateRenewalIsWaitedForWhileTheGraceStillFits(t *testing.T) { // R26
	t.Parallel()
	// OWNERSHIP_UNKNOWN from 15 s on, heard again at 19 s.
	why, _, took, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		s.lease.mu.Lock()
		s.lease.silent = true
		s.lease.mu.Unlock()
		time.Sleep(19 * time.Second)
		s.lease.mu.Lock()
		s.lease.until, s.lease.state = time.Now().Add(30*time.Second), lastword.HolderHeld
		s.lease.mu.Unlock()
		time.Sleep(10 * time.Second)
		s.group.exit()
	})
	if why != itself || took != 29*time.Second {
		t.Errorf("got %v after %s", why, took)
	}
	wantHeard(t, log)
}

func TestARefusalTellsTheGroupAtOnceAndLeavesItTheGrace(t *testing.T) { // R26
	t.Parallel()
	for _, cause := range []error{client.ErrRefused, client.ErrMaxHold} {
		why, gone, _, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
			time.Sleep(4 * time.Second)
			s.lease.end(cause)
		})
		if why != lost || !gone {
			t.Errorf("%v: got %v, %v", cause, why, gone)
		}
		wantHeard(t, log, heard{syscall.SIGTERM, 4 * time.Second}, heard{syscall.SIGCONT, 4 * time.Second}, heard{syscall.SIGKILL, 14 * time.Second})
	}
}

func TestAProcessThatWakesUpAfterTheDeadlineKillsWithoutAGrace(t *testing.T) { // KF-30
	t.Parallel()
	why, gone, _, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		time.Sleep(4 * time.Second)
		s.lease.end(client.ErrExpired)
	})
	if why != lost || !gone {
		t.Errorf("got %v, %v", why, gone)
	}
	wantHeard(t, log, heard{syscall.SIGKILL, 4 * time.Second})
}

func TestASignalIsNotSentOnToACommandWhoseLeaseIsOver(t *testing.T) { // KF-30
	t.Parallel()
	// The clock has passed the deadline, and the signal is what wakes this process up:
	// no timer has fired yet.
	why, _, _, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		time.Sleep(time.Second)
		synctest.Wait()
		s.lease.mu.Lock()
		s.lease.until = time.Now()
		s.lease.mu.Unlock()
		s.signals <- syscall.SIGCONT
	})
	if why != lost {
		t.Errorf("got %v", why)
	}
	wantHeard(t, log, heard{syscall.SIGKILL, time.Second})
}

func TestSignalsAreSentOnAndEndNothing(t *testing.T) { // KF-30
	t.Parallel()
	why, gone, took, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT} {
			time.Sleep(time.Minute)
			s.signals <- sig
		}
		time.Sleep(time.Minute)
		s.group.exit()
	})
	if why != itself || !gone || took != 4*time.Minute {
		t.Errorf("got %v, %v after %s", why, gone, took)
	}
	wantHeard(t, log, heard{syscall.SIGTERM, time.Minute}, heard{syscall.SIGUSR1, 2 * time.Minute}, heard{syscall.SIGINT, 3 * time.Minute})
}

func TestWhatACommandLeavesBehindIsEnded(t *testing.T) { // KF-30
	t.Parallel()
	why, gone, took, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		s.group.mu.Lock()
		s.group.left = 1
		s.group.mu.Unlock()
		s.group.exit()
	})
	if why != itself || !gone || took < 10*time.Second || took > 10*time.Second+20*time.Millisecond {
		t.Errorf("got %v, %v after %s", why, gone, took)
	}
	wantHeard(t, log, heard{syscall.SIGTERM, 0}, heard{syscall.SIGCONT, 0}, heard{syscall.SIGKILL, 10 * time.Second})
}

func TestALeaseThatExpiresWhileTheGraceRunsEndsIt(t *testing.T) { // R25
	t.Parallel()
	_, gone, _, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		s.cancel()
		time.Sleep(3 * time.Second)
		s.lease.end(client.ErrExpired)
	})
	if !gone {
		t.Error("not gone")
	}
	wantHeard(t, log, heard{syscall.SIGTERM, 0}, heard{syscall.SIGCONT, 0}, heard{syscall.SIGKILL, 3 * time.Second})
}

func TestAGroupThatCannotBeEndedIsGivenUp(t *testing.T) { // R28
	t.Parallel()
	why, gone, took, _ := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		s.group.mu.Lock()
		s.group.hangs = true
		s.group.mu.Unlock()
		s.cancel()
	})
	if why != canceled || gone || took != 10*time.Second+unkillable {
		t.Errorf("got %v, gone %v after %s", why, gone, took)
	}
}

func TestAGraceThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ grace, ttl, want time.Duration }{
		{0, 30 * time.Second, 10 * time.Second},
		{0, 3 * time.Second, time.Second},
		{0, time.Hour, 10 * time.Second},
		{15 * time.Second, 30 * time.Second, 15 * time.Second},
		{15*time.Second + 1, 30 * time.Second, -1},
		{10 * time.Second, 3 * time.Second, -1},
		{-1, 30 * time.Second, -1},
	} {
		got, err := Options{Grace: c.grace}.graceOf(c.ttl)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("grace %s with ttl %s: got %s, %v", c.grace, c.ttl, got, err)
		}
	}
}

func TestACommandThatWasStoppedIsContinuedOnlyUnderItsLease(t *testing.T) { // KF-30
	t.Parallel()
	for name, c := range map[string]struct {
		away time.Duration
		want []heard
		why  reason
	}{
		"back in time":  {time.Second, []heard{{syscall.SIGCONT, time.Second}}, itself},
		"back too late": {time.Minute, []heard{{syscall.SIGKILL, time.Minute}}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			why, _, _, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
				s.group.away = func() {
					s.lease.mu.Lock()
					s.lease.silent = true // this process does nothing
					s.lease.late = true
					s.lease.mu.Unlock()
					time.Sleep(c.away)
				}
				s.group.halted <- struct{}{}
				select {
				case <-s.group.gone:
				case <-time.After(c.away + time.Second):
					s.group.exit()
				}
			})
			if why != c.why {
				t.Errorf("got %v", why)
			}
			wantHeard(t, log, c.want...)
		})
	}
}

// The grace ends with the lease also where nobody else notices its end in time.
func TestTheGraceIsNeverLongerThanTheLease(t *testing.T) { // R25
	t.Parallel()
	_, gone, _, log := supervised(t, 30*time.Second, 10*time.Second, func(s *scene) {
		s.lease.mu.Lock()
		s.lease.late, s.lease.silent = true, true
		s.lease.until = time.Now().Add(3 * time.Second)
		s.lease.mu.Unlock()
		s.cancel()
	})
	if !gone {
		t.Error("not gone")
	}
	wantHeard(t, log, heard{syscall.SIGTERM, 0}, heard{syscall.SIGCONT, 0}, heard{syscall.SIGKILL, 3 * time.Second})
}

func TestNothingIsLeftUnseenForLong(t *testing.T) { // R25
	t.Parallel()
	for _, c := range []struct{ ttl, left, want time.Duration }{
		{time.Hour, time.Hour, lookEvery},
		{3 * time.Second, 3 * time.Second, 500 * time.Millisecond},
		{3 * time.Second, 1100 * time.Millisecond, 100 * time.Millisecond}, // until only the grace is left
		{480 * time.Millisecond, 0, 10 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancelCause(context.Background())
			s := &supervisor{lease: &fakeLease{ctx: ctx, end: end, ttl: c.ttl, until: time.Now().Add(c.left)}, grace: min(time.Second, c.ttl/3)}
			if got := s.pause(); got != c.want {
				t.Errorf("ttl %s, left %s: %s, want %s", c.ttl, c.left, got, c.want)
			}
		})
	}
}
