package protect

import (
	"fmt"
	"strings"

	"github.com/lastword/lastword"
)

// Template maps a row to a resource: doc/{id}, order/{tenant}/{number}. What stands in
// braces is a column, spelt as the table spells it.
type Template struct {
	text  string
	parts []part
}

// part is a literal, or a column.
type part struct {
	text   string
	column bool
}

// ParseTemplate reads a template. Every resource that it gives is canonical or none at
// all; of two different rows only one can belong to a resource, unless their values in
// the template's columns are equal as text.
func ParseTemplate(text string) (Template, error) {
	t := Template{text: text}
	for i, segment := range strings.Split(text, "/") {
		if i > 0 {
			t.literal("/")
		}
		if err := t.segment(segment); err != nil {
			return Template{}, invalid("name the columns in braces, as in doc/{id}", "template %q: %v", text, err)
		}
	}
	if len(t.columns()) == 0 {
		return Template{}, invalid("name the columns in braces, as in doc/{id}", "template %q has no column", text)
	}
	sample := strings.Builder{}
	for _, p := range t.parts {
		if p.column {
			sample.WriteString("x")
			continue
		}
		sample.WriteString(p.text)
	}
	if _, err := lastword.ParseResource(sample.String()); err != nil {
		return Template{}, invalid("the template has to give resources", "template %q: %v", text, err)
	}
	return t, nil
}

// segment reads what stands between two slashes: at most one column, so that no two
// values of columns can run into each other.
func (t *Template) segment(s string) error {
	before, rest, found := strings.Cut(s, "{")
	if strings.Contains(before, "}") {
		return fmt.Errorf("a } without a {")
	}
	t.literal(before)
	if !found {
		return nil
	}
	column, after, closed := strings.Cut(rest, "}")
	switch {
	case !closed:
		return fmt.Errorf("a { without a }")
	case column == "" || strings.ContainsAny(column, "{\x00"):
		return fmt.Errorf("%q is no column", column)
	case strings.ContainsAny(after, "{}"):
		return fmt.Errorf("two columns in one segment")
	}
	t.parts = append(t.parts, part{text: column, column: true})
	t.literal(after)
	return nil
}

func (t *Template) literal(s string) {
	if s == "" {
		return
	}
	if n := len(t.parts); n > 0 && !t.parts[n-1].column {
		t.parts[n-1].text += s
		return
	}
	t.parts = append(t.parts, part{text: s})
}

// String is the template as it was written.
func (t Template) String() string { return t.text }

func (t Template) columns() []string {
	var all []string
	for _, p := range t.parts {
		if p.column {
			all = append(all, p.text)
		}
	}
	return all
}

// Prefix is what all resources of the template begin with, up to its last slash: "doc/"
// of doc/{id}, "" of {id}.
func (t Template) Prefix() string {
	if len(t.parts) == 0 || t.parts[0].column {
		return ""
	}
	return t.parts[0].text[:strings.LastIndex(t.parts[0].text, "/")+1]
}

// join makes an expression of the resource out of one for each column. Where a
// template has several columns a value with a slash gives none, since it could stand for
// a row with other values.
func (t Template) join(literal func(string) string, value func(column string, whole bool) string) string {
	var terms []string
	for _, p := range t.parts {
		if p.column {
			terms = append(terms, value(p.text, len(t.columns()) == 1))
			continue
		}
		terms = append(terms, literal(p.text))
	}
	return strings.Join(terms, " || ")
}

func invalid(hint, format string, args ...any) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: "protect", Message: fmt.Sprintf(format, args...), Hint: hint}
}
