package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
)

// postgresURL checks the URL of a PostgreSQL. It is never shown with a password.
func postgresURL(cmd *cobra.Command, dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" && u.RawQuery == "" {
		return "", usage(cmd, "the database is no URL: want postgres://USER@HOST:PORT/NAME")
	}
	if tail := u.EscapedPath() + u.RawQuery; strings.Contains(tail, "@") || strings.Contains(dsn, "#") {
		return "", usage(cmd, "the URL of the database has a @ or # behind its host: write %%40 and %%23, in a password too, as %%2F for / and %%3F for ?")
	}
	scheme, rest, _ := strings.Cut(dsn, "://") // the driver knows it in lower case alone
	return strings.ToLower(scheme) + "://" + rest, nil
}

// openPostgres opens a pool for one command. Statements are not prepared: a pooler in
// transaction mode may stand in between.
func openPostgres(dsn string) (*guarded, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil { // which quotes the URL
		return nil, badDatabase("", dsn, "the driver does not take it", "want postgres://USER@HOST:PORT/NAME")
	}
	if u, err := url.Parse(dsn); err != nil || !u.Query().Has("default_query_exec_mode") {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	g := &guarded{path: dsn}
	g.db = stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(_ context.Context, c *pgx.Conn) error {
		g.conns.Lock()
		defer g.conns.Unlock()
		g.conns.all = append(g.conns.all, c.PgConn())
		return nil
	}))
	g.db.SetMaxOpenConns(2)
	return g, nil
}

// cancelGrace is how long a command that was given up waits for the server to hear of it.
const cancelGrace = 2 * time.Second

// connections are those that were ever made for one command.
type connections struct {
	sync.Mutex

	all []*pgconn.PgConn
}

// cancelled waits until the server was asked to end the statements that were given up: the
// driver does so behind our back, and the end of the process would leave them running, with
// their locks.
func (c *connections) cancelled() {
	c.Lock()
	defer c.Unlock()
	late := time.NewTimer(cancelGrace)
	defer late.Stop()
	for _, conn := range c.all {
		if !conn.IsClosed() {
			continue
		}
		select {
		case <-conn.CleanupDone():
		case <-late.C:
			return
		}
	}
}

func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.SQLState()
}

func statementError(which, what string, cause error) error {
	return &lastword.Error{
		Code: lastword.CodeInvalid, Op: opStatement, Err: cause,
		Message: fmt.Sprintf("%s: %s is not admitted in a fenced write", which, what),
		Hint:    "nothing was written; the fence begins and ends the transaction, and its tables are its own",
	}
}
