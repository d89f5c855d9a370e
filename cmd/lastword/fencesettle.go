package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

// registration is a command that registers the fence of a grant: fence advance and fence
// resolve.
func (a *app) registration(use, short, long string, do func(p *application, ctx context.Context, f *sqlfence.Fence, c fence.Call) error) *cobra.Command {
	p := &application{app: a, mode: string(fence.Query)}
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: want("DSN (sqlite:PATH or postgres://…)", "RESOURCE")}
	f := cmd.Flags()
	f.StringVar(&p.path, "grant", "", "`FILE` that acquire made (required)")
	f.Var(&choiceFlag{&p.mode, []string{string(fence.Query), string(fence.FenceOnly)}}, "status-mode", "query or fence-only")
	f.StringVar(&p.bundle, "bundle", "", "trust bundle `FILE`, offline; needs --status-mode fence-only")
	p.remote = a.remoteFlags(cmd)
	p.remote.timeout = fenceTimeout
	f.Lookup("timeout").DefValue, f.Lookup("timeout").Usage = fenceTimeout.String(), "how long the command may take"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.cmd = cmd
		return p.register(cmd.Context(), args, do)
	}
	return cmd
}

func (p *application) register(ctx context.Context, args []string, do func(*application, context.Context, *sqlfence.Fence, fence.Call) error) error {
	path, err := databasePath(p.cmd, args[0])
	if err != nil {
		return err
	}
	if p.resource, err = resource(p.cmd, args[1]); err != nil {
		return err
	}
	switch {
	case p.path == "":
		return usage(p.cmd, "no --grant FILE given")
	case p.bundle != "" && p.mode != string(fence.FenceOnly):
		return usage(p.cmd, "--bundle asks nobody whether the lease is held: it needs --status-mode fence-only")
	}
	held, err := readGrantFile(p.cmd.Name(), p.path)
	if err != nil {
		return named(err, p.cmd.Name(), p.resource)
	}
	if _, err := lookAt(p.cmd.Name(), path, false); err != nil {
		return named(err, p.cmd.Name(), p.resource)
	}
	ctx, cancel := context.WithTimeout(ctx, p.remote.timeout)
	defer cancel()
	cfg, done, err := p.trust(ctx)
	if err != nil {
		return err
	}
	defer done()
	db, err := openDatabase(path, true, true)
	if err != nil {
		return named(err, p.cmd.Name(), p.resource)
	}
	defer db.close()
	f, err := sqlfence.New(ctx, db.db, sqlfence.Config{Config: cfg})
	if err != nil {
		return named(err, p.cmd.Name(), p.resource)
	}
	defer func() { _ = f.Close() }()
	if err := do(p, ctx, f, fence.Call{Resource: p.resource, Mutation: lastword.Mutation{Grant: held.Grant()}}); err != nil {
		return p.refused(err)
	}
	return nil
}

func (a *app) fenceAdvanceCommand() *cobra.Command {
	return a.registration("advance DSN RESOURCE --grant FILE", "register a fence without a write", `Registers the fence of the grant at RESOURCE, so that from then on nothing older is
admitted. It writes nothing else. A tenure that is still PENDING may do so.`,
		func(p *application, ctx context.Context, f *sqlfence.Fence, c fence.Call) error {
			rec, err := fence.Advance(ctx, f.Gate(), f.Place(), c)
			if err != nil {
				return err
			}
			return told(p.app.answer(struct {
				Registered bool   `json:"registered"`
				Resource   string `json:"resource"`
				Fence      uint64 `json:"fence,string"`
				LeaseID    string `json:"lease_id"`
			}{true, string(p.resource), uint64(rec.Fence), rec.LeaseID}, row{"registered", string(p.resource)}, row{"fence", fenceText(rec.Fence)},
				row{"note", "nothing older is admitted any more"}), "fence advance %s: registered fence %s", p.resource, rec.Fence.Text())
		})
}

const resolveLong = `Settles a write whose outcome is not known (MUTATION_UNKNOWN): it registers the fence of
the grant at RESOURCE, after which an attempt that is still under way can only end as
STALE_OWNER, and then looks for the receipt.

Exit code 0: the write had its effect, and this is its receipt. Exit code 1: it had none
and never will have; do it again under this grant, with the same operation id. Exit code
124 with RECEIPT_EXPIRED: it may have had it, its receipt was pruned or lost with a restore,
and a person decides. After every other exit code the outcome is as open as before.`

func (a *app) fenceResolveCommand() *cobra.Command {
	var operation string
	cmd := a.registration("resolve DSN RESOURCE --op ID --grant FILE", "settle a write whose outcome is not known", resolveLong,
		func(p *application, ctx context.Context, f *sqlfence.Fence, c fence.Call) error {
			if operation == "" {
				return usage(p.cmd, "no --op ID given")
			}
			p.operation = operation
			r, found, err := fence.Resolve(ctx, f.Gate(), f.Place(), c, operation)
			switch {
			case err != nil:
				return err
			case found:
				return a.showReceipt(r, true)
			}
			if err := a.answer(struct {
				Found     bool   `json:"found"`
				Absent    bool   `json:"absent"`
				Resource  string `json:"resource"`
				Operation string `json:"operation"`
			}{false, true, string(p.resource), operation}, row{"absent", operation}, row{"resource", string(p.resource)},
				row{"note", "it had no effect and never will have: do it again under this grant, with the same operation id"}); err != nil {
				return err
			}
			return quietly{exitFailed}
		})
	cmd.Flags().Var(&idFlag{"operation", &operation}, "op", "operation id (required)")
	return cmd
}

const pruneLong = `Removes receipts of RESOURCE that are older than --older-than, which has to be longer than
every retry window: of clients, of a queue that delivers again, of a disaster recovery, of
people who enter something again. What was pruned answers RECEIPT_EXPIRED for ever: a
tombstone stays.

--time-bound leaves out the tombstone of an operation whose id carries its issue time
(UUIDv7, ULID). Instead every operation that was issued before the newest of those, and
has no receipt, is RECEIPT_EXPIRED from then on, also one that was never applied.

The receipt of the last write stays.`

func (a *app) fencePruneCommand() *cobra.Command {
	var age time.Duration
	var bound bool
	l := &looking{op: "fence prune"}
	cmd := &cobra.Command{
		Use: "prune DSN RESOURCE --older-than DURATION [--time-bound]", Short: "remove old receipts", Long: pruneLong,
		Args:    want("DSN (sqlite:PATH or postgres://…)", "RESOURCE"),
		Example: "  lastword fence prune sqlite:app.db doc/a --older-than 2160h",
	}
	cmd.Flags().Var(&durationFlag{value: &age, least: time.Second, most: 100 * 366 * 24 * time.Hour}, "older-than", "how old a receipt is that may go (required)")
	cmd.Flags().Lookup("older-than").DefValue = ""
	cmd.Flags().BoolVar(&bound, "time-bound", false, "no tombstone for an operation whose id carries its issue time")
	l.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if age == 0 {
			return usage(cmd, "no --older-than DURATION given")
		}
		res, err := resource(cmd, args[1])
		if err != nil {
			return err
		}
		return l.change(cmd, args[0], res, func(ctx context.Context, g *guarded, p *sqlfence.Place) error {
			domain, err := g.domainOf(cmd, p, res, l.domain)
			if err != nil {
				return err
			}
			now := time.Now()
			n, err := p.Prune(ctx, fence.Key{Domain: domain, Resource: res}, fence.Retention{Before: now.Add(-age), TimeBound: bound, At: now})
			if err != nil {
				return err
			}
			return told(a.answer(struct {
				Pruned   int    `json:"pruned"`
				Domain   string `json:"domain"`
				Resource string `json:"resource"`
			}{n, domain, string(res)}, row{"pruned", number(n)}, row{"resource", string(res)}), "fence prune %s: %d receipts", res, n)
		})
	}
	return cmd
}

func (a *app) fenceQuarantineCommand() *cobra.Command {
	var claimant string
	var dismiss bool
	var act fence.Act
	l := &looking{op: "fence quarantine"}
	cmd := &cobra.Command{
		Use: "quarantine DSN RESOURCE [--dismiss --operator WHO --reason TEXT]", Short: "what was refused with CONFLICT, for people to look at",
		Args: want("DSN (sqlite:PATH or postgres://…)", "RESOURCE"),
		Long: `Shows what was refused at RESOURCE with CONFLICT: of each owner the first and the last
operation, with the beginning of its content. --dismiss removes it, of one owner (--owner)
or of all, once it was looked at; who, why and when stay in the database.`,
	}
	cmd.Flags().BoolVar(&dismiss, "dismiss", false, "remove it")
	cmd.Flags().Var(&idFlag{"owner", &claimant}, "owner", "with --dismiss, only what this owner has left")
	cmd.Flags().Var(&idFlag{"operator", &act.Operator}, "operator", "with --dismiss: who you are; kept in the database")
	cmd.Flags().Var(&idFlag{"reason", &act.Reason}, "reason", "with --dismiss: why; kept in the database")
	l.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !dismiss {
			return l.at(cmd, args, func(ctx context.Context, p *sqlfence.Place, key fence.Key) (func() error, error) {
				seen, err := p.Inspect(ctx, key)
				return func() error { return a.showQuarantine(key, seen.Quarantine) }, err
			})
		}
		if err := checkAct(cmd, act); err != nil {
			return err
		}
		res, err := resource(cmd, args[1])
		if err != nil {
			return err
		}
		return l.change(cmd, args[0], res, func(ctx context.Context, g *guarded, p *sqlfence.Place) error {
			domain, err := g.domainOf(cmd, p, res, l.domain)
			if err != nil {
				return err
			}
			act.At = time.Now()
			n, err := p.Dismiss(ctx, fence.Key{Domain: domain, Resource: res}, claimant, act)
			if err != nil {
				return err
			}
			return told(a.answer(struct {
				Dismissed int64  `json:"dismissed"`
				Domain    string `json:"domain"`
				Resource  string `json:"resource"`
				Operator  string `json:"operator"`
			}{n, domain, string(res), act.Operator}, row{"dismissed", number(int(n))}, row{"resource", string(res)}, row{"operator", act.Operator}),
				"fence quarantine %s: dismissed %d", res, n)
		})
	}
	return cmd
}

// keptJSON is one refused operation with what is kept of its content.
type keptJSON struct {
	quarantineJSON
	Seq     uint64 `json:"seq,string"`
	Content []byte `json:"content"`
}

func (a *app) showQuarantine(key fence.Key, all []fence.Evidence) error {
	out := struct {
		Domain     string     `json:"domain"`
		Resource   string     `json:"resource"`
		Quarantine []keptJSON `json:"quarantine"`
	}{key.Domain, string(key.Resource), []keptJSON{}}
	rows := []row{{"resource", string(key.Resource)}, {"domain", key.Domain}}
	for _, e := range all {
		k := keptJSON{quarantineJSON: quarantineJSON{Owner: e.Claimant, Fence: uint64(e.Fence), Verdict: string(e.Verdict), Why: e.Why, At: e.At.UTC().Format(time.RFC3339)}}
		if q := e.Quarantine; q != nil {
			k.Operation, k.Payload, k.Seq, k.Content = q.Operation, q.Payload.String(), q.Seq, q.Content
		}
		out.Quarantine = append(out.Quarantine, k)
		rows = append(rows, row{k.Owner, k.Operation + ", " + string(e.Verdict) + " " + e.Why + ", " + k.At}, row{"content", clip(quoted(string(k.Content)))})
	}
	if len(all) == 0 {
		rows = append(rows, row{"quarantine", "empty"})
	}
	return a.answer(out, rows...)
}
