package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// app is one run of the program.
type app struct {
	env            func(name string) (value string, ok bool)
	environ        []string // what env looks at
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool             // -o json
	signals        <-chan os.Signal // of exec; nil: none
}

const rootLong = `lastword: leases whose fence reaches the write.

An authority grants one holder at a time; the grant carries a number, the fence,
that only grows. A resource refuses what comes with an older fence than it has
seen, so a worker that was paused cannot overwrite its successor.

Exit codes
  0    done
  1    failed, for certain: also REQUEST_CONFLICT, CANCELED, QUOTA, EXHAUSTED
  2    usage: something given is not valid (INVALID); unchanged it fails again
  121  held by another: not acquired
  122  the lease is lost, or not this holder's
  123  authority or resource unreachable, or the outcome is unknown
  124  refused by a fence, or by the regression guard; the verdict is printed
  exec passes on the code of its command, and has 125 to 127 of its own

Environment
  LASTWORD_AUTHORITY  address of the authority (default ` + server.DefaultGRPC + `)
  LASTWORD_TLS_CERT, LASTWORD_TLS_KEY, LASTWORD_TLS_CA, LASTWORD_AUTHORITY_ID,
  LASTWORD_TOKEN_FILE
                      who you are and whom you expect, see 'lastword acquire --help'
  LASTWORD_…          every flag of serve and dev, see 'lastword serve --help'`

// root is the whole command line.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "lastword", Short: "leases whose fence reaches the write", Long: rootLong,
		SilenceErrors: true, SilenceUsage: true, RunE: wantSubcommand, Args: cobra.ArbitraryArgs,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err) })
	root.PersistentFlags().VarP(&outputFlag{json: &a.json}, "output", "o", "text or json: one JSON object, errors as JSON on stderr")
	root.AddCommand(
		a.devCommand(), a.serveCommand(),
		a.acquireCommand(), a.renewCommand(), a.releaseCommand(), a.completeCommand(), a.cancelCommand(), a.statusCommand(),
		a.listCommand(), a.watchCommand(), a.revokeCommand(), a.resumeCommand(),
		a.execCommand(),
		a.backupCommand(), a.restoreCommand(), a.epochCommand(), a.witnessCommand(), a.keysCommand(), a.auditCommand(),
		a.fenceCommand(), a.grantCommand(), a.caCommand(), a.labCommand(), a.benchCommand(),
		a.versionCommand(), a.completionCommand(),
	)
	return root
}

// group is a command that only has subcommands.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: wantSubcommand, Args: cobra.ArbitraryArgs}
	cmd.AddCommand(commands...)
	return cmd
}

func wantSubcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	cmd.SuggestionsMinimumDistance = 2
	known := "want one of " + strings.Join(names, ", ")
	if len(args) == 0 {
		return usage(cmd, "no command: %s", known)
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		known = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage(cmd, "unknown command %q: %s", clip(args[0]), known)
}

// want names the arguments of a command.
func want(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(cmd, "no %s given", names[len(args)])
		case len(args) > len(names):
			return usage(cmd, "unexpected argument %q", clip(args[len(names)]))
		}
		return nil
	}
}

// remote are the flags of every command that talks to an authority.
type remote struct {
	authority string
	timeout   time.Duration
	secured   secured
}

func (a *app) remoteFlags(cmd *cobra.Command) *remote {
	r := &remote{timeout: 5 * time.Second}
	cmd.Flags().StringVar(&r.authority, "authority", "", "`ADDR` of the authority; or LASTWORD_AUTHORITY (default "+server.DefaultGRPC+")")
	cmd.Flags().Var(&durationFlag{value: &r.timeout, least: time.Millisecond, most: time.Hour}, "timeout",
		"how long to wait for an answer")
	r.secured.flags(cmd)
	return r
}

// dial makes a client of the authority that flag, environment or default name.
func (a *app) dial(cmd *cobra.Command, r *remote) (*rpc.Client, error) {
	from := "--authority"
	if !cmd.Flags().Changed("authority") {
		r.authority = server.DefaultGRPC
		if v, ok := a.env("LASTWORD_AUTHORITY"); ok {
			r.authority, from = v, "LASTWORD_AUTHORITY"
		}
	}
	// One by one: a command makes a call or two, and opening a session is one more.
	cfg := rpc.ClientConfig{Timeout: r.timeout, OneByOne: true}
	if err := r.secured.resolve(a, cmd, &cfg); err != nil {
		return nil, err
	}
	c, err := rpc.Dial(r.authority, cfg)
	if err != nil {
		return nil, usage(cmd, "%s: %s", from, reason(err))
	}
	return c, nil
}

// caller is who a command is that calls no authority: the identity of its certificate or
// token, "" without one.
func (r *remote) caller(a *app, cmd *cobra.Command) (string, error) {
	var cfg rpc.ClientConfig
	if err := r.secured.resolve(a, cmd, &cfg); err != nil {
		return "", err
	}
	if cfg.Identity != nil {
		return cfg.Identity.ID(), nil
	}
	return cfg.Token.Name(), nil
}

// resource reads the argument RESOURCE.
func resource(cmd *cobra.Command, arg string) (lastword.Resource, error) {
	r, err := lastword.ParseResource(arg)
	if err != nil {
		return "", usage(cmd, "%s", reason(err))
	}
	return r, nil
}

// afterwards is a context for what has to be done although ctx may have ended.
func (r *remote) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
}

func clip(s string) string {
	const most = 64
	if s = harmless(s); len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// named gives err operation and resource, if it has none.
func named(err error, op string, r lastword.Resource) error {
	e, ok := asError(err)
	if err == nil {
		return nil
	}
	if !ok {
		return fmt.Errorf("%s: %w", strings.TrimSpace(op+" "+string(r)), err)
	}
	if e.Op != "" && e.Resource != "" {
		return err
	}
	out := *e
	out.Op, out.Resource = op, r
	return &out
}
