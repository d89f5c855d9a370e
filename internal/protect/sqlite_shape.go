package protect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lastword/lastword/internal/sqldb"
)

// shape is what the triggers of a SQLite table depend on.
type shape struct {
	table   string
	columns []string
	// rowid is a name of the rowid that no column has; "" of a table without one.
	rowid string
	// primary is the key of a table without a rowid.
	primary []string
	// keys are the conditions under which a row of the table and a NEW one cannot both
	// be there.
	keys []string
}

// known is the spelling of a column that the table has.
func (s shape) known(column string) (string, bool) {
	i := slices.IndexFunc(s.columns, func(c string) bool { return strings.EqualFold(c, column) })
	if i < 0 {
		return "", false
	}
	return s.columns[i], true
}

func readShape(ctx context.Context, q sqldb.Querier, table string) (shape, error) {
	s := shape{table: table}
	var without bool
	if err := q.QueryRowContext(ctx, `SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1`, table).Scan(&without); err != nil {
		return s, err
	}
	if err := s.readColumns(ctx, q); err != nil {
		return s, err
	}
	if !without {
		for _, name := range []string{"rowid", "_rowid_", "oid"} {
			if _, taken := s.known(name); !taken {
				s.rowid = name
			}
		}
		if s.rowid == "" {
			return s, invalid("rename one of them", "the table %s has columns rowid, _rowid_ and oid: its rows cannot be told apart", table)
		}
		s.keys = append(s.keys, fmt.Sprintf("t.%s = NEW.%s", s.rowid, s.rowid))
	}
	return s, s.readIndexes(ctx, q)
}

func (s *shape) readColumns(ctx context.Context, q sqldb.Querier) error {
	rows, err := q.QueryContext(ctx, `SELECT name, pk FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY pk, cid`, s.table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var key int
		if err := rows.Scan(&name, &key); err != nil {
			return err
		}
		s.columns = append(s.columns, name)
		if key > 0 {
			s.primary = append(s.primary, name)
		}
	}
	return rows.Err()
}

type index struct {
	name    string
	partial bool
	text    string
}

// readIndexes reads the unique ones: REPLACE removes the row that stands in the way
// without firing its triggers.
func (s *shape) readIndexes(ctx context.Context, q sqldb.Querier) error {
	rows, err := q.QueryContext(ctx, `SELECT i.name, i.partial, coalesce(m.sql, '') FROM pragma_index_list(?1) AS i
LEFT JOIN main.sqlite_schema AS m ON m.type = 'index' AND m.name = i.name WHERE i."unique" ORDER BY i.name`, s.table)
	if err != nil {
		return err
	}
	defer rows.Close()
	var all []index
	for rows.Next() {
		var i index
		if err := rows.Scan(&i.name, &i.partial, &i.text); err != nil {
			return err
		}
		all = append(all, i)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, i := range all {
		if err := s.readIndex(ctx, q, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *shape) readIndex(ctx context.Context, q sqldb.Querier, i index) error {
	rows, err := q.QueryContext(ctx, `SELECT cid, coalesce(name, ''), coll FROM pragma_index_xinfo(?1) WHERE "key" ORDER BY seqno`, i.name)
	if err != nil {
		return err
	}
	defer rows.Close()
	var terms []string
	for rows.Next() {
		var cid int
		var column, collation string
		if err := rows.Scan(&cid, &column, &collation); err != nil {
			return err
		}
		switch cid {
		case -1:
			terms = append(terms, fmt.Sprintf("t.%s = NEW.%s", s.rowid, s.rowid))
		case -2:
			return invalid("make a generated column of the expression and index that", "the unique index %s is on an expression: REPLACE could remove rows past every trigger", i.name)
		default:
			terms = append(terms, fmt.Sprintf("t.%s = NEW.%s COLLATE %s", quoteIdent(column), quoteIdent(column), quoteIdent(collation)))
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if i.partial {
		where, ok := partialWhere(i.text)
		if !ok {
			return invalid("make it a plain unique index", "the condition of the unique index %s could not be read", i.name)
		}
		// Its names are columns, of the table's row as of the new one, since nothing else
		// is there that they could mean.
		terms = append(terms, "("+where+")", fmt.Sprintf("EXISTS (SELECT 1 FROM (SELECT %s) WHERE %s)", s.newRow(), where))
	}
	s.keys = append(s.keys, strings.Join(terms, " AND "))
	return nil
}

// newRow is NEW as the columns of a SELECT.
func (s *shape) newRow() string {
	var all []string
	for _, c := range s.columns {
		all = append(all, "NEW."+quoteIdent(c)+" AS "+quoteIdent(c))
	}
	return strings.Join(all, ", ")
}

// partialWhere is the condition in CREATE UNIQUE INDEX … (…) WHERE condition.
func partialWhere(text string) (string, bool) {
	depth, lists := 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'' || c == '"' || c == '`' || c == '[':
			end := c
			if c == '[' {
				end = ']'
			}
			n := strings.IndexByte(text[i+1:], end)
			if n < 0 {
				return "", false
			}
			i += n + 1 // a doubled quote begins another one
		case strings.HasPrefix(text[i:], "--"):
			n := strings.IndexByte(text[i:], '\n')
			if n < 0 {
				return "", false
			}
			i += n
		case strings.HasPrefix(text[i:], "/*"):
			n := strings.Index(text[i+2:], "*/")
			if n < 0 {
				return "", false
			}
			i += n + 3
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				lists++
			}
		case depth == 0 && lists == 1 && len(text) > i+5 && strings.EqualFold(text[i:i+5], "WHERE"):
			return text[i+5:], true
		}
	}
	return "", false
}
