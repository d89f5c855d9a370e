package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/internal/grantfile"
	"github.com/lastword/lastword/rpc"
)

const acquireLong = `Takes one lease of RESOURCE and does not renew it: it lapses when its TTL is over,
unless 'lastword renew' extends it.

With --grant FILE the grant goes into FILE (mode 0600), which renew, release,
complete and 'fence apply' take. FILE is never overwritten without --force, and it
is checked before anything is acquired. Without --grant the tenure is printed, and
its grant only with -o json.

Without --owner, and without a certificate or token, every start of the command is an
owner of its own. With one, the owner is who it says, and no other can be named. A lease
that is held refuses everybody, also the same owner (exit code 121). --wait queues first
come, first served; Ctrl-C then takes the attempt back.

Exit code 123 leaves open whether the lease was granted. The line names the request
id and the owner: the same command with these two finds out, and never takes a
second lease; 'lastword cancel' takes the attempt back.`

// acquisition is one acquire on its way.
type acquisition struct {
	app    *app
	cmd    *cobra.Command
	remote *remote
	client *rpc.Client
	ask    lastword.AcquireRequest
	path   string // of the grant file, "" for none
	force  bool
}

func (a *app) acquireCommand() *cobra.Command {
	q := &acquisition{app: a, ask: lastword.AcquireRequest{TTL: client.DefaultTTL, Class: lastword.ClassWrite}}
	cmd := &cobra.Command{
		Use: "acquire RESOURCE", Short: "take one lease", Long: acquireLong, Args: want("RESOURCE"),
		Example: "  lastword acquire doc/a --ttl 30s --grant a.grant",
	}
	class := (*string)(&q.ask.Class)
	f := cmd.Flags()
	f.Var(&durationFlag{value: &q.ask.TTL, least: client.MinTTL, most: client.MaxTTL}, "ttl", "how long it is valid without a renewal, 100ms to 24h")
	f.Var(&durationFlag{value: &q.ask.Wait, most: client.MaxTTL}, "wait", "how long to queue behind a holder; 0 does not queue")
	f.Var(&idFlag{"request id", &q.ask.RequestID}, "request-id", "names this attempt, so that it can be repeated (default: a random one)")
	f.Var(&idFlag{"owner", &q.ask.Owner}, "owner", "who asks (default: the identity of your certificate or token, else host, process and a random part)")
	f.Var(&digestFlag{&q.ask.Root}, "root", "operation root: names the whole piece of work")
	f.Var(&idFlag{"class", class}, "class", "operation class that the grant is for")
	f.StringVar(&q.path, "grant", "", "`FILE` to put the grant into")
	f.BoolVar(&q.force, "force", false, "overwrite the file of --grant")
	q.remote = a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		q.cmd = cmd
		if q.ask.Resource, err = resource(cmd, args[0]); err != nil {
			return err
		}
		if q.force && q.path == "" {
			return usage(cmd, "--force without --grant")
		}
		if q.client, err = a.dial(cmd, q.remote); err != nil {
			return err
		}
		defer func() { _ = q.client.Close() }()
		return q.run(cmd.Context())
	}
	return cmd
}

func (q *acquisition) run(ctx context.Context) error {
	if err := q.fill(); err != nil {
		return err
	}
	var file *grantWriter
	if q.cmd.Flags().Changed("grant") {
		var err error
		if file, err = reserveGrantFile(q.path, q.force); err != nil {
			return named(err, "acquire", q.ask.Resource)
		}
		defer file.discard()
	}
	t, err := q.acquire(ctx)
	if err != nil {
		return err
	}
	if file != nil {
		if err := file.commit(grantfile.New(t.TenureRef, t.Grant)); err != nil {
			return q.unusable(ctx, err)
		}
	}
	if err := q.print(t); err != nil {
		return q.untold(ctx, t, err)
	}
	return nil
}

// untold: the lease is there and nobody was told. With a grant file it can be used all
// the same; without one it only stands in the way, unless it was told of before.
func (q *acquisition) untold(ctx context.Context, t lastword.Tenure, why error) error {
	u := &untold{
		done:  fmt.Sprintf("acquire %s: granted with fence %s to owner %s, request id %s", t.Resource, t.Fence.Text(), quoted(t.Owner), quoted(t.RequestID)),
		more:  "the grant file " + q.path + " is there",
		cause: why,
	}
	switch {
	case q.path != "":
		return u
	case t.Repeated:
		u.more = "it had been granted before, and is still held"
		return u
	}
	ctx, stop := q.remote.afterwards(ctx)
	defer stop()
	u.more = "the lease was given back"
	if err := q.client.Release(ctx, t.TenureRef); err != nil {
		u.more = "the lease could not be given back: " + reason(err)
	}
	return u
}

// fill chooses what the caller left open. Two starts of the command are two owners
// and two attempts.
func (q *acquisition) fill() error {
	if q.ask.RequestID == "" {
		q.ask.RequestID = rand.Text()
	}
	if q.ask.Owner != "" {
		return nil
	}
	var err error
	q.ask.Owner, err = ownName(q.client)
	return err
}

// acquire asks, and confirms by a renewal what was granted after a wait, or long ago:
// nobody knows how much of that is left (R25).
func (q *acquisition) acquire(ctx context.Context) (lastword.Tenure, error) {
	t, err := q.client.Acquire(ctx, q.ask)
	if err != nil {
		return t, q.failed(ctx, err)
	}
	if !t.Waited && t.Remaining > 0 {
		return t, nil
	}
	renewed, err := q.client.Renew(ctx, t.TenureRef)
	if err != nil {
		return t, q.failed(ctx, unconfirmed(err))
	}
	renewed.Waited, renewed.Repeated, renewed.Previous = t.Waited, t.Repeated, t.Previous
	return renewed, nil
}

// unconfirmed is the error of the renewal as one of the acquire that it belongs to.
func unconfirmed(err error) error {
	e, ok := asError(err)
	if !ok {
		return err
	}
	out := *e
	out.Op = "acquire"
	switch e.Code {
	case lastword.CodeNotHolder, lastword.CodeTenureEnded:
		out.Message, out.Hint = "the grant was over before it could be confirmed: "+e.Message, "acquire again with a new request id"
	case lastword.CodeUnavailable: // of the renewal; the acquire was done
		out.Code, out.Message, out.Hint, out.Err = lastword.CodeUnknown, "the grant could not be confirmed: "+reason(e), "", nil
	}
	return &out
}

// failed makes sure that an attempt which was interrupted leaves nothing behind, and
// says of one without an answer how to find out (R27).
func (q *acquisition) failed(ctx context.Context, err error) error {
	unknown := errors.Is(err, lastword.ErrUnknownOutcome)
	if ctx.Err() != nil && (unknown || errors.Is(err, lastword.ErrUnavailable)) {
		return q.interrupted(ctx, err)
	}
	if e, ok := asError(err); ok && unknown && e.Err == nil { // the authority itself does not know
		return q.open(e.Message, err)
	}
	if unknown {
		return q.open("no answer", err)
	}
	return q.remote.unreached(err)
}

func (q *acquisition) interrupted(ctx context.Context, cause error) error {
	if err := q.cancel(ctx); err != nil {
		return q.open("interrupted, and the attempt could not be cancelled", cause)
	}
	return &lastword.Error{
		Code: lastword.CodeCanceled, Op: "acquire", Resource: q.ask.Resource,
		Message: "interrupted; the attempt is cancelled and nothing is held",
	}
}

// cancel takes the attempt back, whatever became of it.
func (q *acquisition) cancel(ctx context.Context) error {
	ctx, stop := q.remote.afterwards(ctx)
	defer stop()
	err := q.client.Cancel(ctx, q.ask.Resource, q.ask.Owner, q.ask.RequestID)
	if errors.Is(err, lastword.ErrTenureEnded) || errors.Is(err, lastword.ErrNotHolder) {
		return nil
	}
	return err
}

func (q *acquisition) open(message string, cause error) error {
	e := &lastword.Error{
		Code: lastword.CodeUnknown, Op: "acquire", Resource: q.ask.Resource,
		Message: message + "; the lease may or may not have been granted",
		Hint: fmt.Sprintf("to find out repeat the command with --request-id %s --owner %s, which is safe; or take it back: lastword cancel %s --request-id %[1]s --owner %[2]s",
			quoted(q.ask.RequestID), quoted(q.ask.Owner), quoted(string(q.ask.Resource))),
	}
	known, ok := asError(cause)
	switch {
	case ok && known.Err != nil:
		e.Err = errors.New(oneLine(known.Err.Error()))
	case ok && known.Hint != "":
		e.Hint = known.Hint + "; " + e.Hint
	}
	return e
}

// unusable: the lease is there and its grant file is not. A lease that nobody can
// use only stands in the way.
func (q *acquisition) unusable(ctx context.Context, why error) error {
	if err := q.cancel(ctx); err != nil {
		return q.open(fmt.Sprintf("%v, and the lease could not be given back", why), err)
	}
	return fmt.Errorf("acquire %s: %w; the lease was given back", q.ask.Resource, why)
}

func (q *acquisition) print(t lastword.Tenure) error {
	m := rpc.TenureMessage(t)
	var more struct {
		GrantFile string `json:"grant_file,omitempty"`
	}
	if q.path != "" {
		m.Grant, more.GrantFile = "", q.path
	}
	return q.app.answer(with{m, more}, append([]row{{"acquired", string(t.Resource)}}, tenureRows(t, q.path)...)...)
}

func tenureRows(t lastword.Tenure, file string) []row {
	ttl := spanText(t.TTL)
	if t.Remaining != t.TTL {
		ttl += ", of which are left " + spanText(t.Remaining.Round(time.Millisecond))
	}
	again := ""
	if t.Repeated {
		again = "this request id had been granted before"
	}
	return []row{
		{"fence", fenceText(t.Fence)}, {"ttl", ttl}, {"owner", t.Owner}, {"request id", t.RequestID}, {"lease id", t.LeaseID},
		{"root", t.Root.String()}, {"before it", endingText(t.Previous)}, {"repeated", again}, {"grant file", file},
	}
}
