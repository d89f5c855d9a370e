package grant

import (
	"strings"
	"unicode/utf8"
)

// encoding/json takes "OWNER" for "owner" and keeps the last of two members (T7),
// so header and claims have a reader of their own: one flat object whose members
// are strings and plain decimal numbers.

// member is one member of the format: its exact name and what it holds.
type member struct {
	name   string
	number bool
}

// value is what a member held.
type value struct {
	text string
	num  uint64
}

// scanner reads one flat JSON object without white space.
type scanner struct {
	in string
	at int
}

// scanObject reads in, which must be one object with exactly these members in any
// order, into out, by the members' positions. There are at most 64 members.
func scanObject(in string, members []member, out []value) *Refusal {
	s := scanner{in: in}
	if !s.take('{') {
		return &Refusal{Reason: ReasonMalformed}
	}
	var seen uint64
	for first := true; !s.take('}'); first = false {
		if !first && !s.take(',') {
			return &Refusal{Reason: ReasonMalformed}
		}
		i, why := s.name(members)
		if why != nil {
			return why
		}
		if seen&(1<<i) != 0 {
			return &Refusal{Reason: ReasonDuplicateMember}
		}
		seen |= 1 << i
		if out[i], why = s.value(members[i].number); why != nil {
			return why
		}
	}
	switch {
	case s.at != len(in):
		return &Refusal{Reason: ReasonMalformed}
	case seen != 1<<len(members)-1:
		return &Refusal{Reason: ReasonMissingMember}
	}
	return nil
}

func (s *scanner) peek() byte {
	if s.at == len(s.in) {
		return 0
	}
	return s.in[s.at]
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// name reads a member's name and the colon, and returns its position.
func (s *scanner) name(members []member) (int, *Refusal) {
	if s.peek() != '"' {
		return 0, &Refusal{Reason: ReasonMalformed}
	}
	name, why := s.text()
	if why != nil {
		return 0, why
	}
	if !s.take(':') {
		return 0, &Refusal{Reason: ReasonMalformed}
	}
	for i := range members {
		if members[i].name == name {
			return i, nil
		}
	}
	return 0, &Refusal{Reason: ReasonUnknownMember}
}

func (s *scanner) value(number bool) (value, *Refusal) {
	switch c := s.peek(); {
	case c == '{' || c == '[':
		return value{}, &Refusal{Reason: ReasonTooDeep}
	case number:
		n, why := s.number()
		return value{num: n}, why
	case c == '"':
		text, why := s.text()
		return value{text: text}, why
	case c == 0:
		return value{}, &Refusal{Reason: ReasonMalformed}
	}
	return value{}, &Refusal{Reason: ReasonValue}
}

// text reads a string. Raw control characters and bytes that are not UTF-8 are no
// JSON; an escape that the signer would not have written is not canonical.
func (s *scanner) text() (string, *Refusal) {
	s.at++ // the opening quote, which the caller saw
	start, escaped := s.at, false
	for s.at < len(s.in) {
		switch c := s.in[s.at]; {
		case c == '"':
			text := s.in[start:s.at]
			s.at++
			if !utf8.ValidString(text) {
				return "", &Refusal{Reason: ReasonMalformed}
			}
			if escaped {
				text = unescape(text)
			}
			return text, nil
		case c < ' ':
			return "", &Refusal{Reason: ReasonMalformed}
		case c == '\\':
			s.at++
			if next := s.peek(); next != '"' && next != '\\' {
				return "", &Refusal{Reason: ReasonNotCanonical}
			}
			escaped = true
		}
		s.at++
	}
	return "", &Refusal{Reason: ReasonMalformed}
}

// unescape removes the backslash before a quote or a backslash.
func unescape(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// number reads a number in its only spelling. It takes in everything that could
// belong to another spelling, so that 1.0 is a bad number and not a 1 before
// something malformed.
func (s *scanner) number() (uint64, *Refusal) {
	start := s.at
	for s.at < len(s.in) && s.in[s.at] != ',' && s.in[s.at] != '}' {
		s.at++
	}
	digits := s.in[start:s.at]
	if digits == "" || len(digits) > 16 || digits[0] == '0' && len(digits) > 1 {
		return 0, &Refusal{Reason: ReasonNumber}
	}
	var n uint64
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, &Refusal{Reason: ReasonNumber}
		}
		n = n*10 + uint64(digits[i]-'0')
	}
	return n, nil
}
