//go:build linux

package guard

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

// one is an authority that grants its one resource to whoever comes.
type one struct {
	ttl       time.Duration // granted; 0 is what is asked for
	onAcquire func() error
	cancel    error // what a cancel is answered

	mu       sync.Mutex
	releases int
}

func (o *one) Acquire(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
	if o.onAcquire != nil {
		if err := o.onAcquire(); err != nil {
			return lastword.Tenure{}, err
		}
	}
	ttl := r.TTL
	if o.ttl != 0 {
		ttl = o.ttl
	}
	return lastword.Tenure{
		TenureRef: lastword.TenureRef{Resource: r.Resource, Owner: r.Owner, RequestID: r.RequestID, LeaseID: "l", Fence: 1},
		State:     lastword.StateHeld, Grant: "grant", TTL: ttl, Remaining: ttl,
	}, nil
}

func (o *one) Renew(_ context.Context, ref lastword.TenureRef) (lastword.Tenure, error) {
	ttl := o.ttl
	if ttl == 0 {
		ttl = client.DefaultTTL
	}
	return lastword.Tenure{TenureRef: ref, State: lastword.StateHeld, TTL: ttl, Remaining: ttl}, nil
}

func (o *one) Release(context.Context, lastword.TenureRef) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releases++
	return nil
}
func (o *one) Complete(context.Context, lastword.TenureRef, []byte) error { return nil }
func (o *one) Cancel(context.Context, lastword.Resource, string, string) error {
	return o.cancel
}

func (o *one) Status(context.Context, lastword.StatusQuery) (lastword.Status, error) {
	return lastword.Status{}, &lastword.Error{Code: lastword.CodeUnavailable}
}

func (o *one) client(t *testing.T) *client.Client {
	t.Helper()
	start := time.Now()
	c, err := client.New(o, client.Config{CleanupTimeout: 100 * time.Millisecond, Elapsed: func() time.Duration { return time.Since(start) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (o *one) options(t *testing.T) Options {
	return Options{Resource: "doc/a", Command: []string{"true"}, TempDir: t.TempDir()}
}

func TestARunWithoutAClientIsInvalid(t *testing.T) {
	t.Parallel()
	exit, err := Run(t.Context(), nil, new(one).options(t))
	if exit != (Exit{Code: ExitFailed}) || !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("got %+v, %v", exit, err)
	}
}

// What came before the command ran ends the run, however fast the lease was.
func TestASignalBeforeTheStartLetsNothingRun(t *testing.T) { // KF-31 (a)
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		for name, when := range map[string]bool{"before the run": true, "as it is granted": false} {
			for range 50 {
				signals := make(chan os.Signal, 4)
				a := &one{}
				if when {
					signals <- syscall.SIGUSR1
					signals <- sig
				} else {
					a.onAcquire = func() error { signals <- sig; return nil }
				}
				o := a.options(t)
				o.Signals = signals
				exit, err := Run(t.Context(), a.client(t), o)
				if exit != (Exit{Code: 128 + int(sig), Signal: sig}) || !errors.Is(err, lastword.ErrCanceled) {
					t.Fatalf("%s %s: got %+v, %v", sig, name, exit, err)
				}
			}
		}
	}
}

// Interrupted, and nobody knows whether there is a lease: that is what has to be told.
func TestAnInterruptWhoseCancelIsNotConfirmedIsUnknown(t *testing.T) { // R27, P5
	t.Parallel()
	signals := make(chan os.Signal, 1)
	lost := &lastword.Error{Code: lastword.CodeUnknown, Message: "lost"}
	a := &one{cancel: lost}
	a.onAcquire = func() error {
		select {
		case signals <- syscall.SIGINT:
		default:
		}
		return lost
	}
	o := a.options(t)
	o.Signals, o.Acquire.Wait = signals, time.Hour
	exit, err := Run(t.Context(), a.client(t), o)
	var open *client.OpenAttempt
	if exit != (Exit{Code: ExitUnreachable, Signal: syscall.SIGINT}) || !errors.Is(err, lastword.ErrUnknownOutcome) || !errors.As(err, &open) {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestTheGraceFollowsTheGrantedTTL(t *testing.T) { // R8
	t.Parallel()
	a := &one{ttl: 3 * time.Second}
	o := a.options(t)
	o.Acquire.TTL, o.Grace = 30*time.Second, 10*time.Second
	exit, err := Run(t.Context(), a.client(t), o)
	if exit.Code != ExitFailed || exit.Ran || !errors.Is(err, lastword.ErrInvalid) {
		t.Errorf("a grace of 10s under 3s: got %+v, %v", exit, err)
	}
	if a.releases != 1 {
		t.Errorf("%d releases", a.releases)
	}
}

func TestEveryRefusalHasItsExitCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[lastword.Code]int{
		lastword.CodeHeld: ExitNotAcquired, lastword.CodeTenureEnded: ExitLost, lastword.CodeNotHolder: ExitLost,
		lastword.CodeUnavailable: ExitUnreachable, lastword.CodeRequestConflict: ExitFailed, lastword.CodeCanceled: ExitFailed,
		lastword.CodeQuota: ExitFailed, lastword.CodeExhausted: ExitFailed, lastword.CodeInternal: ExitFailed,
		lastword.CodeInvalid: ExitFailed, lastword.CodeFenceRegression: ExitFailed,
	} {
		a := &one{onAcquire: func() error { return &lastword.Error{Code: code} }}
		if exit, err := Run(t.Context(), a.client(t), a.options(t)); exit != (Exit{Code: want}) || err == nil {
			t.Errorf("%s: got %+v, %v; want %d", code, exit, err, want)
		}
	}
}

// stuck is a group that nothing ends.
type stuck struct{ *fakeGroup }

func (stuck) reap() (int, syscall.Signal) { return 0, 0 }

func TestTheLeaseOfAGroupThatCannotBeEndedIsLeftToLapse(t *testing.T) { // R28
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &one{}
		o, err := a.options(t).withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p, err := newPlace(o.TempDir)
		if err != nil {
			t.Fatal(err)
		}
		defer p.remove()
		r := &run{ctx: ctx, client: a.client(t), o: o, place: p, start: func(*exec.Cmd) (startedGroup, error) {
			time.AfterFunc(time.Second, cancel)
			return stuck{&fakeGroup{start: time.Now(), gone: make(chan struct{}), hangs: true}}, nil
		}}
		exit, err := r.run()
		if exit.Code != ExitFailed || !exit.Ran || !errors.Is(err, lastword.ErrInternal) {
			t.Errorf("got %+v, %v", exit, err)
		}
		time.Sleep(time.Minute)
		if a.releases != 0 {
			t.Error("released although processes are left")
		}
	})
}

// To the kernel the parent of the command is a thread: were it to end, the command
// would be killed.
func TestTheThreadThatStartedTheCommandIsKept(t *testing.T) { // KF-30
	t.Parallel()
	g, err := startGroup(exec.CommandContext(t.Context(), "sleep", "300"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		g.signal(syscall.SIGKILL)
		<-g.exited()
		g.reap()
	}()
	room := make([]byte, 1<<20)
	for goroutine := range strings.SplitSeq(string(room[:runtime.Stack(room, true)]), "\n\n") {
		if strings.Contains(goroutine, "guard.startGroup.func1") && !strings.Contains(goroutine, "guard.Test") {
			if !strings.Contains(strings.SplitN(goroutine, "\n", 2)[0], "locked to thread") {
				t.Errorf("it may end: %s", goroutine)
			}
			return
		}
	}
	t.Error("nobody waits for the command")
}

// A process whose first thread has ended looks like a zombie, and runs.
func TestAProcessWithoutItsFirstThreadLives(t *testing.T) { // KF-30
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "GUARD_TEST_ROLE=headless")
	cmd.SysProcAttr = groupAttr()
	runtime.LockOSThread() // the parent, to the kernel
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	stat := func() string {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return string(bytes.Fields(append(b[bytes.LastIndexByte(b, ')')+1:], " ?"...))[0])
	}
	for deadline := time.Now().Add(30 * time.Second); stat() != "Z"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("its first thread does not end: state %s", stat())
		}
	}
	if !groupLives(pid) {
		t.Error("it counts as gone")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); groupLives(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("killed, it counts as alive")
		}
	}
}
