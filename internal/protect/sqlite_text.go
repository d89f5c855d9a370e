package protect

import (
	"slices"
	"strings"
)

// token is one of a text of SQL. Comments and white space are none.
type token struct {
	kind tokenKind
	text string // of a name or a string what stands between its quotes
	at   int    // where it begins
}

type tokenKind int

const (
	word     tokenKind = iota // a keyword, or a name without quotes
	quoted                    // a name in quotes
	str                       // a string, which SQLite takes for a name where only that fits
	number                    // also what belongs to no other kind
	punct                     // one character
	brokenly                  // a quote or a comment without an end
)

// tokens are those of a text that SQLite has taken.
func tokens(text string) (all []token) {
	for i := 0; i < len(text); {
		t, next := nextToken(text, i)
		if next > i && t.text != "" || t.kind != number {
			all = append(all, t)
		}
		i = next
	}
	return all
}

// nextToken is the token at i, or a number without a text where there is none, and where
// to go on.
func nextToken(text string, i int) (token, int) {
	c, none := text[i], token{kind: number, at: i}
	switch {
	case strings.IndexByte(" \t\n\f\r", c) >= 0:
		return none, i + 1
	case strings.HasPrefix(text[i:], "--"):
		if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
			return none, i + n + 1
		}
		return none, len(text)
	case strings.HasPrefix(text[i:], "/*"):
		if n := strings.Index(text[i+2:], "*/"); n >= 0 {
			return none, i + n + 4
		}
		return none, len(text)
	case c == '\'' || c == '"' || c == '`' || c == '[':
		return quotedToken(text, i)
	case nameByte(c):
		end := i
		for end < len(text) && nameByte(text[end]) {
			end++
		}
		kind := word
		if c >= '0' && c <= '9' {
			kind = number
		}
		return token{kind, text[i:end], i}, end
	}
	return token{punct, text[i : i+1], i}, i + 1
}

func quotedToken(text string, i int) (token, int) {
	kind, end := quoted, text[i]
	switch end {
	case '\'':
		kind = str
	case '[':
		end = ']'
	}
	var inside strings.Builder
	for at := i + 1; at < len(text); at++ {
		if text[at] != end {
			inside.WriteByte(text[at])
			continue
		}
		if end == ']' || at+1 == len(text) || text[at+1] != end {
			return token{kind, inside.String(), i}, at + 1
		}
		inside.WriteByte(end)
		at++
	}
	return token{kind: brokenly, at: i}, len(text)
}

func nameByte(c byte) bool {
	return c >= 0x80 || c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// is reports whether t is one of these keywords or characters.
func (t token) is(any ...string) bool {
	return (t.kind == word || t.kind == punct) && slices.ContainsFunc(any, func(s string) bool { return strings.EqualFold(s, t.text) })
}

// mentions reports whether one of the tokens may be this name.
func mentions(all []token, name string) bool {
	return slices.ContainsFunc(all, func(t token) bool { return t.kind <= str && strings.EqualFold(t.text, name) })
}

// partialWhere is the condition in CREATE UNIQUE INDEX … (…) WHERE condition.
func partialWhere(text string) (string, bool) {
	depth, lists := 0, 0
	for _, t := range tokens(text) {
		switch {
		case t.kind == brokenly:
			return "", false
		case t.is("("):
			depth++
		case t.is(")"):
			if depth--; depth == 0 {
				lists++
			}
		case depth == 0 && lists == 1 && t.is("WHERE"):
			return text[t.at+len("WHERE"):], true
		}
	}
	return "", false
}

// definitions are what stands in CREATE TABLE … (…), by column; constraints of the table
// that follow go with the last one.
func definitions(text string) [][]token {
	depth := 0
	var all [][]token
	var one []token
	for _, t := range tokens(text) {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		}
		switch {
		case depth == 0 && t.is(")"):
			return append(all, one)
		case depth == 1 && t.is(",") || depth == 1 && one == nil && t.is("("):
			if t.is(",") {
				all, one = append(all, one), []token{}
			} else {
				one = []token{}
			}
		case depth > 0:
			one = append(one, t)
		}
	}
	return nil
}

// writesBeforeUpdate reports whether a trigger runs before the rows of an UPDATE change
// and may change rows by itself. Into which tables it inserts is left to its caller.
func writesBeforeUpdate(text string) (inserts []string, writes bool) {
	all := tokens(text)
	i := slices.IndexFunc(all, func(t token) bool { return t.is("ON") })
	begin := slices.IndexFunc(all, func(t token) bool { return t.is("BEGIN") })
	if i < 0 || begin < i {
		return nil, true
	}
	head := func(s string) bool { return slices.ContainsFunc(all[:i], func(t token) bool { return t.is(s) }) }
	if !head("UPDATE") || head("AFTER") || head("INSTEAD") {
		return nil, false
	}
	for at := begin + 1; at < len(all); at++ {
		if !all[at-1].is("BEGIN", ";") || all[at].is("SELECT", "END") {
			continue
		}
		if !all[at].is("INSERT") || at+2 >= len(all) || !all[at+1].is("INTO") {
			return nil, true
		}
		inserts = append(inserts, all[at+2].text)
	}
	return inserts, false
}
