package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
)

// What a development token has, in bytes.
const (
	minToken = 16
	maxToken = 512
)

// Tokens are bearer tokens for development, on loopback: whoever has one is who it is
// for. They never change. Safe for concurrent use.
type Tokens struct {
	names   []string
	digests [][sha256.Size]byte
}

// OpenTokens reads a YAML file of mode 0600, one mapping of names to tokens:
//
//	ann: 8f4dZkqv2y1cQn7w
//
// A token has 16 to 512 letters, digits and characters of - . _ ~ + / =. The error
// holds none of them.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{}
	err := readTokens(path, func(name, token string) {
		t.names = append(t.names, name)
		t.digests = append(t.digests, sha256.Sum256([]byte(token)))
	})
	if err == nil && len(t.names) == 0 {
		err = invalid("%s: it has no token", path)
	}
	return t, named(err, "open tokens")
}

// Token is a caller's own.
type Token struct {
	name, secret string
}

// OpenToken reads the file of a caller: as [OpenTokens] does, with one token.
func OpenToken(path string) (Token, error) {
	n, t := 0, Token{}
	err := readTokens(path, func(name, secret string) { n, t = n+1, Token{name, secret} })
	if err == nil && n != 1 {
		err = invalid("%s: it has %d tokens, want one: the caller's own", path, n)
	}
	if err != nil {
		return Token{}, named(err, "open token")
	}
	return t, nil
}

// Name is whom it is for; "" if it is none.
func (t Token) Name() string { return t.name }

// Bearer is what a request carries. It is a secret.
func (t Token) Bearer() string { return "Bearer " + t.secret }

// String keeps the secret out of logs and errors.
func (t Token) String() string { return "token of " + t.name }

// GoString is String.
func (t Token) GoString() string { return t.String() }

func readTokens(path string, take func(name, token string)) error {
	text, err := readFile(path, true)
	if err != nil {
		return err
	}
	members, err := yamlMapping(text)
	if err != nil {
		// What the parser says may quote what it has met.
		return invalid("%s: want a mapping of names to tokens", path)
	}
	known := map[string]bool{}
	for _, m := range members {
		if err := lastword.CheckID("name", m.name); err != nil || strings.HasPrefix(m.name, "spiffe://") {
			return invalid("%s: line %d: its name cannot be a token's owner", path, m.line)
		}
		token, err := yamlText(m.value)
		if err == nil {
			err = checkToken(token)
		}
		if err != nil || known[token] {
			return invalid("%s: line %d: want a token of its own of %d to %d letters, digits and - . _ ~ + / =", path, m.line, minToken, maxToken)
		}
		known[token] = true
		take(m.name, token)
	}
	return nil
}

func checkToken(s string) error {
	bad := func(r rune) bool {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !plain && !strings.ContainsRune("-._~+/=", r)
	}
	if len(s) < minToken || len(s) > maxToken || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("no token")
	}
	return nil
}

// Owner is whom the token of a request is for, given what [Token.Bearer] makes. It takes
// the same time whichever it is, and whether or not it is known.
func (t *Tokens) Owner(request string) (name string, ok bool) {
	token, ok := strings.CutPrefix(request, "Bearer ")
	if !ok {
		return "", false
	}
	digest := sha256.Sum256([]byte(token))
	found := -1
	for i := range t.digests {
		same := subtle.ConstantTimeCompare(digest[:], t.digests[i][:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return "", false
	}
	return t.names[found], true
}
