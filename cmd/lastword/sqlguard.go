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
	// closed are the names of the protected tables.
	closed []string
	// moved: a table was dropped or altered, which changes sqlite_sequence.
	moved bool
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
	why := refusedAction(action, arg1, arg2)
	g.moved = g.moved || action == sqlite.AuthDropTable || action == sqlite.AuthAlterTable
	if g.moved && changes[action] && strings.EqualFold(arg1, "sqlite_sequence") {
		why = ""
	}
	if action == sqlite.AuthAlterTable && slices.ContainsFunc(g.closed, func(t string) bool { return strings.EqualFold(t, arg2) }) {
		why = "ALTER of the protected table " + arg2 // it may change the rows of every resource, and no trigger hears of that
	}
	if why != "" {
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
	// What it does is asked about only when it runs, which may be in another program.
	sqlite.AuthCreateTrigger:     "CREATE TRIGGER",
	sqlite.AuthCreateTempTrigger: "CREATE TRIGGER",
	// A module writes what it likes where it likes, and no trigger hears of that.
	sqlite.AuthCreateVTable: "CREATE VIRTUAL TABLE",
}

// written are the tables of SQLite's own that its statements change: the schema by every
// CREATE, ALTER and DROP, to which SQLite admits nobody else, and the statistics by ANALYZE.
// What AUTOINCREMENT counts it changes without asking.
var written = []string{"sqlite_master", "sqlite_temp_master", "sqlite_stat1", "sqlite_stat4"}

// reads are the actions that change nothing.
var reads = []sqlite.AuthorizerActionCode{sqlite.AuthRead, sqlite.AuthSelect, sqlite.AuthRecursive, sqlite.AuthFunction}

// changes are the actions that change rows.
var changes = map[sqlite.AuthorizerActionCode]bool{sqlite.AuthInsert: true, sqlite.AuthUpdate: true, sqlite.AuthDelete: true}

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
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, sqldb.Prefix) {
			return "a change of " + name
		}
		if changes[action] && strings.HasPrefix(lower, "sqlite_") && !slices.Contains(written, lower) {
			return "a change of " + name // sqlite_dbpage is the file
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
	before, _, err := g.look(ctx, tx)
	if err != nil {
		return nil, err
	}
	g.on, g.refused, g.moved = true, "", false
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
	g.on = false
	if err := g.still(ctx, tx, before); err != nil {
		return nil, err
	}
	return json.Marshal(rows)
}

// fenceSchema is what in the schema is the fence's: its tables, and the protected ones.
const fenceSchema = `SELECT coalesce(group_concat(type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, ''), char(10)), '') FROM
(SELECT * FROM (SELECT * FROM main.sqlite_schema UNION ALL SELECT * FROM temp.sqlite_schema)
WHERE name LIKE 'lastword\_%' ESCAPE '\' OR tbl_name LIKE 'lastword\_%' ESCAPE '\' OR
	type IN ('table', 'trigger') AND tbl_name COLLATE NOCASE IN (SELECT name FROM main.lastword_protected) ORDER BY name, type)`

// look reads what the statements may not change.
func (g *sqlGuard) look(ctx context.Context, tx *sql.Tx) (schema string, tables []protect.Table, err error) {
	if tables, err = protect.Inspect(ctx, protect.SQLite{}, tx); err != nil {
		return "", nil, err
	}
	g.closed = nil
	for _, t := range tables {
		g.closed = append(g.closed, t.Table)
	}
	err = tx.QueryRowContext(ctx, fenceSchema).Scan(&schema)
	return schema, tables, err
}

// still refuses what would stop the whole database: a table that took a name of the
// fence, a protected one that is not closed any more.
func (g *sqlGuard) still(ctx context.Context, tx *sql.Tx, before string) error {
	after, tables, err := g.look(ctx, tx)
	if err != nil {
		return err
	}
	why := ""
	if unfit := (*lastword.Error)(nil); errors.As(protect.Unfit(tables), &unfit) {
		why = unfit.Message
	} else if after != before {
		why = "the schema of the fence or of a protected table was changed"
	}
	if why == "" {
		return nil
	}
	return &lastword.Error{
		Code: lastword.CodeInvalid, Op: opStatement, Message: "--sql: " + why,
		Hint: "nothing was written; change the schema of a protected table between fence unprotect and fence protect",
	}
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
