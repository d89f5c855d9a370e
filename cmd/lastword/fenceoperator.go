package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
)

const releaseLong = `Opens the record of RESOURCE that is frozen (FENCE_REGRESSION), for an operator who has
found out why: the stored tenure is closed, so that an equal fence is STALE_OWNER from
now on and only a larger one is admitted. It never lowers a fence. Who, why and when are
kept in the database, in the same transaction; 'lastword fence status' shows it.

--jump N lets the one fence N through that was refused with FENCE_JUMP because the
authority could not be asked, or did not confirm it: the highest fence becomes N - 1.
A number above the one that was refused last is refused. Look first at who signed it: who
has the key can burn numbers up to N.

An authority that a report has stopped is resumed with 'lastword resume'.`

func (a *app) fenceReleaseCommand() *cobra.Command {
	var act fence.Act
	var jump uint64
	l := &looking{op: "fence release"}
	cmd := &cobra.Command{
		Use: "release DSN RESOURCE --operator WHO --reason TEXT", Short: "open a frozen record to the next tenure", Long: releaseLong,
		Args:    want("DSN (sqlite:PATH or postgres://…)", "RESOURCE"),
		Example: "  lastword fence release sqlite:app.db doc/a --operator anna --reason 'the copy of the authority is gone'",
	}
	actFlags(cmd, &act)
	cmd.Flags().Var(&seqFlag{&jump}, "jump", "fence to let through, which was refused with FENCE_JUMP")
	l.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkAct(cmd, act); err != nil {
			return err
		}
		if jump != 0 && !lastword.Token(jump).Valid() {
			return usage(cmd, "--jump %d: want a fence, from 1 to %d", jump, lastword.MaxToken)
		}
		res, err := resource(cmd, args[1])
		if err != nil {
			return err
		}
		return l.change(cmd, args[0], res, func(ctx context.Context, g *guarded, p *sqlfence.Place) error {
			domain, err := g.domainOf(cmd, p, res, l.domain)
			if err == nil && domain == "" {
				err = &lastword.Error{Code: lastword.CodeInvalid, Op: l.op, Resource: res, Message: "there is no record to release", Hint: "name its domain with --domain"}
			}
			if err != nil {
				return err
			}
			act.At = time.Now()
			rec, err := fence.Release(ctx, p, fence.Key{Domain: domain, Resource: res}, lastword.Token(jump), act)
			if err != nil {
				return err
			}
			return told(a.answer(struct {
				Released bool   `json:"released"`
				Domain   string `json:"domain"`
				Resource string `json:"resource"`
				Fence    uint64 `json:"fence,string"`
				Operator string `json:"operator"`
			}{true, domain, string(res), uint64(rec.Fence), act.Operator}, row{"released", string(res)}, row{"fence", fenceText(rec.Fence)},
				row{"operator", act.Operator}, row{"note", "only a larger fence is admitted from now on"}), "fence release %s: released", res)
		})
	}
	return cmd
}

// actFlags are those of every act of an operator.
func actFlags(cmd *cobra.Command, act *fence.Act) {
	cmd.Flags().Var(&idFlag{"operator", &act.Operator}, "operator", "who you are; kept in the database (required)")
	cmd.Flags().Var(&idFlag{"reason", &act.Reason}, "reason", "why; kept in the database (required)")
}

func checkAct(cmd *cobra.Command, act fence.Act) error {
	switch {
	case act.Operator == "":
		return usage(cmd, "no --operator WHO given")
	case act.Reason == "":
		return usage(cmd, "no --reason TEXT given")
	}
	return nil
}

// change opens the database to write to it.
func (l *looking) change(cmd *cobra.Command, dsn string, res lastword.Resource, do func(context.Context, *guarded, *sqlfence.Place) error) error {
	path, err := databasePath(cmd, dsn)
	if err != nil {
		return err
	}
	if _, err := lookAt(l.op, path, false); err != nil {
		return named(err, l.op, res)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), *l.timeout)
	defer cancel()
	g, err := openDatabase(path, true, true)
	if err != nil {
		return named(err, l.op, res)
	}
	defer g.close()
	place, err := sqlfence.OpenPlace(ctx, g.db, "")
	if err != nil {
		return named(err, l.op, res)
	}
	defer func() { _ = place.Close() }()
	return l.told(do(ctx, g, place), res)
}

// told names the command in an error that does not say what it is about.
func (l *looking) told(err error, res lastword.Resource) error {
	e := (*lastword.Error)(nil)
	if !errors.As(err, &e) {
		return err // none, or about how the command was used
	}
	if e.Code == lastword.CodeInvalid && e.Op == "apply" { // of the connection, whatever it was for
		out := *e
		out.Op = l.op
		return &out
	}
	return named(err, l.op, res)
}

const restoredLong = `Says that the database was restored from a backup, or has failed over and lost commits.
Neither SQLite nor PostgreSQL shows that, so it has to be declared, BEFORE writers come back.

Every record, or the one of --resource, is raised to the authority's next fence - 1 and
closed: whoever held a lease then, or before, is refused. Then a window is open, shown by
'lastword fence status': an operation without a receipt, whose id was issued before now
(ids without an issue time, those that are no UUIDv7 and no ULID, count as such), is
RECEIPT_EXPIRED, since it may have had its effect before the restore. --skew is how far
the clocks of those who issue ids may be ahead of this one. When a person has reconciled
the business data, --close ends the window; it asks no authority. It is refused as long as
a record has not been raised.

Of a whole database, records that the restore lost altogether are begun only by a tenure
that the authority confirms. If the command breaks off, run it again: until a record has
been raised it admits nothing.`

// restoring is one fence restored.
type restoring struct {
	app      *app
	look     looking
	remote   *remote
	resource string
	skew     time.Duration
	close    bool
	act      fence.Act
}

func (a *app) fenceRestoredCommand() *cobra.Command {
	r := &restoring{app: a, look: looking{op: "fence restored"}, skew: time.Minute}
	cmd := &cobra.Command{
		Use: "restored DSN --operator WHO --reason TEXT [--resource RESOURCE] [--close]", Short: "declare that a database was restored", Long: restoredLong,
		Args: want("DSN (sqlite:PATH or postgres://…)"),
		Example: `  lastword fence restored sqlite:app.db --operator anna --reason 'backup of Tuesday'
  lastword fence restored sqlite:app.db --operator anna --reason 'orders compared with the bank' --close`,
	}
	actFlags(cmd, &r.act)
	cmd.Flags().StringVar(&r.resource, "resource", "", "the only `RESOURCE` that was restored (default: all)")
	cmd.Flags().Var(&durationFlag{value: &r.skew, most: 24 * time.Hour}, "skew", "how far the clocks of those who issue operation ids may be ahead")
	cmd.Flags().BoolVar(&r.close, "close", false, "end the window: what may have been lost has been reconciled")
	cmd.Flags().Var(&idFlag{"domain", &r.look.domain}, "domain", "with --close, where the database has several domains")
	r.remote = a.remoteFlags(cmd)
	r.remote.timeout = fenceTimeout
	cmd.Flags().Lookup("timeout").DefValue, cmd.Flags().Lookup("timeout").Usage = fenceTimeout.String(), "how long the command may take"
	r.look.timeout = &r.remote.timeout
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkAct(cmd, r.act); err != nil {
			return err
		}
		var res lastword.Resource
		if r.resource != "" {
			var err error
			if res, err = resource(cmd, r.resource); err != nil {
				return err
			}
		}
		r.act.At = time.Now()
		if r.close {
			return r.look.change(cmd, args[0], res, func(ctx context.Context, _ *guarded, p *sqlfence.Place) error {
				return r.reopen(cmd, ctx, p, res)
			})
		}
		return r.declare(cmd, args[0], res)
	}
	return cmd
}

func (r *restoring) declare(cmd *cobra.Command, dsn string, res lastword.Resource) error {
	c, err := r.app.dial(cmd, r.remote)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return r.look.change(cmd, dsn, res, func(ctx context.Context, _ *guarded, p *sqlfence.Place) error {
		b, err := grant.FetchBundle(c.Bundle).Bundle(ctx, false)
		if err != nil {
			return r.remote.unreached(err)
		}
		until := r.act.At.Add(r.skew)
		raised, err := fence.DeclareRestored(ctx, p, fence.Restore{
			Domain: b.Domain(), Resource: res, Until: until, Act: r.act,
			NextFence: func(ctx context.Context, of lastword.Resource) (lastword.Token, error) { return nextFence(ctx, c, of) },
		})
		if err != nil {
			return r.remote.unreached(err)
		}
		return told(r.app.answer(struct {
			Restored bool   `json:"restored"`
			Domain   string `json:"domain"`
			Resource string `json:"resource"`
			Raised   int    `json:"raised"`
			Until    string `json:"until"`
		}{true, b.Domain(), string(res), raised, until.UTC().Format(time.RFC3339)}, row{"restored", shown(dsn)}, row{"domain", b.Domain()},
			row{"records raised", number(raised)}, row{"window", "operations issued until " + until.UTC().Format(time.RFC3339) + " and without a receipt are RECEIPT_EXPIRED"},
			row{"note", "reconcile what may have been lost, then end the window with --close"}), "fence restored %s: %d records raised", shown(dsn), raised)
	})
}

func nextFence(ctx context.Context, c *rpc.Client, r lastword.Resource) (lastword.Token, error) {
	st, err := c.Status(ctx, lastword.StatusQuery{Resource: r})
	return st.NextFence, err
}

func (r *restoring) reopen(cmd *cobra.Command, ctx context.Context, p *sqlfence.Place, res lastword.Resource) error {
	domain := r.look.domain
	all, err := p.Windows(ctx)
	switch {
	case err != nil:
		return err
	case len(all) == 0, domain != "" && !slices.Contains(all, domain):
		return &lastword.Error{Code: lastword.CodeInvalid, Op: r.look.op, Resource: res, Message: "no window is open", Hint: "it opens when a restore is declared, without --close"}
	case domain == "" && len(all) > 1:
		return usage(cmd, "the database has open windows in %d domains, %q: choose one with --domain", len(all), all)
	case domain == "":
		domain = all[0]
	}
	n, err := fence.Reopen(ctx, p, domain, res, r.act)
	if err != nil {
		return err
	}
	return told(r.app.answer(struct {
		Closed   bool   `json:"closed"`
		Domain   string `json:"domain"`
		Resource string `json:"resource"`
		Reopened int    `json:"reopened"`
	}{true, domain, string(res), n}, row{"window closed", domain}, row{"records", number(n)}, row{"operator", r.act.Operator},
		row{"note", "an operation without a receipt is a new one from now on"}), "fence restored --close: %d records", n)
}

// windowText is the window after a restore, for people.
func windowText(mark uint64) string {
	if mark == 0 {
		return ""
	}
	return "open: operations issued until " + time.UnixMilli(int64(mark)).UTC().Format(time.RFC3339) + " and without a receipt are RECEIPT_EXPIRED"
}

// actText is the newest act, for people.
func actText(acts []fence.Act) string {
	if len(acts) == 0 {
		return ""
	}
	last := acts[len(acts)-1]
	return fmt.Sprintf("%s by %s at %s: %s", last.Kind, last.Operator, last.At.UTC().Format(time.RFC3339), last.Reason)
}
