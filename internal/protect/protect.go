package protect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

// Spec says what of a table is protected, and for whom.
type Spec struct {
	// Domain of the authority whose fences count.
	Domain string
	// Table in the engine's own spelling: of SQLite the name; of PostgreSQL an
	// identifier as a statement has it, with its schema if need be.
	Table string
	// Template of the rows' resources.
	Template Template
	// Columns, if there are any, are the only ones that are protected: a row in which
	// all of them are NULL may be made and removed, and every other column changed,
	// without a pass.
	Columns []string
	// Shadow makes triggers that count instead of refusing where a roll-out goes on (R18).
	Shadow bool
}

// same reports whether s and o protect the same of a table, alike.
func (s Spec) same(o Spec) bool {
	return s.Domain == o.Domain && s.Template.text == o.Template.text && slices.Equal(s.Columns, o.Columns)
}

// columns are those that s names: the template's, and the protected ones.
func (s Spec) columns() []string { return append(s.Template.columns(), s.Columns...) }

// Table is a protected table as [Inspect] finds it.
type Table struct {
	Spec
	// Open says that an operator has opened it for a migration: it has no triggers, and
	// nothing is admitted at the database.
	Open bool
	// Since is when it was protected or opened, for people.
	Since time.Time
	// Faults are what is missing or not as it was made; none if the table is closed.
	Faults []string
}

// Closed reports whether t is as closed as it can be.
func (t Table) Closed() bool { return !t.Open && len(t.Faults) == 0 }

// Engine is what differs between engines. Its values have no state.
type Engine interface {
	// Dialect of the engine.
	Dialect() sqldb.Dialect
	// Schema is the tables of this package.
	Schema() sqldb.Schema
	// resolve finds the table and gives it its one name.
	resolve(ctx context.Context, q sqldb.Querier, table string) (name string, err error)
	// write makes the triggers of a table, and removes those that it had.
	write(ctx context.Context, q sqldb.Querier, s Spec) error
	// drop removes the triggers of a table, which need not exist any more.
	drop(ctx context.Context, q sqldb.Querier, table string) error
	// faults looks at the triggers of a table.
	faults(ctx context.Context, q sqldb.Querier, s Spec) ([]string, error)
	// unreachable counts the rows that no resource is of.
	unreachable(ctx context.Context, q sqldb.Querier, s Spec) (int64, error)
	// place is the n-th parameter of a statement.
	place(n int) string
}

// Protect closes a table, or what was broken of its protection, in the caller's
// transaction. It returns the spec with the table's one name, and how many rows belong
// to no resource, because a column of the template is NULL or has a slash: nobody can
// change them any more.
//
// A table that is protected otherwise is refused: protection is opened first ([Open]),
// by a person who says why.
func Protect(ctx context.Context, e Engine, q sqldb.Querier, s Spec, at time.Time) (Spec, int64, error) {
	name, err := e.resolve(ctx, q, s.Table)
	if err != nil {
		return s, 0, err
	}
	s.Table = name
	slices.Sort(s.Columns)
	s.Columns = slices.Compact(s.Columns)
	known, err := read(ctx, e, q)
	if err != nil {
		return s, 0, err
	}
	for _, t := range known {
		if t.Table == name && !t.Open && !t.same(s) {
			return s, 0, invalid("open it first with fence unprotect, and say why", "the table %s is protected already, by %s in the domain %s%s",
				name, t.Template, t.Domain, columnsText(t.Columns))
		}
		if t.Table == name {
			s.Shadow = s.Shadow || t.Shadow && !t.Open
		}
	}
	if s.Shadow {
		if err := Shadow(ctx, e, q, s.Domain, s.Template.Prefix(), at); err != nil {
			return s, 0, err
		}
	}
	if err := e.write(ctx, q, s); err != nil {
		return s, 0, err
	}
	if err := keep(ctx, e, q, s, false, at); err != nil {
		return s, 0, err
	}
	lost, err := e.unreachable(ctx, q, s)
	return s, lost, err
}

func columnsText(columns []string) string {
	if len(columns) == 0 {
		return ""
	}
	return ", columns " + strings.Join(columns, ", ")
}

// Open removes the triggers of a table for a migration, in the caller's transaction. The
// table stays in the list: until it is protected again, nothing is admitted through the
// fence at this database. A table that is gone is taken from the list.
func Open(ctx context.Context, e Engine, q sqldb.Querier, table string, at time.Time) (t Table, gone bool, err error) {
	known, err := read(ctx, e, q)
	if err != nil {
		return t, false, err
	}
	name, missing := e.resolve(ctx, q, table)
	if missing != nil {
		name = table
	}
	i := slices.IndexFunc(known, func(t Table) bool { return t.Table == name })
	if i < 0 {
		return t, false, invalid("fence status lists those that are", "the table %s is not protected", table)
	}
	t = known[i]
	if err := e.drop(ctx, q, name); err != nil {
		return t, false, err
	}
	if missing != nil {
		_, err := q.ExecContext(ctx, "DELETE FROM "+e.Dialect().Table("lastword_protected")+" WHERE name = "+e.place(1), name)
		return t, true, err
	}
	t.Open = true
	return t, false, keep(ctx, e, q, t.Spec, true, at)
}

// Inspect lists the protected tables and what is wrong with each.
func Inspect(ctx context.Context, e Engine, q sqldb.Querier) ([]Table, error) {
	tables, err := read(ctx, e, q)
	if err != nil {
		return nil, err
	}
	for i := range tables {
		if tables[i].Open {
			continue
		}
		if tables[i].Faults, err = e.faults(ctx, q, tables[i].Spec); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// Outdated are the statements that make anew what an older program has made of the
// protection of tables; none if nothing is of one.
func Outdated(ctx context.Context, e Engine, q sqldb.Querier) ([]string, error) {
	if p, ok := e.(PostgreSQL); ok {
		return p.outdated(ctx, q)
	}
	return nil, nil
}

// tableGone is the fault of a table that is not there under its name.
const tableGone = "the table is gone"

// Unfit is the error of a database one of whose tables is not closed as it should be,
// nil if all are (R16c).
func Unfit(tables []Table) error {
	for _, t := range tables {
		switch {
		case t.Open:
			return invalid("protect it again: lastword fence protect DSN "+t.Table, "the protected table %s is open for a migration; nothing is admitted", t.Table)
		case slices.Contains(t.Faults, tableGone):
			return invalid(fmt.Sprintf("lastword fence unprotect DSN %s forgets it; if it was renamed, then protect it by its new name: lastword fence protect DSN NAME --resource '%s'", t.Table, t.Template),
				"the table %s is not protected any more: %s", t.Table, tableGone)
		case len(t.Faults) > 0:
			return invalid("find out who did that; lastword fence protect DSN "+t.Table+" makes the triggers anew; where it refuses, mend what it names, or fence unprotect the table and protect it with another template", "the table %s is not protected any more: %s", t.Table, strings.Join(t.Faults, ", "))
		}
	}
	return nil
}

// isUnfit reports whether err says that a table is not fit for protection.
func isUnfit(err error) bool {
	faults, other := unfitness(err)
	return other == nil && len(faults) > 0
}

// unfitness is an error that says what a table is not fit for, as a fault of it.
func unfitness(err error) ([]string, error) {
	if unfit := (*lastword.Error)(nil); errors.As(err, &unfit) {
		return []string{unfit.Message}, nil
	}
	return nil, err
}

const timeLayout = "2006-01-02T15:04:05.000000Z"

func keep(ctx context.Context, e Engine, q sqldb.Querier, s Spec, open bool, at time.Time) error {
	columns, err := json.Marshal(append([]string{}, s.Columns...))
	if err != nil {
		return err
	}
	table := e.Dialect().Table("lastword_protected")
	if _, err := q.ExecContext(ctx, "DELETE FROM "+table+" WHERE name = "+e.place(1), s.Table); err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (name, domain, template, columns, shadow, is_open, since) VALUES (%s, %s, %s, %s, %s, %s, %s)",
		table, e.place(1), e.place(2), e.place(3), e.place(4), e.place(5), e.place(6), e.place(7)),
		s.Table, s.Domain, s.Template.text, string(columns), bit(s.Shadow), bit(open), at.UTC().Format(timeLayout))
	return err
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func read(ctx context.Context, e Engine, q sqldb.Querier) (all []Table, err error) {
	rows, err := q.QueryContext(ctx, "SELECT name, domain, template, columns, shadow, is_open, since FROM "+e.Dialect().Table("lastword_protected")+" ORDER BY name")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var t Table
		var template, columns, since string
		if err := rows.Scan(&t.Table, &t.Domain, &template, &columns, &t.Shadow, &t.Open, &since); err != nil {
			return nil, err
		}
		if t.Template, err = ParseTemplate(template); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(columns), &t.Columns); err != nil {
			return nil, err
		}
		if t.Since, err = time.Parse(timeLayout, since); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, rows.Err()
}
