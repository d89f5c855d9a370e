package main

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/fencesql"
)

const applyLong = `Makes one fenced write: the check of the grant, the statements and the receipt are one
transaction of the database. A refusal changes nothing and has exit code 124, with the
verdict (STALE_OWNER, CONFLICT, …) in its line. Repeated with the same operation id
and the same statements it runs nothing and answers REPLAYED, exit code 0.

--sql may be given several times; each text may hold several statements, and all run
in order or none. They cannot begin or end a transaction, attach files, set pragmas or
change the fence's own tables. What the receipt calls payload is the sha256 of the
texts, divided by zero bytes: of one text, of exactly its bytes.

Whom to believe comes from the authority (--authority), which is also asked whether
the lease is still held, before the write. --proof FILE brings the answer along instead,
a status proof that 'lastword status --proof' made, and is the status mode proof: it
compares the clock of this host with the authority's, which must not be further apart than
--proof-skew, and an expired or older proof than the record has seen is refused. A record
that is in mode query asks all the same. --status-mode fence-only leaves the question out.

--bundle FILE takes the trust bundle from a file and asks nobody; it needs --proof or
fence-only. With the latter a write of a lease that has lapsed or was revoked is admitted
until a newer fence has reached the record. A bundle file older than twice its refresh
hint is refused (exit code 123), because it cannot tell what was revoked since; 'lastword
keys export --every' keeps one fresh, --bundle-max-age admits an older one. A bundle that
is older than one that was brought to the database before is refused whatever its age. A
record's status mode is never loosened.

Exit code 123 leaves open whether it was written: run it again with the same operation and
statements, and a new proof where there was one.`

// application is one fence apply.
type application struct {
	app       *app
	cmd       *cobra.Command
	remote    *remote
	path      string // of the grant file
	bundle    string
	maxAge    time.Duration // of the bundle file, 0 for what the bundle says
	operation string
	texts     []string
	seq       uint64
	policy    string
	mode      string
	proof     string        // file of the status proof
	skew      time.Duration // that is admitted with it, 0 for the gate's default
	resource  lastword.Resource
}

func (a *app) fenceApplyCommand() *cobra.Command {
	p := &application{app: a, mode: string(fence.Query)}
	cmd := &cobra.Command{
		Use: "apply DSN RESOURCE --grant FILE --op ID --sql STATEMENT", Short: "one fenced write", Long: applyLong,
		Args:    want("DSN (sqlite:PATH or postgres://…)", "RESOURCE"),
		Example: "  lastword fence apply sqlite:app.db doc/a --grant a.grant --op settle-4711 --sql \"UPDATE doc SET body = 'new' WHERE id = 'a'\"",
	}
	f := cmd.Flags()
	f.StringVar(&p.path, "grant", "", "`FILE` that acquire made (required)")
	f.Var(&idFlag{"operation", &p.operation}, "op", "operation id: the business intent, the same for every retry (required)")
	f.StringArrayVar(&p.texts, "sql", nil, "`STATEMENT` to run (required, repeatable)")
	f.Var(&seqFlag{&p.seq}, "seq", "number of the write inside the tenure (default: the record's next one)")
	f.Var(&choiceFlag{&p.policy, []string{string(fence.Ordered), string(fence.Latest), string(fence.Once)}}, "policy",
		"order rule: ordered, latest or once (default: the record's, ordered for a new one)")
	f.Var(&choiceFlag{&p.mode, []string{string(fence.Query), string(fence.Proof), string(fence.FenceOnly)}}, "status-mode", "query, proof or fence-only")
	f.StringVar(&p.proof, "proof", "", "`FILE` that status --proof made; --status-mode proof")
	f.Var(&durationFlag{value: &p.skew, least: time.Millisecond, most: grant.MaxStatusLife}, "proof-skew", "how far this host's clock and the authority's can be apart (default: 2s)")
	f.Lookup("proof-skew").DefValue = ""
	f.StringVar(&p.bundle, "bundle", "", "trust bundle `FILE`, offline; needs --proof or --status-mode fence-only")
	f.Var(&durationFlag{value: &p.maxAge, least: time.Second, most: 366 * 24 * time.Hour}, "bundle-max-age", "how old the bundle file may be (default: twice its refresh hint)")
	f.Lookup("bundle-max-age").DefValue = ""
	p.remote = a.remoteFlags(cmd)
	p.remote.timeout = fenceTimeout
	f.Lookup("timeout").DefValue, f.Lookup("timeout").Usage = fenceTimeout.String(), "how long the command may take"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.cmd = cmd
		return p.run(cmd.Context(), args)
	}
	return cmd
}

func (p *application) check() error {
	flags := p.cmd.Flags()
	if flags.Changed("proof") && !flags.Changed("status-mode") {
		p.mode = string(fence.Proof)
	}
	switch {
	case p.path == "":
		return usage(p.cmd, "no --grant FILE given")
	case p.operation == "":
		return usage(p.cmd, "no --op ID given")
	case len(p.texts) == 0:
		return usage(p.cmd, "no --sql STATEMENT given")
	case flags.Changed("proof") && p.mode != string(fence.Proof):
		return usage(p.cmd, "--proof is of --status-mode proof, not of %s", p.mode)
	case flags.Changed("proof") && p.proof == "":
		return usage(p.cmd, "--proof names no file")
	case p.skew != 0 && p.proof == "":
		return usage(p.cmd, "--proof-skew is of a --proof FILE")
	case p.bundle != "" && p.proof == "" && p.mode != string(fence.FenceOnly):
		return usage(p.cmd, "--bundle asks nobody whether the lease is held: it needs --proof FILE or --status-mode fence-only")
	case p.maxAge != 0 && p.bundle == "":
		return usage(p.cmd, "--bundle-max-age is of a --bundle FILE")
	case p.bundle != "" && flags.Changed("authority"):
		return usage(p.cmd, "want --authority or --bundle, not both")
	}
	for i, text := range p.texts {
		if strings.TrimSpace(text) == "" || strings.ContainsRune(text, 0) {
			return usage(p.cmd, "--sql number %d is empty or has a zero byte", i+1)
		}
		if !hasStatement(text) {
			return usage(p.cmd, "--sql number %d has no statement", i+1)
		}
	}
	return nil
}

func (p *application) run(ctx context.Context, args []string) error {
	path, err := databasePath(p.cmd, args[0])
	if err != nil {
		return err
	}
	if p.resource, err = resource(p.cmd, args[1]); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	f, err := readGrantFile("apply", p.path)
	if err != nil {
		return named(err, "apply", p.resource)
	}
	proof := ""
	if p.proof != "" {
		if proof, err = readProof("apply", p.proof); err != nil {
			return named(err, "apply", p.resource)
		}
	}
	if _, err := lookAt("apply", path, false); err != nil {
		return named(err, "apply", p.resource)
	}
	ctx, cancel := context.WithTimeout(ctx, p.remote.timeout)
	defer cancel()
	cfg, done, err := p.trust(ctx)
	if err != nil {
		return err
	}
	defer done()
	receipt, err := p.apply(ctx, path, cfg, lastword.Mutation{Grant: f.Grant(), StatusProof: proof, Seq: p.seq, Operation: p.operation})
	if err != nil {
		return p.refused(err)
	}
	return told(p.app.showReceipt(receipt, false), "apply %s: %s with operation %s and fence %s",
		p.resource, receipt.Verdict, quoted(receipt.Operation), receipt.Fence.Text())
}

// trust says whom the gate believes: the authority, or a bundle in a file.
func (p *application) trust(ctx context.Context) (cfg fence.Config, done func(), err error) {
	cfg = fence.Config{Mode: fence.StatusMode(p.mode), Policy: fence.Policy(p.policy), ProofSkew: p.skew, Rollout: true}
	var source grant.BundleSource
	done = func() {}
	if p.bundle != "" {
		if cfg.Caller, err = p.remote.caller(p.app, p.cmd); err != nil {
			return cfg, done, err
		}
		if source, err = bundleFile(p.bundle, p.maxAge); err != nil {
			return cfg, done, named(err, "apply", p.resource)
		}
	} else {
		c, err := p.app.dial(p.cmd, p.remote)
		if err != nil {
			return cfg, done, err
		}
		done = func() { _ = c.Close() }
		source = grant.FetchBundle(c.Bundle)
		cfg.Status = c // in fence-only mode it is asked about a jump alone
		cfg.Reporter = c
		cfg.Caller = c.Owner()
	}
	b, err := source.Bundle(ctx, false)
	if err == nil {
		cfg.Domain = b.Domain()
		cfg.Verifier, err = grant.NewVerifier(b.Domain(), source, grant.VerifierConfig{})
	}
	if err != nil {
		done()
		return cfg, func() {}, p.remote.unreached(named(err, "apply", p.resource))
	}
	return cfg, done, nil
}

func (p *application) apply(ctx context.Context, path string, cfg fence.Config, m lastword.Mutation) (lastword.Receipt, error) {
	var none lastword.Receipt
	db, err := openDatabase(path, true, true)
	if err != nil {
		return none, err
	}
	defer db.close()
	run := runPostgres
	f, err := sqlfence.New(ctx, db.db, sqlfence.Config{Config: cfg})
	if err != nil {
		return none, named(err, "apply", p.resource)
	}
	defer func() { _ = f.Close() }()
	if !isPostgres(path) {
		guard := &sqlGuard{}
		if err := guard.arm(ctx, db.db); err != nil {
			return none, named(err, "apply", p.resource)
		}
		run = func(ctx context.Context, tx *sql.Tx, texts []string) ([]byte, error) {
			rows, err := guard.run(ctx, tx, texts)
			return rows, fencesql.Contained(err)
		}
	}
	call := fence.Call{Resource: p.resource, Content: []byte(strings.Join(p.texts, "\x00")), Mutation: m}
	return fence.Apply(ctx, f.Gate(), f.Place(), call, func(ctx context.Context, tx *sqlfence.Tx) ([]byte, error) {
		return run(ctx, tx.SQL(), p.texts)
	})
}

// refused prints the verdict of a refusal as the answer it is, before the error.
func (p *application) refused(err error) error {
	e, ok := asError(err)
	if ok && e.Op == opStatement { // what the gate says around it is in it already
		e.Op, e.Resource = "apply", p.resource
		err = e
	}
	if !ok || exitCode(err) != exitRefused || !p.app.json {
		return err
	}
	_ = p.app.object(struct { // the line on stderr has the verdict, too
		Verdict   lastword.Code `json:"verdict"`
		Resource  string        `json:"resource"`
		Operation string        `json:"operation"`
		Fence     uint64        `json:"fence,string"`
	}{e.Code, string(p.resource), p.operation, uint64(e.Fence)})
	return err
}
