// Package sqlmutants makes each condition of a SQL text wrong, one at a time. A test that
// notices none of them proves nothing about it.
//
// # Guarantees
//
// A condition is a comparison of two operands, a look at NULL, a look for rows, or a
// flag, where a condition may stand. Each is forced to be true and to be false, and stays
// beside what forces it: the text has the parameters that it had.
//
// # Not guaranteed
//
// It is no parser. An operand is a name, a call, a parameter, a literal or what stands in
// parentheses; a condition between two sums is not found. What is made is to be looked
// over by the database, which says if it is no SQL.
package sqlmutants

import (
	"fmt"
	"regexp"
	"strings"
)

// Mutant is a text with one condition forced.
type Mutant struct {
	Condition string // and which of those that read like it, from 1
	Forced    string // TRUE or FALSE
	Text      string
}

// String names the mutant.
func (m Mutant) String() string { return fmt.Sprintf("%s becomes %s", m.Condition, m.Forced) }

const (
	group   = `\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)`
	name    = `(?:"(?:[^"]|"")*"|[a-z_][a-z0-9_]*)`
	operand = `(?:(?:` + name + `\.)*` + name + `(?:` + group + `)?(?:::[a-z]+)?|` + group + `|\$[0-9]+|\?[0-9]*|'(?:[^']|'')*'|-?[0-9]+)`
)

// What stands before a condition. In a list behind SET, x = y is an assignment.
const before = `(?i)\b(WHERE|AND|OR|ON|IF|ELSIF|WHEN|NOT|THEN|ELSE|SELECT|:=)(\s*(?:\(\s*)*)`

var kinds = []struct {
	found *regexp.Regexp
	rows  bool // it is the word EXISTS, and what it looks at stays as it is
}{
	{found: regexp.MustCompile(before + `(` + operand + `\s*(?:<>|<=|>=|=|<|>)\s*` + operand + `|` + operand + `\s+IS\s+(?:NOT\s+)?NULL|` +
		operand + `\s+IS\s+(?:NOT\s+)?(?:DISTINCT\s+FROM\s+)?` + operand + `)`)},
	{found: regexp.MustCompile(`(?i)(,)(\s*)(` + operand + `\s+IS\s+(?:NOT\s+)?NULL)\b`)},
	{found: regexp.MustCompile(`(?i)\b(IF|WHEN|AND|NOT|:=)(\s+)((?:NOT\s+)?(?:in_[a-z]+|is_there|FOUND|shadow|(?:OLD|NEW)\.shadow))\b(?:\s*(?:$|[^=<>\s.]))`)},
	{found: regexp.MustCompile(`(?i)()()(EXISTS) \(`), rows: true},
}

// keyword begins nothing that is an operand.
var keyword = regexp.MustCompile(`(?i)^(?:SELECT|NOT|EXISTS|CASE|NULL|TRUE|FALSE|CONFLICT|IN)\b`)

// Of are the mutants of a text.
func Of(text string) (all []Mutant) {
	seen, times := map[string]bool{}, map[string]int{}
	for _, kind := range kinds {
		for at := 0; at < len(text); {
			m := kind.found.FindStringSubmatchIndex(text[at:])
			if m == nil {
				break
			}
			from, to := at+m[6], at+m[7]
			found := text[from:to]
			at = from + 1 // there may be others in its parentheses
			if !kind.rows && keyword.MatchString(found) {
				continue
			}
			condition := strings.Join(strings.Fields(found), " ")
			times[condition]++
			for _, forced := range []string{"TRUE", "FALSE"} {
				mutated := text[:from] + force(found, forced) + text[to:]
				if kind.rows {
					mutated = text[:from] + lookForced(text[from:], forced)
				}
				if !seen[mutated] {
					seen[mutated] = true
					all = append(all, Mutant{fmt.Sprintf("%s #%d", condition, times[condition]), forced, mutated})
				}
			}
		}
	}
	return all
}

func force(condition, forced string) string {
	if forced == "TRUE" {
		return "(" + condition + " OR TRUE)"
	}
	return "(" + condition + " AND FALSE)"
}

// lookForced forces the look for rows that text begins with.
func lookForced(text, forced string) string {
	depth := 0
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return force(text[:i+1], forced) + text[i+1:]
			}
		}
	}
	return text
}
