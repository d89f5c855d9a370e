package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
)

const watchLong = `Shows every resource whose id begins with PREFIX, says that the list is complete, and
then shows each resource again whenever a tenure of it begins or ends, until Ctrl-C
(exit code 0). PREFIX is compared byte by byte, as in 'lastword list'.

It tells states and no history: the newest state of every resource is certain to be
shown, a state between two others may be left out. Renewals are not shown.

When the authority goes away it says so on stderr and tries again until it is back;
then everything is shown anew, and 'complete' once more. If it is not there at the
beginning the command fails (exit code 123). It fails as well when the authority has
stopped because its store went back (exit code 124).

With -o json every line is one object of the schema, WatchResponse: either status or
complete.`

// How long watch waits before it tries again: twice as long each time.
const (
	watchPause    = 100 * time.Millisecond
	watchMaxPause = 5 * time.Second
)

func (a *app) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch [PREFIX]", Short: "show who holds what, and what changes", Long: watchLong, Args: atMost("PREFIX"),
		Example: "  lastword watch doc/\n  lastword watch -o json | while read -r line; do …; done",
	}
	r := a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := prefix(cmd, args)
		if err != nil {
			return err
		}
		c, err := a.dial(cmd, r)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		err = a.watch(cmd, c, p)
		if cmd.Context().Err() != nil && errors.Is(err, lastword.ErrUnavailable) {
			return nil // it was told to end
		}
		return r.unreached(err)
	}
	return cmd
}

// watch begins again for as long as it was shown something before.
func (a *app) watch(cmd *cobra.Command, c *rpc.Client, prefix string) error {
	ctx, pause := cmd.Context(), watchPause
	for begun := false; ; {
		shown, err := a.watchOnce(ctx, c, prefix)
		begun = begun || shown
		if ctx.Err() != nil || !begun || !errors.Is(err, lastword.ErrUnavailable) {
			return err
		}
		if shown {
			pause = watchPause
			a.interrupted(cmd, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, watchMaxPause)
	}
}

// interrupted says that there is a gap in what is shown.
func (a *app) interrupted(cmd *cobra.Command, err error) {
	text := fmt.Sprintf("lastword: watch: interrupted, trying again: %s", reason(err))
	if a.json {
		text = string(refusalJSON(cmd, err))
	}
	_, _ = fmt.Fprintln(a.stderr, text) // nobody is left to be told
}

// watchOnce prints one watch. An error of writing is not one of ours, and ends it.
func (a *app) watchOnce(ctx context.Context, c *rpc.Client, prefix string) (shown bool, err error) {
	count := 0
	for sight, err := range c.Watch(ctx, prefix) {
		if err != nil {
			return shown, err
		}
		if !sight.Complete {
			count++
		}
		shown = true
		if err := a.sight(sight, count); err != nil {
			return shown, fmt.Errorf("watch: %w", err)
		}
	}
	return shown, nil
}

func (a *app) sight(s lastword.Sight, count int) error {
	if a.json {
		return a.object(rpc.WatchMessage(s))
	}
	if s.Complete {
		_, err := fmt.Fprintf(a.stdout, "-- complete, %d shown; what follows are changes\n", count)
		return err
	}
	st := sightOf(s.Status)
	line := fmt.Sprintf("%-8s  %s", s.Status.State, printable(string(s.Status.Resource)))
	if st.fence != "-" {
		line += fmt.Sprintf("  fence %s  %s", st.fence, st.owner)
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}
