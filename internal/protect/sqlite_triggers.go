package protect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The triggers of a SQLite table. BEFORE triggers see which rows REPLACE would remove;
// AFTER triggers see what was really written: numbers that the engine chose, defaults
// and generated columns among it.
const (
	kindInsertOver = "insert_over"
	kindInserted   = "inserted"
	kindUpdateOver = "update_over"
	kindUpdated    = "updated"
	kindDelete     = "delete"
)

var triggerKinds = []string{kindInsertOver, kindInserted, kindUpdateOver, kindUpdated, kindDelete}

// TriggerPrefix begins the name of every trigger that protects a table of SQLite.
const TriggerPrefix = "lastword_guard_"

func triggerName(kind, table string) string { return TriggerPrefix + kind + "_" + table }

// guarded is one row that a statement touches: the condition under which it is
// protected, and its resource.
type guarded struct {
	from, when, resource string
	// counted, where a roll-out goes on, is when it is counted; "" is always.
	counted string
}

// triggers are those that protect the table as it is.
func (s shape) triggers(spec Spec) ([]trigger, error) {
	for _, c := range spec.Template.columns() {
		if _, ok := s.known(c); !ok {
			return nil, invalid("spell it as the table does", "the table %s has no column %s, which the template names", s.table, c)
		}
	}
	for _, c := range spec.Columns {
		if _, ok := s.known(c); !ok {
			return nil, invalid("spell it as the table does", "the table %s has no column %s to protect", s.table, c)
		}
	}
	over, others := s.inTheWay(spec)
	before, after := s.row(spec, "OLD."), s.row(spec, "NEW.")
	moved := after // a row that stays with its resource is counted once
	moved.counted = fmt.Sprintf("NOT (%s AND %s IS %s)", cmp.Or(before.when, "TRUE"), before.resource, after.resource)
	return []trigger{
		s.trigger(spec, kindInsertOver, "BEFORE INSERT", "", over...),
		s.trigger(spec, kindInserted, "AFTER INSERT", "", after),
		s.trigger(spec, kindUpdateOver, "BEFORE UPDATE", "", others...),
		s.trigger(spec, kindUpdated, "AFTER UPDATE", changed(spec), before, moved),
		s.trigger(spec, kindDelete, "BEFORE DELETE", "", before),
	}, nil
}

// inTheWay are the rows that an INSERT or an UPDATE would replace, for either.
func (s shape) inTheWay(spec Spec) (insert, update []guarded) {
	var exact []string
	var conditions []string
	for _, k := range s.keys {
		exact = append(exact, k.exact)
		if k.loose != "" { // apart, since no index finds them
			conditions = append(conditions, k.loose)
		}
	}
	for _, condition := range append([]string{"(" + strings.Join(exact, " OR ") + ")"}, conditions...) {
		one := guarded{
			from: fmt.Sprintf("FROM %s AS t", quoteIdent(s.table)),
			when: both(condition, has(spec.Columns, "t.")), resource: sqliteResource(spec.Template, "t."),
		}
		insert = append(insert, one)
		one.when = both(s.another(), one.when)
		update = append(update, one)
	}
	return insert, update
}

func (s shape) row(spec Spec, row string) guarded {
	return guarded{when: has(spec.Columns, row), resource: sqliteResource(spec.Template, row)}
}

// another is true of every row but the one that an UPDATE changes.
func (s shape) another() string {
	if s.rowid != "" {
		return fmt.Sprintf("t.%s <> OLD.%s", s.rowid, s.rowid)
	}
	var terms []string
	for _, c := range s.primary {
		terms = append(terms, fmt.Sprintf("t.%s IS OLD.%s COLLATE BINARY", quoteIdent(c), quoteIdent(c)))
	}
	return "NOT (" + strings.Join(terms, " AND ") + ")"
}

// has is true of a row in which something is protected.
func has(columns []string, row string) string {
	var terms []string
	for _, c := range columns {
		terms = append(terms, row+quoteIdent(c)+" IS NOT NULL")
	}
	if len(terms) == 0 {
		return ""
	}
	return "(" + strings.Join(terms, " OR ") + ")"
}

// changed is true of an UPDATE that changes something protected, or to which resource it
// belongs. An UPDATE OF would not see a key that is changed by its name of rowid.
func changed(spec Spec) string {
	if len(spec.Columns) == 0 {
		return ""
	}
	var terms []string
	for _, c := range append(spec.Template.columns(), spec.Columns...) {
		c = quoteIdent(c)
		terms = append(terms, fmt.Sprintf("OLD.%s IS NOT NEW.%s COLLATE BINARY OR typeof(OLD.%s) <> typeof(NEW.%s)", c, c, c, c))
	}
	return " WHEN " + strings.Join(terms, " OR ")
}

func both(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + " AND " + b
}

func (s shape) trigger(spec Spec, kind, event, when string, rows ...guarded) trigger {
	var body strings.Builder
	if kind == kindUpdateOver {
		body.WriteString(s.loaded())
	}
	for _, g := range rows {
		body.WriteString(s.refusal(spec, g))
	}
	name := triggerName(kind, s.table)
	return trigger{name: name, text: fmt.Sprintf("CREATE TRIGGER %s %s ON %s%s\nBEGIN\n%sEND", quoteIdent(name), event, quoteIdent(s.table), when, body.String())}
}

// loaded names every column in a table with generated ones: before an UPDATE only those
// that a trigger names are there, and generated columns are made of what is there.
func (s shape) loaded() string {
	if !slices.ContainsFunc(s.columns, func(c column) bool { return c.generated }) {
		return ""
	}
	var all []string
	for _, c := range s.columns {
		all = append(all, "NEW."+quoteIdent(c.name))
	}
	return "SELECT " + strings.Join(all, ", ") + ";\n"
}

// refusal refuses a row without a pass; where a roll-out goes on it counts it (R18).
func (s shape) refusal(spec Spec, g guarded) string {
	domain := quoteText(spec.Domain)
	without := both(g.when, fmt.Sprintf("NOT EXISTS (SELECT 1 FROM lastword_pass AS p WHERE p.domain = %s AND p.resource = %s)", domain, g.resource))
	message := fmt.Sprintf("lastword: FENCE_REQUIRED: the table %s is protected; write through the fence, under a lease on the resource of the row", s.table)
	refuse := func(where string) string {
		return fmt.Sprintf("SELECT RAISE(ABORT, %s) %s WHERE %s;\n", quoteText(message), g.from, where)
	}
	if !spec.Shadow {
		return refuse(without)
	}
	// A row of no resource goes with the others of its table.
	place := fmt.Sprintf("coalesce(%s, %s)", g.resource, quoteText(spec.Template.Prefix()))
	shadow := fmt.Sprintf(`coalesce((SELECT o.shadow FROM lastword_rollout AS o WHERE o.domain = %[1]s AND (o.prefix = '' OR o.prefix = %[2]s OR
	substr(o.prefix, -1) = '/' AND substr(%[2]s, 1, length(o.prefix)) = o.prefix) ORDER BY length(o.prefix) DESC LIMIT 1), 0)`, domain, place)
	// The policy of the statement that fires a trigger wins over ON CONFLICT in it.
	const verdict = "'SHADOW(FENCE_REQUIRED)'"
	passing := both(without, g.counted)
	counted := fmt.Sprintf("(SELECT coalesce(%s, '') %s WHERE %s)", g.resource, g.from, passing)
	now := "strftime('%Y-%m-%dT%H:%M:%f000Z')"
	return refuse(without+" AND NOT "+shadow) +
		fmt.Sprintf("UPDATE lastword_refusal SET times = times + 1, last_at = %s WHERE domain = %s AND verdict = %s AND resource IN %s;\n", now, domain, verdict, counted) +
		fmt.Sprintf(`INSERT INTO lastword_refusal (domain, resource, verdict, times, last_why, last_fence, last_lease_id, last_claimant, last_at)
SELECT DISTINCT %s, coalesce(%s, ''), %s, 1, %s, 0, '', '', %s %s WHERE %s
AND NOT EXISTS (SELECT 1 FROM lastword_refusal AS r WHERE r.domain = %s AND r.verdict = %s AND r.resource = coalesce(%s, ''));
`, domain, g.resource, verdict, quoteText("TABLE "+s.table), now, g.from, passing, domain, verdict, g.resource)
}
