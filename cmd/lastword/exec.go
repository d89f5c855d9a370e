package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/guard"
)

const execLong = `Runs CMD while it holds RESOURCE: acquires, renews in the background, and releases when
CMD and every process of its process group is gone. CMD finds LASTWORD_RESOURCE,
LASTWORD_FENCE, LASTWORD_AUTHORITY and LASTWORD_GRANT_FILE in its environment; the last
one is a file for 'fence apply --grant', removed at the end. Standard input and output
are CMD's own. Signals go to the whole process group.

An acquire that gets no answer is asked about with the same request id, then cancelled,
until nothing of it can be valid: for --wait, --ttl and four times --timeout (or a sixth of
--ttl) at most. A line on stderr says so.

If the lease is lost, the group gets SIGTERM, and SIGKILL after --grace. While the
authority cannot be reached, that begins when only --grace is left of the lease, so that
it is over when the lease is; --grace is therefore at most half of --ttl. At the end of
--max-hold the group gets SIGTERM, too. Processes that CMD leaves in its group are ended
like that before the release.

Exit codes: CMD's own, or 128 + n if signal n ended it (or the wait, which then leaves
nothing behind); and
  121  held by another: CMD did not run
  122  CMD was ended, because the lease was lost or at the end of --max-hold; or the
       tenure of --request-id was over: CMD did not run
  123  authority unreachable, or unknown whether there is a lease: CMD did not run
  125  usage, a failure of exec itself, or another refusal of the acquire
  126  CMD cannot be executed
  127  CMD was not found`

// exitsLikeExec marks the command whose exit codes leave room for another program's.
const exitsLikeExec = "exits-like-exec"

// execution is one exec.
type execution struct {
	app    *app
	remote *remote
	o      guard.Options
	owner  string
}

func (a *app) execCommand() *cobra.Command {
	x := &execution{app: a}
	q := &x.o.Acquire
	q.TTL, q.Class = client.DefaultTTL, lastword.ClassWrite
	class := (*string)(&q.Class)
	cmd := &cobra.Command{
		Use: "exec RESOURCE [flags] -- CMD [ARG …]", Short: "run a command while holding a lease", Long: execLong,
		Example:     "  lastword exec nightly/report --wait 10m -- ./report.sh",
		Annotations: map[string]string{exitsLikeExec: ""},
		Args:        wantCommand,
	}
	f := cmd.Flags()
	f.Var(&durationFlag{value: &q.TTL, least: client.MinTTL, most: client.MaxTTL}, "ttl", "how long the lease is valid without a renewal, 100ms to 24h")
	f.Var(&durationFlag{value: &q.Wait, most: client.MaxTTL}, "wait", "how long to queue behind a holder; 0 does not queue")
	f.Var(&durationFlag{value: &x.o.Grace, least: time.Millisecond, most: client.MaxTTL}, "grace",
		"time between SIGTERM and SIGKILL, at most half of --ttl (default: 10s, or a third of --ttl if that is less)")
	f.Lookup("grace").DefValue = ""
	f.Var(&durationFlag{value: &q.MaxHold, least: time.Millisecond, most: 365 * client.MaxTTL}, "max-hold", "end CMD after this time (default: never)")
	f.Lookup("max-hold").DefValue = ""
	f.Var(&idFlag{"request id", &q.RequestID}, "request-id", "names this attempt (default: a random one)")
	f.Var(&idFlag{"owner", &x.owner}, "owner", "who asks (default: the identity of your certificate or token, else host, process and a random part)")
	f.Var(&digestFlag{&q.Root}, "root", "operation root: names the whole piece of work")
	f.Var(&idFlag{"class", class}, "class", "operation class that the grant is for")
	x.remote = a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return x.run(cmd, args) }
	return cmd
}

// wantCommand wants RESOURCE, two dashes and a command: without the dashes, flags of the
// command would be taken for ours.
func wantCommand(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return usage(cmd, "no RESOURCE given")
	case dash < 0:
		return usage(cmd, "no command: put -- in front of it")
	case dash > 1:
		return usage(cmd, "unexpected argument %q in front of --", clip(args[1]))
	case len(args) == 1:
		return usage(cmd, "no command behind --")
	}
	return nil
}

func (x *execution) run(cmd *cobra.Command, args []string) (err error) {
	if x.o.Resource, err = resource(cmd, args[0]); err != nil {
		return err
	}
	remote, err := x.app.dial(cmd, x.remote)
	if err != nil {
		return err
	}
	defer func() { _ = remote.Close() }()
	notices := newNotices(x.app.stderr, x.app.json, "exec "+string(x.o.Resource))
	defer notices.close()
	log := slog.New(notices)
	c, err := client.New(remote, client.Config{
		Owner: x.owner, Logger: log,
		CleanupTimeout: min(max(x.remote.timeout, 10*time.Millisecond), 10*time.Minute), CallTimeout: x.remote.timeout,
	})
	if err != nil {
		return err
	}
	x.o.Command, x.o.Signals, x.o.Logger = args[1:], x.app.signals, log
	x.o.Env = append(x.app.environ, "LASTWORD_AUTHORITY="+x.remote.authority)
	x.o.Env = append(x.o.Env, x.remote.secured.environment()...)
	x.o.Stdin, x.o.Stdout, x.o.Stderr = file(x.app.stdin), file(x.app.stdout), file(x.app.stderr)
	exit, err := guard.Run(cmd.Context(), c, x.o)
	return errors.Join(x.ended(exit, err), c.Close())
}

// ended is what a run came to, as an error with its exit code.
func (x *execution) ended(exit guard.Exit, err error) error {
	switch {
	case err != nil:
		return &execError{code: exit.Code, err: x.remote.unreached(wayOut(named(err, "exec", x.o.Resource)))}
	case errors.Is(exit.Unreleased, lastword.ErrNotHolder):
		return &execError{code: exit.Code, err: fmt.Errorf("exec %s: the lease was over before the command had ended: %w", x.o.Resource, exit.Unreleased)}
	case exit.Unreleased != nil:
		return &execError{code: exit.Code, err: fmt.Errorf("exec %s: the lease was not released and lapses by itself: %w", x.o.Resource, exit.Unreleased)}
	case exit.Code != 0:
		return quietly{exit.Code}
	}
	return nil
}

// execError is an error of exec, and the exit code that belongs to it.
type execError struct {
	code int
	err  error
}

func (e *execError) Error() string { return e.err.Error() }
func (e *execError) Unwrap() error { return e.err }

// execExit is the exit code of exec. What went wrong before anything was asked is 125:
// 1 and 2 belong to the command.
func execExit(err error) int {
	if e, ok := errors.AsType[*execError](err); ok {
		return e.code
	}
	if q, ok := errors.AsType[quietly](err); ok {
		return q.code
	}
	if err == nil {
		return exitDone
	}
	return guard.ExitFailed
}

// wayOut names the commands that find out what became of an attempt (R27).
func wayOut(err error) error {
	open, ok := errors.AsType[*client.OpenAttempt](err)
	e, is := asError(err)
	if !ok || !is {
		return err
	}
	out := *e
	out.Hint = fmt.Sprintf("to find out: lastword status %s --request-id %s --owner %s; to take it back: lastword cancel with the same", quoted(string(e.Resource)), quoted(open.RequestID), quoted(open.Owner))
	return &out
}

// file is a stream as the file that it is; nil, the null device, if it is none.
func file(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}
