package lastword

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const digestPrefix = "sha256:"

// Digest is a SHA-256 digest: of a grant, of a payload, or of the operation root
// that names the whole piece of work of a tenure. The zero value means "none".
type Digest [sha256.Size]byte

// DigestOf is the digest of exactly these bytes. Who wants equal meaning to count
// as equal makes the bytes canonical before (RFC 8785 for JSON).
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads the spelling of [Digest.String]: "sha256:" and 64 lower-case
// hexadecimal digits, not all of them 0. Anything else is [CodeInvalid].
func ParseDigest(s string) (Digest, error) {
	var d Digest
	digits, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(d)) || strings.ToLower(digits) != digits {
		return Digest{}, badDigest(s)
	}
	// All zero means "none" and has no spelling.
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil || d.IsZero() {
		return Digest{}, badDigest(s)
	}
	return d, nil
}

func badDigest(s string) error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf("digest %q: want sha256: and 64 lower-case hexadecimal digits", clip(s))}
}

// IsZero reports whether d is "none".
func (d Digest) IsZero() bool { return d == Digest{} }

// String is "sha256:" and the lower-case hexadecimal digits, or "" for none.
func (d Digest) String() string {
	if d.IsZero() {
		return ""
	}
	return digestPrefix + hex.EncodeToString(d[:])
}
