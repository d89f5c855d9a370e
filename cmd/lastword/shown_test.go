package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// password is what must not be seen.
const password = "sup3rs3cret"

// oddDSNs have a password in whatever place, and are understood or not.
var oddDSNs = []string{
	"mysql://u:sup3rs3cret@127.0.0.1:1/d", "pg://u:sup3rs3cret@127.0.0.1:1/d", "://u:sup3rs3cret@127.0.0.1:1/d",
	"POSTGRES://u:sup3rs3cret@127.0.0.1:1/d", "PostgreSQL://u:sup3rs3cret@127.0.0.1:1/d?password=sup3rs3cret",
	"postgres://u:sup3rs3cret@127.0.0.1:1/d", "postgres://u@127.0.0.1:1/d?sslpassword=sup3rs3cret&pwd=sup3rs3cret",
	"postgres://u:12#sup3rs3cret@127.0.0.1:1/d", "postgres://u:12/sup3rs3cret@127.0.0.1:1/d", "postgres://u:1?sup3rs3cret@127.0.0.1:1/d",
	"postgres://u:%zzsup3rs3cret@127.0.0.1:1/d", "postgres://u:a sup3rs3cret@127.0.0.1:1/d", "postgres://127.0.0.1:1/d#sup3rs3cret",
	"postgres//u:sup3rs3cret@127.0.0.1:1/d", "postgres:/u:sup3rs3cret@127.0.0.1:1/d", "postgres:u:sup3rs3cret@127.0.0.1:1/d",
	"host=127.0.0.1 port=1 user=u password=sup3rs3cret dbname=d", "host=127.0.0.1 password = 'a sup3rs3cret'", "u:sup3rs3cret@127.0.0.1:1/d",
	"sqlite://u:sup3rs3cret@127.0.0.1:1/d", "sqlite:app.db?_auth_pass=sup3rs3cret", "SQLITE:app.db?key=sup3rs3cret",
}

func TestADatabaseIsNeverShownWithItsPassword(t *testing.T) {
	for _, dsn := range oddDSNs {
		if got := shown(dsn); strings.Contains(got, password) {
			t.Errorf("shown(%q) = %q", dsn, got)
		}
	}
	for dsn, want := range map[string]string{
		"app.db": "app.db", "/var/lib/app.db": "/var/lib/app.db", "sqlite:app.db": "sqlite:app.db", "sqlite:/var/lib/a@b.db": "sqlite:/var/lib/a@b.db",
		"mysql://u:p@h/d":                     "mysql:…",
		"postgres://u:p@h:5432/d?sslmode=off": "postgres://u@h:5432/d?sslmode=off",
		"postgres://u@h/d?a=b&dbname=x":       "postgres://u@h/d?dbname=x",
		"postgres://u:1/2@h/d":                "postgres://…",
	} {
		if got := shown(dsn); got != want {
			t.Errorf("shown(%q) = %q, want %q", dsn, got, want)
		}
	}
}

// Every command is given a DSN with a password as its arguments and as each of its flags:
// each of the odd ones where one belongs, and the plain ones where none does.
func TestNoCommandSaysThePasswordOfADSN(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: thousands of commands; runs without the race detector")
	}
	t.Chdir(t.TempDir())
	groups := []string{"fence", "epoch", "witness", "keys", "audit", "backup", "restore", "serve", "status", "revoke"}
	runs := 0
	try := func(cmd *cobra.Command, args ...string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if cmd.Flags().Lookup("timeout") != nil {
			args = append(args, "--timeout=20ms")
		}
		for _, output := range []string{"text", "json"} {
			var out bytes.Buffer
			all := append(strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "lastword")), append(args, "--output="+output)...)
			run(ctx, nil, all, []string{"LASTWORD_AUTHORITY=127.0.0.1:1"}, strings.NewReader(""), &out, &out)
			if runs++; strings.Contains(out.String(), password) {
				t.Errorf("%q: %s", all, out.String())
			}
			if out.Len() == 0 {
				t.Errorf("%q: nothing was said", all)
			}
		}
	}
	for _, cmd := range leaves((&app{}).root()) {
		if !slices.Contains(groups, strings.Fields(cmd.CommandPath())[1]) {
			continue
		}
		for i, dsn := range oddDSNs {
			plain := i < 4
			if plain || strings.Contains(cmd.Use, "DSN") {
				try(cmd, dsn)
				try(cmd, dsn, "doc/a")
			}
			if plain {
				try(cmd, "doc/a", dsn)
				try(cmd, "doc/a", "doc/b", dsn)
			}
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				belongs := slices.Contains([]string{"store", "witness", "record", "from"}, f.Name)
				if f.Name != "help" && f.Name != "timeout" && f.Value.Type() != "bool" && (plain || belongs) {
					try(cmd, "sqlite:none.db", "doc/a", "--"+f.Name+"="+dsn)
					try(cmd, "--"+f.Name+"="+dsn)
				}
			})
		}
	}
	if runs < 1000 {
		t.Errorf("%d runs", runs)
	}
}

func leaves(cmd *cobra.Command) (all []*cobra.Command) {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	for _, c := range cmd.Commands() {
		all = append(all, leaves(c)...)
	}
	return all
}
