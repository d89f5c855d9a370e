package fencesql_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// mutant is a text with one condition forced.
type mutant struct {
	condition string
	forced    string // TRUE or FALSE
	text      string
}

func (m mutant) String() string { return fmt.Sprintf("%s becomes %s", m.condition, m.forced) }

const operand = `(?:[a-z_][a-z0-9_.]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?(?:::[a-z]+)?|\$[0-9]+|\?[0-9]*|'[^']*'|-?[0-9]+)`

var (
	// A condition is a comparison, a look for rows, or a flag, and stands behind a word
	// that wants one: in a list behind SET it is an assignment.
	comparison = regexp.MustCompile(`(?i)\b(WHERE|AND|OR|ON|IF|WHEN|NOT|THEN|ELSE|:=)(\s*\(?\s*)(` + operand + `\s*(?:<>|<=|>=|=|<|>)\s*` + operand + `|` + operand + `\s+IS\s+(?:NOT\s+)?NULL)`)
	flag       = regexp.MustCompile(`(?i)\b(IF|WHEN|AND|:=)(\s+)((?:NOT\s+)?(?:in_[a-z]+|is_there|FOUND))\b`)
	existence  = regexp.MustCompile(`(?i)()()(EXISTS) \(`)
)

// mutants are a text with each of its conditions forced to be true, and to be false, one
// at a time.
func mutants(text string) (all []mutant) {
	seen, times := map[string]bool{}, map[string]int{}
	for _, kind := range []*regexp.Regexp{comparison, flag, existence} {
		for at := 0; at < len(text); {
			m := kind.FindStringSubmatchIndex(text[at:])
			if m == nil {
				break
			}
			from, to := at+m[6], at+m[7]
			condition := strings.Join(strings.Fields(text[from:to]), " ")
			times[condition]++
			for _, forced := range []string{"TRUE", "FALSE"} {
				with := forced
				if kind == existence { // what it looks at may stay as it is
					with = forced + " OR EXISTS"
					if forced == "FALSE" {
						with = "NOT EXISTS"
					}
				}
				mutated := text[:from] + with + text[to:]
				if !seen[mutated] {
					seen[mutated] = true
					all = append(all, mutant{fmt.Sprintf("%s #%d", condition, times[condition]), forced, mutated})
				}
			}
			at = to - 1
			if at <= from {
				at = from + 1
			}
		}
	}
	return all
}

func TestTheGeneratorFindsEveryCondition(t *testing.T) {
	text := `UPDATE t SET a = $1, b = coalesce(b, 0) WHERE x = $2 AND t.y <> coalesce(z, 0) AND
	(q IS NOT NULL OR NOT EXISTS (SELECT 1 FROM u WHERE u.k = in_k)); IF changed <> 1 THEN; IF in_flag THEN`
	var got []string
	for _, m := range mutants(text) {
		if m.forced == "TRUE" {
			c, _, _ := strings.Cut(m.condition, " #")
			got = append(got, c)
		}
	}
	want := "x = $2|t.y <> coalesce(z, 0)|q IS NOT NULL|u.k = in_k|changed <> 1|in_flag|EXISTS"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
}
