package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"modernc.org/sqlite"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/protect"
	"github.com/lastword/lastword/internal/sqldb"
)

// sqlGuard keeps the statements of --sql inside the transaction that the fence
// opened. SQLite asks it about every statement that it compiles, so nothing has to be
// guessed from the text: transaction control, other files, settings and our own
// tables are refused while the statements run. It belongs to one connection and one
// goroutine.
type sqlGuard struct {
	on      bool
	reading bool   // nothing is to be changed
	refused string // what was refused last
}

// arm puts the guard on the only connection of the pool.
func (g *sqlGuard) arm(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // back to the pool
	return conn.Raw(func(c any) error {
		r, ok := c.(sqlite.AuthorizerRegisterer)
		if !ok {
			return fmt.Errorf("the SQLite driver has no authorizer")
		}
		return r.RegisterAuthorizer(g.authorize)
	})
}

// Triggers that protect a table count what passes in a roll-out; nobody else can make one
// of that name, since making it would be refused.
func (g *sqlGuard) authorize(action sqlite.AuthorizerActionCode, arg1, arg2, _, trigger string) sqlite.AuthorizerReturnCode {
	if !g.on || strings.HasPrefix(trigger, protect.TriggerPrefix) {
		return sqlite.AuthorizerOK
	}
	if g.reading && action != sqlite.AuthTransaction && action != sqlite.AuthSavepoint && !slices.Contains(reads, action) {
		g.refused = "what changes something"
		return sqlite.AuthorizerDeny
	}
	if why := refusedAction(action, arg1, arg2); why != "" {
		g.refused = why
		return sqlite.AuthorizerDeny
	}
	return sqlite.AuthorizerOK
}

// controls are the actions that are no business of a statement, whatever they name.
var controls = map[sqlite.AuthorizerActionCode]string{
	sqlite.AuthTransaction: "", // the first argument says which
	sqlite.AuthSavepoint:   "",
	sqlite.AuthAttach:      "ATTACH",
	sqlite.AuthDetach:      "DETACH",
	sqlite.AuthPragma:      "PRAGMA",
}

// reads are the actions that change nothing.
var reads = []sqlite.AuthorizerActionCode{sqlite.AuthRead, sqlite.AuthSelect, sqlite.AuthRecursive, sqlite.AuthFunction}

// refusedAction says what is wrong with an action, "" if nothing is. An action that
// is not known counts as a change.
func refusedAction(action sqlite.AuthorizerActionCode, arg1, arg2 string) string {
	if name, refused := controls[action]; refused {
		switch {
		case name != "":
			return name
		case action == sqlite.AuthSavepoint && arg1 == "BEGIN":
			return "SAVEPOINT"
		}
		return arg1 // BEGIN, COMMIT, ROLLBACK, RELEASE
	}
	if action == sqlite.AuthFunction && strings.EqualFold(arg2, "load_extension") {
		return "load_extension"
	}
	if slices.Contains(reads, action) {
		return ""
	}
	for _, name := range []string{arg1, arg2} {
		if strings.HasPrefix(strings.ToLower(name), sqldb.Prefix) {
			return "a change of " + name
		}
	}
	return ""
}

// opStatement marks an error about a text of --sql.
const opStatement = "statement"

// canary has to be refused: if it is not, the guard is not on this connection.
const canary = "SAVEPOINT lastword_guard"

// run executes the statements inside tx, in order, and returns for each text how many
// rows its last statement changed.
func (g *sqlGuard) run(ctx context.Context, tx *sql.Tx, texts []string) ([]byte, error) {
	g.on, g.refused = true, ""
	defer func() { g.on = false }()
	if _, err := tx.ExecContext(ctx, canary); err == nil {
		return nil, &lastword.Error{Code: lastword.CodeInternal, Op: "apply", Message: "the guard of --sql is not on this connection", Hint: "nothing was written; try again"}
	}
	g.refused = ""
	rows := make([]int64, len(texts))
	for i, text := range texts {
		if !hasStatement(text) { // the driver has no result then, not even an empty one
			return nil, g.explain(i, len(texts), errors.New("it has no statement"))
		}
		result, err := tx.ExecContext(ctx, text)
		if err != nil {
			return nil, g.explain(i, len(texts), err)
		}
		if rows[i], err = result.RowsAffected(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(rows)
}

func (g *sqlGuard) explain(i, n int, err error) error {
	which := whichText(i, n)
	if g.refused == "" {
		return explainText(which, err)
	}
	return statementError(which, g.refused, nil)
}

// hasStatement reports whether SQLite finds anything in a text beside white space,
// comments and semicolons. What it finds may still be wrong.
func hasStatement(text string) bool {
	for {
		text = strings.TrimLeft(strings.TrimPrefix(text, "\ufeff"), " \t\n\f\r;")
		end := ""
		switch {
		case strings.HasPrefix(text, "--"):
			end = "\n"
		case strings.HasPrefix(text, "/*"):
			text, end = text[len("/*"):], "*/"
		default:
			return text != ""
		}
		_, text, _ = strings.Cut(text, end) // a comment that does not end goes to the end
	}
}
