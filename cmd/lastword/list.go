package main

import (
	"bytes"
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
)

const listLong = `Shows who holds what: every resource whose id begins with PREFIX, in byte order;
without PREFIX all of them. With --all also those that nobody holds.

PREFIX is compared byte by byte and has no special characters: doc/ shows what is
below doc, doc shows also doc itself and docs. Case, accents and % * _ count as they
are.

What is shown of a resource was so at a moment while the command ran; the list as a
whole is of no one moment. 'lastword watch' shows changes.`

func (a *app) listCommand() *cobra.Command {
	q := lastword.ListQuery{Limit: lastword.MaxPage}
	cmd := &cobra.Command{
		Use: "list [PREFIX]", Short: "show who holds what", Long: listLong, Args: atMost("PREFIX"),
		Example: "  lastword list\n  lastword list doc/ --all -o json",
	}
	cmd.Flags().BoolVar(&q.All, "all", false, "show the resources that nobody holds, too")
	r := a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if q.Prefix, err = prefix(cmd, args); err != nil {
			return err
		}
		c, err := a.dial(cmd, r)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return r.unreached(a.list(cmd.Context(), c, q))
	}
	return cmd
}

// list prints page after page, so that a long list needs no memory.
func (a *app) list(ctx context.Context, c *rpc.Client, q lastword.ListQuery) error {
	for first := true; ; first = false {
		page, err := c.List(ctx, q)
		if err != nil {
			return err
		}
		if err := a.page(page, first); err != nil {
			return err
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

func (a *app) page(page lastword.Page, first bool) error {
	if a.json {
		for _, st := range page.Resources {
			if err := a.object(rpc.SightMessage(st)); err != nil {
				return err
			}
		}
		return nil
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if first {
		_, _ = fmt.Fprintln(table, "RESOURCE\tSTATE\tFENCE\tOWNER\tREMAINING\tWAITERS") // into memory
	}
	for _, st := range page.Resources {
		s := sightOf(st)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\n", printable(string(st.Resource)), st.State, s.fence, s.owner, s.remaining, st.Waiters)
	}
	_ = table.Flush()
	_, err := a.stdout.Write(text.Bytes())
	return err
}

// sight is a resource in a line for people: of the current tenure, else of the last.
type sight struct{ fence, owner, remaining string }

func sightOf(st lastword.Status) sight {
	s := sight{"-", "-", "-"}
	switch {
	case st.Holder.Fence != 0:
		s.fence, s.owner, s.remaining = st.Holder.Fence.Text(), printable(st.Holder.Owner), "not known"
		if left := st.Remaining.Round(time.Millisecond); left > 0 {
			s.remaining = spanText(left)
		}
	case st.Last.State != "":
		s.fence, s.owner = st.Last.Fence.Text(), printable(st.Last.Owner)
	}
	return s
}

// prefix reads the argument PREFIX.
func prefix(cmd *cobra.Command, args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if err := lastword.CheckPrefix(args[0]); err != nil {
		return "", usage(cmd, "%s", reason(err))
	}
	return args[0], nil
}

// atMost is for a command whose one argument can be left out.
func atMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage(cmd, "unexpected argument %q after %s", clip(args[1]), name)
		}
		return nil
	}
}
