package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

const protectLong = `Closes TABLE to every writer that bypasses the fence: a row can be made, changed or removed
only inside a transaction that the fence has admitted, under a lease on the resource of the
row. --resource says which that is: doc/{id}, where id is a column. --columns leaves all
other columns free; a row in which all of the named ones are NULL can then be made and
removed by anybody.

The same command makes anew what is missing of the triggers, and closes a table again that
was opened with 'lastword fence unprotect'; --resource, --columns and --domain can then be
left out. --shadow begins with a roll-out: what would be refused passes and is counted,
until 'lastword fence enforce'.

What it cannot close: who may change the schema can remove the triggers, which 'lastword
fence status' shows and every write through the fence refuses. On SQLite that is everybody
who may write to the file; on PostgreSQL the owner of the table and superusers, so let the
workers' role own nothing. docs/protect.md has the rest.`

// protecting is one fence protect.
type protecting struct {
	app     *app
	look    looking
	remote  *remote
	table   sqlfence.Protection
	columns []string
	act     fence.Act
}

func (a *app) fenceProtectCommand() *cobra.Command {
	p := &protecting{app: a, look: looking{op: "fence protect"}}
	cmd := &cobra.Command{
		Use: "protect DSN TABLE --resource 'doc/{id}'", Short: "close a table to writers that bypass the fence", Long: protectLong,
		Args:    want("DSN (sqlite:PATH or postgres://…)", "TABLE"),
		Example: "  lastword fence protect sqlite:app.db doc --resource 'doc/{id}'\n  lastword fence protect postgres://app@db/shop shop.orders --resource 'order/{tenant}/{nr}' --columns state,result --shadow",
	}
	f := cmd.Flags()
	f.StringVar(&p.table.Template, "resource", "", "`TEMPLATE` of the rows' resources, columns in braces (required for a table that is not protected yet)")
	f.StringSliceVar(&p.columns, "columns", nil, "protect only these `COLUMNS`")
	f.BoolVar(&p.table.Shadow, "shadow", false, "count what would be refused, and let it pass, until fence enforce")
	f.Var(&idFlag{"domain", &p.table.Domain}, "domain", "of the authority whose fences count (default: the authority is asked)")
	ownActFlags(cmd, &p.act)
	p.remote = a.remoteFlags(cmd)
	p.remote.timeout = fenceTimeout
	f.Lookup("timeout").DefValue, f.Lookup("timeout").Usage = fenceTimeout.String(), "how long the command may take"
	p.look.timeout = &p.remote.timeout
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.table.Table, p.table.Columns, p.act.At = args[1], p.columns, time.Now()
		return p.look.change(cmd, args[0], "", func(ctx context.Context, _ *guarded, place *sqlfence.Place) error {
			return p.run(ctx, cmd, place)
		})
	}
	return cmd
}

// ownActFlags are those of an act that takes nothing away: it needs no reason.
func ownActFlags(cmd *cobra.Command, act *fence.Act) {
	act.Operator, act.Reason = whoever(), "lastword "+strings.TrimPrefix(cmd.Name(), "lastword ")
	cmd.Flags().Var(&idFlag{"operator", &act.Operator}, "operator", "who you are; kept in the database")
	cmd.Flags().Var(&idFlag{"reason", &act.Reason}, "reason", "why; kept in the database")
	cmd.Flags().Lookup("operator").DefValue, cmd.Flags().Lookup("reason").DefValue = "", ""
}

// whoever is the user of this process, for people.
func whoever() string {
	name := fmt.Sprint("uid ", os.Getuid())
	if u, err := user.Current(); err == nil && lastword.CheckID("operator", u.Username) == nil {
		name = u.Username
	}
	return name
}

func (p *protecting) run(ctx context.Context, cmd *cobra.Command, place *sqlfence.Place) error {
	known, err := place.Protected(ctx)
	if err != nil {
		return err
	}
	for _, t := range known {
		if t.Table != p.table.Table && t.Table != "public."+p.table.Table {
			continue
		}
		if p.table.Template == "" {
			p.table.Template = t.Template
			if len(p.table.Columns) == 0 {
				p.table.Columns = t.Columns
			}
		}
		if p.table.Domain == "" {
			p.table.Domain = t.Domain
		}
	}
	if p.table.Template == "" {
		return usage(cmd, "no --resource TEMPLATE given")
	}
	if p.table.Domain == "" {
		if p.table.Domain, err = p.domain(ctx, cmd); err != nil {
			return err
		}
	}
	lost, err := place.Protect(ctx, p.table, p.act)
	if err != nil {
		return err
	}
	if known, err = place.Protected(ctx); err != nil {
		return err
	}
	name := p.table.Table
	for _, t := range known {
		if t.Template == p.table.Template && strings.HasSuffix(t.Table, strings.Trim(name, `"`)) {
			name = t.Table
		}
	}
	mode, gone := enforced, ""
	if p.table.Shadow {
		mode = inShadow + ": what would be refused passes and is counted, until 'lastword fence enforce'"
	}
	if lost > 0 {
		gone = fmt.Sprintf("%d rows belong to no resource, since a column of the template is NULL or has a slash: nobody can change them any more", lost)
	}
	return told(p.app.answer(struct {
		Protected   bool     `json:"protected"`
		Table       string   `json:"table"`
		Domain      string   `json:"domain"`
		Template    string   `json:"template"`
		Columns     []string `json:"columns"`
		Shadow      bool     `json:"shadow"`
		Unreachable int64    `json:"unreachable,string"`
	}{true, name, p.table.Domain, p.table.Template, append([]string{}, p.table.Columns...), p.table.Shadow, lost},
		row{"protected", name}, row{"resource", p.table.Template}, row{"columns", strings.Join(p.table.Columns, ", ")}, row{"domain", p.table.Domain},
		row{"mode", mode}, row{"rows", gone}, row{"not closed", notClosed(place)}), "fence protect: %s is protected", name)
}

// notClosed is what no trigger closes.
func notClosed(place *sqlfence.Place) string {
	if strings.HasPrefix(place.Name(), "sqlite:") {
		return "whoever may write to the file can drop the triggers, or open it with triggers off"
	}
	return "the table's owner and superusers can drop or disable the triggers"
}

// domain asks the authority.
func (p *protecting) domain(ctx context.Context, cmd *cobra.Command) (string, error) {
	c, err := p.app.dial(cmd, p.remote)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	b, err := grant.FetchBundle(c.Bundle).Bundle(ctx, false)
	if err != nil {
		return "", usage(cmd, "name the domain of the fences with --domain, or the authority with --authority: %s", reason(p.remote.unreached(err)))
	}
	return b.Domain(), nil
}

const unprotectLong = `Opens TABLE for a migration: its triggers are removed. While it is open nothing is admitted
through the fence at this database, so a superseded worker gains nothing by it; stop the
programs that write past the fence yourself. 'lastword fence protect DSN TABLE' closes it
again, for the table as it is then. Who, why and when are kept.

Adding a column, an index or a constraint needs none of this. What rewrites rows does
(UPDATE, a table that is copied and renamed), and on SQLite a new unique index asks for
'lastword fence protect' afterwards.

A table that does not exist any more is taken from the list.`

func (a *app) fenceUnprotectCommand() *cobra.Command {
	var act fence.Act
	l := &looking{op: "fence unprotect"}
	cmd := &cobra.Command{
		Use: "unprotect DSN TABLE --operator WHO --reason TEXT", Short: "open a protected table for a migration", Long: unprotectLong,
		Args:    want("DSN (sqlite:PATH or postgres://…)", "TABLE"),
		Example: "  lastword fence unprotect sqlite:app.db doc --operator anna --reason 'migration 0042'",
	}
	actFlags(cmd, &act)
	l.timeout = timeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkAct(cmd, act); err != nil {
			return err
		}
		act.At = time.Now()
		return l.change(cmd, args[0], "", func(ctx context.Context, _ *guarded, p *sqlfence.Place) error {
			t, gone, err := p.Unprotect(ctx, args[1], act)
			if err != nil {
				return err
			}
			note := "nothing is admitted at this database until 'lastword fence protect DSN " + t.Table + "'"
			if gone {
				note = "the table does not exist any more; it was taken from the list"
			}
			return told(a.answer(struct {
				Open     bool   `json:"open"`
				Table    string `json:"table"`
				Gone     bool   `json:"gone"`
				Operator string `json:"operator"`
			}{!gone, t.Table, gone, act.Operator}, row{"open", t.Table}, row{"operator", act.Operator}, row{"note", note}), "fence unprotect: %s is open", t.Table)
		})
	}
	return cmd
}

const shadowLong = `Begins the roll-out of a resource, or of all whose id begins with PREFIX, which ends with a
slash. Record and receipts are kept as always, but a write that would be refused passes: it
is answered SHADOW(verdict) and counted, and leaves no receipt. A roll-out ends once, with
'lastword fence enforce', and does not begin again.`

func (a *app) fenceShadowCommand() *cobra.Command {
	return a.rolloutCommand("shadow DSN RESOURCE|PREFIX/", "begin a roll-out: count what would be refused", shadowLong, func(ctx context.Context, p *sqlfence.Place, domain, prefix string, act fence.Act) error {
		if err := p.Shadow(ctx, domain, prefix, act); err != nil {
			return err
		}
		return told(a.answer(rolloutJSON{true, domain, prefix, 0}, row{inShadow, prefixText(prefix)}, row{"domain", domain},
			row{"note", "what would be refused passes and is counted, until 'lastword fence enforce'"}), "fence shadow %s: begun", prefix)
	})
}

const enforceLong = `Ends the roll-out of a resource, or of all whose id begins with PREFIX, which ends with a
slash: from then on what would have been refused is. There is no way back. 'lastword fence
status DSN' shows how often each verdict has passed until now; SHADOW(FENCE_REQUIRED) are
writers that bypass the fence.`

func (a *app) fenceEnforceCommand() *cobra.Command {
	return a.rolloutCommand("enforce DSN RESOURCE|PREFIX/", "end a roll-out, for good", enforceLong, func(ctx context.Context, p *sqlfence.Place, domain, prefix string, act fence.Act) error {
		ended, err := p.Enforce(ctx, domain, prefix, act)
		if err != nil {
			return err
		}
		note := ""
		if ended == 0 {
			note = "no roll-out went on there; it was in enforce already"
		}
		return told(a.answer(rolloutJSON{false, domain, prefix, ended}, row{enforced, prefixText(prefix)}, row{"domain", domain}, row{"note", note}),
			"fence enforce %s: in enforce", prefix)
	})
}

type rolloutJSON struct {
	Shadow bool   `json:"shadow"`
	Domain string `json:"domain"`
	Prefix string `json:"prefix"`
	Ended  int    `json:"ended"`
}

func prefixText(prefix string) string {
	switch {
	case prefix == "":
		return "everything"
	case strings.HasSuffix(prefix, "/"):
		return prefix + "…"
	}
	return prefix
}

func (a *app) rolloutCommand(use, short, long string, do func(context.Context, *sqlfence.Place, string, string, fence.Act) error) *cobra.Command {
	var act fence.Act
	l := &looking{op: "fence " + strings.Fields(use)[0]}
	var all bool
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if all {
			return want("DSN (sqlite:PATH or postgres://…)")(cmd, args)
		}
		return want("DSN (sqlite:PATH or postgres://…)", "RESOURCE or PREFIX/ (or --all)")(cmd, args)
	}
	cmd.Flags().BoolVar(&all, "all", false, "every resource of the domain")
	l.flags(cmd)
	actFlags(cmd, &act)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkAct(cmd, act); err != nil {
			return err
		}
		prefix := ""
		if !all {
			prefix = args[1]
		}
		if _, err := lastword.ParseResource(strings.TrimSuffix(prefix, "/")); err != nil && !all {
			return usage(cmd, "%s", reason(err))
		}
		act.At = time.Now()
		return l.change(cmd, args[0], "", func(ctx context.Context, _ *guarded, p *sqlfence.Place) error {
			domain, err := rolloutDomain(ctx, cmd, p, l.domain)
			if err != nil {
				return err
			}
			return do(ctx, p, domain, prefix, act)
		})
	}
	return cmd
}

// rolloutDomain is the domain that was named, or the only one that the database knows of.
func rolloutDomain(ctx context.Context, cmd *cobra.Command, p *sqlfence.Place, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	var all []string
	tables, err := p.Protected(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range tables {
		all = append(all, t.Domain)
	}
	rollouts, err := p.Rollouts(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range rollouts {
		all = append(all, r.Domain)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != 1 {
		return "", usage(cmd, "choose the domain with --domain; the database knows of %q", all)
	}
	return all[0], nil
}

type tableJSON struct {
	Table    string   `json:"table"`
	Domain   string   `json:"domain"`
	Template string   `json:"template"`
	Columns  []string `json:"columns"`
	Open     bool     `json:"open"`
	Closed   bool     `json:"closed"`
	Faults   []string `json:"faults"`
	Since    string   `json:"since"`
}

type refusedJSON struct {
	Domain    string           `json:"domain"`
	Verdict   lastword.Verdict `json:"verdict"`
	Times     uint64           `json:"times,string"`
	Resources uint64           `json:"resources,string"`
	Estimated bool             `json:"estimated"`
}

// fenceTables is fence status without a resource.
func (a *app) fenceTables(cmd *cobra.Command, l *looking, dsn string) error {
	return l.whole(cmd, dsn, func(ctx context.Context, p *sqlfence.Place) (func() error, error) {
		tables, err1 := p.Protected(ctx)
		rollouts, err2 := p.Rollouts(ctx)
		counts, err3 := p.Refusals(ctx)
		for _, err := range []error{err1, err2, err3} {
			if err != nil {
				return nil, err
			}
		}
		return func() error { return a.showTables(tables, rollouts, counts) }, nil
	})
}

func (a *app) showTables(tables []sqlfence.Protected, rollouts []sqlfence.Rollout, counts []sqlfence.Refused) error {
	out := struct {
		Tables   []tableJSON   `json:"tables"`
		Rollouts []rolloutJSON `json:"rollouts"`
		Counted  []refusedJSON `json:"counted"`
	}{[]tableJSON{}, []rolloutJSON{}, []refusedJSON{}}
	var rows []row
	bad := false
	for _, t := range tables {
		out.Tables = append(out.Tables, tableJSON{t.Table, t.Domain, t.Template, append([]string{}, t.Columns...), t.Open, !t.Open && len(t.Faults) == 0, append([]string{}, t.Faults...), t.Since.UTC().Format(time.RFC3339)})
		text := t.Table + " as " + t.Template
		if len(t.Columns) > 0 {
			text += " (" + strings.Join(t.Columns, ", ") + ")"
		}
		switch {
		case t.Open:
			text, bad = text+": OPEN for a migration; nothing is admitted", true
		case len(t.Faults) > 0:
			text, bad = text+": NOT CLOSED: "+strings.Join(t.Faults, "; "), true
		default:
			text += ": closed"
		}
		rows = append(rows, row{"table", text})
	}
	if len(tables) == 0 {
		rows = append(rows, row{"tables", "none is protected"})
	}
	for _, r := range rollouts {
		out.Rollouts = append(out.Rollouts, rolloutJSON{Shadow: r.Shadow, Domain: r.Domain, Prefix: r.Prefix})
		mode := enforced
		if r.Shadow {
			mode = inShadow
		}
		rows = append(rows, row{mode, prefixText(r.Prefix)})
	}
	for _, c := range counts {
		out.Counted = append(out.Counted, refusedJSON{c.Domain, c.Verdict, c.Times, c.Resources, c.Estimated})
		text := fmt.Sprintf("%d %s at %d resources", c.Times, c.Verdict, c.Resources)
		if c.Estimated {
			text = "about " + text + " or more: one of a hundred is kept"
		}
		rows = append(rows, row{"counted", text})
	}
	if err := a.answer(out, rows...); err != nil {
		return err
	}
	if bad {
		return quietly{exitFailed}
	}
	return nil
}

// whole opens the database to look at all of it.
func (l *looking) whole(cmd *cobra.Command, dsn string, read func(context.Context, *sqlfence.Place) (func() error, error)) error {
	path, err := databasePath(cmd, dsn)
	if err != nil {
		return err
	}
	if _, err := lookAt(l.op, path, false); err != nil {
		return named(err, l.op, "")
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), *l.timeout)
	defer cancel()
	g, err := openToLook(path)
	if err != nil {
		return named(err, l.op, "")
	}
	defer g.close()
	place, err := sqlfence.OpenPlace(ctx, g.db, "")
	if err != nil {
		return named(err, l.op, "")
	}
	defer func() { _ = place.Close() }()
	show, err := read(ctx, place)
	if err == nil {
		err = g.unchanged()
	}
	if err != nil {
		return l.told(err, "")
	}
	return show()
}
