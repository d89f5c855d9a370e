package protect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lastword/lastword/internal/sqldb"
)

// shape is what the triggers of a SQLite table depend on.
type shape struct {
	table   string
	text    string // its CREATE TABLE
	strict  bool
	columns []column
	// rowid is a name of the rowid that no column has; "" of a table without one.
	rowid string
	// primary is the key of a table without a rowid.
	primary []string
	// keys are those by which a row of the table and a NEW one cannot both be there.
	keys []key
}

// column is one of a table.
type column struct {
	name     string
	affinity string // TEXT, NUMERIC, REAL or BLOB
	// soft: a NULL that is put in by REPLACE becomes the column's default after BEFORE
	// triggers have seen the NULL.
	soft      bool
	generated bool
	// number: it is the rowid, which BEFORE triggers do not know yet if the engine
	// chooses it.
	number bool
}

// key is the condition under which a row t stands in the way of a NEW one.
type key struct {
	exact string
	// loose is the condition under which it may do so, where what is written is not what
	// BEFORE triggers see; "" if it is.
	loose string
	// mixed: it depends on more than one column.
	mixed bool
}

// known is the spelling of a column that the table has.
func (s shape) known(name string) (string, bool) {
	c, ok := s.column(name)
	return c.name, ok
}

func (s shape) column(name string) (column, bool) {
	i := slices.IndexFunc(s.columns, func(c column) bool { return strings.EqualFold(c.name, name) })
	if i < 0 {
		return column{}, false
	}
	return s.columns[i], true
}

func readShape(ctx context.Context, q sqldb.Querier, table string) (shape, error) {
	s := shape{table: table}
	var without bool
	if err := q.QueryRowContext(ctx, `SELECT l.wr, l.strict, m.sql FROM pragma_table_list AS l JOIN main.sqlite_schema AS m ON m.type = 'table' AND m.name = l.name
WHERE l.schema = 'main' AND l.name = ?1`, table).Scan(&without, &s.strict, &s.text); err != nil {
		return s, err
	}
	if err := s.readColumns(ctx, q, without); err != nil {
		return s, err
	}
	if !without {
		for _, name := range rowidNames {
			if _, taken := s.known(name); !taken {
				s.rowid = name
			}
		}
		if s.rowid == "" {
			return s, invalid("rename one of them", "the table %s has columns rowid, _rowid_ and oid: its rows cannot be told apart", table)
		}
		s.keys = append(s.keys, key{exact: fmt.Sprintf("t.%s = NEW.%s", s.rowid, s.rowid)})
	}
	if err := s.readIndexes(ctx, q); err != nil {
		return s, err
	}
	return s, s.readTriggers(ctx, q)
}

var rowidNames = []string{"rowid", "_rowid_", "oid"}

func (s *shape) readColumns(ctx context.Context, q sqldb.Querier, without bool) error {
	rows, err := q.QueryContext(ctx, `SELECT name, type, pk, "notnull" OR pk, coalesce(dflt_value, '') <> '', hidden IN (2, 3), max(pk) OVER () = 1
FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY pk, cid`, s.table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c column
		var declared string
		var key int
		var notNull, hasDefault, single bool
		if err := rows.Scan(&c.name, &declared, &key, &notNull, &hasDefault, &c.generated, &single); err != nil {
			return err
		}
		c.affinity = affinity(declared, s.strict)
		c.number = !without && key == 1 && single && strings.EqualFold(declared, "INTEGER")
		c.soft = notNull && hasDefault && !c.generated && !c.number
		s.columns = append(s.columns, c)
		if key > 0 {
			s.primary = append(s.primary, c.name)
		}
	}
	return rows.Err()
}

// affinity is that of a column's declared type.
func affinity(declared string, strict bool) string {
	declared = strings.ToUpper(declared)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(declared, p) })
	}
	switch {
	case has("INT"):
		return "NUMERIC" // as INTEGER is in comparisons
	case has("CHAR", "CLOB", "TEXT"):
		return "TEXT"
	case declared == "", has("BLOB"), strict && declared == "ANY":
		return "BLOB"
	case has("REAL", "FLOA", "DOUB"): //nolint:misspell // as SQLite looks for it
		return "REAL"
	}
	return "NUMERIC"
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
	b := builder{shape: s}
	for rows.Next() {
		var cid int
		var name, collation string
		if err := rows.Scan(&cid, &name, &collation); err != nil {
			return err
		}
		switch cid {
		case -1:
			b.plain(fmt.Sprintf("t.%s = NEW.%s", s.rowid, s.rowid))
		case -2:
			return invalid("make a generated column of the expression and index that", "the unique index %s is on an expression: REPLACE could remove rows past every trigger", i.name)
		default:
			c, _ := s.column(name)
			b.term(c, fmt.Sprintf("t.%s = NEW.%s COLLATE %s", quoteIdent(name), quoteIdent(name), quoteIdent(collation)))
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
		b.condition(where)
	}
	if b.number {
		return invalid("let it depend on other columns, or make an index that is not unique",
			"the unique index %s depends on the number that the engine gives to a new row, by a condition or a generated column: REPLACE could remove rows past every trigger", i.name)
	}
	s.keys = append(s.keys, b.key())
	return nil
}

// readTriggers refuses those of the application by which an UPDATE writes another row
// than BEFORE triggers see: what they change in the row is read anew after them, and
// may then be equal to another row together with what the UPDATE sets.
func (s *shape) readTriggers(ctx context.Context, q sqldb.Querier) error {
	if !slices.ContainsFunc(s.keys, func(k key) bool { return k.mixed }) {
		return nil
	}
	rows, err := q.QueryContext(ctx, `SELECT name, tbl_name, sql FROM main.sqlite_schema WHERE type = 'trigger' ORDER BY name`)
	if err != nil {
		return err
	}
	defer rows.Close()
	texts, fires := map[string]string{}, []string{}
	for rows.Next() {
		var name, table, text string
		if err := rows.Scan(&name, &table, &text); err != nil {
			return err
		}
		fires = append(fires, table)
		if strings.EqualFold(table, s.table) && !slices.ContainsFunc(triggerKinds, func(kind string) bool { return name == triggerName(kind, s.table) }) {
			texts[name] = text
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		inserts, writes := writesBeforeUpdate(texts[name])
		for _, into := range append(fires, s.table) {
			writes = writes || slices.ContainsFunc(inserts, func(t string) bool { return strings.EqualFold(t, into) })
		}
		if writes {
			return invalid("make it an AFTER trigger", "the trigger %s may change the row that an UPDATE is about to write: REPLACE could remove rows past every trigger", name)
		}
	}
	return nil
}
