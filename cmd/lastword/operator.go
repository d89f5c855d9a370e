package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/server"
)

// operating is a command of an operator at the files of an authority.
type operating struct {
	app *app
	cmd *cobra.Command
	server.Operator
	yes bool
	// ringOnly: the key file alone may say which authority's ring it is.
	ringOnly bool
}

// placeFlags are the flags that say where the files are.
func (a *app) placeFlags(cmd *cobra.Command) *operating {
	o := &operating{app: a, cmd: cmd}
	f := cmd.Flags()
	f.StringVar(&o.Store, "store", "", "sqlite:`PATH`, as serve has it; or LASTWORD_STORE (required)")
	f.StringVar(&o.Audit, "audit", "", "audit log `FILE` (default: the store's path with .audit); or LASTWORD_AUDIT")
	return o
}

// operatorFlags are those of a command that is kept in the audit log.
func (a *app) operatorFlags(cmd *cobra.Command) *operating {
	o := a.placeFlags(cmd)
	cmd.Flags().Var(&idFlag{"operator", &o.Name}, "operator", "who you are, for the audit log (default: user and host)")
	cmd.Flags().Var(&idFlag{"reason", &o.Reason}, "reason", "why, for the audit log (required)")
	return o
}

func (o *operating) domainFlag() {
	o.cmd.Flags().Var(&idFlag{"domain", &o.Domain}, "domain", "of the authority, where the store is empty; or LASTWORD_DOMAIN")
}

func (o *operating) witnessFlag(what string) {
	o.cmd.Flags().StringVar(&o.Witness, "witness", "", what+": file:`PATH` or sqlite:PATH; or LASTWORD_WITNESS (default: the store's path with .witness)")
}

func (o *operating) keyFlag() {
	o.cmd.Flags().StringVar(&o.KeyFile, "key", "", "signing key `FILE`, as serve has it; or LASTWORD_KEY (default: the store's path with .key)")
}

func (o *operating) yesFlag() {
	o.cmd.Flags().BoolVar(&o.yes, "yes", false, "do it without asking")
}

// resolve takes what was not given from the environment, and refuses what is missing.
func (o *operating) resolve() error {
	for name, value := range map[string]*string{
		"store": &o.Store, "audit": &o.Audit, "witness": &o.Witness, "key": &o.KeyFile, "domain": &o.Domain,
	} {
		if f := o.cmd.Flags().Lookup(name); f != nil && !f.Changed {
			if v, ok := o.app.env("LASTWORD_" + strings.ToUpper(name)); ok {
				*value = v
			}
		}
	}
	reads := o.cmd.Flags().Lookup("reason") == nil
	if base, usual := strings.CutSuffix(o.KeyFile, ".key"); o.Store == "" && o.KeyFile != "" && (usual || reads) {
		if !usual {
			base += ".store"
		}
		o.Store = "sqlite:" + base // of which nothing is read
	}
	switch f := o.cmd.Flags(); {
	case o.Store == "" && o.KeyFile == "" && o.ringOnly:
		return usage(o.cmd, "no --store sqlite:PATH or --key FILE given")
	case o.Store == "":
		return usage(o.cmd, "no --store sqlite:PATH given")
	case f.Lookup("reason") == nil:
		return nil
	case o.Reason == "":
		return usage(o.cmd, "no --reason TEXT given")
	case o.Name == "":
		o.Name = whoami()
	}
	o.Logger = slog.New(slog.DiscardHandler)
	return nil
}

// whoami is user and host. It proves nothing.
func whoami() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	who := name + "@" + host
	if lastword.CheckID("operator", who) != nil {
		return "unknown"
	}
	return who
}

// confirm asks whether to go on, on a terminal; elsewhere --yes has to say so.
func (o *operating) confirm(ctx context.Context, question string) error {
	if o.yes {
		return nil
	}
	if !askable(o.app.stdin) {
		return usage(o.cmd, "%s; confirm with --yes", question)
	}
	if _, err := fmt.Fprintf(o.app.stderr, "%s.\nGo on? Type yes: ", question); err != nil {
		return err
	}
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(o.app.stdin).ReadString('\n') // what is no answer is no yes
		answered <- strings.TrimSpace(line)
	}()
	select {
	case answer := <-answered:
		if answer == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return &lastword.Error{Code: lastword.CodeCanceled, Message: "it was not confirmed, and nothing was done"}
}

// askable reports whether somebody can be asked: /dev/null is no terminal.
func askable(in any) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}
