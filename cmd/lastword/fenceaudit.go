package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

const compareLong = `Compares what the authority knows with each record of the database, and prints every
disagreement; the exit code is 1 if there is one. It changes nothing.

--tasks is a SELECT on the same database with two columns, resource and fence: a row says
that the work of that tenure is done. If the resource holds an older fence, the result that
the task table tells of is not there.

AUTHORITY_BEHIND: it would grant a number next that is not above what is stored here.
NOT_REACHED: a tenure that is said to have succeeded has never written here. OTHER_TENURE:
one fence, two leases. NOT_CANONICAL: a record with a name that no lease can be on.
RECEIPT_MISSING: of the last write. FROZEN, UNRAISED: the record waits for a person.
NOT_CLOSED: a protected table, of which a trigger is missing.`

type findingJSON struct {
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	Stored   uint64 `json:"stored,string"`
	Claimed  uint64 `json:"claimed,string"`
	Text     string `json:"text"`
}

func (a *app) fenceAuditCommand() *cobra.Command {
	l := &looking{op: "fence audit"}
	var tasks string
	cmd := &cobra.Command{
		Use: "audit DSN [--tasks SELECT]", Short: "compare the authority's view with each record", Long: compareLong,
		Args:    want("DSN (sqlite:PATH or postgres://…)"),
		Example: "  lastword fence audit sqlite:app.db --tasks \"SELECT 'doc/' || id, fence FROM task WHERE state = 'done'\"",
	}
	cmd.Flags().StringVar(&tasks, "tasks", "", "`SELECT` of resource and fence of what is said to be done")
	r := a.remoteFlags(cmd)
	r.timeout = fenceTimeout
	cmd.Flags().Lookup("timeout").DefValue, cmd.Flags().Lookup("timeout").Usage = fenceTimeout.String(), "how long the command may take"
	l.timeout = &r.timeout
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.dial(cmd, r)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return l.change(cmd, args[0], "", func(ctx context.Context, g *guarded, p *sqlfence.Place) error {
			b, err := grant.FetchBundle(c.Bundle).Bundle(ctx, false)
			if err != nil {
				return r.unreached(err)
			}
			claims, err := g.claims(ctx, tasks)
			if err != nil {
				return err
			}
			found, checked, err := fence.Audit(ctx, p, b.Domain(), c, claims)
			if err != nil {
				return r.unreached(err)
			}
			tables, err := p.Protected(ctx)
			if err != nil {
				return err
			}
			return a.showAudit(b.Domain(), checked, found, tables)
		})
	}
	return cmd
}

// claims are the rows of --tasks, read in a transaction that is rolled back.
func (g *guarded) claims(ctx context.Context, query string) (all []fence.Claim, err error) {
	if query == "" {
		return nil, nil
	}
	guard := &sqlGuard{reading: true}
	if !isPostgres(g.path) {
		if err := guard.arm(ctx, g.db); err != nil {
			return nil, err
		}
	}
	bad := func(format string, args ...any) error {
		text := "--tasks: " + fmt.Sprintf(format, args...)
		if guard.refused != "" {
			text = "--tasks: " + guard.refused + " is not admitted"
		}
		return &lastword.Error{Code: lastword.CodeInvalid, Op: "fence audit", Message: text, Hint: "want a SELECT with two columns, resource and fence"}
	}
	tx, err := g.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: isPostgres(g.path)}) // the guard does it on SQLite
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	guard.on = true
	defer func() { guard.on = false }()
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, bad("%v", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	switch columns, err := rows.Columns(); {
	case err != nil:
		return nil, bad("%v", err)
	case len(columns) != 2:
		if !rows.Next() && rows.Err() != nil { // which says more
			return nil, bad("%v", rows.Err())
		}
		return nil, bad("it has %d columns", len(columns))
	}
	for rows.Next() {
		var resource, token any
		if err := rows.Scan(&resource, &token); err != nil {
			return nil, bad("%v", err)
		}
		claim, wrong := claimOf(resource, token)
		if wrong != "" {
			return nil, bad("row %d: %s", len(all)+1, wrong)
		}
		all = append(all, claim)
	}
	if err := rows.Err(); err != nil {
		return nil, bad("%v", err)
	}
	return all, nil
}

// shownResource is a resource as a person may see it: a name that is not canonical in
// quotes, since it may be anything.
func shownResource(name string) string {
	if _, err := lastword.ParseResource(name); err != nil {
		return strconv.Quote(name)
	}
	return name
}

// claimOf reads one row of --tasks, or says what is wrong with it.
func claimOf(resource, token any) (c fence.Claim, wrong string) {
	if text, ok := resource.([]byte); ok {
		resource = string(text)
	}
	name, ok := resource.(string)
	if !ok {
		return c, fmt.Sprintf("the resource is %s, no text", valueText(resource))
	}
	if text, ok := token.([]byte); ok {
		token = string(text)
	}
	n, ok := token.(int64)
	if text, is := token.(string); is { // numeric, say
		read, err := strconv.ParseInt(text, 10, 64)
		n, ok = read, err == nil
	}
	if !ok {
		return c, fmt.Sprintf("the fence of %s is %s, no whole number", quoted(name), valueText(token))
	}
	if _, err := lastword.ParseResource(name); err != nil || !lastword.Token(n).Valid() {
		return c, fmt.Sprintf("%s with fence %d is no tenure", quoted(name), n)
	}
	return fence.Claim{Resource: lastword.Resource(name), Fence: lastword.Token(n), By: "the task table"}, ""
}

// valueText is a value of a database, for a person.
func valueText(v any) string {
	if v == nil {
		return "NULL"
	}
	return clip(quoted(fmt.Sprint(v)))
}

func (a *app) showAudit(domain string, checked int, found []fence.Finding, tables []sqlfence.Protected) error {
	out := struct {
		Domain        string        `json:"domain"`
		Checked       int           `json:"checked"`
		Disagreements []findingJSON `json:"disagreements"`
	}{domain, checked, []findingJSON{}}
	rows := []row{{"checked", fmt.Sprintf("%d resources of domain %s", checked, domain)}}
	add := func(kind, resource, text string, stored, claimed lastword.Token) {
		out.Disagreements = append(out.Disagreements, findingJSON{kind, resource, uint64(stored), uint64(claimed), text})
		rows = append(rows, row{kind, shownResource(resource) + ": " + text})
	}
	for _, f := range found {
		add(string(f.Kind), string(f.Resource), f.Text, f.Stored, f.Claimed)
	}
	for _, t := range tables {
		if t.Open {
			add("NOT_CLOSED", t.Table, "it is open for a migration", 0, 0)
		}
		for _, fault := range t.Faults {
			add("NOT_CLOSED", t.Table, fault, 0, 0)
		}
	}
	if len(out.Disagreements) == 0 {
		rows = append(rows, row{"result", "no disagreement"})
	}
	if err := a.answer(out, rows...); err != nil {
		return err
	}
	if len(out.Disagreements) > 0 {
		return quietly{exitFailed}
	}
	return nil
}
