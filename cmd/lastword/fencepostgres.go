package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
)

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// postgresURL checks the URL of a PostgreSQL. It is never shown with a password.
func postgresURL(cmd *cobra.Command, dsn string) (string, error) {
	if u, err := url.Parse(dsn); err != nil || u.Host == "" && u.RawQuery == "" {
		return "", usage(cmd, "the database is no URL: want postgres://USER@HOST:PORT/NAME")
	}
	return dsn, nil
}

// shown is a database as it may be shown: a URL without its password.
func shown(dsn string) string {
	u, err := url.Parse(dsn)
	if !isPostgres(dsn) {
		return dsn
	}
	if err != nil {
		return "postgres://…"
	}
	q := u.Query()
	for _, secret := range []string{"password", "sslpassword"} {
		q.Del(secret)
	}
	u.RawQuery = q.Encode()
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	return u.String()
}

// openPostgres opens a pool for one command. Statements are not prepared: a pooler in
// transaction mode may stand in between.
func openPostgres(dsn string) (*guarded, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, badDatabase("", dsn, "it is no URL", "")
	}
	q := u.Query()
	if !q.Has("default_query_exec_mode") {
		q.Set("default_query_exec_mode", "exec")
	}
	u.RawQuery = q.Encode()
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		return nil, badDatabase("", dsn, "the driver does not take it", "want postgres://USER@HOST:PORT/NAME")
	}
	db.SetMaxOpenConns(2)
	return &guarded{path: dsn, db: db}, nil
}

// runPostgres executes the texts of --sql inside tx, in order, and returns for each how
// many rows its last statement changed. Each runs as a part of a block of the database's
// own language, in which no transaction can be ended or begun. A change of the fence's
// tables is refused by its name, and one of the record all the same by the write that
// follows.
func runPostgres(ctx context.Context, tx *sql.Tx, texts []string) ([]byte, error) {
	rows := make([]int64, len(texts))
	for i, text := range texts {
		which := "--sql"
		if len(texts) > 1 {
			which = fmt.Sprintf("--sql number %d", i+1)
		}
		if strings.Contains(strings.ToLower(text), "lastword.") {
			return nil, statementError(which, "the fence's own schema", nil)
		}
		tag := "lw" + rand.Text()
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`DO $%[1]s$ DECLARE n bigint; BEGIN EXECUTE $%[1]sx$%[2]s$%[1]sx$; GET DIAGNOSTICS n = ROW_COUNT;
	PERFORM set_config('lastword.rows', n::text, TRUE); END $%[1]s$`, tag, text))
		switch state := sqlState(err); {
		case state == "2D000":
			return nil, statementError(which, "a statement that ends or begins a transaction", err)
		case state == "0A000": // also of other things that the server cannot do there
			return nil, &lastword.Error{
				Code: lastword.CodeInvalid, Op: opStatement, Err: err, Message: fmt.Sprintf("%s: the server cannot do this in a fenced write: %v", which, err),
				Hint: "nothing was written; a statement that ends or begins a transaction is not admitted there, nor one that talks to the client (COPY … STDIN, STDOUT)",
			}
		case err != nil:
			return nil, fmt.Errorf("%s: %w", which, err)
		}
		if err := tx.QueryRowContext(ctx, `SELECT current_setting('lastword.rows')::bigint`).Scan(&rows[i]); err != nil {
			return nil, err
		}
	}
	return json.Marshal(rows)
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
