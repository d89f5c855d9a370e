package protect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/lastword/lastword/internal/sqldb"
)

// SQLite is the engine of SQLite 3.37 or later.
type SQLite struct{}

// Dialect is SQLite's.
func (SQLite) Dialect() sqldb.Dialect { return sqldb.SQLite{} }

// Schema is the tables of this package on SQLite.
func (SQLite) Schema() sqldb.Schema { return sqliteSchema }

func (SQLite) place(n int) string { return fmt.Sprintf("?%d", n) }

// resolve finds the table in the database file itself.
func (SQLite) resolve(ctx context.Context, q sqldb.Querier, table string) (string, error) {
	var name, kind string
	err := q.QueryRowContext(ctx, `SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND name = ?1 COLLATE NOCASE`, table).Scan(&name, &kind)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", invalid("give its name as it is, without a schema and without quotes", "there is no table %s", table)
	case err != nil:
		return "", err
	case kind != "table":
		return "", invalid("protect the tables that stand behind it", "%s is a %s", name, kind)
	case strings.HasPrefix(strings.ToLower(name), sqldb.Prefix), strings.HasPrefix(strings.ToLower(name), "sqlite_"):
		return "", invalid("protect a table of your own", "%s is not a table of the application", name)
	}
	return name, nil
}

// trigger is one that protects a table.
type trigger struct{ name, text string }

func (SQLite) write(ctx context.Context, q sqldb.Querier, s Spec) error {
	shape, err := readShape(ctx, q, s.Table)
	if err != nil {
		return err
	}
	wanted, err := shape.triggers(s)
	if err != nil {
		return err
	}
	for _, t := range wanted {
		if _, err := q.ExecContext(ctx, "DROP TRIGGER IF EXISTS main."+quoteIdent(t.name)); err != nil {
			return err
		}
		if _, err := q.ExecContext(ctx, t.text); err != nil {
			return fmt.Errorf("trigger %s: %w", t.name, err)
		}
	}
	return nil
}

func (SQLite) drop(ctx context.Context, q sqldb.Querier, table string) error {
	for _, kind := range triggerKinds {
		if _, err := q.ExecContext(ctx, "DROP TRIGGER IF EXISTS main."+quoteIdent(triggerName(kind, table))); err != nil {
			return err
		}
	}
	return nil
}

func (e SQLite) faults(ctx context.Context, q sqldb.Querier, s Spec) ([]string, error) {
	name, err := e.resolve(ctx, q, s.Table)
	if err != nil || name != s.Table {
		return []string{tableGone}, nil //nolint:nilerr // which is what was asked
	}
	shape, err := readShape(ctx, q, s.Table)
	var wanted []trigger
	if err == nil {
		wanted, err = shape.triggers(s)
	}
	if err != nil { // a column is gone, or an index has come that cannot be closed
		return unfitness(err)
	}
	var faults []string
	for _, t := range wanted {
		var text string
		err := q.QueryRowContext(ctx, `SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND name = ?1 AND tbl_name = ?2 COLLATE NOCASE`, t.name, s.Table).Scan(&text)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			faults = append(faults, "the trigger "+t.name+" is missing")
		case err != nil:
			return nil, err
		case text != t.text:
			faults = append(faults, "the trigger "+t.name+" is not what it has to be for the table as it is")
		}
	}
	return faults, nil
}

func (SQLite) unreachable(ctx context.Context, q sqldb.Querier, s Spec) (n int64, err error) {
	r := sqliteResource(s.Template, "")
	err = q.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM main.%s WHERE %s IS NULL", quoteIdent(s.Table), r)).Scan(&n)
	return n, err
}

func quoteIdent(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteText(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// sqliteResource is the resource of a row, whose columns are named with row before them
// ("NEW."). It is an expression, and so compared byte by byte, whatever collation the
// columns have.
func sqliteResource(t Template, row string) string {
	return "(" + t.join(quoteText, func(column string, whole bool) string {
		value := "CAST(" + row + quoteIdent(column) + " AS TEXT)"
		if whole {
			return "'' || " + value
		}
		return "CASE WHEN instr(" + value + ", '/') = 0 THEN " + value + " END"
	}) + ")"
}
