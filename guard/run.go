//go:build linux || darwin

package guard

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
)

const op = "exec"

// Exit codes of a command that did not run to its own end. They are those of
// `lastword exec` and a contract with scripts (docs/cli.md). A command that was ended
// by signal n has 128 + n.
const (
	ExitNotAcquired   = 121 // held by another; nothing ran
	ExitLost          = 122 // the lease was lost or over, or at the end of its longest hold: the command was ended, or not started
	ExitUnreachable   = 123 // the authority was not reached, or it is not known whether there is a lease; nothing ran
	ExitFailed        = 125 // any other refusal of the authority, or a failure of this side: wrong options, no grant file, no process
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// Exit is how a [Run] ended.
type Exit struct {
	// Code is the command's own exit code, 128 + n if signal n ended it, or one of
	// the Exit constants. A wait that signal n ended has 128 + n too.
	Code int
	// Signal is what ended the command, or the wait; 0 for none.
	Signal syscall.Signal
	// Ran says that the command was started.
	Ran bool
	// Unreleased is why the release of the lease was not confirmed after the command
	// had ended by itself; nil if it was. What matches [lastword.ErrNotHolder] says
	// that the lease was over before the command, which this process did not notice in
	// time because it was stopped. Otherwise the lease lapses.
	Unreleased error
}

// Run acquires a lease, runs the command under it, ends what is left of its process
// group, and releases the lease; the package comment has the order and what happens when
// the lease is lost. It returns when all of that is done.
//
// A command that ended by itself, with whatever code, is no error. The error matches
// [lastword.ErrNotHolder] and its cause ([client.ErrExpired], [client.ErrRefused],
// [client.ErrMaxHold]) if the command was ended for the sake of the lease,
// [lastword.ErrCanceled] if ctx or a signal ended the wait, or ctx the command, and is
// the error of [client.Client.Acquire] if there was no lease. ctx ends the wait, or
// the command as the loss of the lease would.
func Run(ctx context.Context, c *client.Client, o Options) (Exit, error) {
	o, err := o.withDefaults()
	if err == nil && c == nil {
		err = o.invalid("no client", "")
	}
	if err != nil {
		return Exit{Code: ExitFailed}, err
	}
	if err := checkSystem(); err != nil {
		return Exit{Code: ExitFailed}, o.own("process groups cannot be watched here", err)
	}
	r := &run{ctx: ctx, client: c, o: o, start: func(cmd *exec.Cmd) (startedGroup, error) { return startGroup(cmd) }}
	// Whatever can fail without the lease fails before it is asked for.
	if r.path, err = lookUp(o); err != nil {
		return r.refused(err)
	}
	if r.place, err = newPlace(o.TempDir); err != nil {
		return Exit{Code: ExitFailed}, o.own("no directory for the grant file", err)
	}
	defer r.place.remove()
	return r.run()
}

// run is one [Run] under way.
type run struct {
	ctx    context.Context //nolint:containedctx // lives as long as the call
	client *client.Client
	o      Options
	path   string // of the program
	place  *place
	start  func(*exec.Cmd) (startedGroup, error)

	exit Exit
	err  error
}

func (r *run) run() (Exit, error) {
	ctx, wait := r.beginWait()
	defer wait.cancel(nil)
	held := false
	err := r.client.Run(ctx, r.o.Resource, r.o.Acquire, func(_ context.Context, l *client.Lease) error {
		held = true
		wait.end()
		if ctx.Err() == nil {
			r.exit, r.err = r.under(l)
		}
		return nil
	})
	wait.end()
	switch {
	case wait.signal != 0 && (!held || !r.exit.Ran && ctx.Err() != nil):
		return r.interrupted(wait.signal, err)
	case !held || !r.exit.Ran && r.err == nil:
		return r.notAcquired(err)
	case r.err == nil:
		r.exit.Unreleased = err
	}
	return r.exit, r.err
}

// startedGroup is a group whose command was started.
type startedGroup interface {
	group
	// reap says how the command ended, once the group is gone.
	reap() (code int, sig syscall.Signal)
}

// under runs the command under the lease.
func (r *run) under(l *client.Lease) (Exit, error) {
	grace, err := r.o.graceOf(l.TTL())
	if err != nil {
		return Exit{Code: ExitFailed}, err
	}
	if err := r.place.write(l.Ref(), l.Grant()); err != nil {
		return Exit{Code: ExitFailed}, r.o.own("the grant file was not written", err)
	}
	g, err := r.start(r.command(l))
	if err != nil {
		return r.refused(err)
	}
	s := &supervisor{
		lease: l, group: g, grace: grace, signals: r.o.Signals, canceled: r.ctx.Done(), log: r.o.Logger,
		look: func() { r.place.keep(r.o.Logger) },
	}
	why, gone := s.watch()
	if !gone {
		leaveToLapse(l)
		return Exit{Ran: true, Code: ExitFailed}, r.o.own("the processes of the command do not end; the lease is left to lapse", nil)
	}
	exit := Exit{Ran: true}
	exit.Code, exit.Signal = g.reap()
	switch why {
	case goesOn, itself:
	case lost:
		exit.Code = ExitLost
		return exit, r.lost(context.Cause(l.Context()))
	case canceled:
		return exit, &lastword.Error{
			Code: lastword.CodeCanceled, Op: op, Resource: r.o.Resource, Message: "the command was ended", Err: context.Cause(r.ctx),
		}
	}
	return exit, nil
}

// leaveToLapse ends the lease without a release, because the work is not over (R28):
// a release that may not wait for it is not sent.
func leaveToLapse(l *client.Lease) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Release(ctx) // it says that it was not sent
}

// foreseen is [client.ErrExpired] of a lease that had not expired yet.
type foreseen struct{}

var errForeseen error = foreseen{}

func (foreseen) Error() string        { return "the lease was about to expire" }
func (foreseen) Is(target error) bool { return target == client.ErrExpired }

// lost is the error of a command that was ended for the sake of its lease. Without a
// cause the end was only foreseen.
func (r *run) lost(cause error) error {
	e := &lastword.Error{Code: lastword.CodeNotHolder, Op: op, Resource: r.o.Resource, Message: "the command was ended"}
	if cause == nil {
		cause = errForeseen
	}
	const silence = "no renewal was answered in time: the authority was not reached, or this process was stopped"
	for _, c := range []struct {
		err  error
		hint string
	}{
		{client.ErrRevoked, ""},
		{client.ErrAttemptCanceled, ""},
		{client.ErrRefused, "it had ended there"},
		{client.ErrMaxHold, "raise max-hold if the command may take longer"},
		{client.ErrReleased, "the client was closed"},
		{client.ErrUnknownTooLong, silence},
		{errForeseen, silence},
		{client.ErrExpired, silence},
	} {
		if errors.Is(cause, c.err) {
			e.Err, e.Hint = c.err, c.hint
			return e
		}
	}
	e.Err = cause
	return e
}

// refused is the exit of a command that was not started.
func (r *run) refused(err error) (Exit, error) {
	e := &lastword.Error{Code: lastword.CodeInvalid, Op: op, Resource: r.o.Resource, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotFound):
		e.Message = "command not found"
		return Exit{Code: ExitNotFound}, e
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		e.Message = "the command cannot be executed"
		return Exit{Code: ExitNotExecutable}, e
	}
	return Exit{Code: ExitFailed}, r.o.own("the command was not started", err)
}

// notAcquired is the exit of a run that had no lease, or lost it before the command was
// started.
func (r *run) notAcquired(err error) (Exit, error) {
	exit := Exit{Code: ExitFailed}
	switch {
	case errors.Is(err, lastword.ErrUnknownOutcome), errors.Is(err, lastword.ErrUnavailable):
		exit.Code = ExitUnreachable
	case errors.Is(err, lastword.ErrHeld):
		exit.Code = ExitNotAcquired
	case errors.Is(err, lastword.ErrNotHolder), errors.Is(err, lastword.ErrTenureEnded):
		exit.Code = ExitLost
	case err == nil: // ctx ended between the grant and the start; the lease is released
		err = &lastword.Error{Code: lastword.CodeCanceled, Op: op, Resource: r.o.Resource, Message: "nothing was started", Err: context.Cause(r.ctx)}
	}
	return exit, err
}

// interrupted is the exit of a wait that a signal ended; err is what became of the
// attempt.
func (r *run) interrupted(sig syscall.Signal, err error) (Exit, error) {
	if errors.Is(err, lastword.ErrUnknownOutcome) {
		return Exit{Code: ExitUnreachable, Signal: sig}, err
	}
	return Exit{Code: 128 + int(sig), Signal: sig}, &lastword.Error{
		Code: lastword.CodeCanceled, Op: op, Resource: r.o.Resource,
		Message: "interrupted while it waited; the attempt is cancelled and nothing is held",
	}
}

// waiting ends an acquire when a signal says so.
type waiting struct {
	cancel  context.CancelCauseFunc
	unhook  func() bool
	stop    chan struct{}
	stopped chan struct{}
	over    bool
	signal  syscall.Signal // what ended the wait; to be read after end
}

var errSignal = errors.New("a signal")

// beginWait gives the context of the acquire. Once there is a lease the caller's context
// must not reach the client: it would give the work a time of its own to stop.
func (r *run) beginWait() (context.Context, *waiting) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.ctx))
	w := &waiting{cancel: cancel, stop: make(chan struct{}), stopped: make(chan struct{})}
	w.unhook = context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	go w.listen(r.o.Signals)
	return ctx, w
}

func (w *waiting) listen(signals <-chan os.Signal) {
	defer close(w.stopped)
	for {
		select {
		case s, open := <-signals:
			if !open {
				signals = nil
			} else if w.ends(s) {
				return
			}
		case <-w.stop:
			// What has come before the command ran ends the wait, also if the lease
			// was faster.
			for {
				select {
				case s, open := <-signals:
					if !open {
						return
					}
					if w.ends(s) {
						return
					}
				default:
					return
				}
			}
		}
	}
}

// ends reports whether s ends the wait; others are dropped.
func (w *waiting) ends(s os.Signal) bool {
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		w.signal, _ = s.(syscall.Signal)
		w.cancel(errSignal)
		return true
	}
	return false
}

// end stops listening; from then on signals are somebody else's.
func (w *waiting) end() {
	if !w.over {
		w.over = true
		w.unhook()
		close(w.stop)
	}
	<-w.stopped
}
