package protect

import (
	"fmt"
	"slices"
	"strings"
)

// builder makes the key of one unique index.
type builder struct {
	*shape
	exact, loose []string // terms
	// soft are the columns whose NULL would be replaced; some of the columns that a
	// generated one is made of are not known, so it counts as made of all of them.
	soft    []string
	columns int
	partial bool
	// number: it depends on the rowid in another way than by being equal.
	number bool
}

// plain is a term about what BEFORE triggers see as it is written.
func (b *builder) plain(term string) {
	b.exact, b.loose = append(b.exact, term), append(b.loose, term)
	b.columns++
}

// term is one about a column of the index.
func (b *builder) term(c column, text string) {
	if !c.soft && !c.generated {
		b.plain(text)
		return
	}
	b.exact = append(b.exact, text)
	b.columns++
	b.depends(c)
}

// depends notes that the key depends on what c will be.
func (b *builder) depends(c column) {
	for _, other := range b.shape.columns {
		if other.soft && (c.generated || other.name == c.name) && !slices.Contains(b.soft, other.name) {
			b.soft = append(b.soft, other.name)
		}
	}
	b.number = b.number || c.generated && b.madeOfNumber(c.name, map[string]bool{})
}

// madeOfNumber reports whether a generated column may be made of the rowid.
func (b *builder) madeOfNumber(name string, seen map[string]bool) bool {
	if seen[name] {
		return false
	}
	seen[name] = true
	for _, definition := range definitions(b.text) {
		if len(definition) == 0 || !strings.EqualFold(definition[0].text, name) {
			continue
		}
		for _, c := range b.shape.columns {
			if !mentions(definition[1:], c.name) {
				continue
			}
			if c.number || c.generated && b.madeOfNumber(c.name, seen) {
				return true
			}
		}
		return false
	}
	return true // it could not be read
}

// condition is that of a partial index. Its names are columns, of the table's row as of
// the new one, since nothing else is there that they could mean.
func (b *builder) condition(where string) {
	b.partial = true
	all := tokens(where)
	var unclear []string
	texts := slices.ContainsFunc(b.shape.columns, func(c column) bool { return c.affinity == "TEXT" && mentions(all, c.name) })
	for _, c := range b.shape.columns {
		if !mentions(all, c.name) {
			continue
		}
		b.number = b.number || c.number
		b.depends(c)
		if u := unclearAs(c, texts); u != "" {
			unclear = append(unclear, u)
		}
	}
	for _, name := range rowidNames {
		if _, column := b.known(name); !column && mentions(all, name) {
			b.number = true
		}
	}
	inside := fmt.Sprintf("EXISTS (SELECT 1 FROM (SELECT %s) WHERE %s)", b.newRow(), where)
	if len(unclear) > 0 {
		inside = "(" + inside + " OR " + strings.Join(unclear, " OR ") + ")"
	}
	b.loose = append(b.loose, "("+where+")")
	b.exact = append(b.exact, "("+where+")", inside)
}

// newRow is NEW as the columns of a SELECT. NEW has no affinity in a trigger, and a
// column has one in the condition of an index; only CAST gives it back.
func (b *builder) newRow() string {
	var all []string
	for _, c := range b.shape.columns {
		name := quoteIdent(c.name)
		value := "NEW." + name
		if c.affinity != "BLOB" {
			value = "CAST(" + value + " AS " + c.affinity + ")"
		}
		all = append(all, value+" AS "+name)
	}
	return strings.Join(all, ", ")
}

// unclearAs is true of values that CAST changes, or that compare in another way than a
// column would, for which the condition of an index counts as true.
func unclearAs(c column, texts bool) string {
	value := "typeof(NEW." + quoteIdent(c.name) + ")"
	switch {
	case c.affinity == "TEXT":
		return value + " = 'blob'"
	case c.affinity != "BLOB":
		return value + " IN ('text', 'blob')"
	case texts:
		return value + " IN ('integer', 'real')"
	}
	return ""
}

func (b *builder) key() key {
	k := key{exact: strings.Join(b.exact, " AND "), mixed: b.columns > 1 || b.partial || len(b.exact) > len(b.loose)}
	if len(b.soft) == 0 {
		return k
	}
	var null []string
	for _, c := range b.soft {
		null = append(null, "NEW."+quoteIdent(c)+" IS NULL")
	}
	terms := append([]string{"(" + strings.Join(null, " OR ") + ")"}, b.loose...)
	k.loose = strings.Join(append(terms, "("+k.exact+") IS NOT TRUE"), " AND ")
	return k
}
