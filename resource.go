package lastword

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxIDBytes is the largest size, in bytes, of a resource id, an owner, a
// request id and an operation id.
const MaxIDBytes = 512

// Resource is a canonical resource id: 1 to [MaxIDBytes] bytes of UTF-8 in
// segments divided by "/", with no empty segment, no "." or ".." segment and no
// control character. Byte-distinct ids are distinct resources in every back end;
// nothing is folded, trimmed or repaired (protocol §1, T11).
type Resource string

// ParseResource returns s as a Resource, or an error of [CodeInvalid] that names
// what is wrong.
func ParseResource(s string) (Resource, error) {
	if err := CheckID("resource", s); err != nil {
		return "", err
	}
	for segment := range strings.SplitSeq(s, "/") {
		switch segment {
		case "":
			return "", invalidID("resource", s, "it has an empty segment (a leading, trailing or double slash)")
		case ".", "..":
			return "", invalidID("resource", s, fmt.Sprintf("it has a segment %q", segment))
		}
	}
	return Resource(s), nil
}

// CheckID reports whether s may serve as an owner, request id or operation id:
// 1 to [MaxIDBytes] bytes of UTF-8 without control characters, compared byte by
// byte everywhere. what names the value in the error, which has [CodeInvalid].
func CheckID(what, s string) error {
	switch {
	case s == "":
		return invalidID(what, s, "it is empty")
	case len(s) > MaxIDBytes:
		return invalidID(what, s, fmt.Sprintf("it has %d bytes, more than %d", len(s), MaxIDBytes))
	case !utf8.ValidString(s):
		return invalidID(what, s, "it is not valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return invalidID(what, s, "it has a control character")
	}
	return nil
}

func invalidID(what, s, why string) error {
	const shown = 64
	if len(s) > shown {
		s = strings.ToValidUTF8(s[:shown], "") + "…"
	}
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s %q: %s", what, s, why)}
}
